"""The contents of reports/: run folders, the noise between repeated runs, and files next to captures."""
