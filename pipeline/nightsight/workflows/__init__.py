"""The work of each command: the order of its stages, and the files that it writes."""
