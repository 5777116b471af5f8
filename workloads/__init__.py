"""Annotated GPU workloads and the runner they share. Nothing here imports `pipeline`, nor the reverse."""
