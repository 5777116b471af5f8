"""The values of a fleet: the summary of each capture, and the results for many captures.

A summary consists of a few small tables, the same for every capture, so that the tables of a fleet can be concatenated
and queried with SQL. Like a report, they contain no host, user or path.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pandas as pd

from nightsight.results.categories import BUSY, IDLE, group_of
from nightsight.results.entry import NUMBER, TEXT, WHOLE, Column
from nightsight.version import VERSION

FORMAT: Final = 2
SUMMARY: Final = f"nightsight {VERSION}, summary {FORMAT}"
"""The writer of a summary. Summaries by other writers are recomputed, because their numbers may differ in meaning."""

_CAPTURE: Final = Column("capture", TEXT, "digest of the content of the file and of the requested window")
_MACHINE: Final = (
    Column("gpu", TEXT, "name of the GPU"),
    Column("mig", TEXT, "profile of the MIG slice"),
    Column("driver", TEXT, "version of the driver"),
    Column("cuda", TEXT, "version of CUDA"),
    Column("clocks", TEXT, "`locked` or `default`"),
    Column("cpu", TEXT, "name of the CPU"),
    Column("os", TEXT, "operating system"),
    Column("python", TEXT, "version of Python"),
    Column("torch", TEXT, "version of PyTorch"),
    Column("collector", TEXT, "the collector of the capture"),
    Column("collector_version", TEXT, "its version"),
)

TABLES: Final[Mapping[str, tuple[Column, ...]]] = {
    "captures": (
        _CAPTURE,
        Column("workload", TEXT, "the workload, if `nightsight profile` made the capture"),
        Column("captured_utc", TEXT, "when it was made"),
        Column("commit", TEXT, "the commit of the program"),
        Column("arguments", TEXT, "digest of the program's arguments"),
        *_MACHINE,
        Column("disturbed", TEXT, "`throttled`, `shared`, both, or empty"),
        Column("asked", TEXT, "the requested window"),
        Column("lone", WHOLE, "1 if it waits for ranks that it does not contain, else 0"),
        Column("repeated", TEXT, "the name of what repeats in the window"),
        Column("repetitions", WHOLE, "how often it repeats; 0 if nothing does"),
        Column("gpus", WHOLE, "GPUs with work in the window"),
        Column("gpu_ns", WHOLE, "GPU time: the length of the window, for each of these GPUs"),
        Column("busy_ns", WHOLE, "the part of it in which a GPU was busy"),
        Column("kernels", WHOLE, "kernels that ran"),
        Column("kernel_ns", WHOLE, "their time"),
        Column("copies", WHOLE, "copies"),
        Column("copy_ns", WHOLE, "their time"),
        Column("copied_bytes", WHOLE, "bytes that they copied"),
        Column("step_ns", NUMBER, "time of a repetition: the median, averaged over GPUs; missing if nothing repeats"),
        Column("unprofiled_step_ns", NUMBER, "the same without the profiler, if it was measured"),
    ),
    "split": (
        _CAPTURE,
        Column("group", TEXT, "`busy` or `idle`"),
        Column("category", TEXT, "as in *Where the time went* of a report"),
        Column("time_ns", WHOLE, "its part of the GPU time; the parts add up to `gpu_ns`"),
        Column("step_ns", NUMBER, "its time in a repetition: the median, averaged over GPUs"),
    ),
    "causes": (
        _CAPTURE,
        Column("rule", TEXT, "the rule of the advice"),
        Column("cause", TEXT, "the cause of lost time, without its amounts"),
        Column("action", TEXT, "what to do"),
        Column("gain_pct", NUMBER, "how much shorter a repetition becomes, or the window if nothing repeats"),
        Column("lost_ns", NUMBER, "the same in GPU time"),
    ),
    "kernels": (
        _CAPTURE,
        Column("name", TEXT, "the kernel, spelled alike for all profilers"),
        Column("family", TEXT, "its kind"),
        Column("instances", WHOLE, "number of executions"),
        Column("total_ns", WHOLE, "their time"),
    ),
}
"""The tables of a summary. `captures` has one row."""

FILES: Final = (
    Column("place", TEXT, "digest of the path of the file"),
    Column("stamp", TEXT, "digest of its size and time: if it changes, the file is read again"),
    Column("file", TEXT, "its name below the common folder of the files of its run"),
    Column("bytes", WHOLE, "its size"),
    _CAPTURE,
)
"""The table of all files ever read, next to the summaries."""

FACTS: Final[Mapping[str, str]] = {
    "workload": "Workload",
    "gpu": "GPU",
    "gpus": "GPUs in a capture",
    "mig": "MIG slice",
    "driver": "Driver",
    "cuda": "CUDA",
    "clocks": "Clock policy",
    "torch": "PyTorch",
    "python": "Python",
    "cpu": "CPU",
    "os": "Operating system",
    "collector": "Collector",
    "collector_version": "Collector version",
    "arguments": "Arguments (digest)",
    "commit": "Commit",
    "repeated": "What repeats",
    "disturbed": "Disturbed",
}
"""The columns of `captures` that the page of a fleet compares, with their titles."""
SPLIT: Final = tuple((group_of(name), name) for name in (*BUSY, *IDLE))
"""The categories of GPU time, in order."""

_TYPES: Final = {TEXT: "str", WHOLE: "int64[pyarrow]", NUMBER: "float64"}


def conform(frame: pd.DataFrame, columns: tuple[Column, ...]) -> pd.DataFrame:
    """Return a table with exactly these columns and their types; ValueError if a value cannot be converted."""
    unknown = [column.name for column in columns if column.type == TEXT and frame[column.name].hasnans]
    texts = {name: frame[name].astype("object").fillna("") for name in unknown}
    present = frame.assign(**texts)[[column.name for column in columns]]
    # most columns have their type already, and a conversion without effect costs as much as reading them
    types = {column.name: _TYPES[column.type] for column in columns}
    conversions = {name: type_ for name, type_ in types.items() if present[name].dtype != type_}
    return present.astype(conversions).reset_index(drop=True)


def empty(columns: tuple[Column, ...]) -> pd.DataFrame:
    """Return a table without rows."""
    return conform(pd.DataFrame({column.name: [] for column in columns}), columns)


@dataclass(frozen=True, eq=False)
class Summary:
    """The summary of one capture, or the concatenated summaries of many: the tables TABLES."""

    tables: Mapping[str, pd.DataFrame]

    def __getitem__(self, name: str) -> pd.DataFrame:
        return self.tables[name]


@dataclass(frozen=True)
class Failure:
    """A file that could not be read: the name that a page may show, and the reason in one line."""

    name: str
    reason: str


@dataclass(frozen=True, eq=False)
class Fleet:
    """The results for many captures. The order of the captures does not matter.

    captures: the columns of TABLES and `file`, `group`, `report` (the address of its report, "" if there is none),
    `cause` and `gain_pct` (of what costs most in it).
    common: facts that all captures share, differing: columns fact, value, captures, gpu_ns. split: group, category,
    time_ns. causes: rule, cause, others (how many other causes of that rule there are), action, captures, share_pct
    and lost_ns of all GPU time, gain_med_pct, gain_max_pct, within (its captures); those of several captures first.
    kernels: columns name, family, total_ns, time_pct, captures, instances, low_ns, med_ns, high_ns (of the mean times
    in the captures), spread_pct. outliers: columns capture, file, report, group, of (captures in its group), step_ns,
    usual_ns, change_pct, z, category, category_ns (the part of a step that differs most, and by how much), disturbed.
    judged: captures whose group is large enough to be judged. rule: how outliers are found, in words.
    """

    captures: pd.DataFrame
    common: tuple[tuple[str, str], ...]
    differing: pd.DataFrame
    split: pd.DataFrame
    causes: pd.DataFrame
    kernels: pd.DataFrame
    outliers: pd.DataFrame
    judged: int
    rule: str
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = field(default=())
