"""NVTX ranges: which work they own, how they repeat, and the calls and marks inside."""
