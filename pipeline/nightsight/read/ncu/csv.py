"""The CSV pages that `ncu --csv` prints: found in whatever else stands in the file, and read by the names of columns.

`raw` has a row per launch, a column per metric and a row of units below its header; `details` has a row per metric or
rule. Its metrics have labels, which can mean several metrics: nightsight.read.ncu.labels names those it knows, others
are called `section: item: label`. Labels that occur twice there are numbered (`... #2`).
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
from nightsight.model import Environment, Profile
from nightsight.read.ncu.labels import LABELS
from nightsight.read.ncu.model import METRIC_COLUMNS, file_names_only, in_base_units, profile, range_path
from nightsight.read.ncu.numbers import numbers_and_words
from nightsight.read.vocabulary import without_private
from nightsight.tables import SHAPE, TABLES

Frame = pd.DataFrame
Rows = list[list[str]]

# what recognizes such a file; without a table it is read all the same, to say what ncu's messages in it say
SIGNS: Final = re.compile(
    rb'^==(?:PROF|WARNING|ERROR)== |"ID","Process ID",|^"Process ID","Process Name",|^"Kernel Name",".*",?$',
    re.MULTILINE,
)

_CELL: Final = r'"[^"]*(?:""[^"]*)*"'
_LETTERS: Final = r'"(?:[^"]|"")*?[^\W\d](?:[^"]|"")*"'
# a row may stand behind what the program wrote without a line end, but not inside a cell: there, quotes are doubled;
# behind a comma or a quote it is no rest of another row if it goes on with the names of a program, host and kernel
_ROW: Final = re.compile(
    rf'(?:"ID","Process ID"|^"",""|(?<![,"])"\d{{1,10}}","\d{{1,10}}"'
    rf'|"\d{{1,10}}","\d{{1,10}}"(?=,{_LETTERS},{_CELL},{_LETTERS},))(?:,{_CELL})*,?(?=\r?$)',
    re.MULTILINE,
)
_ROW_START: Final = re.compile(r'(?<![,"])"\d{1,10}","\d{1,10}","')
_CELLS: Final = re.compile(r'"([^"]*(?:""[^"]*)*)"')
_MESSAGE: Final = re.compile(r"^==(WARNING|ERROR)== (.*?)\r?$", re.MULTILINE)
_PUSH_POP: Final = "Push/Pop_Range"
_RANGE: Final = re.compile(r'"(.*?)"(?=\s|$)')
# domain:range:payload type:payload:color type:color:message type:message, where the message is the range's name again
_NAMED_RANGE: Final = re.compile(r"(?P<domain>.*?):(?P<name>.*)(?::[^:]*){5}:(?P=name)", re.DOTALL)
# printed alone (--print-metric-name name) or behind the label; what begins with stall_ is a label
_METRIC_NAME: Final = re.compile(r"(?:|.* \()((?!stall_)(?:\w+\.)*[a-z]\w*_[\w.]+)\)?")

# other columns of a raw page are a word, or have spaces or colons
# the values of a metric's instances, behind its own
_INSTANCES: Final = re.compile(r"([\d.,'\s]*)\([^()]*\)")
_RAW_METRIC: Final = re.compile(r"(?:pmsampling:)?[\w.]+_[\w.]+")

_KERNEL: Final = "kernel"
# a metric that graphs alone have
_OF_GRAPHS: Final = "launch__graph_contains_device_launch"
_OF_DETAILS: Final = ("Section Name", "Metric Name", "Metric Unit", "Metric Value")
_OF_RULES: Final = ("Rule Name", "Rule Type", "Rule Description")
_OF_SPEEDUPS: Final = ("Estimated Speedup Type", "Estimated Speedup")
_KINDS: Final = {"INF": "info", "OPT": "optimization", "WRN": "warning", "ERR": "error"}
_AGAIN: Final = "print it again: ncu --import FILE.ncu-rep --csv --page raw --print-units base > FILE.csv"
_HINTS: Final = {
    "ERR_NVGPUCTRPERM": "only administrators may read counters there: run ncu as root, or load the driver's module "
    "with NVreg_RestrictProfilingToAdminUsers=0",
    "No kernels were profiled": "no kernel matched what ncu was told to profile (--kernel-name, --nvtx-include, ...)",
    "Failed to load report": "the .ncu-rep is damaged, or newer than the ncu that printed it",
}
_NO_RULES: Final = "ncu's raw page holds no rules; its details page and the .ncu-rep do"
_NO_LINES: Final = "ncu's CSV pages raw and details hold no machine instructions; the .ncu-rep does"


def read_ncu_csv(path: Path) -> Profile:
    """Read a raw or details page, or both; CaptureError if there is none in the file, or it is cut off or broken.

    A file that was cut exactly after a row is not found out. Names of kernels are as ncu printed them, by default
    without all of their namespaces (`nightsight.events.kernel_names.unqualified`); they have no mangled names.
    """
    try:
        text = text_of(path.read_bytes())
    except OSError as error:
        raise CaptureError(f"{path.name} cannot be read: {error.strerror}", "check the path and its rights") from error
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
    """Decode what was printed into a file: UTF-8, or the UTF-16 that `>` of Windows PowerShell makes of it."""
    is_wide = content.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
    text = content.decode("utf-16" if is_wide else "utf-8-sig", errors="replace")
    # as a file opened as text has them
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _refuse_two_of_one_number(path: Path, launches: Frame) -> None:
    """Raise CaptureError if a process has two launches of one number: pages of two runs, of which one would be lost."""
    number = ["pid", "id"]
    if launches[[*number, "name", *SHAPE]].drop_duplicates().duplicated(number).any():
        raise CaptureError(f"{path.name} holds different kernels of one number", "give the pages of each run by itself")


def _pages(path: Path, text: str) -> "Iterator[_Page]":
    """Yield the tables of a file that have rows: each begins with a header."""
    header: list[str] = []
    rows: Rows = []
    for cells in _rows(path, text):
        if cells[0] == "ID":
            yield from _page(path, header, rows)
            header, rows = cells, []
        elif header:
            rows.append(cells)
        elif cells[0]:
            raise CaptureError(f"{path.name} has rows of kernels before the header", _AGAIN)
    yield from _page(path, header, rows)


def _rows(path: Path, text: str) -> Rows:
    """Return the cells of all rows; CaptureError if one of them is broken."""
    broken = CaptureError(f"{path.name} is cut off, or a row of it is broken", f"{_AGAIN}, without running the program")
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
    """Say what ncu itself said, or which page this is."""
    messages = _messages(text)
    if messages:
        errors = [words for kind, words in messages if kind == "ERROR"]
        said = " ".join(errors or [words for _, words in messages[-3:]])
        hint = next((hint for sign, hint in _HINTS.items() if sign in said), _AGAIN)
        raise CaptureError(f"{path.name} holds no kernels, but messages of ncu: {said}", hint)
    if '"Invocations"' in text:
        raise CaptureError(f"{path.name} is a summary over launches", f"{_AGAIN}, without --print-summary")
    raise CaptureError(f"{path.name} holds no kernels on a raw or details page of ncu", _AGAIN)


def _messages(text: str) -> list[tuple[str, str]]:
    return [(kind, without_private(words)) for kind, words in _MESSAGE.findall(text)]


def _diagnostics(text: str) -> Frame:
    rows = [(0, kind.lower(), words) for kind, words in _messages(text)]
    return Frame(rows, columns=list(TABLES["diagnostics"]))


@dataclass(frozen=True)
class _Page:
    """One table: its header and its rows, of which the raw page's first holds the units."""

    file: str
    header: Sequence[str]
    rows: Rows

    @cached_property
    def is_details(self) -> bool:
        """Whether this is a details page, not a raw one."""
        return not {*_OF_DETAILS, *_OF_RULES, *_OF_SPEEDUPS}.isdisjoint(self.header)

    def check(self) -> None:
        """Raise CaptureError unless all columns are there, and each row has as many cells as it must have.

        Rows of metrics lack those of rules.
        """
        twice = [name for name, count in Counter(self.header).items() if count > 1 and not _RAW_METRIC.fullmatch(name)]
        if twice:
            raise CaptureError(f"{self.file} has columns that no page of ncu has: {', '.join(twice)} twice", _AGAIN)
        # those of rules are there if rules were asked for, those of speedups in releases that estimate them
        groups = [group for group in (_OF_RULES, _OF_SPEEDUPS) if not set(group).isdisjoint(self.header)]
        expected = ["Kernel Name", *(name for group in (_OF_DETAILS, *groups) if self.is_details for name in group)]
        if lacking := [name for name in expected if name not in self.header]:
            raise CaptureError(f"{self.file} lacks columns that such a page of ncu has: {', '.join(lacking)}", _AGAIN)
        if not all(self._least(cells) <= len(cells) <= len(self.header) for cells in self.rows):
            raise CaptureError(f"{self.file} is cut off, or a row of it has lost cells", _AGAIN)
        if not self.is_details and self.rows[0][0]:
            raise CaptureError(f"{self.file} lacks the row of units below its header", _AGAIN)
        if not self.is_details and any(";" in cell and _INSTANCES.fullmatch(cell) for row in self.rows for cell in row):
            # some of their values are in base units, whatever the row of units says
            raise CaptureError(f"{self.file} holds instances of metrics", f"{_AGAIN}, without --print-metric-instances")

    def _least(self, cells: Sequence[str]) -> int:
        """How many cells a row must have; at least one of them is there."""
        if not self.is_details:
            return len(self.header)
        name, value = (self.header.index(f"Metric {part}") for part in ("Name", "Value"))
        return value + 1 if len(cells) > name and cells[name] else len(self.header)

    @cached_property
    def frame(self) -> Frame:
        """All rows that belong to a launch, a column per cell; what a row lacks is empty."""
        width = len(self.header)
        rows = [cells + [""] * (width - len(cells)) for cells in self.rows if cells[0]]
        return Frame(rows, columns=list(self.header), dtype=object)

    def launches(self) -> Frame:
        """One row per launch of this table, and what identifies it: process and ncu's number."""
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
        places = [place for place, name in enumerate(self.header) if _RAW_METRIC.fullmatch(name)]
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
    """Number the launch of each row; rows of one launch may stand apart."""
    numbers = launches.drop_duplicates("launch").set_index(["pid", "id"])["launch"]
    keys = pd.MultiIndex.from_arrays([frame["Process ID"].astype("int64"), frame["ID"].astype("int64")])
    return pd.Series(numbers.reindex(keys).to_numpy(), index=frame.index)


def _launches(rows: Frame) -> Frame:
    def column(name: str) -> "pd.Series[str]":
        return rows[name] if name in rows else pd.Series("", index=rows.index, dtype=object)

    ranges = next((str(name) for name in rows if _PUSH_POP in str(name)), "")
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
    # of a range or graph they are those of one of its launches
    launches.loc[kinds != _KERNEL, ["context", "stream", *SHAPE]] = 0
    return launches


def _kinds(rows: Frame, shapes: Sequence[tuple[int, ...]]) -> "np.ndarray[Any, Any]":
    """Tell ranges and graphs that were replayed as a whole from kernels that are called so."""
    names = rows["Kernel Name"].to_numpy()
    is_range = (names == "range") & ~np.array(shapes, dtype=bool).any(axis=1)
    # a details page has nothing but the name
    of_graphs = rows[_OF_GRAPHS].to_numpy() != "" if _OF_GRAPHS in rows else np.full(len(rows), "Section Name" in rows)
    return np.where(is_range, "range", np.where((names == "graph") & of_graphs, "graph", _KERNEL))


def _first_number(cell: str) -> int:
    number = re.search(r"\d{1,10}", cell)
    return int(number[0]) if number else 0


def _sizes(cell: str) -> tuple[int, int, int]:
    """Read `(8192, 1, 1)`, whatever its locale puts between thousands; zeros for anything else."""
    sizes = [re.sub(r"[^0-9]", "", size)[:10] for size in cell.strip("()").split(", ")]
    return (int(sizes[0]), int(sizes[1]), int(sizes[2])) if len(sizes) == 3 and all(sizes) else (0, 0, 0)


def _path(cell: str) -> str:
    return range_path(_range(match) for match in _RANGE.findall(cell))


def _range(written: str) -> tuple[str, str]:
    named = _NAMED_RANGE.fullmatch(written)
    if named:
        return named["domain"], named["name"]
    domain, _, rest = written.partition(":")
    return domain, rest.partition(":")[0]


def _label_metrics(frame: Frame, launch: "pd.Series[int]") -> Frame:
    """The metrics of a details page, each under its own name if that is known or printed, else under its label."""
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
    """Number labels that a launch has again with another value: which metric is which, only names would tell."""
    again = rows.groupby(["launch", "metric"]).cumcount()
    suffix = ("" if not count else f" #{count + 1}" for count in again)
    is_label = rows["metric"].str.contains(": ", regex=False)
    return rows.assign(metric=(rows["metric"] + pd.Series(list(suffix), dtype=object)).where(is_label, rows["metric"]))
