"""The SQLite export of Nsight Systems, of every generation."""
