"""Finds the folders shipped with the package: inside it in a wheel, at the top of the repository in a checkout."""

from pathlib import Path


def shipped(folder: str) -> Path:
    """Return the path of `templates` or `workloads`."""
    package = Path(__file__).parents[1]
    inside = package / folder
    return inside if inside.is_dir() else package.parents[1] / folder
