"""A graph that is opened into its layers: an event names them, and tables and the icicle lead to them."""

from collections.abc import Iterator
from typing import Any

import pytest

from nightsight.render.page.html import render_html
from nightsight.workflows.analysis import build_report
from tests.browser.table_pages import visited
from tests.browser.timeline_page import show
from tests.browser.timeline_samples import text, value
from tests.test_graph_layers import of_two_layers

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    profile = of_two_layers(steps=4).profile()
    file = tmp_path_factory.mktemp("graphs") / "page.html"
    file.write_text(render_html(build_report(profile, "graphs"), profile), encoding="utf-8")
    with visited(browser, file) as opened:
        yield opened


def test_a_kernel_of_a_graph_names_the_ranges_of_its_launch_and_of_its_capture(page: Any) -> None:
    show(page, name="k", kind="kernel")
    path = value(page, "In the range")
    assert path.startswith("step / model / layer ")
    assert value(page, "Launched").startswith("cudaGraphLaunch")
    page.locator(".timeline-event dd button", has_text="layer").click()
    assert value(page, "Row") == "GPU 0, Stream 7, NVTX (2)"
    assert value(page, "In the range") == "step / model"


def test_a_launch_has_launched_kernels_and_not_layers(page: Any) -> None:
    show(page, name="cudaGraphLaunch", kind="api")
    assert {line.split()[0] for line in value(page, "Launched").splitlines()} == {"k"}


def test_a_range_in_a_graph_leads_to_its_replay_and_not_to_its_capture(page: Any) -> None:
    # as the rows of tables and the boxes of the icicle ask
    show(page, name="layer 1", kind="range", group="Process 1", within=["step", "model"])
    assert text(page, "event").splitlines()[0] == "layer 1"
    assert value(page, "Row") == "GPU 0, Stream 7, NVTX (2)"
    assert value(page, "In the range") == "step / model"
