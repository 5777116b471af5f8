"""The rows of a history: one line of JSON per night of a workload, with nothing of the machine beyond its kind.

A row holds the values of all runs that were added together: gate metrics, and the kernels that take most time. Its id
is a digest of its content, so that a line that two branches have, or that was added twice, counts once, and one that
was edited is noticed.
"""

import datetime as dt
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from math import isfinite
from typing import Any, Final

from nightsight.errors import CaptureError
from nightsight.model.compare import Measures
from nightsight.model.history import Key, digest

FORMAT: Final = 1
KINDS: Final = ("gate", "kernel")
"""Kinds of measures that are kept."""
MOST_KERNELS: Final = 50
_MOST_NAME: Final = 160
_VERSIONS: Final = ("driver", "torch", "collector_version", "python")
Values = Mapping[str, Mapping[str, tuple[float, ...]]]
"""The values of each run, by kind and name."""


@dataclass(frozen=True)
class HistoryRow:
    """One line: the runs of a workload that were added together. link, proof: see Night."""

    workload: str
    key: Key
    time: str
    values: Values = field(hash=False)
    commit: str = ""
    link: str = ""
    versions: Mapping[str, str] = field(default_factory=dict, hash=False)
    flags: tuple[str, ...] = ()
    proof: str = ""

    @property
    def id(self) -> str:
        """A digest of all but the link, which may differ when the same runs are added again."""
        content = {name: value for name, value in self._document().items() if name != "link"}
        return digest(json.dumps(content, sort_keys=True), 16)

    @property
    def file(self) -> str:
        """The file of the row, below the folder of the history: one for each workload and key."""
        key = digest(json.dumps(asdict(self.key), sort_keys=True), 8)
        gpu = _slug(self.key.gpu_name)
        return f"{_slug(self.workload, always=False)}/{gpu}-{key}.jsonl"

    def line(self) -> str:
        """Return the row as a line of JSON."""
        document = {"format": FORMAT, "id": self.id, **self._document()}
        return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n"

    def _document(self) -> dict[str, Any]:
        key = {name: value for name, value in asdict(self.key).items() if value}
        document = {**vars(self), "key": key, "versions": dict(self.versions), "flags": list(self.flags)}
        return {name: value for name, value in document.items() if value}


def row_of(runs: Sequence[Measures], *, link: str = "", proof: str = "", now: dt.datetime) -> HistoryRow:
    """Return the row of runs that were measured together; `now` is its time if no run says when it began.

    They are of one workload, machine and commit. Those that were throttled, or shared their GPU, count only if all
    were. CaptureError if there is no number to keep.
    """
    undisturbed = [run for run in runs if not _flags(run)]
    counted = undisturbed or list(runs)
    values = _values_by_kind(counted)
    if not any(values.values()):
        raise CaptureError(f"{runs[0].source} has no number to keep", "Check in its report that anything was captured.")
    times = sorted(filter(None, map(time_of, counted)))
    versions = {name: getattr(runs[0].environment, name) for name in _VERSIONS}
    return HistoryRow(
        runs[0].workload,
        key_of(runs[0]),
        times[0] if times else _iso(now.isoformat()),
        values,
        runs[0].environment.commit,
        link,
        {name: version for name, version in versions.items() if version},
        () if undisturbed else tuple(sorted({flag for run in runs for flag in _flags(run)})),
        proof,
    )


def key_of(run: Measures) -> Key:
    """Return what must be equal for runs to be one series."""
    return Key.of(run.environment, run.conditions, run.parameters)


def time_of(run: Measures) -> str:
    """Return when a run began, "" if unknown."""
    return _iso(run.started) or _iso(run.environment.captured_utc)


def row_from(line: str) -> HistoryRow:
    """Read a line; ValueError says in words what is wrong with it."""
    try:
        document = json.loads(line, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        raise ValueError("not JSON: truncated or edited") from None
    if not isinstance(document, dict) or not isinstance(document.get("format"), int):
        raise ValueError("not a row of a history")
    if document["format"] > FORMAT:
        raise ValueError(f"format {document['format']}, written by a newer nightsight")
    texts = {name: document.get(name, "") for name in ("workload", "time", "commit", "link", "proof")}
    parts = {name: document.get(name, {}) for name in ("key", "versions")}
    flags = document.get("flags", [])
    strings = [*texts.values(), *(text for part in parts.values() if isinstance(part, dict) for text in part.values())]
    if not (
        all(isinstance(part, dict) for part in parts.values())
        and isinstance(flags, list)
        and all(isinstance(text, str) for text in (*strings, *flags))
        and texts["workload"]
    ):
        raise ValueError("a field has the wrong type")
    key_fields = {each.name for each in fields(Key)}
    key = Key(**{name: text for name, text in parts["key"].items() if name in key_fields})
    values = _read_values(document.get("values"))
    texts["time"] = _iso(texts["time"])
    row = HistoryRow(**texts, key=key, values=values, versions=parts["versions"], flags=tuple(flags))
    if document.get("id", row.id) != row.id:
        raise ValueError("it was edited: its id does not match its content")
    return row


def stored_name(name: str) -> str:
    """Return the name as rows have it: a long one is cut, and its digest distinguishes it from others."""
    return name if len(name) <= _MOST_NAME else f"{name[: _MOST_NAME - 10]}…{digest(name, 8)}"


def _read_values(document: Any) -> Values:  # noqa: ANN401 (JSON)
    """Return the numbers; other values (null, nan, text) and names without numbers are omitted."""
    if not isinstance(document, dict) or not all(isinstance(part, dict) for part in document.values()):
        raise ValueError("its values are not numbers by name")
    read = {
        kind: {
            name: values
            for name, numbers in document.get(kind, {}).items()
            if (values := tuple(_valid_numbers(numbers if isinstance(numbers, list) else [numbers])))
        }
        for kind in KINDS
    }
    if not any(read.values()):
        raise ValueError("it contains no number")
    return {kind: by_name for kind, by_name in read.items() if by_name}


def _valid_numbers(values: Iterable[Any]) -> Iterable[float]:
    return (
        float(value)
        for value in values
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300 and value >= 0
    )


def _values_by_kind(runs: Sequence[Measures]) -> Values:
    """Return the values of each kind by name; of kernels those with most time, by their median over the runs."""
    kinds: dict[str, dict[str, list[float]]] = {kind: {} for kind in KINDS}
    for run in runs:
        table = run.table[run.table["kind"].isin(KINDS)]
        for kind, name, value in zip(table["kind"], table["name"], table["value"], strict=True):
            if isfinite(value) and value >= 0:
                kinds[kind].setdefault(stored_name(name), []).append(float(f"{value:.6g}"))
    largest = sorted(kinds["kernel"], key=lambda name: (-sum(kinds["kernel"][name]), name))[:MOST_KERNELS]
    kinds["kernel"] = {name: kinds["kernel"][name] for name in largest}
    return {
        kind: {name: tuple(values) for name, values in by_name.items()} for kind, by_name in kinds.items() if by_name
    }


def _flags(run: Measures) -> tuple[str, ...]:
    """Return why the numbers of a run are not representative of the program."""
    return (*["throttled"] * run.is_throttled, *["shared"] * run.is_shared)


def _iso(text: str) -> str:
    """Return a time in one form, so that times sort as text; "" for invalid times."""
    try:
        time = dt.datetime.fromisoformat(text)
        utc = time.astimezone(dt.UTC) if time.tzinfo else time.replace(tzinfo=dt.UTC)
    except (ValueError, OverflowError):
        return ""
    return f"{utc.replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def _slug(text: str, *, always: bool = True) -> str:
    """Return a name that every file system and URL takes; with a digest if it then says less, unless `always` is it."""
    plain = re.sub(r"[^a-z0-9_.-]+", "-", text.lower()).strip("-.")[:60] or "none"
    return plain if always or plain == text else f"{plain}-{digest(text, 6)}"
