"""Reports and CSV pages of Nsight Compute."""
