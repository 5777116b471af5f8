"""Reads reports and CSV pages of Nsight Compute."""
