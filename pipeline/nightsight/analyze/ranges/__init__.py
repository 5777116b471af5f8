"""NVTX ranges: the work that belongs to them, their repetitions, and the calls and marks inside."""
