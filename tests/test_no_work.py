"""Why a capture has no GPU work, or next to none: the profiler's own words, and the likely reason."""

from dataclasses import replace

import pandas as pd
import pytest

from nightsight.analyze.facts import trust
from nightsight.events.timeline import Timeline
from nightsight.model.report import Environment, Finding, Profile
from nightsight.render.summary import numbers
from nightsight.render.verdict import verdict
from nightsight.tables import conform
from nightsight.workflows.analysis import build_report
from tests.recorded import Recorded
from tests.timeline import draw

NOT_STARTED = "CUDA profiling might have not been started correctly."
NO_EVENTS = "No CUDA events collected. Does the process use CUDA?"
NOT_ALL = "Not all CUDA events might have been collected."


def with_messages(profile: Profile, *texts: str, driver: str = "", nsys: str = "") -> Profile:
    diagnostics = conform("diagnostics", pd.DataFrame({"time_ns": 1, "severity": "warning", "text": list(texts)}))
    environment = Environment(collector="nsys", driver=driver, collector_version=nsys)
    return replace(profile, tables={**profile.tables, "diagnostics": diagnostics}, environment=environment)


def only(profile: Profile) -> Finding:
    (finding,) = trust(Timeline(profile))
    return finding


def verdict_text(profile: Profile) -> str:
    report = build_report(profile, "x")
    return verdict(report, numbers(report)).text


@pytest.mark.parametrize(
    ("driver", "nsys", "first"),
    [
        ("580.82", "2024.6.2.225", "The driver (580.82) is newer than nsys 2024.6"),
        ("570.86", "2024.6.2.225", "Check that the program uses CUDA"),
        ("580.82", "2025.3.1.90", "Check that the program uses CUDA"),
        ("", "", "Check that the program uses CUDA"),
    ],
)
def test_a_profiler_that_could_not_start_says_so_with_the_likely_reason(driver: str, nsys: str, first: str) -> None:
    finding = only(with_messages(draw("cpu  ..."), NO_EVENTS, NOT_STARTED, driver=driver, nsys=nsys))
    assert finding.detail == f"nsys says: “{NOT_STARTED}”"
    assert finding.remedy.startswith(first)


def test_a_program_without_cuda_is_distinguished_from_one_that_lost_it() -> None:
    none = only(with_messages(draw("cpu  ..."), NO_EVENTS))
    assert (none.rule, none.detail) == ("no_gpu_work", f"nsys says: “{NO_EVENTS}”")
    assert "in a process that nsys starts" in none.remedy
    lost = only(with_messages(draw("cpu  L.S"), NOT_ALL))
    assert lost.rule == "lost_events"
    assert lost.detail == f"nsys says: “{NOT_ALL}” 2 CUDA calls were recorded, but no kernel, copy or memset."
    assert "os._exit" in lost.remedy


def test_what_nsys_could_not_import_is_reported_with_what_to_record_instead() -> None:
    message = (
        "Error when processing events: ProcessEventsError (4005)\nstd::exception::what: LogicException\n"
        "[QuadDCommon::tag_message*] = Cannot find string for an exterior index\n"
    )
    some = only(with_messages(draw("cpu  L.L.S\ns7   .a.b."), message))
    assert some.title == "nsys could not import a part of its recording"
    assert some.detail.endswith("nsys says: “Cannot find string for an exterior index”")
    none = with_messages(draw("cpu  L.L.S"), NOT_STARTED, message)
    assert only(none).remedy == some.remedy
    assert "--nvtx-domain-exclude" in some.remedy
    assert [each.rule for each in build_report(none, "x").findings if each.severity == "advice"] == []


def test_cuda_that_was_not_traced_is_not_a_program_without_a_gpu() -> None:
    missing = {"kernels": "CUDA tracing was off (nsys profile --trace=cuda)"}
    profile = Profile({}, missing, Environment(collector="nsys"))
    assert only(profile).detail == "CUDA tracing was off (nsys profile --trace=cuda)."
    assert verdict_text(profile).startswith("GPU work was not recorded. CUDA tracing was off")


def test_next_to_no_work_is_not_a_busy_gpu() -> None:
    # one memset of 1 µs in 0.4 ms of calls
    profile = draw(f"cpu  A{'.' * 200}C{'.' * 200}S\ns7   .{'.' * 201}M")
    finding = only(profile)
    assert finding.detail == "The only GPU work in the capture: 1 copy or memset (1.000 µs), with 3 CUDA calls."
    assert verdict_text(profile).startswith(
        f"No kernel was recorded. {finding.detail} First: record the part of the program"
    )
    report = build_report(profile, "x")
    assert [each.rule for each in report.findings if each.severity == "advice"] == []
    # a program that copies for most of its time is none
    assert trust(Timeline(draw("cpu  C.C.\ns7   .HHHDDD"))) == ()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("h100_exit_now", f"GPU work was not saved. nsys says: “{NOT_ALL}” 3 CUDA calls were recorded"),
        ("h100_cpu_only", f"GPU work was not recorded. nsys says: “{NOT_STARTED}”"),
    ],
)
def test_what_a_real_nsys_says_is_the_sentence(recorded: Recorded, name: str, expected: str) -> None:
    assert verdict_text(recorded.profile(name)).startswith(expected)
