"""A fleet: the captures that patterns name, the workers that read them, what is kept of each, and all together."""

from nightsight.fleet.cluster import LOCAL, Cluster, done, reason
from nightsight.fleet.overall import survey_of
from nightsight.fleet.places import REPORT, InputFile, at_hand, digest, found
from nightsight.fleet.store import Packed, Store, packed, unpacked
from nightsight.fleet.summary import summary_of

__all__ = [
    "LOCAL",
    "REPORT",
    "Cluster",
    "InputFile",
    "Packed",
    "Store",
    "at_hand",
    "digest",
    "done",
    "found",
    "packed",
    "reason",
    "summary_of",
    "survey_of",
    "unpacked",
]
