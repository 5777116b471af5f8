"""PyTorch operators: the work that each does, and how close to the peaks of the GPU it comes."""
