import base64
import datetime as dt
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import pandas as pd
import pytest
from markupsafe import escape

from nightsight.model.report import Finding, Profile, Report
from nightsight.render.page.html import render_html
from nightsight.render.page.index import IndexEntry, index_entry, index_page, render_index
from nightsight.render.verdict import SENTENCES
from nightsight.results.rules import RULES
from tests.recorded import Recorded
from tests.reports import HOSTILE, hostile_report, kernel_table, result, small_report, step_table
from tests.timeline import draw

VOID = {"meta", "line", "rect", "circle", "wbr"}


class Outline(HTMLParser):
    """What a page is made of: elements with attributes, text by element, and whether the tags match."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.continues = False
        self.text: dict[str, list[str]] = {}
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.continues = tag == "wbr"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            texts = self.text.setdefault(self.open[-1], [])
            texts.append(texts.pop() + data if self.continues else data)
        self.continues = False

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def train(recorded: Recorded) -> Report:
    return recorded.report("train")


@pytest.fixture(scope="module")
def pages(train: Report) -> dict[str, str]:
    reports = {"train": train, "small": small_report(), "hostile": hostile_report(), "bare": small_report(results=())}
    rendered = {name: render_html(report) for name, report in reports.items()}
    return {**rendered, "index": render_index([entry(workload=name, href=name) for name in HOSTILE])}


PAGES = ("train", "small", "hostile", "bare", "index")


def entry(**changes: object) -> IndexEntry:
    fields: dict[str, object] = {
        "workload": "mlp",
        "run_id": "1",
        "href": "mlp/1/report.html",
        "captured_utc": "2026-11-20 09:00:00",
        "gpu": "NVIDIA H200",
        "collector": "nsys",
        "window_ns": 2e9,
        "busy_pct": 50.0,
        "kernel_ns": 1e9,
        "step_ns": None,
        "failed": False,
    }
    return IndexEntry(**{**fields, **changes})  # type: ignore[arg-type]


def policy_of(page: str) -> str:
    (content,) = (
        meta["content"] for meta in Outline(page).all("meta") if meta.get("http-equiv") == "Content-Security-Policy"
    )
    return content or ""


@pytest.mark.parametrize("name", PAGES)
def test_tags_match_and_nothing_is_inline(name: str, pages: dict[str, str]) -> None:
    outline = Outline(pages[name])
    assert outline.open == []
    attributes = {attribute for _, element in outline.elements for attribute in element}
    assert "style" not in attributes
    assert not [attribute for attribute in attributes if attribute.startswith("on")]
    assert not [attributes for attributes in outline.all("script") if "src" in attributes]
    assert not {"link", "iframe", "img", "object", "form", "base"} & {tag for tag, _ in outline.elements}


@pytest.mark.parametrize("name", PAGES)
def test_the_policy_allows_the_page_s_own_style_and_script_and_nothing_else(name: str, pages: dict[str, str]) -> None:
    blocks = (re.findall(rf"<{tag}>(.*?)</{tag}>", pages[name], re.DOTALL) for tag in ("style", "script"))
    style, script = (digest for (block,) in blocks for digest in [hashlib.sha256(block.encode()).digest()])
    style_hash, script_hash = (base64.b64encode(digest).decode() for digest in (style, script))
    assert policy_of(pages[name]) == (
        f"default-src 'none'; style-src 'sha256-{style_hash}'; script-src 'sha256-{script_hash}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


@pytest.mark.parametrize("name", ["train", "small", "bare"])
def test_the_page_names_no_address(name: str, pages: dict[str, str]) -> None:
    assert not re.search(r"https?:|url\(|@import", pages[name])
    assert not re.search(r"//[a-z]", re.sub(r"<script.*?</script>", "", pages[name], flags=re.DOTALL))


@pytest.mark.parametrize("name", PAGES)
def test_links_stay_on_the_page_or_below_it(name: str, pages: dict[str, str]) -> None:
    outline = Outline(pages[name])
    ids = {attributes["id"] for _, attributes in outline.elements if "id" in attributes}
    for link in outline.all("a"):
        href = link["href"] or ""
        assert href.removeprefix("#") in ids if href.startswith("#") else not re.match(r"[\w.+-]*:|//", href)


@pytest.mark.parametrize("name", PAGES)
def test_every_page_is_small_and_valid_utf8(name: str, pages: dict[str, str]) -> None:
    assert len(pages[name].encode()) < 1_000_000
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", pages[name])


def test_hostile_names_are_text(pages: dict[str, str]) -> None:
    outline = Outline(pages["hostile"])
    shown = [text for texts in outline.text.values() for text in texts]
    assert "</script><script>alert(1)</script>" in outline.text["title"][0]
    assert {HOSTILE[1], HOSTILE[3], HOSTILE[4], HOSTILE[5], "x" * 4096} <= set(shown)
    assert "49" not in outline.text["bdi"]


def test_images_have_a_name_or_are_hidden(pages: dict[str, str]) -> None:
    hidden = Outline(pages["train"]).all("svg")
    assert len(hidden) > 50
    for svg in hidden:
        assert svg.get("aria-hidden") == "true" or (svg.get("role") == "img" and svg.get("aria-label"))


def test_tables_have_captions_and_scoped_headers(pages: dict[str, str]) -> None:
    outline = Outline(pages["train"])
    assert len(outline.all("caption")) == len(outline.all("table")) >= 5
    assert {header.get("scope") for header in outline.all("th")} == {"row", "col"}


def test_a_shortened_name_is_whole_one_step_away(pages: dict[str, str]) -> None:
    outline = Outline(pages["small"])
    assert "reduce" in outline.text["bdi"]
    assert "void at::native::reduce_kernel<(int)512, (int)1>(T3)" in outline.text["bdi"]


def test_a_report_read_back_from_json_looks_the_same(train: Report) -> None:
    assert render_html(Report.from_json(train.to_json())) == render_html(train)


def test_the_order_of_the_page_is_trust_then_numbers_then_method(pages: dict[str, str]) -> None:
    page = pages["small"]
    marks = ['class="banner error"', 'class="banner info"', 'class="figures"', 'id="gpu_time"', 'id="method"']
    places = [page.index(mark) for mark in marks]
    assert places == sorted(places)
    assert page.index('id="launch_overhead"') < page.index("NVTX was off") < places[-1]


@pytest.mark.nightly
def test_a_thousand_rows_make_no_large_page() -> None:
    kernels = kernel_table(tuple(f"{'long::' * 600}kernel_{place}" for place in range(1000)))
    page = render_html(small_report(results=(result("cuda_gpu_kern_sum", kernels),)))
    assert len(page) < 1_000_000
    assert "The first 50 of 1,000 kernels." in page


def test_a_result_without_columns_is_empty() -> None:
    assert "none found in this capture" in render_html(small_report(results=(result("other", pd.DataFrame()),)))


def test_the_index_is_grouped_by_workload_newest_first() -> None:
    entries = [
        entry(run_id="old", captured_utc="2026-11-18"),
        entry(run_id="other", workload="train", captured_utc="2026-11-20"),
        entry(run_id="new", captured_utc="2026-11-19", failed=True, window_ns=None),
    ]
    outline = Outline(render_index(entries))
    assert outline.text["h1"] == ["Reports"]
    assert outline.text["caption"] == ["Runs of train", "Runs of mlp"]
    runs = [text for text in outline.text["bdi"] if text in ("old", "other", "new", "complete", "failed")]
    assert runs == ["other", "complete", "new", "failed", "old", "complete"]


def test_what_tells_runs_apart_comes_first_in_the_index() -> None:
    (group,) = index_page([entry(step_ns=1_500_000.0, window_ns=2e9), entry(run_id="2", window_ns=80.0)]).groups
    table = group.table
    titles = ["Run", "Outcome", "Step, unprofiled", "GPU busy", "Window", "Kernel time", "GPU", "Collector"]
    assert [column.title for column in table.columns] == [*titles, "Captured (UTC)", "Commit"]
    texts = [[cell.text for cell in row.cells[1:4]] for row in table.rows]
    assert texts == [["–", "50.0", "80 ns"], ["1.500", "50.0", "2.000"]]


def runs_of(times: list[float], **facts: object) -> list[IndexEntry]:
    """Return complete runs on one machine, the oldest first."""
    first = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
    days = [f"{first + dt.timedelta(days=place):%Y-%m-%d}" for place in range(len(times))]
    return [entry(run_id=day, captured_utc=day, step_ns=time, **facts) for day, time in zip(days, times, strict=True)]


def test_the_index_shows_the_last_runs_of_each_machine_and_compares_no_two_machines() -> None:
    facts = {"machine": "driver 580, CUDA 13.0"}
    old = runs_of([9e6] * 8, gpu="NVIDIA H100", **facts)
    (group,) = index_page([*old, *runs_of([2e6, 2.01e6, 1.99e6, 2e6, 2.02e6], **facts)]).groups
    assert [(machine.name, machine.last, machine.state) for machine in group.machines] == [
        (
            "NVIDIA H100, driver 580, CUDA 13.0",
            "Step, unprofiled (newest first): 9.000, 9.000, 9.000, 9.000, 9.000 ms",
            "steady",
        ),
        (
            "NVIDIA H200, driver 580, CUDA 13.0",
            "Step, unprofiled (newest first): 2.020, 2.000, 1.990, 2.010, 2.000 ms",
            "steady",
        ),
    ]


def test_the_index_says_when_the_last_runs_are_off() -> None:
    failed = entry(run_id="failed", captured_utc="2026-12-01", step_ns=9e6, failed=True)
    (group,) = index_page([failed, *runs_of([2e6, 2.01e6, 1.99e6, 2e6, 2.2e6, 2.2e6])]).groups
    (machine,) = group.machines
    assert (machine.state, machine.is_off) == ("the last 2 runs +10.0 % from the runs before", True)
    page = render_index(runs_of([2e6] * 4), trends="history.html")
    assert "no trend from 4 runs" in page
    assert '<a href="history.html">trends</a>' in page


def test_advice_links_to_the_section_that_shows_its_evidence() -> None:
    findings = (
        Finding("many_tiny_kernels", "advice", "Tiny", "d", evidence=("e",), source="cuda_gpu_kern_sum"),
        Finding("gpu_gaps", "advice", "Gaps", "d", source="gpu_gaps"),
    )
    text = render_html(small_report(findings=findings))
    assert '<a href="#cuda_gpu_kern_sum">Kernel time</a>' in text
    assert 'href="#gpu_gaps"' not in text


def test_code_in_a_remedy_looks_like_code() -> None:
    remedies = {
        remedy for rule in RULES for remedy in (rule.remedy, rule.one_time, *rule.remedies.values()) if "`" in remedy
    }
    assert len(remedies) >= 3
    for remedy in remedies:
        advice, warning = (Finding("x", severity, "T", "d", remedy) for severity in ("advice", "warning"))
        page = render_html(replace(small_report(), findings=(advice, warning)))
        text = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
        assert "`" not in text
        code = remedy.split("`")[1]
        # its first sentence is below the headline, too
        is_first = code in SENTENCES.split(remedy)[0]
        assert text.count(f"<code>{escape(code)}</code>") == 2 + is_first


def test_a_unit_is_on_the_line_of_its_number() -> None:
    sentence = "Waits 2.747 ms of 3 steps, 5.0 % at 1.2 TB/s"
    finding = Finding("gpu_gaps", "advice", sentence, sentence, evidence=(sentence,), source="gpu_gaps")
    warning = Finding("lost_events", "warning", "Lost", sentence)
    text = render_html(small_report(findings=(finding, warning)))
    whole = "Waits 2.747\N{NO-BREAK SPACE}ms of 3 steps, 5.0\N{NO-BREAK SPACE}% at 1.2\N{NO-BREAK SPACE}TB/s"
    assert text.count(whole) >= 4
    assert sentence not in text


def test_a_report_s_line_in_the_index_has_its_key_numbers() -> None:
    line = index_entry(small_report(), failed=True)
    assert line == entry(
        workload="matmul",
        run_id="",
        href="",
        busy_pct=25.0,
        window_ns=1e9,
        kernel_ns=2.5e8,
        step_ns=1.1e6,
        failed=True,
        machine=line.machine,
    )
    assert line.machine == f"nsys, {', '.join(f'{name} {text}' for name, text in small_report().parameters.items())}"


def test_a_cpu_run_s_line_in_the_index_has_its_window() -> None:
    results = (
        result("gpu_time", None, unavailable="no GPU"),
        result("nvtx_ranges", step_table(steps=20, total_ns=30_000)),
    )
    line = index_entry(small_report(results=results), failed=False)
    assert (line.window_ns, line.busy_pct, line.kernel_ns) == (30_000.0, None, None)


@pytest.mark.parametrize(
    ("href", "quoted"),
    [("mlp/1/report.html", "mlp/1/report.html"), ("javascript:alert(1)", "javascript%3Aalert%281%29")],
)
def test_a_run_is_linked_relative_to_the_index(href: str, quoted: str) -> None:
    links = [link["href"] for link in Outline(render_index([entry(href=href)])).all("a")]
    assert links == ["#content", quoted]


def test_an_index_without_runs_says_how_to_make_one() -> None:
    assert "nightsight profile WORKLOAD" in render_index([])


def test_a_page_has_a_timeline_if_there_are_events_and_room() -> None:
    profile = draw("nvtx  [load      ]\ncpu   L........L..\ns7    .a.........b")
    page = render_html(small_report(), profile)
    assert 'href="#timeline"' in page
    assert "timeline-data>" not in page.replace('id="timeline-data">', "")
    small = render_html(small_report(), profile, most_bytes=len(page) - 500)
    assert 'id="timeline-data"' not in small
    assert "no room" in small
    assert "the capture has no timed events" in render_html(small_report(), Profile({}))


def test_a_name_cannot_take_the_place_of_the_timeline() -> None:
    profile = draw("nvtx  [load      ]\ncpu   L........L..\ns7    .a.........b")
    page = render_html(small_report(title="<timeline-data>"), profile)
    assert page.count("&lt;timeline-data&gt;") >= 2
    assert '<script type="application/gzip+base64" id="timeline-data">H4sI' in page


def test_only_a_time_is_marked_up_as_one() -> None:
    def elements(captured: str) -> tuple[list[dict[str, str | None]], list[str]]:
        report = small_report()
        page = render_html(replace(report, environment=replace(report.environment, captured_utc=captured)))
        outline = Outline(page)
        return outline.all("time"), outline.text.get("time", [])

    times, texts = elements("2026-11-20 11:19:31")
    assert times == [{"datetime": "2026-11-20T11:19:31Z"}] * 2
    assert texts == ["2026-11-20 11:19:31 UTC", "2026-11-20 11:19:31"]
    for other in ("", "2026-11-20", "2026-11-20 11:19:31<b>", "yesterday"):
        assert elements(other) == ([], [])
