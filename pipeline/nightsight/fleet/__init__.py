"""A fleet: finding captures by patterns, the workers that read them, their summaries, and the results for all."""

from nightsight.fleet.cluster import LOCAL, Cluster, map_files, reason
from nightsight.fleet.overall import fleet_of
from nightsight.fleet.places import REPORT, InputFile, digest, find_files, local_copy
from nightsight.fleet.store import Packed, Store, pack, unpack
from nightsight.fleet.summary import summary_of

__all__ = [
    "LOCAL",
    "REPORT",
    "Cluster",
    "InputFile",
    "Packed",
    "Store",
    "digest",
    "find_files",
    "fleet_of",
    "local_copy",
    "map_files",
    "pack",
    "reason",
    "summary_of",
    "unpack",
]
