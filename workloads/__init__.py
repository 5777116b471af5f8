"""Annotated GPU workloads and the runner they share. They do not import `nightsight`, and it does not import them."""
