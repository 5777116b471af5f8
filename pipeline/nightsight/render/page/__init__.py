"""The page of a report: its content, and its rendering as one HTML file."""

from typing import Final

MOST_BYTES: Final = 1_500_000
"""The default of the size limit of a page."""
