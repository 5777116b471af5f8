"""Reads rows of an nsys export: resolves names and GPU numbers, drops impossible rows and reports how many."""

from collections.abc import Collection, Mapping
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.captures import EXPORT_AGAIN
from nightsight.errors import CaptureError
from nightsight.model.report import Finding
from nightsight.read.sqlite import Database
from nightsight.tables import AS_RECORDED, Details, Frame, are_dense, categorical
from nightsight.units import counted

KERNEL: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
RUNTIME: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
NVTX: Final = "NVTX_EVENTS"
SESSION: Final = "ANALYSIS_DETAILS"

OF_PROCESS: Final = ~0xFFFFFF
"""The mask of the process in a global id: bits 24 and above."""
# 104 days, or 9 petabytes: later times and larger sizes are damage, and their sums would overflow
LIMIT: Final = 1 << 53
"""In ns and in bytes."""
# CUPTI counts correlation ids in 32 bits
_IDS: Final = 1 << 32
# times count from the start of the session; some events end while it stops
_AFTER_STOP_NS: Final = 10**9
# tables that show which processes use CUDA, and the column to look at
_PROCESSES: Final = {RUNTIME: "globalTid", KERNEL: "globalPid", "CUPTI_ACTIVITY_KIND_MEMCPY": "globalPid"}
_TIMES: Final = {"start_ns": "start", "end_ns": "end"}
_ON_STREAM: Final = {
    **_TIMES,
    "process": "globalPid",
    "ordinal": "deviceId",
    "context": "contextId",
    "stream": "streamId",
    "correlation": "correlationId",
}


_CAPTURE_AGAIN: Final = "Capture again. If it happens again, the profiler lost or mixed up events."
_IDS_REPEAT: Final = "Capture a shorter part of the program: ids repeat after 4 billion calls."
_NAMELESS: Final = Finding(
    "damaged_names",
    "warning",
    "{count:,} names of this export are missing",
    "The kernels, calls or ranges that use them are shown without a name and summed up together.",
    "Export the report again, without --tables.",
)
_DAMAGED: Final = Finding(
    "damaged_events",
    "warning",
    "{count:,} of {total:,} rows of {source} were left out",
    "Their start, end, size or id is missing or impossible.",
    _CAPTURE_AGAIN,
)
_IMPOSSIBLE: Final = Finding(
    "impossible_times",
    "warning",
    "{count:,} of {total:,} rows of {source} were left out",
    "Their times are wrong: they end long after the capture ended, {end_s:,.1f} s after its start.",
    _CAPTURE_AGAIN,
)
_INCOMPLETE: Final = Finding(
    "incomplete_table",
    "error",
    "{source} has {count:,} rows too few or too many",
    "The number of rows and the id of the last row differ: the file is damaged, or rows were deleted. Counts and sums "
    "in this report are wrong.",
    EXPORT_AGAIN,
)
_REPEATED: Final = Finding(
    "repeated_events",
    "warning",
    "{count:,} rows of {source} are duplicates",
    "They have the same time, place and id as another row. Each event is counted once.",
    EXPORT_AGAIN,
)
_AMBIGUOUS: Final = Finding(
    "ambiguous_calls",
    "warning",
    "{calls} the correlation id of another call",
    "It is unknown which of them launched the work with that id; it is assigned to the first. Launch overhead and the "
    "ranges that own this work may be wrong.",
    _IDS_REPEAT,
)
_AMBIGUOUS_KERNELS: Final = Finding(
    "ambiguous_kernels",
    "warning",
    "{kernels} the correlation id of another kernel",
    "No CUDA graph launched them, and other calls launch only one kernel. All are assigned to the call with that id: "
    "launch overhead and the ranges that own this work may be wrong.",
    _IDS_REPEAT,
)


def payload_of(database: Database, schema: str = "main") -> str:
    """Return the SQL expression for the payload of a row of NVTX_EVENTS: JSON, or ''; "" if it has no payloads.

    An export has them if it was made with --include-json=true.
    """
    registered = f'(SELECT value FROM {schema}."StringIds" WHERE id = "jsonTextId")'  # noqa: S608
    expressions = {"jsonText": '"jsonText"', "jsonTextId": registered}
    present = [text for column, text in expressions.items() if column in database.columns[NVTX]]
    return f"COALESCE({', '.join(present)}, '')" if present else ""


class Export:
    """An export while it is read: its strings, what was traced, and findings about rows that were dropped."""

    def __init__(self, database: Database, *, details: Details = True) -> None:
        self.database = database
        self.details = details
        self.as_recorded = isinstance(details, frozenset) and AS_RECORDED in details
        self.strings = self._strings()
        self.traced = self.metadata("META_DATA_CAPTURE").get("CAPTURE_EVENT_TYPE", [])
        self.findings: list[Finding] = []
        self.unresolved: set[int] = set()
        self.untimed: list[Frame] = []
        self.renumbered = self._renumbered()
        self.session_end = self._session_end()

    # -- rows -----------------------------------------------------------------------------------------------------

    def fetch(self, source: str, columns: Mapping[str, str], *, nullable: Collection[str] = ()) -> Frame:
        """Fetch integer columns, given as our name: theirs; the index is the row in the export.

        `nullable` columns (our names) may be absent from this schema version, or NULL. Rows with NULL in any other
        column are dropped, with a finding. CaptureError if another column is absent.
        """
        present = self.database.columns[source]
        absent = {theirs for ours, theirs in columns.items() if theirs not in present and ours not in nullable}
        if absent:
            raise self._strange(source, f"has no column {', '.join(sorted(absent))}")
        chosen = {ours: f'"{theirs}"' if theirs in present else "NULL" for ours, theirs in columns.items()}
        frame = self.database.numbers(source, chosen)
        if lost := self.database.last_row(source) - len(frame):
            self.findings.append(_INCOMPLETE.filled(source=source, count=abs(lost)))
        lacking = [ours for ours in columns if ours not in nullable and frame[ours].hasnans]
        return self._keep(source, frame, frame[lacking].notna().all(axis=1).to_numpy(dtype=bool))

    def spans(self, source: str, columns: Mapping[str, str], *, nullable: Collection[str] = ()) -> Frame:
        """Fetch columns, and start and end, of rows with possible times."""
        frame = self.fetch(source, {**_TIMES, **columns}, nullable=nullable)
        return self.keep_possible(source, frame)

    def keep_possible(self, source: str, frame: Frame) -> Frame:
        """Drop rows that end before they start, and rows whose times, sizes or ids are out of range."""
        start, end = frame["start_ns"], frame["end_ns"]
        possible = (start >= 0) & (end >= start) & (end < LIMIT)
        if "bytes" in frame:
            possible &= (frame["bytes"] >= 0) & (frame["bytes"] < LIMIT)
        if "correlation" in frame:
            possible &= frame["correlation"].fillna(0) < _IDS
        return self._keep_in_session(source, self._keep(source, frame, possible.to_numpy(dtype=bool)))

    def on_stream(self, source: str, columns: Mapping[str, str], *, nullable: Collection[str] = ()) -> Frame:
        """Fetch spans of GPU work with their process and GPU; rows with impossible times go to `untimed`.

        Repeated rows are dropped, with a finding.
        """
        nullable = ("process", "correlation", *nullable)
        every = self.fetch(source, {**_ON_STREAM, **columns}, nullable=nullable)
        every = every.assign(process=self._processes(every["process"]))
        every = every.assign(device=self.devices(every))
        # CUPTI writes 0 and 0 for times that it could not collect
        timed = (every["end_ns"] != 0).to_numpy(dtype=bool)
        frame = self.keep_possible(source, every if self.as_recorded else self._keep(source, every, timed))
        if len(frame) < len(every):
            lost = every[~every.index.isin(frame.index)]
            self.untimed.append(lost.assign(start_ns=None))
        return self.without_repeats(source, frame)

    def without_repeats(
        self,
        source: str,
        frame: Frame,
        same: Collection[str] = (),
        where: "pd.Series[bool] | None" = None,
    ) -> Frame:
        """Drop rows that are equal to another one (in the columns `same`, if given; only rows `where` that holds).

        Adds a finding. `nsys stats` counts such rows, so they stay if rows are wanted as recorded.
        """
        if self.as_recorded:
            return frame
        looked_at = frame if where is None else frame[where]
        # few rows start at the same time, so compare only those
        together = looked_at[repeats(looked_at["start_ns"])]
        again = together.index[together.duplicated(list(same) or None)]
        if not len(again):
            return frame
        self.findings.append(_REPEATED.filled(source=source, count=len(again)))
        return frame.drop(index=again)

    def check_ids(self, calls: Frame) -> None:
        """Add a finding if calls share a correlation id; a driver call may share that of the runtime call around it."""
        shared = calls[repeats(calls["correlation"].fillna(0))]
        # 0 means no id
        shared = shared[(shared["correlation"] > 0) & shared["class"].notna()]
        # to save its buffers, nsys waits for the GPU under the id of the call that asked for it
        names = pd.Series(self.text(shared["name_id"])).astype("str")
        saving = shared["correlation"][names.str.contains("ProfilerStop").to_numpy()]
        shared = shared[~shared["correlation"].isin(saving)]
        if ambiguous := int(shared.duplicated(["process", "class", "correlation"]).sum()):
            calls_have = counted(ambiguous, f"call in {RUNTIME} has", f"calls in {RUNTIME} have")
            self.findings.append(_AMBIGUOUS.filled(calls=calls_have))

    def check_launches(self, kernels: Frame) -> None:
        """Add a finding if kernels on one GPU share a correlation id although no graph launched them."""
        shared = kernels[repeats(kernels["correlation"].fillna(0))]
        # rows that are equal in all columns are repeated events, which on_stream reports
        shared = shared[(shared["correlation"] > 0) & shared["graph_node"].isna()].drop_duplicates()
        if ambiguous := int(shared.duplicated(["process", "device", "correlation"]).sum()):
            kernels_have = counted(ambiguous, f"kernel in {KERNEL} has", f"kernels in {KERNEL} have")
            self.findings.append(_AMBIGUOUS_KERNELS.filled(kernels=kernels_have))

    def devices(self, frame: Frame) -> "pd.Series[int]":
        """Return the GPU of the machine for each row: CUDA_VISIBLE_DEVICES renumbers GPUs within a process."""
        own = devices = frame["ordinal"].astype("int64")
        for process, ordinal, device in self.renumbered:
            devices = devices.mask((own == ordinal) & (process_id(frame["process"]) == process), device)
        return devices

    def _keep(self, source: str, frame: Frame, good: np.ndarray[Any, Any]) -> Frame:
        if good.all():
            return frame
        self.findings.append(_DAMAGED.filled(source=source, count=int((~good).sum()), total=len(frame)))
        return frame[good]

    def _keep_in_session(self, source: str, frame: Frame) -> Frame:
        late = (frame["end_ns"] > self.session_end).to_numpy(dtype=bool)
        if not late.any() or not self._is_session_known():
            return frame
        end_s = (self.session_end - _AFTER_STOP_NS) / 1e9
        count, total = int(late.sum()), len(frame)
        self.findings.append(_IMPOSSIBLE.filled(source=source, count=count, total=total, end_s=end_s))
        return frame[~late]

    def _session_end(self) -> int:
        """Return the latest possible end of an event, from the later of two columns that give the session's end."""
        columns = {"length": "duration", "stop": "stopTime"}
        if not set(columns.values()) <= self.database.columns.get(SESSION, frozenset()):
            return LIMIT
        ends = self.fetch(SESSION, columns, nullable=columns).max().dropna()
        latest = max((int(end) for end in ends), default=0)
        return min(latest + _AFTER_STOP_NS, LIMIT) if latest > 0 else LIMIT

    def _is_session_known(self) -> bool:
        """Whether most events lie inside the session; if not, its times do not belong to this capture."""
        source = next((source for source in (RUNTIME, KERNEL) if source in self.database.columns), None)
        if source is None:
            return False
        inside = {"share": f'AVG("end" <= {self.session_end})'}
        share = self.database.fetch(source, inside)["share"][0].as_py()
        return share is not None and share > 0.5

    def _processes(self, process: "pd.Series[Any]") -> "pd.Series[Any]":
        """Return the key of each process; where it is missing, use the only process that uses CUDA, if there is one."""
        process = process & OF_PROCESS
        if not process.hasnans:
            return process
        processes: set[int] = set()
        for source, column in _PROCESSES.items():
            if column in self.database.columns.get(source, ()):
                ids = self.database.fetch(source, {"process": f'DISTINCT "{column}" & {OF_PROCESS}'})["process"]
                processes |= {int(each) for each in ids.to_pylist() if each is not None}
        return process.fillna(processes.pop()) if len(processes) == 1 else process

    def _strange(self, source: str, what: str) -> CaptureError:
        return CaptureError(
            f"{self.database.path.name}: table {source} {what}",
            "This is not an export of nsys, or its version is not supported yet: please report it.",
        )

    def text(self, ids: "pd.Series[Any]") -> "pd.Categorical[Any]":
        """Look up ids in StringIds; unknown ids become empty and are counted in `unresolved`."""
        codes, unique = pd.factorize(ids.fillna(-1).to_numpy(dtype=np.int64))
        texts = self.strings.reindex(unique)
        self.unresolved |= set(unique[texts.isna().to_numpy()].tolist()) - {-1}
        values = texts.fillna("").to_numpy(dtype=object)
        return categorical(values, codes)

    def _strings(self) -> "pd.Series[str]":
        if "StringIds" not in self.database.columns:
            if {KERNEL, RUNTIME} & self.database.columns.keys():
                raise self._strange("StringIds", "is missing, so nothing in this export has a name")
            return pd.Series([], dtype=object)
        ids = self.database.fetch("StringIds", {"id": "id"})["id"].to_numpy()
        strings = pd.Series(self.database.texts("StringIds", "value"), index=ids, dtype=object)
        return strings[~strings.index.duplicated()]

    def _renumbered(self) -> list[tuple[int, int, int]]:
        """Return (process id, ordinal, device) for each GPU whose number in a process is not that on the machine."""
        source, columns = "TARGET_INFO_CUDA_DEVICE", {"process": "pid", "ordinal": "cudaId", "device": "gpuId"}
        if source not in self.database.columns:
            return []
        devices = self.fetch(source, columns, nullable=("device",)).dropna()
        return list(devices[devices["ordinal"] != devices["device"]].itertuples(index=False, name=None))

    def metadata(self, *sources: str) -> dict[str, list[str]]:
        """Read a name/value table, under whichever of the names this schema version uses."""
        values_of: dict[str, list[str]] = {}
        for source in sources:
            if source in self.database.columns:
                names, values = (self.database.texts(source, column) for column in ("name", "value"))
                for name, value in zip(names, values, strict=True):
                    values_of.setdefault(name, []).append(value)
        return values_of

    def add_findings(self, part: "Export") -> None:
        """Add the findings of a part of this export that was read separately."""
        self.findings += part.findings
        self.unresolved |= part.unresolved
        self.untimed += part.untimed

    def all_findings(self) -> tuple[Finding, ...]:
        """Return all findings about this export."""
        nameless = [_NAMELESS.filled(count=len(self.unresolved))] if self.unresolved else []
        return (*self.findings, *nameless)


def repeats(values: "pd.Series[Any]") -> np.ndarray[Any, Any]:
    """Return where a value occurs more than once."""
    numbers = values.to_numpy(dtype=np.int64)
    if are_dense(numbers):
        places = numbers - numbers.min()
        are_repeated: np.ndarray[Any, Any] = (np.bincount(places) > 1)[places]
        return are_repeated
    # the profiler writes in almost ascending order, which numpy sorts fast; then equal values are next to each other
    order = None if (numbers[1:] >= numbers[:-1]).all() else np.argsort(numbers, kind="stable")
    ordered = numbers if order is None else numbers[order]
    is_same = ordered[1:] == ordered[:-1]
    flags: np.ndarray[Any, Any] = (np.append(False, is_same) | np.append(is_same, False))[: len(numbers)]
    if order is not None:
        flags[order] = flags.copy()
    return flags


def process_id(ids: "pd.Series[Any]") -> np.ndarray[Any, Any]:
    """Return the process id in global ids: bits 24-47 (NVIDIA's export documentation); 0 where the id is missing."""
    return ids.fillna(0).to_numpy(dtype=np.int64) >> 24 & 0xFFFFFF
