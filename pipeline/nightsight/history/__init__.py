"""The results of many nights, kept in a folder or at a URL, and their changes over time."""

from nightsight.history.levels import LEAST_NIGHTS, NIGHTS
from nightsight.history.rows import Row, key_of, row_of, time_of
from nightsight.history.store import ATTRIBUTES, Rows, append, read_rows
from nightsight.history.trend import trends

__all__ = [
    "ATTRIBUTES",
    "LEAST_NIGHTS",
    "NIGHTS",
    "Row",
    "Rows",
    "append",
    "key_of",
    "read_rows",
    "row_of",
    "time_of",
    "trends",
]
