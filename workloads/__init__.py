"""Annotated GPU workloads and the runner they share. Nothing here imports `nightsight`, nor the reverse."""
