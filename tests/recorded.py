"""The recorded captures as tests see them: read and analyzed once in a session, whichever process needs it first.

Also on which of them laws are tested that hold for every capture.
"""

import fcntl
import lzma
import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import pytest

from nightsight.events.window import WHOLE
from nightsight.model.report import Profile, Report
from nightsight.read import read
from nightsight.render.page.html import render_html
from nightsight.workflows.analysis import build_report

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

DATA: Final = Path(__file__).parent / "data"
_Made = TypeVar("_Made")

LAWS: Final = {
    # nsys
    "everything.sqlite.xz": "each table that nsys 2025.3 writes, marks, samples, counters, the memory in use",
    "train.sqlite.xz": "steps in ranges, stacks of calls of the operating system",
    "python_names.sqlite.xz": "ranges that Python functions have got",
    "graph.sqlite.xz": "CUDA graphs as a whole",
    "graph_node.sqlite.xz": "CUDA graphs node by node",
    "unified_memory.sqlite.xz": "migrations and page faults",
    "crash.sqlite.xz": "a program that died",
    "ddp_exposed.sqlite.xz": "several ranks in one capture, payloads of ranges in binary",
    "experts.0.sqlite.xz": "one of several ranks, whose calls of NCCL have payloads",
    "flax_batches.sqlite.xz": "ranges and resources of JAX, streams that have names",
    # torch.profiler
    "mini_torch.json.gz": "operators and modules",
    "cuda_graph.json.gz": "a CUDA graph",
    "exposed_rank1.json.gz": "one of several ranks",
    "ops_1.13.1.json.gz": "PyTorch 1.13",
    "ops_2.0.1.json.gz": "PyTorch 2.0",
    "ops_2.4.1.json.gz": "PyTorch 2.4",
    "ops_2.11.0.json.gz": "PyTorch 2.11, memory in use",
    "ops_2.13.0.json.gz": "PyTorch 2.13",
    "events_2.13.0.json.gz": "what autograd's own profiler writes",
    # ncu
    "measure.details_plain.csv.xz": "a page of details without ranges",
    "measure.details_name.csv.xz": "with other names of kernels",
    "lines.details.csv.xz": "with ranges",
    "stream.raw.csv.xz": "a raw page",
    "measure.raw_norename.csv.xz": "with other names of kernels",
    "range.base.csv.xz": "a raw page of ranges that were replayed",
    "range.ncu-rep.xz": "the same as a report",
    "uncoalesced.bad.ncu-rep.xz": "lines of source code",
}
"""One capture for each collector, version and feature, and what only it has, or shows best.

A law is tested on these by `make test`, and on all captures by `make nightly`, which also finds what none of these has.
"""


def of_laws(*patterns: str) -> "list[ParameterSet]":
    """Return the recorded files of a law as parameters; all but one of each kind are for `make nightly`."""
    # each file in `cases` has a test of its own: many are damaged
    paths = (path for pattern in patterns for path in DATA.rglob(pattern) if "cases" not in path.parts)
    return [
        pytest.param(path, id=path.name, marks=[pytest.mark.nightly] * (path.name not in LAWS))
        for path in sorted(paths)
    ]


def unpacked(file: Path, folder: Path) -> Path:
    """Return a recorded file, decompressed into `folder` if it is an .xz file."""
    if file.suffix != ".xz":
        return file
    target = folder / file.stem
    target.write_bytes(lzma.decompress(file.read_bytes()))
    return target


class Recorded:
    """What is made of a capture: of nsys (`train`), of ncu (`lines.ncu-rep`), of torch (`mini_torch`).

    Each caller gets frames of their own, which share their memory until one is changed (pandas' copy-on-write): what a
    test changes, no other sees. `shared`: a folder of all processes of the session.
    """

    def __init__(self, capture_file: Callable[[str], Path], shared: Path) -> None:
        def profile(name: str) -> Profile:
            return read(next(DATA.rglob(f"{name}.json.gz"), None) or capture_file(name))

        def report(name: str) -> Report:
            return build_report(self._profile(name), name)

        def page(name: str) -> str:
            return render_html(self._report(name), self._profile(name))

        self._profile = cache(lambda name: made_once(partial(profile, name), shared / f"{name}.profile"))
        self._report = cache(lambda name: made_once(partial(report, name), shared / f"{name}.report"))
        self._page = cache(lambda name: made_once(partial(page, name), shared / f"{name}.page"))

    def profile(self, name: str) -> Profile:
        """Return what is read of a capture."""
        profile = self._profile(name)
        return replace(profile, tables={name: table.copy(deep=False) for name, table in profile.tables.items()})

    def report(self, name: str) -> Report:
        """Return the report of a capture, with its name as title."""
        report = self._report(name)
        own = (
            result if result.table is None else replace(result, table=result.table.copy(deep=False))
            for result in report.results
        )
        return replace(report, results=tuple(own))

    def page(self, name: str) -> str:
        """Return the page of a capture, with its timeline."""
        return self._page(name)


def made_once(make: Callable[[], _Made], kept: Path) -> _Made:
    """Return what is made, or what another process of the session has made and kept; one that comes second waits."""
    with kept.with_name(f"{kept.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            # one that is killed leaves no half of it
            temporary = kept.with_name(f"{kept.name}.new")
            temporary.write_bytes(pickle.dumps(make()))
            temporary.replace(kept)
    made: _Made = pickle.loads(kept.read_bytes())
    return made


def whole(profile: Profile) -> Profile:
    """Return a profile whose report is about all of it, as NVIDIA's tables are."""
    return replace(profile, window=WHOLE)
