"""`--filter-time` and `--filter-nvtx`: what is read from them, and which events they leave."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.errors import UsageError
from nightsight.model.report import Profile
from nightsight.stats.window import TimeWindow, narrowed, range_window, time_window
from nightsight.tables import conform, empty
from tests.timeline import draw

UNITS = {
    "": 1,
    "ns": 1,
    "nsec": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "sec": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
SPANS = st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(sorted(set(UNITS) - {""}))), min_size=1, max_size=4)


@given(start=SPANS, length=SPANS)
def test_times_add_up_whatever_units_they_are_written_in(
    start: list[tuple[int, str]], length: list[tuple[int, str]]
) -> None:
    first = sum(number * UNITS[unit] for number, unit in start)
    last = first + sum(number * UNITS[unit] for number, unit in length)
    written = ["".join(f"{number}{unit}" for number, unit in parts) for parts in (start, [*start, *length])]
    assert time_window("/".join(written)) == TimeWindow(first, last)


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("1000/2000", TimeWindow(1000, 2000)),
        ("1.5s/", TimeWindow(1_500_000_000, 2**63 - 1)),
        ("/1e3us", TimeWindow(-(2**63), 1_000_000)),
        ("-5/5", TimeWindow(-5, 5)),
        ("9007199254740993/", TimeWindow(9007199254740993)),
    ],
)
def test_spans_of_time(text: str, window: TimeWindow) -> None:
    assert time_window(text) == window


@pytest.mark.parametrize(
    "text", ["", "/", "5", "5/x", "5q/6", "9/8", "1s 2s/3s", "1/2/3", "--1/2", ":1/2", "1/2:", "/1e400"]
)
def test_what_is_no_span_of_time_is_an_error(text: str) -> None:
    with pytest.raises(UsageError, match=r"span of time|ends before|unknown unit"):
        time_window(text)


@given(st.text(alphabet="0123456789.:/+-emnsuh ", max_size=12))
def test_any_text_is_a_span_of_time_or_an_error(text: str) -> None:
    try:
        window = time_window(text)
    except UsageError as error:
        assert error.hint
    else:
        assert window.start_ns <= window.end_ns


@pytest.mark.parametrize(
    ("text", "kernels"),
    [
        ("3us/9us", "abc"),
        ("4us/8us", "abc"),
        ("4001ns/7999ns", "b"),
        ("5500ns/6us", "b"),
        ("5us/", "bc"),
        ("/7us", "ab"),
        ("20us/", ""),
    ],
)
def test_an_event_stays_whole_if_any_of_it_lies_in_the_window(text: str, kernels: str) -> None:
    drawn = draw("s7  ..aa.bb.cc")
    kept = narrowed(drawn, time_window(text)).table("kernels")
    assert "".join(kept["name"]) == kernels
    assert (kept["end_ns"] - kept["start_ns"]).eq(2000).all()


@given(start=st.integers(-100, 20_000), length=st.integers(0, 20_000))
def test_a_wider_window_keeps_all_that_a_narrower_one_keeps(start: int, length: int) -> None:
    drawn = draw("nvtx  [outer    ]\ncpu   .L...S\ns7    ...aaa..")
    narrow, wide = (narrowed(drawn, TimeWindow(start - margin, start + length + margin)) for margin in (0, 500))
    for name in ("kernels", "api_calls", "ranges"):
        kept = [set(profile.table(name)["start_ns"]) for profile in (narrow, wide)]
        assert kept[0] <= kept[1]


def test_a_range_that_never_ended_is_a_point_as_in_nsys() -> None:
    profile = draw("nvtx  [open      ]")
    opened = Profile({"ranges": conform("ranges", profile.table("ranges").assign(is_open=True))})
    assert narrowed(opened, TimeWindow(500, 900)).table("ranges").empty
    assert len(narrowed(profile, TimeWindow(500, 900)).table("ranges")) == 1


def test_what_has_no_end_stays_wherever_it_lies() -> None:
    faults = conform(
        "cpu_page_faults",
        empty("cpu_page_faults")
        .reindex([0, 1])
        .assign(time_ns=[5, 15], process=1, address=1, instruction="", source_file=""),
    )
    threads = conform("threads", empty("threads").reindex([0]).assign(thread=1, name="main"))
    profile = narrowed(Profile({"cpu_page_faults": faults, "threads": threads}), TimeWindow(10, 20))
    assert profile.table("cpu_page_faults")["time_ns"].tolist() == [5, 15]
    assert len(profile.table("threads")) == 1


RANGES = draw("nvtx  [step ][step ][load ][a ]")
IN_DOMAINS = Profile(
    {
        "ranges": conform(
            "ranges", RANGES.table("ranges").assign(domain=["", "", "io", ""], name=["step", "step", "load", "a/1@b"])
        )
    }
)


@pytest.mark.parametrize(
    ("text", "start_ns"),
    [("step", 0), ("step/0", 0), ("step/1", 7000), ("load@io", 14_000), (r"a\/1\@b", 21_000)],
)
def test_a_range_is_found_by_name_domain_and_index(text: str, start_ns: int) -> None:
    assert range_window(IN_DOMAINS, text).start_ns == start_ns


@pytest.mark.parametrize("text", ["nope", "step/2", "load", "load@net", "step@io", "step@*", "a/1@b"])
def test_a_range_that_is_not_there_is_an_error_that_names_some(text: str) -> None:
    with pytest.raises(UsageError, match="no range") as caught:
        range_window(IN_DOMAINS, text)
    assert "load@io" in caught.value.hint


def test_a_domain_is_known_by_name_only_if_it_was_created_in_the_window() -> None:
    created = pd.Series([100, 100, 100, None], dtype="int64[pyarrow]")
    ranges = RANGES.table("ranges").assign(domain="io", domain_start_ns=created)
    profile = Profile({"ranges": conform("ranges", ranges)})
    assert narrowed(profile, TimeWindow(100, 10_000)).table("ranges")["domain"].tolist() == ["io", "io"]
    assert narrowed(profile, TimeWindow(101)).table("ranges")["domain"].tolist() == ["", "", "", ""]


THREADS = """
    nvtx:5  [main      ]
    nvtx:8  .[worker ]
    cpu:5   ..L......
    cpu:8   ...L.....
    s7      ....aa...
"""


@pytest.mark.parametrize(("name", "threads"), [("main", [5, 8]), ("worker", [8])])
def test_a_range_of_the_main_thread_is_about_all_threads_and_another_about_its_own(
    name: str, threads: list[int]
) -> None:
    profile = draw(THREADS)
    kept = narrowed(profile, range_window(profile, name))
    assert kept.table("api_calls")["tid"].tolist() == threads
    assert kept.table("ranges")["tid"].tolist() == threads
    assert len(kept.table("kernels")) == 1


@given(st.text(alphabet=r"step/@\*01", max_size=8))
def test_any_text_is_a_range_or_an_error(text: str) -> None:
    try:
        window = range_window(IN_DOMAINS, text)
    except UsageError as error:
        assert error.hint
    else:
        assert window.end_ns > window.start_ns
