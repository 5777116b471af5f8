"""The results of many nights, kept in a folder or at a URL, and their changes over time."""

from nightsight.history.levels import LEAST_NIGHTS, NIGHTS
from nightsight.history.rows import HistoryRow, key_of, row_of, time_of
from nightsight.history.store import ATTRIBUTES, HistoryRows, append, read_rows
from nightsight.history.trend import trends

__all__ = [
    "ATTRIBUTES",
    "LEAST_NIGHTS",
    "NIGHTS",
    "HistoryRow",
    "HistoryRows",
    "append",
    "key_of",
    "read_rows",
    "row_of",
    "time_of",
    "trends",
]
