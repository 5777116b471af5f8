"""Reads the CSV pages that `ncu --csv` prints, by column names, from a file that may also contain other output.

`raw` has a row per launch, a column per metric, and a row of units below the header. `details` has a row per metric or
rule; it labels metrics, and a label can mean several metrics. nightsight.read.ncu.labels maps known labels to metric
names; other metrics are called `section: item: label`, numbered if a label occurs twice in a launch (`... #2`).
"""

import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np
import pandas as pd

from nightsight.captures import AS_CSV
from nightsight.errors import CaptureError
from nightsight.events.kernel_names import base_name
from nightsight.model.report import Environment, Profile
from nightsight.read.ncu.labels import LABELS
from nightsight.read.ncu.model import METRIC_COLUMNS, file_names_only, in_base_units, ncu_profile, range_path
from nightsight.read.ncu.numbers import numbers_and_words
from nightsight.tables import SHAPE, TABLES, Frame
from nightsight.texts import without_private

Rows = list[list[str]]

# recognizes such a file; also a file with only messages of ncu, which the error then quotes
CSV_PATTERN: Final = re.compile(
    rb'^==(?:PROF|WARNING|ERROR)== |"ID","Process ID",|^"Process ID","Process Name",|^"Kernel Name",".*",?$',
    re.MULTILINE,
)

_CELL: Final = r'"[^"]*(?:""[^"]*)*"'
_LETTERS: Final = r'"(?:[^"]|"")*?[^\W\d](?:[^"]|"")*"'
# A row may follow program output without a line end, but does not start inside a cell, where quotes are doubled. After
# a comma or a quote it could be part of another row, unless names of program, host and kernel follow.
_ROW: Final = re.compile(
    rf'(?:"ID","Process ID"|^"",""|(?<![,"])"\d{{1,10}}","\d{{1,10}}"'
    rf'|"\d{{1,10}}","\d{{1,10}}"(?=,{_LETTERS},{_CELL},{_LETTERS},))(?:,{_CELL})*,?(?=\r?$)',
    re.MULTILINE,
)
_ROW_START: Final = re.compile(r'(?<![,"])"\d{1,10}","\d{1,10}","')
_CELLS: Final = re.compile(r'"([^"]*(?:""[^"]*)*)"')
_MESSAGE: Final = re.compile(r"^==(WARNING|ERROR)== (.*?)\r?$", re.MULTILINE)
PUSH_POP: Final = "Push/Pop_Range"
RANGE: Final = re.compile(r'"(.*?)"(?=\s|$)')
# domain:range:payload type:payload:color type:color:message type:message; the message repeats the range's name
NAMED_RANGE: Final = re.compile(r"(?P<domain>.*?):(?P<name>.*)(?::[^:]*){5}:(?P=name)", re.DOTALL)
# a metric name, alone (--print-metric-name name) or after its label; words that start with stall_ are labels
_METRIC_NAME: Final = re.compile(r"(?:|.* \()((?!stall_)(?:\w+\.)*[a-z]\w*_[\w.]+)\)?")

# the value of a metric, and those of its instances in parentheses
_INSTANCES: Final = re.compile(r"([\d.,'\s]*)\([^()]*\)")
# the names of other columns of a raw page are a single word, or have spaces or colons
RAW_METRIC: Final = re.compile(r"(?:pmsampling:)?[\w.]+_[\w.]+")

_KERNEL: Final = "kernel"
# a metric that only graphs have
_OF_GRAPHS: Final = "launch__graph_contains_device_launch"
_OF_DETAILS: Final = ("Section Name", "Metric Name", "Metric Unit", "Metric Value")
_OF_RULES: Final = ("Rule Name", "Rule Type", "Rule Description")
_OF_SPEEDUPS: Final = ("Estimated Speedup Type", "Estimated Speedup")
_KINDS: Final = {"INF": "info", "OPT": "optimization", "WRN": "warning", "ERR": "error"}
_AGAIN: Final = f"Print it again: {AS_CSV}"
_HINTS: Final = {
    "ERR_NVGPUCTRPERM": "On that machine only administrators may read the counters: run ncu as root, or load the "
    "driver's module with NVreg_RestrictProfilingToAdminUsers=0.",
    "No kernels were profiled": "No kernel matched the filters of ncu (--kernel-name, --nvtx-include, ...).",
    "Failed to load report": "The .ncu-rep is damaged, or newer than the ncu that printed it.",
}
_NO_RULES: Final = "the raw page of ncu has no rules; the details page and the .ncu-rep have them"
_NO_LINES: Final = "the raw and details CSV pages of ncu have no machine instructions; the .ncu-rep has them"


def read_ncu_csv(path: Path) -> Profile:
    """Read a raw or details page, or both; CaptureError if the file has none, or is truncated or broken.

    A file cut exactly after a row is not detected. Kernel names are as ncu printed them, by default without some of
    their namespaces (`nightsight.events.kernel_names.unqualified`). There are no mangled names.
    """
    try:
        text = text_of(path.read_bytes())
    except OSError as error:
        raise CaptureError(f"{path.name} cannot be read: {error.strerror}", "Check path and permissions.") from error
    pages = list(_pages(path, text))
    if not pages:
        _refuse(path, text)
    launches = pd.concat([page.launches() for page in pages], ignore_index=True)
    keys = ["pid", "id"]
    if launches[[*keys, "name", *SHAPE]].drop_duplicates().duplicated(keys).any():
        # these are pages of two runs, and one of them would be lost
        raise CaptureError(
            f"{path.name} has different kernels with the same ID", "Save the pages of each run in a separate file."
        )
    launches = launches.assign(launch=pd.factorize(pd.MultiIndex.from_frame(launches[keys]))[0])
    metrics = pd.concat([page.metrics(launches) for page in pages], ignore_index=True)
    metrics = metrics.drop_duplicates(["launch", "metric", "instance"]).sort_values("launch", kind="stable")
    messages = [(0, kind.lower(), message) for kind, message in messages_of(text)]
    tables = {
        "profiled_launches": launches.drop_duplicates("launch"),
        "kernel_metrics": metrics,
        "diagnostics": Frame(messages, columns=list(TABLES["diagnostics"])),
    }
    rules = [page.rules(launches) for page in pages if page.is_details]
    if rules:
        tables["kernel_rules"] = pd.concat(rules, ignore_index=True)
    missing = {"kernel_rules": _NO_RULES, "kernel_lines": _NO_LINES}
    return ncu_profile(tables, missing, Environment(collector="ncu"))


def text_of(content: bytes) -> str:
    """Decode printed output: UTF-8, or UTF-16 as written by `>` in Windows PowerShell."""
    is_wide = content.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
    text = content.decode("utf-16" if is_wide else "utf-8-sig", errors="replace")
    # line ends as in a file opened as text
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _pages(path: Path, text: str) -> "Iterator[_CsvPage]":
    """Yield the tables of a file, each with a header and at least one row."""
    tables: list[tuple[list[str], Rows]] = []
    for cells in rows_of(path, text):
        if cells[0] == "ID":
            tables.append((cells, []))
        elif tables:
            tables[-1][1].append(cells)
        elif cells[0]:
            raise CaptureError(f"{path.name} has rows of kernels before the header", _AGAIN)
    for header, rows in tables:
        if any(cells[0] for cells in rows):
            page = _CsvPage(path.name, header, rows)
            page.check()
            yield page


def rows_of(path: Path, text: str) -> Rows:
    """Return the cells of all rows; CaptureError if a row is broken."""
    broken = CaptureError(f"{path.name} is truncated, or has a broken row", f"{_AGAIN} (from the saved report)")
    place, rows = 0, []
    for match in _ROW.finditer(text):
        if _ROW_START.search(text, place, match.start()):
            raise broken
        place = match.end()
        rows.append([cell.replace('""', '"') for cell in _CELLS.findall(match[0])])
    if _ROW_START.search(text, place):
        raise broken
    return rows


def _refuse(path: Path, text: str) -> NoReturn:
    """Raise the CaptureError for a file without kernels; it quotes ncu's own messages, or names the page."""
    messages = messages_of(text)
    if messages:
        errors = [message for kind, message in messages if kind == "ERROR"]
        quoted = " ".join(errors or [message for _, message in messages[-3:]])
        hint = next((hint for words, hint in _HINTS.items() if words in quoted), _AGAIN)
        raise CaptureError(f"{path.name} has no kernels, only messages of ncu: {quoted}", hint)
    if '"Invocations"' in text:
        raise CaptureError(f"{path.name} has only a summary over launches", f"{_AGAIN} (without --print-summary)")
    raise CaptureError(f"{path.name} has no raw or details page of ncu with kernels", _AGAIN)


def messages_of(text: str) -> list[tuple[str, str]]:
    """Return the warnings and errors of ncu, without paths."""
    return [(kind, without_private(message)) for kind, message in _MESSAGE.findall(text)]


@dataclass(frozen=True)
class _CsvPage:
    """One table: its header and its rows; the first row of a raw page has the units."""

    file: str
    header: Sequence[str]
    rows: Rows

    @cached_property
    def is_details(self) -> bool:
        """Whether this is a details page rather than a raw page."""
        return not {*_OF_DETAILS, *_OF_RULES, *_OF_SPEEDUPS}.isdisjoint(self.header)

    def check(self) -> None:
        """Raise CaptureError unless the page has all columns, and each row enough cells."""
        names = Counter(self.header)
        if duplicates := [name for name, count in names.items() if count > 1 and not RAW_METRIC.fullmatch(name)]:
            columns = ", ".join(duplicates)
            raise CaptureError(f"{self.file} has duplicate columns, unlike any page of ncu: {columns}", _AGAIN)
        # columns of rules are there if rules were requested, those of speedups in releases that estimate them
        groups = [group for group in (_OF_RULES, _OF_SPEEDUPS) if not set(group).isdisjoint(self.header)]
        expected = ["Kernel Name", *(name for group in (_OF_DETAILS, *groups) if self.is_details for name in group)]
        if absent := [name for name in expected if name not in names]:
            raise CaptureError(f"{self.file} lacks columns of a page of ncu: {', '.join(absent)}", _AGAIN)
        if not all(self._least_cells(cells) <= len(cells) <= len(self.header) for cells in self.rows):
            raise CaptureError(f"{self.file} is truncated, or a row lacks cells", _AGAIN)
        if not self.is_details and self.rows[0][0]:
            raise CaptureError(f"{self.file} lacks the row of units below its header", _AGAIN)
        if not self.is_details and any(";" in cell and _INSTANCES.fullmatch(cell) for row in self.rows for cell in row):
            # some of their values are in base units, regardless of the row of units
            raise CaptureError(f"{self.file} has instances of metrics", f"{_AGAIN} (without --print-metric-instances)")

    def _least_cells(self, cells: Sequence[str]) -> int:
        """Return the minimum number of cells of a row: that of a metric may end after its value, without rules."""
        if not self.is_details:
            return len(self.header)
        name, value = (self.header.index(f"Metric {part}") for part in ("Name", "Value"))
        return value + 1 if len(cells) > name and cells[name] else len(self.header)

    @cached_property
    def frame(self) -> Frame:
        """All rows that belong to a launch, one column per header; missing cells are empty."""
        width = len(self.header)
        rows = [cells + [""] * (width - len(cells)) for cells in self.rows if cells[0]]
        return Frame(rows, columns=list(self.header), dtype=object)

    def launches(self) -> Frame:
        """Return one row per launch of this table; process and `id` (ncu's number) identify it."""
        rows = self.frame.drop_duplicates(["Process ID", "ID"], ignore_index=True)

        def column(name: str) -> "pd.Series[str]":
            return rows[name] if name in rows else pd.Series("", index=rows.index, dtype=object)

        def path(cell: str) -> str:
            return range_path(map(_range, RANGE.findall(cell)))

        ranges = next((name for name in self.header if PUSH_POP in name), "")
        cells = zip(column("Grid Size"), column("Block Size"), strict=True)
        shapes = [_sizes(grid) + _sizes(block) for grid, block in cells]
        kinds = _kinds(rows, shapes)
        launches = Frame(
            {
                "id": rows["ID"].astype("int64"),
                "kind": kinds,
                "process": rows["Process ID"].astype("int64"),
                "pid": rows["Process ID"].astype("int64"),
                **{key: column(key.title()).map(_first_number) for key in ("device", "context", "stream")},
                "name": rows["Kernel Name"],
                "short_name": rows["Kernel Name"].map(base_name),
                "range_path": column(ranges).map(path),
                "compute_capability": column("CC"),
                **dict(zip(SHAPE, zip(*shapes, strict=True), strict=True)),
            }
        )
        # for a range or graph, ncu prints the values of one of its launches
        launches.loc[kinds != _KERNEL, ["context", "stream", *SHAPE]] = 0
        return launches

    def metrics(self, launches: Frame) -> Frame:
        """Return `kernel_metrics` of this table."""
        launch = _launch_numbers(self.frame, launches)
        rows = _label_metrics(self.frame, launch) if self.is_details else self._raw_metrics(launch)
        rows = rows.join(numbers_and_words(rows["cell"])).assign(instance="")
        return in_base_units(rows[METRIC_COLUMNS])

    def _raw_metrics(self, launch: "pd.Series[int]") -> Frame:
        positions = [position for position, name in enumerate(self.header) if RAW_METRIC.fullmatch(name)]
        names, units = ([cells[position] for position in positions] for cells in (self.header, self.rows[0]))
        count = len(self.frame)
        return Frame(
            {
                "metric": names * count,
                "unit": units * count,
                "cell": self.frame.iloc[:, positions].to_numpy().ravel(),
                "launch": launch.repeat(len(names)).to_numpy(),
            }
        )

    def rules(self, launches: Frame) -> Frame:
        """Return `kernel_rules` of a details page."""
        if "Rule Name" not in self.frame:
            return Frame(columns=list(TABLES["kernel_rules"]))
        rows = self.frame.assign(launch=_launch_numbers(self.frame, launches))
        rows = rows[rows["Rule Name"] != ""]
        absent = pd.Series("", index=rows.index, dtype=object)
        return rows.assign(
            section=rows["Section Name"],
            rule=rows["Rule Name"],
            name="",
            title="",
            kind=rows["Rule Type"].map(_KINDS).fillna("info"),
            message=rows["Rule Description"].map(file_names_only),
            speedup_kind=rows.get("Estimated Speedup Type", absent),
            speedup_pct=numbers_and_words(rows.get("Estimated Speedup", absent))["value"],
        )[list(TABLES["kernel_rules"])]


def _launch_numbers(frame: Frame, launches: Frame) -> "pd.Series[int]":
    """Return the launch number of each row; rows of one launch need not be adjacent."""
    numbers = launches.drop_duplicates("launch").set_index(["pid", "id"])["launch"]
    keys = pd.MultiIndex.from_arrays([frame["Process ID"].astype("int64"), frame["ID"].astype("int64")])
    return pd.Series(numbers.reindex(keys).to_numpy(), index=frame.index)


def _kinds(rows: Frame, shapes: Sequence[tuple[int, ...]]) -> "np.ndarray[Any, Any]":
    """Return the kind of each launch; a kernel may also be called `range` or `graph`."""
    names = rows["Kernel Name"].to_numpy()
    is_range = (names == "range") & ~np.array(shapes, dtype=bool).any(axis=1)
    if _OF_GRAPHS in rows:
        is_graph = (names == "graph") & (rows[_OF_GRAPHS].to_numpy() != "")
    else:
        # details pages do not have that metric: only the name shows it
        is_graph = (names == "graph") & ("Section Name" in rows)
    return np.where(is_range, "range", np.where(is_graph, "graph", _KERNEL))


def _first_number(cell: str) -> int:
    number = re.search(r"\d{1,10}", cell)
    return int(number[0]) if number else 0


def _sizes(cell: str) -> tuple[int, int, int]:
    """Read `(8192, 1, 1)` with any thousands separator; zeros for anything else."""
    sizes = [re.sub(r"[^0-9]", "", size)[:10] for size in cell.strip("()").split(", ")]
    return (int(sizes[0]), int(sizes[1]), int(sizes[2])) if len(sizes) == 3 and all(sizes) else (0, 0, 0)


def _range(text: str) -> tuple[str, str]:
    """Return the domain and the name of a range."""
    if match := NAMED_RANGE.fullmatch(text):
        return match["domain"], match["name"]
    domain, _, fields = text.partition(":")
    return domain, fields.partition(":")[0]


def _label_metrics(frame: Frame, launch: "pd.Series[int]") -> Frame:
    """Return the metrics of a details page: under their metric name if known or printed, else under their label."""
    rows = frame.assign(launch=launch)[frame["Metric Name"] != ""]
    items = rows["Body Item Label"] if "Body Item Label" in rows else pd.Series("", index=rows.index, dtype=object)
    keys = Frame({"section": rows["Section Name"], "item": items, "label": rows["Metric Name"]})
    distinct = keys.drop_duplicates()
    names = [_metric_name(*key) for key in distinct.itertuples(index=False, name=None)]
    by_key = pd.Series(names, index=pd.MultiIndex.from_frame(distinct), dtype=object)
    metrics = Frame(
        {
            "metric": by_key.reindex(pd.MultiIndex.from_frame(keys)).to_numpy(),
            "unit": rows["Metric Unit"].to_numpy(),
            "cell": rows["Metric Value"].str.replace(rf"^{_INSTANCES.pattern}$", r"\1", regex=True).to_numpy(),
            "launch": rows["launch"].to_numpy(),
        }
    ).drop_duplicates(ignore_index=True)
    # labels that occur several times in a launch with different values are numbered, to distinguish the metrics
    repeats = metrics.groupby(["launch", "metric"]).cumcount()
    suffixes = pd.Series(["" if not count else f" #{count + 1}" for count in repeats], dtype=object)
    is_label = metrics["metric"].str.contains(": ", regex=False)
    return metrics.assign(metric=(metrics["metric"] + suffixes).where(is_label, metrics["metric"]))


def _metric_name(section: str, item: str, label: str) -> str:
    printed = _METRIC_NAME.fullmatch(label)
    name = printed[1] if printed else LABELS.get(section, {}).get(label, "")
    return name or ": ".join(filter(None, (section, item, label)))
