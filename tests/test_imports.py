"""What commands import and compute: only what they need. Every start pays for each module, and pages are made often."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from nightsight.advise import NEEDS
from nightsight.analyze import ANALYSES
from nightsight.analyze.analysis import Analysis
from nightsight.events.timeline import Timeline
from nightsight.render import FORMATS
from nightsight.render.terminal import first_screen
from nightsight.results.gpu_time import TIME_SPLIT
from nightsight.workflows.opening import Reading, open_file

LOADED = """
import sys
from nightsight.cli import main
main(sys.argv[1:], standalone_mode=False)
print("LOADED", *sys.modules)
"""
# for collecting, other commands, other inputs, and of libraries what few results need
UNUSED = (
    *("dask", "distributed", "fsspec", "matplotlib", "pynvml", "rich", "ruptures", "scipy", "torch", "triton"),
    *("nightsight.collect", "nightsight.compare", "nightsight.fleet", "nightsight.history", "nightsight.job"),
    *("nightsight.publish", "nightsight.sanitize", "nightsight.stats", "nightsight.workflows.profile"),
    *("nightsight.read.kineto", "nightsight.read.ncu"),
    *("nightsight.model.compare", "nightsight.model.fleet", "nightsight.model.history"),
    *("nightsight.render.export.markdown", "nightsight.render.export.perfetto", "nightsight.render.export.speedscope"),
)
OF_PAGES = ("jinja2", "nightsight.render.figure", "nightsight.render.page.html", "nightsight.render.timeline")


@pytest.mark.essential
@pytest.mark.parametrize(
    ("command", "unused"),
    [
        (("report", "-q", "{capture}", "--format", "html", "-o", "out"), UNUSED),
        (("report", "-q", "{capture}", "--format", "json", "-o", "out"), [*UNUSED, *OF_PAGES]),
        (("--version",), [*UNUSED, "numpy", "pandas", "pyarrow", "jinja2", "nightsight.analyze", "nightsight.render"]),
    ],
    ids=["page", "json", "version"],
)
def test_a_command_imports_what_it_needs(
    command: tuple[str, ...], unused: list[str], capture_file: Callable[[str], Path], tmp_path: Path
) -> None:
    words = [word.format(capture=capture_file("mlp")) for word in command]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "pipeline")}
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    _, _, loaded = done.stdout.partition("LOADED ")
    modules = loaded.split()
    assert "nightsight.cli" in modules
    assert [name for name in unused if any(f"{module}.".startswith(f"{name}.") for module in modules)] == []


@pytest.mark.essential
def test_what_makes_and_renders_a_report_is_loaded_while_the_capture_is_read() -> None:
    # the copy that reads starts before these modules are loaded
    code = "import sys, nightsight.workflows.report; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "pipeline")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    later = {"nightsight.advise", "nightsight.analyze", "nightsight.workflows.analysis", *OF_PAGES}
    assert later.isdisjoint(done.stdout.split())


@pytest.mark.essential
def test_a_page_computes_each_result_once_and_of_other_windows_only_what_is_shown(
    capture_file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = Counter[tuple[str, str]]()
    run = Analysis.run

    def counted(analysis: Analysis, timeline: Timeline) -> object:
        computed[analysis.entry.name, timeline.window.name] += 1
        return run(analysis, timeline)

    monkeypatch.setattr(Analysis, "run", counted)
    source = open_file(capture_file("train"), FORMATS["html"], Reading(None, 1 << 30, lambda *_, **__: None))
    first_screen(source.report)
    chosen = next(view.name for view in source.report.windows if view.is_chosen)
    assert sum(computed.values()) < len(ANALYSES) / 2 * len(source.report.windows)
    FORMATS["html"].render(source)
    assert set(computed.values()) == {1}
    assert {name for name, window in computed if window == chosen} == {analysis.entry.name for analysis in ANALYSES}
    of_others = {entry.name for entry in (TIME_SPLIT, *NEEDS)}
    assert {name for name, window in computed if window != chosen} == of_others


@pytest.mark.essential
def test_tables_compute_nothing_of_other_windows(
    capture_file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = set[str]()
    run = Analysis.run

    def noted(analysis: Analysis, timeline: Timeline) -> object:
        windows.add(timeline.window.name)
        return run(analysis, timeline)

    monkeypatch.setattr(Analysis, "run", noted)
    source = open_file(capture_file("train"), FORMATS["csv"], Reading(None, 1 << 30, lambda *_, **__: None))
    FORMATS["csv"].render(source)
    assert len(windows) == 1
    assert len(source.report.windows) > 1
