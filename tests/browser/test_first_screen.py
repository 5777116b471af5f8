"""The first screen of a report is the answer, and what is closed opens where a link leads."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nightsight.job.facts import RankCapture
from nightsight.job.merge import merge_ranks
from nightsight.render.page.html import render_html
from nightsight.workflows.analysis import build_report
from tests.browser.table_pages import wait_until
from tests.recorded import Recorded
from tests.replay_tables import replay_report

pytestmark = pytest.mark.browser

# of each the number of ranks; those of grid share one GPU, which is a warning
JOBS = {"grid": 4, "straggler_host": 2}

LOW = "part => document.querySelector(part).getBoundingClientRect().bottom"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, recorded: Recorded) -> dict[str, Path]:
    report = replay_report()
    alone = replace(report, results=tuple(result for result in report.results if result.name != "gpu_time"))
    texts = {**{name: recorded.page(name) for name in ("train", "ddp2", "cpu")}, "replays": render_html(alone)}
    for name, count in JOBS.items():
        job = merge_ranks([RankCapture(f"{name}.{rank}", recorded.profile(f"{name}.{rank}")) for rank in range(count)])
        texts[name] = render_html(build_report(job, name))
    folder = tmp_path_factory.mktemp("first")
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in texts}


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("train", "FP32 math runs without tensor cores"),
        ("ddp2", "FP32 math runs without tensor cores"),
        ("cpu", "No work on a GPU."),
        ("grid", "Rank 3 runs host code in"),
        ("straggler_host", "Rank 1 runs host code in"),
        ("replays", "3 kernels replayed by ncu, without a timeline."),
    ],
)
def test_the_answer_is_in_the_first_720_pixels(name: str, answer: str, browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto(files[name].as_uri())
    assert page.locator(".headline:visible").inner_text().startswith(answer)
    parts = [
        part
        for part in (".headline", ".ladder", "#verdict .banners", ".figures.first", ".split", ".causes")
        if page.locator(part).count()
    ]
    assert (".figures.first" in parts) == (".ladder" not in parts) == (name in ("cpu", "replays"))
    assert "#verdict .banners" in parts or name != "grid"
    assert {part: low for part in parts if (low := page.evaluate(LOW, part)) > 720} == {}
    page.close()


def test_the_text_of_a_warning_is_one_click_away(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto(files["grid"].as_uri())
    warning = page.locator("#verdict .banner")
    assert " ".join(warning.inner_text().split()) == "Warning Ranks 0, 1, 2 and 3 share one GPU"
    warning.locator("summary").first.click()
    assert "They take turns" in warning.inner_text()
    page.close()


def test_the_title_of_a_section_is_not_broken_in_advice(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto(files["train"].as_uri())
    links = page.locator(".advice:visible .whereabouts a")
    for width in range(700, 1300, 40):
        page.set_viewport_size({"width": width, "height": 720})
        assert {box["height"] < 30 for box in (link.bounding_box() for link in links.all())} == {True}
    page.close()


@pytest.mark.parametrize("name", ["train", "ddp2", "cpu", "replays"])
def test_a_page_is_at_most_eight_screens_and_fourteen_printed_pages(
    name: str, browser: Any, files: dict[str, Path]
) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto(files[name].as_uri())
    page.wait_for_timeout(500)
    assert page.evaluate("document.documentElement.scrollHeight") <= 8 * 720
    printed = page.pdf(format="A4")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 14
    page.close()


def test_how_to_do_a_fix_is_said_once_by_its_code_or_by_a_sentence(browser: Any, files: dict[str, Path]) -> None:
    told = {}
    for name in ("train", "straggler_host"):
        page = browser.new_page(viewport={"width": 1280, "height": 720})
        page.goto(files[name].as_uri())
        parts = ("pre code", ".how")
        told[name] = [page.locator(f".headline:visible {part}").all_inner_texts() for part in parts]
        page.close()
    assert told["train"][0][0].startswith("torch.set_float32_matmul_precision")
    assert told["train"][1] == []
    (how,) = told["straggler_host"][1]
    assert how == "Run it ahead of time, in another process or thread (DataLoader workers, prefetching)."


def test_a_wide_window_is_used_and_lines_of_text_stay_short(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 1920, "height": 1080})
    page.goto(files["train"].as_uri())
    contents, main, text = (
        page.locator(part).first.bounding_box() for part in (".contents", "#verdict", "#advice .what > p")
    )
    gap = main["x"] - contents["x"] - contents["width"]
    assert 0 < gap < 64
    assert 1920 - main["x"] - main["width"] < 0.15 * 1920
    assert text["width"] <= 62 * 16
    page.close()


def test_the_answer_follows_the_window(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto(files["train"].as_uri())
    steady = page.locator(".headline:visible").inner_text()
    page.get_by_role("button", name="Whole", exact=True).click()
    whole = page.locator(".headline:visible").inner_text()
    assert whole.startswith("The GPU waits for host code")
    assert whole.endswith("of the window is the start-up, a one-time cost.")
    stay = "The sections below still show Steady."
    sentence = page.locator(".windows p[data-of-window]:visible")
    assert sentence.inner_text().endswith(stay)
    page.get_by_role("button", name="Start-up", exact=True).click()
    assert sentence.inner_text() == stay
    assert page.locator(".headline:visible").inner_text().endswith("NVTX ranges.\n\nOne-time cost.")
    page.get_by_role("button", name="Steady", exact=True).click()
    assert page.locator(".headline:visible").inner_text() == steady
    assert stay not in sentence.inner_text()
    page.close()


def test_the_ladder_is_that_of_the_window_of_the_report_and_fits_all_widths(
    browser: Any, files: dict[str, Path]
) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto(files["train"].as_uri())
    bars, texts = page.locator(".rungs svg[role]"), page.locator(".rungs .fix")
    for width in (320, 390, 700, 1280, 1920):
        page.set_viewport_size({"width": width, "height": 720})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        boxes = [(bar.bounding_box(), text.bounding_box()) for bar, text in zip(bars.all(), texts.all(), strict=True)]
        assert len(boxes) == 5
        assert all(bar["width"] >= 200 and bar["height"] >= 15 for bar, _ in boxes)
        # the text is beside its bar, or above it
        for bar, text in boxes:
            assert text["x"] >= bar["x"] + bar["width"] or text["y"] + text["height"] <= bar["y"] + 1
    page.get_by_role("button", name="Whole", exact=True).click()
    assert not page.locator(".ladder").is_visible()
    page.emulate_media(media="print")
    assert page.locator(".ladder").is_visible()
    page.close()


TF32 = 'torch.set_float32_matmul_precision("high")\ntorch.backends.cudnn.allow_tf32 = True'


def test_the_code_of_the_first_fix_is_copied_with_the_keyboard(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(files["train"].as_uri())
    button = page.locator(".headline .lines button")
    button.focus()
    page.keyboard.press("Enter")
    wait_until(page, lambda: button.inner_text() == "Copied")
    assert page.locator("#copy-status").inner_text() == "Copied"
    assert page.evaluate("navigator.clipboard.readText()") == TF32
    wait_until(page, lambda: button.inner_text() == "Copy")
    assert page.locator(".headline .lines code").inner_text() == TF32
    page.emulate_media(media="print")
    assert not button.is_visible()
    page.close()


def test_without_scripts_the_code_has_no_button_and_links_lead_to_sections(
    browser: Any, files: dict[str, Path]
) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 720}, java_script_enabled=False)
    page.goto(files["train"].as_uri())
    assert page.locator(".lines button:visible").count() == 0
    assert page.locator(".headline .lines code").inner_text() == TF32
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    targets = [link.get_attribute("href") for link in page.locator(".headline:visible .whereabouts a").all()]
    assert targets == ["#cuda_gpu_kern_sum", "#timeline", "#what_if"]
    assert all(page.locator(target).count() == 1 for target in targets)
    page.close()


def test_the_links_of_the_first_fix_lead_to_its_kernel(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto(files["train"].as_uri())
    page.locator(".timeline-live:visible").wait_for()
    links = page.locator(".headline:visible .whereabouts a")
    links.nth(1).click()
    assert "gemm" in page.locator("#timeline").get_by_role("searchbox", name="Search").input_value()
    wait_until(page, lambda: "gemm" in page.locator("#timeline .timeline-event").inner_text())
    links.nth(0).click()
    found = page.locator("#cuda_gpu_kern_sum tr.found")
    found.wait_for()
    assert links.nth(0).inner_text() in found.inner_text()
    page.close()


def test_ids_of_rules_are_in_the_evidence_only(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto(files["train"].as_uri())
    page.locator("#what_if").evaluate("part => part.open = true")
    assert not {"tensor_cores", "launch_bound"} & set(re.findall(r"\w+", page.locator("main").inner_text()))
    page.locator("#advice-0-1 .evidence").last.locator("summary").click()
    assert "tensor_cores" in page.locator("#advice-0-1").inner_text()
    page.close()


def test_a_cause_leads_to_what_to_do_about_it(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto(files["train"].as_uri())
    page.locator(".rungs a").nth(1).click()
    target = page.locator("#advice-0-2")
    wait_until(page, lambda: 0 <= target.bounding_box()["y"] < 300)
    assert "Copies use pageable memory" in target.inner_text()
    page.close()


def test_a_link_opens_the_section_that_it_leads_to(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 1600, "height": 900})
    page.goto(files["train"].as_uri())
    section = page.locator("#critical_path")
    assert not section.locator("table").is_visible()
    page.locator('.contents a[href="#critical_path"]').click()
    section.locator("figure").first.wait_for()
    wait_until(page, lambda: 0 <= section.bounding_box()["y"] < 300)
    page.close()


def test_an_address_opens_the_section_that_it_names(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto(f"{files['train'].as_uri()}#method")
    page.locator("#method .pairs").first.wait_for()
    page.close()


def test_without_scripts_what_is_closed_still_opens(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(java_script_enabled=False)
    page.goto(files["train"].as_uri())
    page.locator("#cuda_api_sum summary").first.click()
    page.locator("#cuda_api_sum table").wait_for()
    page.close()


def test_the_contents_stay_in_view(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto(files["train"].as_uri())
    contents = page.locator(".contents")
    for width in (390, 640, 1280):
        page.set_viewport_size({"width": width, "height": 720})
        page.evaluate("scrollTo(0, 2000)")
        wait_until(page, lambda: contents.bounding_box()["y"] == 0)
        assert contents.bounding_box()["height"] < 60
        contents.get_by_role("link", name="Verdict").click()
        wait_until(page, lambda: page.evaluate("scrollY") == 0)
    page.close()
