"""One thing, linked everywhere: kernels in groups, and from an event or a row to what else the page says of it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pytest

from nightsight.events.kernel_labels import KernelLabels
from nightsight.model.report import Report
from nightsight.render.page.html import render_html
from tests import replay_tables
from tests.browser.table_pages import rows_of, visited
from tests.recorded import Recorded
from tests.reports import result

pytestmark = pytest.mark.browser

Visit = Callable[[], AbstractContextManager[Any]]


@pytest.fixture(scope="module")
def report(recorded: Recorded) -> Report:
    report = recorded.report("train")
    times = next(each.rows for each in report.results if each.name == "cuda_gpu_kern_sum")
    names = tuple(times["name"].astype("str").head(2))
    kernels = replay_tables.kernels(names, sm_pct=[91.0, 42.0], dram_pct=[7.0, 8.0])
    limits = kernels[["launch", "name"]].assign(unit="L2", used_pct=92.0)
    replays = (result("ncu_kernels", kernels), result("ncu_limits", limits))
    advice = replace(
        next(finding for finding in report.findings if finding.severity == "advice"),
        evidence=("12 times in iteration # / backward", "nothing that is known"),
    )
    of_range = next(finding for finding in report.findings if finding.rule == "pageable_copy")
    others = tuple(each for each in report.results if not each.name.startswith("ncu_"))
    return replace(report, results=(*others, *replays), findings=(advice, of_range))


@pytest.fixture(scope="module")
def labels(report: Report) -> list[str]:
    names = next(each.rows for each in report.results if each.name == "cuda_gpu_kern_sum")["name"].astype("str")
    kernel_labels = KernelLabels(names)
    return [kernel_labels.short(name) for name in names]


@pytest.fixture(scope="module")
def visit(browser: Any, report: Report, recorded: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Visit:
    file = tmp_path_factory.mktemp("links") / "train.html"
    file.write_text(render_html(report, recorded.profile("train")), encoding="utf-8")
    return lambda: visited(browser, file)


@pytest.fixture
def page(visit: Visit) -> Iterator[Any]:
    with visit() as page:
        yield page


def group(page: Any, by: str) -> Any:
    """Choose a group with the keyboard, and return its table."""
    page.locator(f"#cuda_gpu_kern_sum .segments button:text-is('By {by}')").press("Enter")
    return page.locator(f"table[data-table='cuda_gpu_kern_sum/{by}']")


def names(table: Any) -> list[str]:
    return [row.locator("th bdi").first.inner_text() for row in rows_of(table).all()]


def focused(page: Any) -> str:
    name: str = page.evaluate("document.activeElement.closest('tr')?.querySelector('th bdi').textContent ?? ''")
    return name


def follow(row: Any, does: str) -> None:
    row.locator(f"[data-does={does}]").first.dispatch_event("click")


def test_kernels_are_grouped_on_request(page: Any, labels: list[str]) -> None:
    plain = page.locator("table[data-table=cuda_gpu_kern_sum]")
    families = group(page, "family")
    assert names(families)[0] == "matrix products"
    assert set(labels[:10]) < set(names(families))
    assert not plain.is_visible()
    ranges = group(page, "range")
    assert (ranges.is_visible(), families.is_visible()) == (True, False)
    assert names(ranges)[:2] == ["iteration #", "backward"]
    # the table of a group sorts and filters by itself
    page.locator(".group-of-rows:not([hidden]) input[type=search]").fill("forward")
    assert names(ranges) == ["iteration #", "forward"]
    page.locator("#cuda_gpu_kern_sum .segments button").first.click()
    assert plain.is_visible()
    assert page.locator(".group-of-rows:not([hidden])").count() == 0


def test_a_range_leads_to_its_kernels(page: Any) -> None:
    repetitions = page.locator("#range_iterations")
    place = names(repetitions).index("iteration # / backward")
    follow(rows_of(repetitions).nth(place), "kernels")
    assert focused(page) == "backward"
    assert page.locator("#cuda_gpu_kern_sum tr.found").count() == 1
    assert page.locator("table[data-table='cuda_gpu_kern_sum/range']").is_visible()
    # with the heading, and what chooses the groups, in view
    for above in ("#cuda_gpu_kern_sum-title", "#cuda_gpu_kern_sum .groups"):
        box = page.locator(above).bounding_box()
        assert page.locator(".contents").bounding_box()["height"] <= box["y"] < 200
    # so does the row of all its repetitions
    place = names(page.locator("#nvtx_ranges")).index("iteration #")
    follow(rows_of(page.locator("#nvtx_ranges")).nth(place), "kernels")
    assert focused(page) == "iteration #"


def test_a_kernel_leads_to_its_replay_its_ranges_and_back(page: Any, labels: list[str]) -> None:
    kernels = rows_of(page.locator("table[data-table=cuda_gpu_kern_sum]"))
    assert "91.0" in kernels.first.inner_text()
    follow(kernels.first, "replay")
    assert focused(page) == f"1. {labels[0]}"
    follow(page.locator("#ncu_kernels tr.found"), "kernel")
    assert (focused(page), page.evaluate("document.activeElement.closest('section').id")) == (
        labels[0],
        "cuda_gpu_kern_sum",
    )
    follow(kernels.first, "ranges")
    assert names(page.locator("table[data-table='cuda_gpu_kern_sum/range']"))[-1] == labels[0]
    assert kernels.nth(2).locator("[data-does=replay]").count() == 0


def test_an_event_leads_to_all_that_is_known_of_it(page: Any, labels: list[str]) -> None:
    follow(rows_of(page.locator("table[data-table=cuda_gpu_kern_sum]")).first, "show")
    panel = page.locator(".timeline-event")
    panel.locator("h3").wait_for()
    assert panel.locator("h3").inner_text() == labels[0]
    text = panel.inner_text()
    assert "SM 91.0 %, DRAM 7.0 %, Limiter L2" in text
    assert "sm80_xmma_gemm" in text
    panel.locator("button:text-is('Kernels of the range')").click()
    assert focused(page) == "forward"
    panel.locator("button:text-is('Kernel time')").press("Enter")
    assert focused(page) == labels[0]
    panel.locator("button", has_text="SM 91.0 %").press("Enter")
    assert focused(page) == f"1. {labels[0]}"
    panel.get_by_role("button", name="forward", exact=True).press("Enter")
    assert panel.locator("h3").inner_text() == "forward"
    panel.locator("button:text-is('Range table')").press("Enter")
    assert focused(page) == "forward"


def test_evidence_that_names_a_range_leads_there(page: Any) -> None:
    evidence = page.locator("[data-of-window='0'] details.evidence").first
    evidence.locator("summary").click()
    known, unknown = evidence.locator("li").all()[:2]
    assert unknown.locator("button").count() == 0
    known.locator("button").click()
    page.locator(".timeline-event h3").wait_for()
    assert page.locator(".timeline-event h3").inner_text() == "backward"


def test_a_kernel_and_the_advice_on_it_lead_to_each_other(page: Any, labels: list[str]) -> None:
    follow(rows_of(page.locator("table[data-table=cuda_gpu_kern_sum]")).nth(1), "show")
    panel = page.locator(".timeline-event")
    panel.locator("button", has_text="Cause: FP32 math runs without tensor cores").press("Enter")
    assert page.evaluate("document.activeElement.matches('.advice > li')")
    evidence = page.locator("[data-of-window='0'] details.evidence").first
    evidence.locator("summary").click()
    evidence.locator("li", has_text=f"Kernel: {labels[1]}").locator("button").click()
    assert focused(page) == labels[1]


def test_a_range_and_the_advice_on_it_lead_to_each_other(page: Any) -> None:
    evidence = page.locator("[data-of-window='0'] details.evidence").nth(1)
    evidence.locator("summary").click()
    evidence.locator("li").first.locator("button").click()
    panel = page.locator(".timeline-event")
    panel.locator("h3").wait_for()
    assert panel.locator("h3").inner_text() == "io:h2d"
    panel.locator("button", has_text="Cause: Copies use pageable memory").press("Enter")
    assert "Copies use pageable memory" in page.evaluate("document.activeElement.innerText")
