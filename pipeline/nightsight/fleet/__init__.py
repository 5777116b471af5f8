"""A fleet: finding captures by patterns, their summaries, and the results for all."""

from nightsight.fleet.overall import fleet_of
from nightsight.fleet.places import REPORT, InputFile, digest, find_files, local_copy
from nightsight.fleet.store import Packed, Store, pack, unpack
from nightsight.fleet.summary import summary_of

__all__ = [
    "REPORT",
    "InputFile",
    "Packed",
    "Store",
    "digest",
    "find_files",
    "fleet_of",
    "local_copy",
    "pack",
    "summary_of",
    "unpack",
]
