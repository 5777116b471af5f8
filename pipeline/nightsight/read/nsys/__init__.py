"""Reads SQLite exports of Nsight Systems, of all schema versions."""
