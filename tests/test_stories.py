"""Stories of simulated programs: the first finding names the cause, and its promise is what the fix gains."""

import itertools
import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from nightsight.analyze.batch_sizes import batch_sizes
from nightsight.analyze.causes.irregular import irregular_host_code
from nightsight.analyze.drift import drift
from nightsight.analyze.needed_collectives import needed_at_once
from nightsight.events.timeline import Timeline
from nightsight.model.report import Finding, Profile
from nightsight.tables import conform
from nightsight.units import format_value, in_text
from nightsight.workflows.analysis import build_report
from tests.planted.judge import diagnose
from tests.program import Host, Kernel, Sync, Thread, captured, run_us, step_us, within
from tests.stories import ITEM, LENGTHS, STORIES, layers, small_step

# what no capture of these programs shows yet
UNTOLD: tuple[str, ...] = ()
# the loop with most of the work is not the one that idles, or takes the copies before it for start-up: the finding is
# that of the whole run
OF_WHOLE_RUN = ("two_loops", "two_loops_val", "batch_job")
# the first fix is one of several
IN_PARTS = ("gc_pauses", "jax_put", "grad_accum", "serve")


@cache
def profile_of(name: str) -> Profile:
    story = STORIES[name]()
    return captured(*story.threads, records=story.records, capability=story.capability)


def first_finding(name: str) -> Finding | None:
    profile = profile_of(name)
    if name not in OF_WHOLE_RUN:
        return next(iter(diagnose(profile).advice), None)
    report = build_report(profile, name)
    whole = next(view for view in report.windows if view.name == "first to last GPU operation")
    return next(iter(whole.findings), None)


@pytest.mark.parametrize("name", STORIES)
def test_the_cause_of_a_story_is_its_first_finding(name: str) -> None:
    story = STORIES[name]()
    first = first_finding(name)
    is_named = (first.rule if first else None) in (story.rules or (None,))
    assert is_named != (name in UNTOLD)
    if first is None or story.fixed is None or not is_named:
        return
    before, after = run_us(*story.threads), run_us(*story.fixed)
    promised = before * (1 - (first.gain_pct or 0.0) / 100)
    assert promised > after / 1.5
    if name not in IN_PARTS:
        assert promised < 1.5 * after


@pytest.mark.parametrize(
    ("threads", "blocks", "gain_pct"),
    [
        (2, 16, 50),
        (3, 16, 67),
        # a kernel of another thread delays by what it fills of the 132 SMs
        (2, 99, 25),
    ],
)
def test_threads_with_their_own_streams_share_the_sms(threads: int, blocks: int, gain_pct: float) -> None:
    step = within("step", *(Kernel(100, blocks=blocks),) * 10, Sync(7))
    first = diagnose(captured(*(Thread((step,) * 20),) * threads, capability="9.0")).advice[0]
    assert first.rule == "default_stream"
    assert first.gain_pct == pytest.approx(gain_pct, abs=2)
    assert first.title.startswith(f"{threads} threads share the default stream in `step`")


def test_a_clock_that_falls_is_reported_and_kernels_that_vary_are_not() -> None:
    def drifts(name: str) -> list[str]:
        return [each.title for each in drift(Timeline(profile_of(name)))]

    assert drifts("throttle") == ["Kernels take 30 % longer since step 20"]
    assert [name for name in STORIES if drifts(name)] == ["throttle"]


def test_what_the_next_layer_needs_cannot_overlap() -> None:
    numbers = {"tp": "16.9 % of the window (24", "needed_collectives": "16.2 % of the window (48"}
    for name, words in numbers.items():
        advice = diagnose(profile_of(name)).advice
        assert advice[0].title.startswith(f"Each layer waits for its all-reduces: {words} per step")
        assert advice[0].gain_pct is None
        assert "exposed_communication" not in [each.rule for each in advice]
    assert {name for name in STORIES if len(needed_at_once(Timeline(profile_of(name))))} == numbers.keys()


def test_host_code_of_irregular_length_may_be_a_wait_for_requests() -> None:
    def irregular(name: str) -> list[str]:
        return [each.title for each in irregular_host_code(Timeline(profile_of(name)))]

    (title,) = irregular("idle_server")
    assert title == "For 81.9 % of the window, the program may wait for requests"
    assert [name for name in STORIES if irregular(name)] == ["idle_server"]


def test_irregular_host_code_is_a_cause_if_the_capture_names_it() -> None:
    def rules(profile: Profile) -> list[str]:
        return [each.rule for each in diagnose(profile).advice]

    waits_us = np.random.default_rng(5).exponential(6000, 40)
    body = itertools.chain.from_iterable((within("simulate", Host(us)), *layers(10), *ITEM) for us in waits_us)
    assert rules(captured(Thread(tuple(body))))[0] == "host_code"
    # a thread that calls the operating system without waiting works
    profile = profile_of("idle_server")
    calls = profile.table("api_calls")
    for name, is_wait in (("epoll_wait", True), ("gettimeofday", False)):
        until = calls[["start_ns"]].rename(columns={"start_ns": "end_ns"}).iloc[1:].reset_index(drop=True)
        others = until.assign(start_ns=calls["end_ns"].iloc[:-1].to_numpy(), name=name)
        others = others.assign(**{key: calls[key].iloc[0] for key in ("process", "thread", "pid", "tid")})
        tables = {**profile.tables, "os_calls": conform("os_calls", others)}
        assert ("host_code" in rules(replace(profile, tables=tables))) != is_wait


def test_batches_of_different_size_are_reported_and_other_differences_are_not() -> None:
    def differences(name: str) -> list[str]:
        return [each.title for each in batch_sizes(Timeline(profile_of(name)))]

    (title,) = differences("uneven_lengths")
    # a product and five kernels of a quarter of its time, and the optimizer
    least, most = (2.25 * size + 100 for size in (min(LENGTHS), max(LENGTHS)))
    assert title == (
        f"Batches differ in size from step to step: kernels take {format_value(1000 * least, 'time_ns')} to "
        f"{format_value(1000 * most, 'time_ns')} per step"
    )
    assert [name for name in STORIES if differences(name)] == ["uneven_lengths"]


def test_several_times_as_much_per_step_takes_as_long_as_predicted() -> None:
    def small(name: str) -> list[Finding]:
        return [each for each in diagnose(profile_of(name)).advice if each.rule == "small_batch"]

    for name, host_us in (("small_steps", 0.0), ("small_steps_with_host_code", 150.0)):
        (finding,) = small(name)
        assert finding.gain_pct is None
        before, after = step_us(small_step(1, host_us)), step_us(small_step(8, host_us))
        per_item = 100 * (1 - after / 8 / before)
        words = re.search(r": with 8 times the work, each step would take (.*), (\d+) % less per item$", finding.title)
        assert words
        assert words[1] == "as long" if before == after else words[1].startswith(in_text(1000 * after, "larger_ns"))
        assert float(words[2]) == pytest.approx(per_item, abs=2)
        assert finding.evidence == ("Kernels with 95 % of the time have at most 4 blocks; the GPU has 132 SMs",)
    expected = ["small_steps", "small_steps_with_host_code"]
    assert [name for name in STORIES if STORIES[name]().capability and small(name)] == expected
