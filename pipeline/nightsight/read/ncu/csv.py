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

from nightsight.errors import CaptureError
from nightsight.events.kernel_names import base_name
from nightsight.model.report import Environment, Profile
from nightsight.read.ncu.labels import LABELS
from nightsight.read.ncu.model import METRIC_COLUMNS, file_names_only, in_base_units, profile, range_path
from nightsight.read.ncu.numbers import numbers_and_words
from nightsight.tables import SHAPE, TABLES
from nightsight.texts import without_private

Frame = pd.DataFrame
Rows = list[list[str]]

# recognizes such a file; also one with only messages of ncu, which the error then quotes
SIGNS: Final = re.compile(
    rb'^==(?:PROF|WARNING|ERROR)== |"ID","Process ID",|^"Process ID","Process Name",|^"Kernel Name",".*",?$',
    re.MULTILINE,
)

_CELL: Final = r'"[^"]*(?:""[^"]*)*"'
_LETTERS: Final = r'"(?:[^"]|"")*?[^\W\d](?:[^"]|"")*"'
# A row may follow program output without a line end, but does not start inside a cell, where quotes are doubled. After
# a comma or a quote it could be the rest of another row, unless it goes on with names of program, host and kernel.
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
# a metric name, alone (--print-metric-name name) or after its label; names that start with stall_ are labels
_METRIC_NAME: Final = re.compile(r"(?:|.* \()((?!stall_)(?:\w+\.)*[a-z]\w*_[\w.]+)\)?")

# the values of a metric's instances, in parentheses after its own
_INSTANCES: Final = re.compile(r"([\d.,'\s]*)\([^()]*\)")
# other columns of a raw page are a single word, or have spaces or colons
RAW_METRIC: Final = re.compile(r"(?:pmsampling:)?[\w.]+_[\w.]+")

_KERNEL: Final = "kernel"
# a metric that only graphs have
_OF_GRAPHS: Final = "launch__graph_contains_device_launch"
_OF_DETAILS: Final = ("Section Name", "Metric Name", "Metric Unit", "Metric Value")
_OF_RULES: Final = ("Rule Name", "Rule Type", "Rule Description")
_OF_SPEEDUPS: Final = ("Estimated Speedup Type", "Estimated Speedup")
_KINDS: Final = {"INF": "info", "OPT": "optimization", "WRN": "warning", "ERR": "error"}
_AGAIN: Final = "Print it again: ncu --import FILE.ncu-rep --csv --page raw --print-units base > FILE.csv"
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
    their namespaces (`nightsight.events.kernel_names.unqualified`); there are no mangled names.
    """
    try:
        text = text_of(path.read_bytes())
    except OSError as error:
        raise CaptureError(f"{path.name} cannot be read: {error.strerror}", "Check path and permissions.") from error
    pages = list(_pages(path, text))
    if not pages:
        _refuse(path, text)
    launches = pd.concat([page.launches() for page in pages], ignore_index=True)
    _refuse_two_of_one_number(path, launches)
    launches = launches.assign(launch=pd.factorize(pd.MultiIndex.from_frame(launches[["pid", "id"]]))[0])
    metrics = pd.concat([page.metrics(launches) for page in pages], ignore_index=True)
    metrics = metrics.drop_duplicates(["launch", "metric", "instance"]).sort_values("launch", kind="stable")
    tables = {
        "profiled_launches": launches.drop_duplicates("launch"),
        "kernel_metrics": metrics,
        "diagnostics": _diagnostics(text),
    }
    rules = [page.rules(launches) for page in pages if page.is_details]
    if rules:
        tables["kernel_rules"] = pd.concat(rules, ignore_index=True)
    missing = {"kernel_rules": _NO_RULES, "kernel_lines": _NO_LINES}
    return profile(tables, missing, Environment(collector="ncu"))


def text_of(content: bytes) -> str:
    """Decode printed output: UTF-8, or UTF-16 as written by `>` in Windows PowerShell."""
    is_wide = content.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
    text = content.decode("utf-16" if is_wide else "utf-8-sig", errors="replace")
    # line ends as in a file opened as text
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _refuse_two_of_one_number(path: Path, launches: Frame) -> None:
    """Raise CaptureError if launches of a process share a number: pages of two runs, of which one would be lost."""
    number = ["pid", "id"]
    if launches[[*number, "name", *SHAPE]].drop_duplicates().duplicated(number).any():
        raise CaptureError(
            f"{path.name} has different kernels with the same ID", "Save the pages of each run in a separate file."
        )


def _pages(path: Path, text: str) -> "Iterator[_Page]":
    """Yield the tables of a file, each with a header and at least one row."""
    header: list[str] = []
    rows: Rows = []
    for cells in rows_of(path, text):
        if cells[0] == "ID":
            yield from _page(path, header, rows)
            header, rows = cells, []
        elif header:
            rows.append(cells)
        elif cells[0]:
            raise CaptureError(f"{path.name} has rows of kernels before the header", _AGAIN)
    yield from _page(path, header, rows)


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


def _page(path: Path, header: list[str], rows: Rows) -> "Iterator[_Page]":
    page = _Page(path.name, header, rows)
    if any(cells[0] for cells in rows):
        page.check()
        yield page


def _refuse(path: Path, text: str) -> NoReturn:
    """Raise the CaptureError for a file without kernels; it quotes ncu's own messages, or names the page."""
    messages = messages_of(text)
    if messages:
        errors = [words for kind, words in messages if kind == "ERROR"]
        said = " ".join(errors or [words for _, words in messages[-3:]])
        hint = next((hint for sign, hint in _HINTS.items() if sign in said), _AGAIN)
        raise CaptureError(f"{path.name} has no kernels, only messages of ncu: {said}", hint)
    if '"Invocations"' in text:
        raise CaptureError(f"{path.name} has only a summary over launches", f"{_AGAIN} (without --print-summary)")
    raise CaptureError(f"{path.name} has no raw or details page of ncu with kernels", _AGAIN)


def messages_of(text: str) -> list[tuple[str, str]]:
    """Return the warnings and errors of ncu, without paths."""
    return [(kind, without_private(words)) for kind, words in _MESSAGE.findall(text)]


def _diagnostics(text: str) -> Frame:
    rows = [(0, kind.lower(), words) for kind, words in messages_of(text)]
    return Frame(rows, columns=list(TABLES["diagnostics"]))


@dataclass(frozen=True)
class _Page:
    """One table: its header and its rows; the first row of a raw page has the units."""

    file: str
    header: Sequence[str]
    rows: Rows

    @cached_property
    def is_details(self) -> bool:
        """Whether this is a details page rather than a raw page."""
        return not {*_OF_DETAILS, *_OF_RULES, *_OF_SPEEDUPS}.isdisjoint(self.header)

    def check(self) -> None:
        """Raise CaptureError unless the page has all columns, and each row enough cells.

        Rows of metrics may lack the cells of rules.
        """
        twice = [name for name, count in Counter(self.header).items() if count > 1 and not RAW_METRIC.fullmatch(name)]
        if twice:
            raise CaptureError(f"{self.file} has duplicate columns, unlike any page of ncu: {', '.join(twice)}", _AGAIN)
        # columns of rules are there if rules were requested, those of speedups in releases that estimate them
        groups = [group for group in (_OF_RULES, _OF_SPEEDUPS) if not set(group).isdisjoint(self.header)]
        expected = ["Kernel Name", *(name for group in (_OF_DETAILS, *groups) if self.is_details for name in group)]
        if lacking := [name for name in expected if name not in self.header]:
            raise CaptureError(f"{self.file} lacks columns of a page of ncu: {', '.join(lacking)}", _AGAIN)
        if not all(self._least(cells) <= len(cells) <= len(self.header) for cells in self.rows):
            raise CaptureError(f"{self.file} is truncated, or a row lacks cells", _AGAIN)
        if not self.is_details and self.rows[0][0]:
            raise CaptureError(f"{self.file} lacks the row of units below its header", _AGAIN)
        if not self.is_details and any(";" in cell and _INSTANCES.fullmatch(cell) for row in self.rows for cell in row):
            # some of their values are in base units, regardless of the row of units
            raise CaptureError(f"{self.file} has instances of metrics", f"{_AGAIN} (without --print-metric-instances)")

    def _least(self, cells: Sequence[str]) -> int:
        """Return the minimum number of cells of a row: a row of a metric may end after its value."""
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
        return _launches(rows)

    def metrics(self, launches: Frame) -> Frame:
        """Return `kernel_metrics` of this table."""
        frame = self.frame
        launch = _numbers_of(frame, launches)
        rows = _label_metrics(frame, launch) if self.is_details else self._raw_metrics(frame, launch)
        rows = rows.join(numbers_and_words(rows["cell"])).assign(instance="")
        return in_base_units(rows[METRIC_COLUMNS])

    def _raw_metrics(self, frame: Frame, launch: "pd.Series[int]") -> Frame:
        places = [place for place, name in enumerate(self.header) if RAW_METRIC.fullmatch(name)]
        names, units = ([cells[place] for place in places] for cells in (self.header, self.rows[0]))
        cells = frame.iloc[:, places].to_numpy()
        metrics = {"metric": names * len(frame), "unit": units * len(frame)}
        return Frame({**metrics, "cell": cells.ravel(), "launch": launch.repeat(len(names)).to_numpy()})

    def rules(self, launches: Frame) -> Frame:
        """Return `kernel_rules` of a details page."""
        frame = self.frame
        frame = frame.assign(launch=_numbers_of(frame, launches))
        if "Rule Name" not in frame:
            return Frame(columns=list(TABLES["kernel_rules"]))
        frame = frame[frame["Rule Name"] != ""]
        absent = pd.Series("", index=frame.index, dtype=object)
        return frame.assign(
            section=frame["Section Name"],
            rule=frame["Rule Name"],
            name="",
            title="",
            kind=frame["Rule Type"].map(_KINDS).fillna("info"),
            message=frame["Rule Description"].map(file_names_only),
            speedup_kind=frame.get("Estimated Speedup Type", absent),
            speedup_pct=numbers_and_words(frame.get("Estimated Speedup", absent))["value"],
        )[list(TABLES["kernel_rules"])]


def _numbers_of(frame: Frame, launches: Frame) -> "pd.Series[int]":
    """Return the launch number of each row; rows of one launch need not be adjacent."""
    numbers = launches.drop_duplicates("launch").set_index(["pid", "id"])["launch"]
    keys = pd.MultiIndex.from_arrays([frame["Process ID"].astype("int64"), frame["ID"].astype("int64")])
    return pd.Series(numbers.reindex(keys).to_numpy(), index=frame.index)


def _launches(rows: Frame) -> Frame:
    def column(name: str) -> "pd.Series[str]":
        return rows[name] if name in rows else pd.Series("", index=rows.index, dtype=object)

    ranges = next((str(name) for name in rows if PUSH_POP in str(name)), "")
    cells = zip(column("Grid Size"), column("Block Size"), strict=True)
    shapes = [_sizes(grid) + _sizes(block) for grid, block in cells]
    names = rows["Kernel Name"]
    kinds = _kinds(rows, shapes)
    launches = Frame(
        {
            "id": rows["ID"].astype("int64"),
            "kind": kinds,
            "process": rows["Process ID"].astype("int64"),
            "pid": rows["Process ID"].astype("int64"),
            **{key: column(key.title()).map(_first_number) for key in ("device", "context", "stream")},
            "name": names,
            "short_name": names.map(base_name),
            "range_path": column(ranges).map(_path),
            "compute_capability": column("CC"),
            **dict(zip(SHAPE, zip(*shapes, strict=True), strict=True)),
        }
    )
    # for a range or graph, ncu prints the values of one of its launches
    launches.loc[kinds != _KERNEL, ["context", "stream", *SHAPE]] = 0
    return launches


def _kinds(rows: Frame, shapes: Sequence[tuple[int, ...]]) -> "np.ndarray[Any, Any]":
    """Return the kind of each launch; a kernel may also be called `range` or `graph`."""
    names = rows["Kernel Name"].to_numpy()
    is_range = (names == "range") & ~np.array(shapes, dtype=bool).any(axis=1)
    # on a details page there is only the name to go by
    of_graphs = rows[_OF_GRAPHS].to_numpy() != "" if _OF_GRAPHS in rows else np.full(len(rows), "Section Name" in rows)
    return np.where(is_range, "range", np.where((names == "graph") & of_graphs, "graph", _KERNEL))


def _first_number(cell: str) -> int:
    number = re.search(r"\d{1,10}", cell)
    return int(number[0]) if number else 0


def _sizes(cell: str) -> tuple[int, int, int]:
    """Read `(8192, 1, 1)` with any thousands separator; zeros for anything else."""
    sizes = [re.sub(r"[^0-9]", "", size)[:10] for size in cell.strip("()").split(", ")]
    return (int(sizes[0]), int(sizes[1]), int(sizes[2])) if len(sizes) == 3 and all(sizes) else (0, 0, 0)


def _path(cell: str) -> str:
    return range_path(_range(match) for match in RANGE.findall(cell))


def _range(written: str) -> tuple[str, str]:
    named = NAMED_RANGE.fullmatch(written)
    if named:
        return named["domain"], named["name"]
    domain, _, rest = written.partition(":")
    return domain, rest.partition(":")[0]


def _label_metrics(frame: Frame, launch: "pd.Series[int]") -> Frame:
    """Return the metrics of a details page, under their own name if known or printed, else under their label."""
    rows = frame.assign(launch=launch)[frame["Metric Name"] != ""]
    items = rows["Body Item Label"] if "Body Item Label" in rows else pd.Series("", index=rows.index, dtype=object)
    keys = Frame({"section": rows["Section Name"], "item": items, "label": rows["Metric Name"]})
    distinct = keys.drop_duplicates()
    names = [_metric(*key) for key in distinct.itertuples(index=False, name=None)]
    metric = pd.Series(names, index=pd.MultiIndex.from_frame(distinct), dtype=object).reindex(
        pd.MultiIndex.from_frame(keys)
    )
    found = Frame({"metric": metric.to_numpy(), "unit": rows["Metric Unit"].to_numpy()})
    cells = rows["Metric Value"].str.replace(rf"^{_INSTANCES.pattern}$", r"\1", regex=True)
    found = found.assign(cell=cells.to_numpy(), launch=rows["launch"].to_numpy())
    return _numbered(found.drop_duplicates(ignore_index=True))


def _metric(section: str, item: str, label: str) -> str:
    printed = _METRIC_NAME.fullmatch(label)
    known = printed[1] if printed else LABELS.get(section, {}).get(label, "")
    return known or ": ".join(filter(None, (section, item, label)))


def _numbered(rows: Frame) -> Frame:
    """Number labels that occur several times in a launch with different values, to keep the metrics apart."""
    again = rows.groupby(["launch", "metric"]).cumcount()
    suffix = ("" if not count else f" #{count + 1}" for count in again)
    is_label = rows["metric"].str.contains(": ", regex=False)
    return rows.assign(metric=(rows["metric"] + pd.Series(list(suffix), dtype=object)).where(is_label, rows["metric"]))
