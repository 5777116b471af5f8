"""What this process asks of its machine: threads, temporary folders, signals, and files that came with the package."""
