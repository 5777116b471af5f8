"""Resources of the process: threads, temporary folders, signals, and the files that are shipped with the package."""
