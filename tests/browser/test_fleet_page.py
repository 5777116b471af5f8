"""The page of a fleet in a real browser: silent, self-contained, sorted and filtered, and readable without scripts."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nightsight.model.fleet import Failure, Fleet
from nightsight.render.fleet import render_fleet
from tests.browser.looks import in_turns, violations
from tests.browser.table_pages import wait_until
from tests.fleets import STEP, made_fleet, summary
from tests.reports import HOSTILE

pytestmark = pytest.mark.browser

READY = "performance.getEntriesByName('table: ready').length"


def many() -> Fleet:
    """Put 40 captures of two programs together: one is slow, one machine has another driver, some have causes."""
    kernels = {f"void kernel_{number}<float>(float*, int)": (10, 1000 * (60 - number)) for number in range(60)}
    summaries = [
        summary(
            f"c{number:02}",
            workload=("mlp", "train")[number % 2],
            step_ns=STEP * (1.4 if number == 17 else 1 + 0.001 * (number % 5)),
            driver="590.10" if number > 30 else "580.95",
            causes={"wait": 12.0} if number % 3 else {"host_code": 30.0, "wait": 3.0},
            kernels=kernels if number % 2 else {"ncclDevKernel_AllReduce_Sum_f32": (5, 900)},
        )
        for number in range(40)
    ]
    reports = [f"night{number}/report.html" for number in range(40)]
    failures = (Failure("night40/train.sqlite", "train.sqlite is truncated: it has 40,000 of 335,872 bytes"),)
    return replace(made_fleet(summaries, report=reports), failures=failures, notes=("1 file left out",))


def hostile() -> Fleet:
    """Put a hostile text wherever a fleet can hold one."""
    names = [name for name in HOSTILE if name]
    summaries = [
        summary(f"c{number}", workload=name, gpu=name, torch=name, kernels={name: (1, 5)}, causes={name: 5.0})
        for number, name in enumerate(names)
    ]
    failures = tuple(Failure(name, name) for name in names)
    return replace(made_fleet(summaries, file=names), failures=failures, notes=tuple(names))


PAGES: Mapping[str, Callable[[], Fleet]] = {
    "many": many,
    "hostile": hostile,
    "one": lambda: made_fleet([summary("a")]),
    "nothing": lambda: made_fleet([summary("a", step_ns=0.0, gpu_ns=0, gpus=0, busy_ns=0, split={"compute": 0.0})]),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("fleets")
    for name, made in PAGES.items():
        (folder / f"{name}.html").write_text(render_fleet(made()), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in PAGES}


def visited(browser: Any, file: Path, **options: Any) -> Any:
    page = browser.new_page(viewport={"width": 1280, "height": 900}, **options)
    page.goto(file.as_uri())
    return page


@pytest.mark.parametrize(("name", "scheme", "width"), in_turns(PAGES))
def test_the_page_is_silent_self_contained_fits_and_axe_finds_nothing(
    name: str, scheme: str, width: int, *, browser: Any, files: dict[str, Path]
) -> None:
    messages: list[str] = []
    requests: list[str] = []
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(files[name].as_uri())
    wait_until(page, lambda: page.evaluate(READY))
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.screenshot(path=files[name].with_name(f"{name}-{scheme}-{width}.png"), full_page=True)
    assert messages == []
    assert requests == [files[name].as_uri()]
    assert violations(page) == {}
    page.close()


def test_tables_are_sorted_filtered_and_lead_to_reports(browser: Any, files: dict[str, Path]) -> None:
    page = visited(browser, files["many"])
    wait_until(page, lambda: page.evaluate(READY))
    section = page.locator("#each")
    section.locator("thead th", has_text="Step").locator("button").click()
    wait_until(page, lambda: "c17" in section.locator("tbody tr").first.inner_text())
    link = section.locator("tbody tr").first.locator("a")
    assert link.get_attribute("href") == "night17/report.html"
    section.locator("input").first.fill("c05")
    wait_until(page, lambda: section.locator("tbody tr").count() == 1)
    kernels = page.locator("#kernels-of-all")
    kernels.get_by_role("button", name="By family").click()
    assert "communication" in kernels.locator("table:visible").inner_text()
    page.close()


def test_without_scripts_everything_is_there(browser: Any, files: dict[str, Path]) -> None:
    page = visited(browser, files["many"], java_script_enabled=False)
    assert page.locator(".answer").inner_text().startswith("40 captures, 40.48\xa0s of GPU time: GPUs 75.0")
    assert "GPU waits for host code in step" in page.locator(".answer strong").inner_text()
    assert page.locator("#each tbody tr").count() == 40
    assert [row.locator("th").inner_text() for row in page.locator("#unlike tbody tr").all()] == ["c17.sqlite"]
    assert page.locator("#kernels-of-all tbody tr").count() == 50
    assert "The summaries hold all." in page.locator("#kernels-of-all .more").inner_text()
    assert "truncated" in page.locator("#failures").inner_text()
    page.close()


def test_the_same_fleet_gives_the_same_bytes_and_no_other_text_becomes_part_of_the_page() -> None:
    assert render_fleet(many()) == render_fleet(many())
    assert "<script>alert(1)" not in render_fleet(hostile())
