"""What this process asks of its machine: threads, processes, folders, signals, and files of the package."""
