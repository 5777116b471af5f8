"""Launches: their cost on the CPU and the time until they start on the GPU."""
