"""The values that are passed between stages: Capture -> Profile -> Report."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from math import inf, isfinite
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints, overload

import pandas as pd

from nightsight.errors import CaptureError, MissingTable
from nightsight.intervals import Spans
from nightsight.results.entry import Entry
from nightsight.system.parallel import thread_map
from nightsight.tables import empty
from nightsight.texts import middle_cut, printable
from nightsight.units import split

REPORT_FORMAT: Final = 1
Severity = Literal["error", "warning", "info", "advice"]
SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)
"""The worst first. Advice is about the program; the others are about the reliability of the report."""
ARGUMENTS: Final = "arguments"
"""The parameter of a report with a digest of the program's arguments, which may contain private data."""
Json = Any
"""A value of a JSON document whose type has not been checked yet."""
MAKE_AGAIN: Final = "Make it again from the capture: nightsight report FILE --format json"
"""The hint for a report.json that cannot be read."""
_REPR: Final = 1_800
_LARGEST: Final = 2**63 - 1
_SLOWED: Final = re.compile(r"slowdown|thermal|brake", re.IGNORECASE)
_IN_WORDS: Final = {
    str: "a string",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    list: "a list",
    dict: "an object",
}
_CELLS: Final = {str: "text", int: "number", float: "number", bool: "number"}


TORCH_PROFILER: Final = "torch.profiler"
"""The collector of traces of torch.profiler (Kineto)."""


@dataclass(frozen=True)
class Environment:
    """The facts about the machine and the tools that a report may contain: these fields are the allow-list.

    Hosts, users, paths, variables, command lines and serial numbers are not among them, and so never in a report.
    """

    collector: str = ""
    collector_version: str = ""
    schema_version: str = ""
    captured_utc: str = ""
    gpu: str = ""
    driver: str = ""
    cuda: str = ""
    cpu: str = ""
    os: str = ""
    python: str = ""
    torch: str = ""
    commit: str = ""


@dataclass(frozen=True, repr=False)
class Finding:
    """A fact that the reader of a report should know, and what to do about it.

    `evidence`: cases that support it; `source`: the name of the result that lists all of them. `gain_ns`: the predicted
    gain in the window, over all repetitions; `gain_pct`: in percent of the window, or of a repetition, without the
    profiler. None if unknown. `cause`: the title without its amounts; `action`: the fix in a few words; "" if the
    title contains it. `kernels`: the names of the affected kernels, those with the most time first. `proof`: what a fix
    gained when it was measured (nightsight prove), in a few words. `code`: the fix as lines to paste into the program,
    "" if none are certain. `path`: the NVTX range of the cause and those around it, outermost first; "" if it has none.
    """

    rule: str
    severity: Severity
    title: str
    detail: str
    remedy: str = ""
    evidence: tuple[str, ...] = ()
    gain_ns: int | None = None
    gain_pct: float | None = None
    source: str = ""
    cause: str = ""
    action: str = ""
    kernels: tuple[str, ...] = ()
    proof: str = ""
    code: str = ""
    path: str = ""

    def __repr__(self) -> str:
        """Return the fields that are not empty, cut to a length that fits on a screen."""
        told = (f"{name}={value!r}" for name, value in vars(self).items() if value not in ("", (), None))
        return middle_cut(f"Finding({', '.join(told)})", _REPR)

    def filled(self, **values: object) -> "Finding":
        """Return this finding with values instead of `{names}` in its title, detail and remedy."""
        title, detail, remedy = (text.format(**values) for text in (self.title, self.detail, self.remedy))
        return replace(self, title=title, detail=detail, remedy=remedy)


@dataclass(frozen=True)
class Benchmark:
    """Step times of the workload without a profiler: one value in ns per trial, each the mean over its steps."""

    step_ns: tuple[float, ...]
    steps_per_trial: int


@dataclass(frozen=True)
class Conditions:
    """The state of a GPU during a measurement, from NVML: medians of the samples taken while it was busy.

    device: its number in the machine. Clocks in MHz, including the lowest; degrees Celsius; watts; None if the driver
    does not report them. throttled: NVML's reasons for throttling, without the prefix. mig: the profile of the slice,
    "" if none. is_shared: other processes used the GPU. clock_policy: "locked" if application or locked clocks were set
    before, else "default". samples: the number of samples.
    """

    device: int
    sm_mhz: float | None = None
    lowest_sm_mhz: float | None = None
    memory_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    throttled: tuple[str, ...] = ()
    mig: str = ""
    is_shared: bool = False
    clock_policy: str = ""
    samples: int = 0

    @property
    def slowdowns(self) -> tuple[str, ...]:
        """The reasons in `throttled` that are heat or hardware faults: a busy GPU is usually at its power limit."""
        return tuple(reason for reason in self.throttled if _SLOWED.search(reason))


@dataclass(frozen=True)
class Capture:
    """The files that a collector wrote, and the facts about the run that made them; paths stay out of reports.

    `failure` is a sentence if the program failed or was stopped: the files then contain only a part of the run.
    `serving`: figures of a workload's benchmark in addition to step times, named as in `vllm bench serve`, unchecked.
    """

    workload: str
    collector: str
    files: tuple[Path, ...]
    environment: Environment = field(default_factory=Environment)
    parameters: Mapping[str, str] = field(default_factory=dict)
    benchmark: Benchmark | None = None
    findings: tuple[Finding, ...] = ()
    stages_s: Mapping[str, float] = field(default_factory=dict)
    failure: str = ""
    serving: Mapping[str, Json] = field(default_factory=dict)
    conditions: tuple[Conditions, ...] = ()


@dataclass(frozen=True, eq=False)
class Job:
    """The communication of all ranks of a job, for a profile with the other events of only some ranks.

    communication: the result of `nightsight.events.communication.communication`, without `operation`. By GPU,
    overlapping_work: when other work ran while it communicated, merged; steps: the starts and ends of its repetitions,
    in ns. pids: by process. like: by rank, the rank in the profile that represents it.
    """

    communication: pd.DataFrame
    overlapping_work: Mapping[int, Spans]
    steps: Mapping[int, Spans]
    pids: Mapping[int, int]
    like: Mapping[int, int]


@dataclass(frozen=True, eq=False)
class Profile:
    """The canonical tables of one capture (see `nightsight.tables`); `missing` gives the reason for each absent one.

    `window`: the part that its report covers, as on the command line (see `nightsight.events.window`). job: facts about
    all ranks, if these are the events of only some of them. epoch_ns: the UTC time of its time 0, by the clock of its
    machine, in ns; missing if unknown. ahead_ns: how far the wall clock there was ahead of UTC. graphs: what another
    capture, or an annotation, says of the making of its CUDA graphs: the tables `graph_nodes`, `ranges`, `api_calls`
    and `cpu_ops`, with the processes of this profile, and other clocks.
    """

    tables: Mapping[str, pd.DataFrame]
    missing: Mapping[str, str] = field(default_factory=dict)
    environment: Environment = field(default_factory=Environment)
    findings: tuple[Finding, ...] = ()
    window: str = "auto"
    job: Job | None = None
    epoch_ns: int | None = None
    ahead_ns: int | None = None
    graphs: "Profile | None" = None

    def table(self, name: str) -> pd.DataFrame:
        """Return a canonical table; MissingTable with the reason if it was not captured."""
        if name not in self.tables:
            raise MissingTable(f"no {name.replace('_', ' ')} in this capture: {self.why_missing(name)}")
        return self.tables[name]

    def recorded(self, name: str) -> pd.DataFrame:
        """Return a canonical table; without rows, and with all columns, if it was not captured."""
        return self.tables.get(name, empty(name))

    def with_rows(self, names: Iterable[str]) -> list[pd.DataFrame]:
        """Return those of the tables that have rows."""
        return [self.tables[name] for name in names if len(self.tables.get(name, ()))]

    def bounds(self, names: Iterable[str]) -> tuple[int, int] | None:
        """Return when the first event of these tables begins and the last one ends; None without events."""
        tables = self.with_rows(names)
        starts = [int(table["start_ns"].min()) for table in tables]
        ends = [int(table["end_ns"].max()) for table in tables]
        return (min(starts), max(ends)) if tables else None

    @property
    def rows(self) -> int:
        """The number of rows of all tables together."""
        return sum(map(len, self.tables.values()))

    def joined(self, added: "Profile") -> "Profile":
        """Add the tables and facts of another profile of the same program; existing ones take precedence."""
        tables = {**added.tables, **self.tables}
        own_facts = asdict(self.environment)
        environment = {name: own_facts[name] or value for name, value in asdict(added.environment).items()}
        missing = {name: why for name, why in {**added.missing, **self.missing}.items() if name not in tables}
        findings = (*self.findings, *added.findings)
        return replace(self, tables=tables, missing=missing, environment=Environment(**environment), findings=findings)

    def why_missing(self, name: str) -> str:
        """Return why a table is missing, worded for the reader."""
        return self.missing.get(name, "this kind of capture does not record them")


@dataclass(frozen=True)
class Result:
    """One table of a report. `table` is None if it could not be made; `unavailable` then gives the reason.

    An empty table means that nothing was found. `notes` are sentences to print under the table.
    """

    name: str
    title: str
    help: str
    table: pd.DataFrame | None
    unavailable: str = ""
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> pd.DataFrame:
        """The table, empty when it is unavailable."""
        return pd.DataFrame() if self.table is None else self.table


_Item = TypeVar("_Item")


class _Lazy(Sequence[_Item]):
    """Items that are computed on first use: by their position, or when all are pickled or iterated over."""

    def __len__(self) -> int:
        """Return the number of items."""
        return sum(1 for _ in self)

    @overload
    def __getitem__(self, place: int) -> _Item: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[_Item, ...]: ...
    def __getitem__(self, place: int | slice) -> _Item | tuple[_Item, ...]:
        """Return an item by its position."""
        return tuple(self)[place]

    def __reduce__(self) -> tuple[type[tuple[_Item, ...]], tuple[tuple[_Item, ...]]]:
        """Pickle all items, without the data from which they are computed."""
        return tuple, (tuple(self),)


class Results(_Lazy[Result]):
    """Results that are computed on first use: a line on a terminal needs fewer than a page.

    makers: the functions that compute the results, by name, in order. rows: the number of rows of events.
    """

    def __init__(self, makers: Mapping[str, Callable[[], Result]], rows: int) -> None:
        self._makers, self._rows = dict(makers), rows
        self.names = tuple(makers)
        self._made: dict[str, Result] = {}

    def named(self, name: str) -> Result | None:
        """Return a result by name; None if there is none."""
        maker = self._makers.get(name)
        if maker is not None and name not in self._made:
            self._made[name] = maker()
            # with the last maker, the data that all of them share is released
            self._makers.pop(name, None)
        return self._made.get(name)

    def replaced(self, makers: Mapping[str, Callable[[], Result]]) -> "Results":
        """Return these results, some of which other functions compute."""
        results = Results({**self._makers, **makers}, self._rows)
        results.names, results._made = self.names, dict(self._made)
        return results

    def continued(self, other: "Results") -> "Results":
        """Return these results; missing ones will be computed by the makers of the same names in `other`."""
        results = Results(other._makers, other._rows)
        results._made = dict(self._made)
        return results

    def make(self, names: Iterable[str]) -> None:
        """Compute some results; unknown names are ignored."""
        list(thread_map(self.named, [name for name in names if name not in self._made], rows=self._rows))

    def __iter__(self) -> Iterator[Result]:
        """Iterate over all results."""
        self.make(self.names)
        return iter([self._made[name] for name in self.names])

    def __len__(self) -> int:
        """Return the number of results."""
        return len(self.names)


def ids_of(rules: Iterable[str]) -> list[str]:
    """Return the ids of the causes of a report by their rules, in order: a number follows the first of each rule."""
    counts: Counter[str] = Counter()
    ids = []
    for rule in map(printable, rules):
        counts[rule] += 1
        ids.append(rule if counts[rule] == 1 else f"{rule}-{counts[rule]}")
    return ids


def names_of(results: Iterable[Result]) -> tuple[str, ...]:
    """Return the names of results, in order, and compute none."""
    return results.names if isinstance(results, Results) else tuple(result.name for result in results)


def find(results: Iterable[Result], name: str) -> Result | None:
    """Return the result of that name, and compute no other; None if there is none."""
    if isinstance(results, Results):
        return results.named(name)
    return next((result for result in results if result.name == name), None)


@dataclass(frozen=True)
class View:
    """One window of a capture that a reader can choose: its bounds, and its part of the report.

    Times are those of the capture. `sentence` says how it was chosen; `family` is the name of its `repetitions`.
    `split` (the table `time_split`) and `findings` (advice) are about this window. The chosen window has none, because
    the results and findings of the report are about it.
    """

    name: str
    start_ns: int
    end_ns: int
    sentence: str
    family: str = ""
    repetitions: int = 0
    is_chosen: bool = False
    split: pd.DataFrame | None = None
    findings: tuple[Finding, ...] = ()


class Windows(_Lazy[View]):
    """The windows of a report: the one that it is about, then others, which are computed on first use."""

    def __init__(self, chosen: View, others: Callable[[], Iterable[View]]) -> None:
        self._chosen, self._compute = chosen, others
        self._others: tuple[View, ...] | None = None

    def __iter__(self) -> Iterator[View]:
        """Iterate over the windows, and compute no others before they are asked for."""
        yield self._chosen
        if self._others is None:
            self._others = tuple(self._compute())
            # this releases the data from which they are computed
            self._compute = tuple
        yield from self._others


def gpu_name(device: object, ranks: Mapping[str, int] | None = None) -> str:
    """Return the name of a GPU in a report: "Rank 1" if each rank has a GPU (`Report.ranks`), else "GPU 1"."""
    rank = (ranks or {}).get(str(device))
    return f"GPU {device}" if rank is None else f"Rank {rank}"


@dataclass(frozen=True)
class Report:
    """All data of one run that is shown, compared or stored. The same input gives the same bytes.

    `unchecked`: the advice rules that could not be checked, with the reasons. `windows`: the window that all results
    are about, and others of the same capture. `ranks`: the rank of each GPU by its number, if each rank has its own
    number. `shared`: the groups of these numbers that mean the same GPU, for GPUs that ranks share.
    """

    title: str
    environment: Environment
    results: Sequence[Result]
    findings: tuple[Finding, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    benchmark: Benchmark | None = None
    stages_s: Mapping[str, float] = field(default_factory=dict)
    generator: str = ""
    unchecked: Mapping[str, str] = field(default_factory=dict)
    windows: Sequence[View] = ()
    conditions: tuple[Conditions, ...] = ()
    ranks: Mapping[str, int] = field(default_factory=dict)
    shared: tuple[tuple[int, ...], ...] = ()

    @property
    def advice(self) -> list[Finding]:
        """The findings that are advice, in order."""
        return [finding for finding in self.findings if finding.severity == "advice"]

    @property
    def chosen_window(self) -> View | None:
        """The window that the results are about; None if the report does not say it."""
        return next((view for view in self.windows if view.is_chosen), None)

    def called(self, device: object) -> str:
        """Return the name of a GPU in this report."""
        return gpu_name(device, self.ranks)

    def result(self, name: str) -> Result:
        """Return a result by name; KeyError if the report does not have it."""
        if (result := find(self.results, name)) is None:
            raise KeyError(name)
        return result

    def rows(self, entry: Entry) -> pd.DataFrame:
        """Return the table of a result; an empty frame if the report does not have it."""
        result = find(self.results, entry.name)
        return pd.DataFrame() if result is None else result.rows

    def to_json(self, verdict: Callable[[], Mapping[str, Json]] | None = None) -> str:
        """Return the report as JSON (docs/report-json.md). verdict: computes what the file says of it, for readers."""
        separate = ("results", "environment", "windows")
        fields = {name: value for name, value in vars(self).items() if name not in separate}
        fields["findings"] = [asdict(finding) for finding in self.findings]
        fields["benchmark"] = self.benchmark and asdict(self.benchmark)
        fields["conditions"] = [asdict(condition) for condition in self.conditions]
        # other windows take longest, and may be computed elsewhere meanwhile
        results = [_result_to_dict(result) for result in self.results]
        document = {
            "format": REPORT_FORMAT,
            **_without_infinite(fields),
            "environment": asdict(self.environment),
            "windows": [_view_to_dict(view) for view in self.windows],
            **({"verdict": verdict()} if verdict else {}),
            "results": results,
        }
        return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False, default=dict) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> "Report":
        """Read the output of `to_json`; CaptureError for anything else."""
        try:
            # NaN and Infinity, which `to_json` never writes, become missing numbers
            document = json.loads(text, parse_constant=_missing, parse_float=_finite, parse_int=_whole)
            if document.pop("format") != REPORT_FORMAT:
                raise CaptureError("unsupported format version of report.json", MAKE_AGAIN)
            # it follows from the rest
            document.pop("verdict", None)
            return _report_from_dict(document)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CaptureError(f"not a nightsight report.json: {error}", MAKE_AGAIN) from error


def _missing(_: str) -> None:
    """Read NaN, Infinity and -Infinity, which are not JSON, as None."""


def _finite(text: str) -> float | None:
    number = float(text)
    return number if isfinite(number) else None


def _whole(text: str) -> int | None:
    number = int(text)
    return number if abs(number) <= _LARGEST else None


def _report_from_dict(document: dict[str, Any]) -> Report:
    benchmark = document["benchmark"]
    if isinstance(benchmark, dict) and isinstance(benchmark["step_ns"], list):
        benchmark["step_ns"] = [time for time in benchmark["step_ns"] if time is not None]
    report: Report = read_as(Report, document, "the report")
    return report


def read_as(kind: Json, value: Json, what: str) -> Json:
    """Convert the JSON `value`, called `what` in messages, to the type `kind`; ValueError names the expected type.

    Supports the types of the fields of our dataclasses.
    """
    origin: Json = get_origin(kind)
    parts = get_args(kind)
    if kind is pd.DataFrame:
        return _table_of(value, what)
    if is_dataclass(kind):
        return _dataclass_of(kind, value, what)
    if origin is UnionType:
        return None if value is None else read_as(parts[0], value, what)
    if origin is Literal and value not in parts:
        raise ValueError(f"{what} is not one of {', '.join(parts)}")
    if origin in (tuple, Sequence):
        items = _a(list, value, what)
        names = (_type_name(item) or f"item {place} of {what}" for place, item in enumerate(items, start=1))
        kinds = parts if origin is tuple and ... not in parts else parts[:1] * len(items)
        return tuple(read_as(*part) for part in zip(kinds, items, names, strict=True))
    if origin is Mapping:
        return {name: read_as(parts[1], item, f"{name!r} of {what}") for name, item in _a(dict, value, what).items()}
    return value if origin else _a(kind, value, what)


def _type_name(item: Json) -> str:
    return repr(item["name"]) if isinstance(item, dict) and isinstance(item.get("name"), str) else ""


def _dataclass_of(kind: Json, document: Json, what: str) -> Json:
    hints = get_type_hints(kind)
    if unknown := _a(dict, document, what).keys() - hints.keys():
        raise ValueError(f"{what} has unknown fields: {', '.join(sorted(unknown))}")
    optional = {field.name for field in fields(kind) if (field.default, field.default_factory) != (MISSING, MISSING)}
    if lacking := hints.keys() - optional - document.keys():
        raise ValueError(f"{what} lacks {', '.join(sorted(lacking))}")
    return kind(**{name: read_as(hints[name], value, f"{name} of {what}") for name, value in document.items()})


def _a(kind: Json, value: Json, what: str) -> Json:
    """Return `value` if it has the type `kind`, otherwise raise ValueError; true and false are not numbers."""
    if not isinstance(value, (int, float) if kind is float else kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{what} is not {_IN_WORDS[kind]}")
    return value


def _without_infinite(value: Json) -> Json:
    """Return fields of a report with None for nan and infinity, which JSON does not have."""
    if isinstance(value, Mapping):
        return {name: _without_infinite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinite(item) for item in value]
    return value if not isinstance(value, float) or isfinite(value) else None


def _result_to_dict(result: Result) -> dict[str, Any]:
    return {**vars(result), "notes": list(result.notes), "table": table_json(result.table)}


def _view_to_dict(view: View) -> dict[str, Any]:
    findings = [_without_infinite(asdict(finding)) for finding in view.findings]
    return {**vars(view), "split": table_json(view.split), "findings": findings}


def table_json(table: pd.DataFrame | None) -> dict[str, Any] | None:
    """Return a table as report.json has it: missing values, NaN and infinity become None."""
    if table is None:
        return None
    columns = [_cells(column) for _, column in table.items()] if len(table) else []
    return {"columns": list(table.columns), "rows": [list(row) for row in zip(*columns, strict=True)]}


def _cells(column: "pd.Series[Any]") -> list[Json]:
    """Return the cells of a column; missing values, NaN and infinity become None."""
    # functions of Series would take several times as long, and a report has hundreds of columns
    return [
        None if is_missing or cell in (inf, -inf) else cell
        for cell, is_missing in zip(column.to_numpy(object).tolist(), pd.isna(column.array).tolist(), strict=True)
    ]


def _table_of(document: Json, what: str) -> pd.DataFrame:
    """Return the table of a result; ValueError unless rows match the columns and each column has cells of one type."""
    columns, rows = (_a(list, _a(dict, document, what)[part], f"{part} of {what}") for part in ("columns", "rows"))
    names = [_a(str, name, f"a column of {what}") for name in columns]
    if len(set(names)) < len(names):
        raise ValueError(f"{what} has a duplicate column")
    for place, row in enumerate(rows, start=1):
        if not isinstance(row, list) or len(row) != len(names):
            raise ValueError(f"row {place} of {what} does not have one cell for each of its {len(names)} columns")
    table = pd.DataFrame(rows, columns=names, dtype=object)
    for name in names:
        kinds = {_CELLS.get(type(cell), "") for cell in table[name] if cell is not None}
        if len(kinds) > 1 or not kinds <= ({"number"} if split(name)[1] else {"number", "text"}):
            expected = "numbers" if split(name)[1] else "either numbers or text"
            raise ValueError(f"column {name} of {what}: expected {expected} in all rows")
    return table.apply(_infer_type)


def _infer_type(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Keep integers as integers if some are missing; pandas would turn them into floats."""
    values = column.dropna()
    whole = len(values) < len(column) and len(values) and all(type(value) is int for value in values)
    return column.astype("int64[pyarrow]") if whole else column.infer_objects()
