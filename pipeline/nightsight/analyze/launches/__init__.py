"""Launches: what they cost on the CPU and how long they wait."""
