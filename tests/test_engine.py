"""Steps of inference engines, and what the requests of their servers wait for."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.advise import _rank_one_action, advise
from nightsight.analyze import analyze
from nightsight.analyze.decode import decode_roofline
from nightsight.analyze.engine import engine_table
from nightsight.analyze.requests import request_times
from nightsight.events.engine import KINDS, engine_steps
from nightsight.events.timeline import Timeline
from nightsight.events.window import chosen_window
from nightsight.model.report import Environment, Finding, Profile
from nightsight.results.serving import DECODE, ITL, MEAN, MIXED, P50, P99, PREFILL, REQUEST_LATENCY, TPOT, TTFT
from nightsight.tables import TABLES, conform
from tests.timeline import draw, side_by_side

US = 1000


@pytest.mark.parametrize(
    ("name", "kind", "batch"),
    [
        # vLLM: prefills, their tokens, decodes, theirs, contexts
        ("execute_context_2(512)_generation_30(30)", MIXED, (2, 512, 30, 30, None)),
        ("execute_context_0(0)_generation_8(8)", DECODE, (0, 0, 8, 8, None)),
        ("context_1(7)_generation_0(0)", PREFILL, (1, 7, 0, 0, None)),
        # the long form, with speculated tokens
        (
            "execute_6147_context_2(sq6144sk7144sqsq20971520sqsk23019520)_generation_3(sq6sk6144sqsq12sqsk12288)",
            MIXED,
            (2, 6144, 3, 6, 6144),
        ),
        # SGLang
        ("step[EXTEND bs=2 toks=14721]", PREFILL, (2, 14721, 0, 0, None)),
        ("step[DECODE bs=64]", DECODE, (0, 0, 64, 64, None)),
        ("step[DECODE bs=64 sk=9000]", DECODE, (0, 0, 64, 64, None)),
        ("step[TARGET_VERIFY bs=4]", DECODE, (0, 0, 4, None, None)),
        ("step[MIXED bs=9]", MIXED, (None,) * 5),
        # TensorRT-LLM: with speculation, the number of tokens is unknown
        ("[Executor] _forward_step 60000: 0 ctx reqs, 0 ctx tokens, 32 gen reqs", DECODE, (0, 0, 32, None, None)),
        ("[Executor] _forward_step 5: 2 ctx reqs, 900 ctx tokens, 3 gen reqs", MIXED, (2, 900, 3, None, None)),
        ("executeStep: 1 ctx reqs, 0 gen reqs", PREFILL, (1, None, 0, 0, None)),
    ],
)
def test_the_name_of_a_step_has_its_batch(name: str, kind: str, batch: tuple[int | None, ...]) -> None:
    steps = engine_steps(named("nvtx  [a]", {"a": name}))
    names = ["prefills", "prefill_tokens", "decodes", "decode_tokens", "context_tokens"]
    assert [None if np.isnan(value) else value for value in steps[names].iloc[0]] == list(batch)
    assert KINDS[steps["kind"].iloc[0]] == kind


@pytest.mark.parametrize(
    "name",
    ["step[IDLE bs=0]", "step[DRAFT_EXTEND bs=4]", "context_0(0)_generation_0(0)", "step 7", "execute_model"],
)
def test_other_ranges_are_not_steps(name: str) -> None:
    assert not len(engine_steps(named("nvtx  [a]", {"a": name})))


def named(picture: str, names: dict[str, str]) -> Profile:
    """Draw a picture in which letters stand for the names of ranges."""
    profile = draw(picture)
    ranges = profile.table("ranges")
    ranges = ranges.assign(name=ranges["name"].astype("str").map(lambda name: names.get(name, name)))
    return Profile({**profile.tables, "ranges": conform("ranges", ranges)})


# the engine decodes, takes up a prompt, and decodes both; the CPU waits for each step
NAMES = {
    "a": "execute_context_0(0)_generation_1(1)",
    "p": "execute_context_1(80)_generation_1(1)",
    "b": "execute_context_0(0)_generation_2(2)",
}
PICTURE = """
    nvtx  [a    ]..[a    ]..[p          ]...[b     ]..[b     ]..
    cpu   L.SSSSS..L.SSSSS..L.SSSSSSSSSSS...L.SSSSSS..L.SSSSSS..
    s7    .aaaa.....aaaa.....aaaaaaaaaa......bbbbb.....bbbbb....
    """


def test_steps_of_an_engine_are_the_loop_whatever_their_batch() -> None:
    window = chosen_window(named(PICTURE, NAMES))
    assert window.family == "engine step"
    assert (window.repetitions // US).tolist() == [0, 9, 18, 34, 44]


def test_prompts_at_the_start_are_no_warm_up() -> None:
    picture = f"""
        nvtx  [p          ][p          ]{"[d ]" * 8}
        cpu   L.SSSSSSSSSSSL.SSSSSSSSSSS{"G.SS" * 8}
        s7    .cccccccccccc.cccccccccccc{".ddd" * 8}
        """
    assert len(chosen_window(named(picture, BURST)).repetitions) == 10
    # the first one loads kernels
    loading = picture.replace("[p  ", f"[p{' ' * 40}", 1).replace("L.S", f"L.S{'S' * 38}", 1)
    loading = loading.replace(".cc", f".cc{'c' * 38}", 1)
    assert len(chosen_window(named(loading, BURST)).repetitions) == 9


def test_steps_by_kind() -> None:
    timeline = Timeline(named(PICTURE, NAMES))
    table = engine_table(timeline).frame.set_index("kind")
    assert table["steps"].to_dict() == {DECODE: 4, MIXED: 1}
    # from the first kernel of a step to that of the next: 1, 10, 19, 35, 45 to 50 µs
    assert table["total_ns"].to_dict() == {DECODE: (9 + 9 + 10 + 5) * US, MIXED: 16 * US}
    assert table["med_ns"].to_dict() == {DECODE: 9 * US, MIXED: 16 * US}
    assert table["idle_ns"].to_dict() == {DECODE: (5 + 5 + 5) * US / 4, MIXED: 6 * US}
    assert table["busy_pct"].round(2).to_dict() == {DECODE: round(100 * 18 / 33, 2), MIXED: 62.5}
    assert table[["requests", "tokens", "graph_pct"]].to_numpy().tolist() == [[1.5, 1.5, 0], [2, 81, 0]]
    assert table["time_pct"].sum() == pytest.approx(100)


# four requests are answered, and then there are none for a while
BURST = {"p": "execute_context_4(80)_generation_0(0)", "d": "execute_context_0(0)_generation_4(4)"}
ANSWERED_BURST = """
    nvtx  [p       ][d ][d ]
    cpu   L.SSSSSSSSG.SSG.SS
    s7    .ccccccc...ddd.ddd
    """


def repeated(picture: str, *, between: str, times: int = 3) -> str:
    """Draw a picture several times, with the same track in each line between them."""
    lines = [re.match(r"\s*(\S+)( +)(.*)", line) for line in filter(str.strip, picture.splitlines())]
    return "\n".join(f"{line[1]}{line[2]}{(line[3] + between) * times}" for line in lines if line)


def test_time_without_requests_is_not_part_of_a_step() -> None:
    table = engine_table(Timeline(named(repeated(ANSWERED_BURST, between="." * 50), BURST))).frame.set_index("kind")
    assert table["total_ns"].to_dict() == {PREFILL: 3 * 10 * US, DECODE: 3 * (4 + 3) * US}
    assert table["idle_ns"].to_dict() == {PREFILL: 3 * US, DECODE: 0.5 * US}
    assert table["waits_pct"].to_dict() == {PREFILL: 0, DECODE: 0}


def test_copies_of_inputs_belong_to_the_requests_that_they_are_for() -> None:
    copied = """
        nvtx  ..[p     ][d ][d ]
        cpu   C.L.SSSSSSG.SSG.SS
        s7    .H.ccccc...ddd.ddd
        """
    steps = engine_table(Timeline(named(repeated(copied, between="." * 50), BURST))).frame.set_index("kind")
    assert steps["total_ns"].to_dict() == {PREFILL: 3 * 8 * US, DECODE: 3 * (4 + 3) * US}
    names = {**BURST, "p": "step[EXTEND bs=4 toks=80]", "d": "step[DECODE bs=4]"}
    assert not rules_of(repeated(copied, between="." * 4000, times=1), names)


def test_the_log_says_when_there_was_no_request() -> None:
    # the second burst is scheduled late, although its requests came in time
    profile = named(repeated(ANSWERED_BURST, between="." * 50), BURST)
    table = requests({"received": 0, "last_token": 18}, {"received": 17, "last_token": 90}, {"received": 130})
    steps = engine_steps(Profile({**profile.tables, "requests": table}))
    assert np.flatnonzero(steps["is_first"]).tolist() == [6]
    assert np.flatnonzero(engine_steps(profile)["is_first"]).tolist() == [0, 3, 6]


def test_ranks_in_threads_and_processes_run_the_same_steps() -> None:
    in_threads = """
        nvtx    [a     ][a     ][a     ]
        cpu     L.SSSSS.L.SSSSS.L.SSSSS.
        nvtx:8  .[a     ][a     ][a    ]
        cpu:8   .L.SSSS..L.SSSS..L.SSSS.
        s7      .aaaaa...aaaaa...aaaaa..
        s7:1    ..aaaaa...aaaaa...aaaaa.
        """
    one = named(in_threads, NAMES)
    second = side_by_side(one, one)
    for profile in (one, Profile({**second.tables, "ranges": conform("ranges", second.tables["ranges"])})):
        table = engine_table(Timeline(profile))
        assert table.frame["steps"].tolist() == [3]
        assert not table.notes


def test_engines_side_by_side_are_not_mixed_up() -> None:
    first, second = named(PICTURE, NAMES), named(PICTURE, {**NAMES, "a": "execute_context_0(0)_generation_9(9)"})
    both = side_by_side(first, second)
    table = engine_table(Timeline(both))
    assert table.frame["steps"].sum() == 5
    assert "2 engines differ" in table.notes[0]
    served = requests({"received": 0, "scheduled": 1, "first_token": 31, "last_token": 40, "output_tokens": 3})
    times = request_times(Timeline(Profile({**both.tables, "requests": served})))
    assert parts(times.frame, TTFT) == {"time": 31, "queue": 1, "unseen": 30}
    assert any("no log says which one" in note for note in times.notes)


def test_a_program_without_an_engine_has_no_such_steps() -> None:
    assert not len(engine_table(Timeline(draw("nvtx  [s ]\ncpu   L..\ns7    .a."))).frame)


def requests(*rows: Mapping[str, float]) -> pd.DataFrame:
    """Make requests of times in µs."""
    columns = list(TABLES["requests"])
    nothing = dict.fromkeys(columns, None) | {"preemptions": 0, "is_dated": True}
    made = [
        nothing
        | {f"{name}_ns": round(time * US) for name, time in row.items() if f"{name}_ns" in columns}
        | {name: value for name, value in row.items() if name in columns}
        for row in rows
    ]
    frame = pd.DataFrame(made, columns=columns)
    return conform("requests", frame.astype(dict.fromkeys(columns[:-2], "int64[pyarrow]")))


def times_of(table: pd.DataFrame, *, picture: str = PICTURE) -> pd.DataFrame:
    profile = named(picture, NAMES)
    return request_times(Timeline(Profile({**profile.tables, "requests": table}))).frame


PARTS = ["transfer_ns", "tokenize_ns", "queue_ns", "prefill_ns", "decode_ns", "idle_ns", "unseen_ns", "output_ns"]


def parts(table: pd.DataFrame, metric: str, statistic: str = P50) -> dict[str, float]:
    """Return the parts of a row that are not 0, in µs."""
    row = table[(table["metric"] == metric) & (table["statistic"] == statistic)].iloc[0]
    return {name.removesuffix("_ns"): row[name] / US for name in ("time_ns", *PARTS) if row.get(name, 0) > 0}


def test_where_the_time_of_a_request_goes() -> None:
    served = {"sent": 8, "received": 9, "tokenized": 11, "scheduled": 17, "first_token": 31, "first_seen": 33}
    table = times_of(requests({**served, "last_token": 52, "last_seen": 53, "output_tokens": 3}))
    assert parts(table, TTFT) == {
        "time": 25,
        "transfer": 1,
        "tokenize": 2,
        "queue": 6,
        "output": 2,
        # from 17 to 31: the kernel of the prompt from 19 to 29
        "prefill": 10,
        "idle": 4,
    }
    # two more tokens, from 33 to 53: kernels from 35 to 40 and from 45 to 50, and nothing is known after that
    assert parts(table, TPOT) == {"time": 10, "decode": 5, "idle": 3.5, "unseen": 1.5}
    whole = parts(table, REQUEST_LATENCY)
    assert whole == {
        "time": 45,
        "transfer": 1,
        "tokenize": 2,
        "queue": 6,
        "prefill": 10,
        "decode": 10,
        "idle": 13,
        "unseen": 2,
        "output": 1,
    }


def test_a_client_that_crashed_saw_only_the_first_token() -> None:
    crashed = times_of(requests({"received": 17, "first_seen": 55, "last_token": 50, "output_tokens": 3}))
    assert parts(crashed, REQUEST_LATENCY) == {"time": 33, "prefill": 10, "decode": 10, "idle": 13}


def test_a_request_waits_for_the_prompts_of_others() -> None:
    table = times_of(requests({"received": 0, "first_token": 5, "last_token": 32, "output_tokens": 3}))
    assert parts(table, TPOT) == {"time": 13.5, "prefill": 5, "decode": 2, "idle": 6.5}


def test_times_without_a_date_have_no_place_on_the_gpu() -> None:
    table = times_of(requests({"sent": 0, "first_seen": 5, "last_seen": 9, "output_tokens": 5, "is_dated": False}))
    assert parts(table, TTFT) == {"time": 5, "unseen": 5}
    assert parts(table, TPOT) == {"time": 1, "unseen": 1}


def test_percentiles_are_requests() -> None:
    rows = [{"received": 0, "first_token": number} for number in range(200, 0, -1)]
    table = times_of(requests(*rows, {"received": 1}, {"received": 2, "failed": 3, "preemptions": 0}))
    of_first = table[table["metric"] == TTFT].set_index("statistic")
    assert of_first["time_ns"].to_dict() == {
        MEAN: 100.5 * US,
        P50: 100 * US,
        "95th percentile": 190 * US,
        P99: 198 * US,
    }
    assert of_first["request"].tolist() == [pd.NA, 101, 11, 3]
    assert of_first["requests"].tolist() == [200] * 4
    # none has an end; the time between tokens is that of steps
    assert set(table["metric"]) == {TTFT, ITL}


def test_times_between_tokens_are_those_of_steps() -> None:
    table = times_of(requests({"received": 0, "first_token": 5}))
    of_tokens = table[table["metric"] == ITL].set_index("statistic")
    # kernels end at 5, 14, 29, 40 and 50 µs; one request generates until then, and two in the last two steps
    assert of_tokens["time_ns"].to_dict() == {
        MEAN: (9 + 15 + 2 * 11 + 2 * 10) * US / 6,
        P50: 10 * US,
        "95th percentile": 15 * US,
        P99: 15 * US,
    }
    assert of_tokens["requests"].tolist() == [6] * 4
    assert parts(table, ITL, P99) == {"time": 15, "prefill": 10, "idle": 5}
    assert parts(table, ITL) == {"time": 10, "decode": 5, "idle": 5}


def test_a_copy_that_outlasts_the_next_step_makes_no_negative_time() -> None:
    picture = """
        nvtx  [d ].[d ].[d ].[d ].
        cpu   GC...G....G....G....
        s7    .aaa..aaa..aaa..aaa.
        s9    ..DDDDDDDDDDDDD.....
        """
    profile = named(picture, DECODING)
    served = requests({"received": 0, "last_token": 19})
    table = request_times(Timeline(Profile({**profile.tables, "requests": served}))).frame
    assert (table["time_ns"][table["metric"] == ITL] >= 0).all()


def test_steps_with_prompts_only_are_a_pause_between_tokens() -> None:
    picture = """
        nvtx  [d ][q       ][d ][d ].....[p       ][d ]
        cpu   G.SSL.SSSSSSSSG.SSG.SS.....L.SSSSSSSSG.SS
        s7    .ddd.ccccccc...ddd.ddd......ccccccc...ddd
        """
    profile = named(picture, {**BURST, "q": "execute_context_1(80)_generation_0(0)"})
    served = requests({"received": 0, "last_token": 23}, {"received": 26, "last_token": 39})
    table = request_times(Timeline(Profile({**profile.tables, "requests": served}))).frame
    of_tokens = table[table["metric"] == ITL].set_index("statistic")
    # nobody generates before the second burst
    assert of_tokens["time_ns"].to_dict() == {MEAN: 9 * US, P50: 4 * US, "95th percentile": 14 * US, P99: 14 * US}


def test_what_is_reported_about_requests() -> None:
    profile = named(PICTURE, NAMES)
    rows = [{"received": 0, "failed": 9}, {"received": 1, "first_token": 5, "preemptions": 2}]
    notes = " ".join(request_times(Timeline(Profile({**profile.tables, "requests": requests(*rows)}))).notes)
    expected = (
        "1 of 2 requests failed",
        "1 of 2 requests were not finished",
        "preempted 2 times",
        "no log of the client",
    )
    assert all(text in notes for text in expected)


def test_a_log_of_another_run_is_left_out() -> None:
    profile = named(PICTURE, NAMES)
    table = requests({"received": 900, "first_token": 905}, {"received": -90, "first_token": -70, "last_token": -60})
    times = request_times(Timeline(Profile({**profile.tables, "requests": table})))
    assert not len(times.frame)
    assert "another run" in times.notes[0]
    # one that began before the capture, and was never answered, may have been served
    begun = requests({"received": -20}, {"received": -20, "first_token": 3}, {"received": -90, "last_token": -60})
    times = request_times(Timeline(Profile({**profile.tables, "requests": begun})))
    assert times.frame["requests"][times.frame["metric"] == TTFT].tolist() == [1] * 4
    assert "2 of 3 requests were served while the capture was recorded" in times.notes[0]


MARK = st.none() | st.integers(0, 80)


@given(st.lists(st.tuples(*[MARK] * 9, st.none() | st.integers(0, 5), st.booleans()), max_size=8))
def test_parts_add_up_whatever_was_logged(rows: list[tuple[Any, ...]]) -> None:
    names = [name.removesuffix("_ns") for name in TABLES["requests"] if name.endswith("_ns")]
    made = [
        {name: mark for name, mark in zip(names, row, strict=False) if mark is not None}
        | ({} if row[9] is None else {"output_tokens": row[9]})
        | {"is_dated": row[10]}
        for row in rows
    ]
    table = times_of(requests(*made))
    assert (table.reindex(columns=PARTS).fillna(0).sum(axis=1) - table["time_ns"]).abs().max() < 1e-3 or not len(table)


# -- causes -----------------------------------------------------------------------------------------------------------


def advised(
    picture: str, names: Mapping[str, str], table: pd.DataFrame | None = None, **others: pd.DataFrame
) -> list[Finding]:
    """Return the advice on twelve times this picture."""
    lines = [line.rstrip() for line in picture.strip().splitlines()]
    labels, tracks = zip(*((line[:6], line[6:]) for line in map(str.lstrip, lines)), strict=True)
    drawn = "\n".join(f"{label}{track * 12}" for label, track in zip(labels, tracks, strict=True))
    profile = named(drawn, dict(names))
    tables = {**profile.tables, **({} if table is None else {"requests": table}), **others}
    results = analyze(Timeline(Profile(tables, environment=NSYS)))
    return list(advise(results))


def first_finding(*story: Any) -> Finding:
    return advised(*story)[0]


NSYS = Environment(collector="nsys")
DECODING = {"d": "execute_context_0(0)_generation_4(4)", "s": "schedule", "t": "tokenize"}


def test_host_code_between_steps_is_that_of_the_scheduler() -> None:
    code = "." * 160
    finding = first_finding(
        f"""
        nvtx  [d            ]{code}
        cpu   G.SSSSSSSSSSSS.{code}
        s7    .aaaaaaaaaaaa..{code}
        """,
        DECODING,
    )
    assert finding.rule == "host_code"
    assert "between the steps of the engine" in finding.cause
    assert finding.action == "schedule the next step while the GPU works"
    assert "--async-scheduling" in finding.remedy


def test_tokenization_on_the_thread_of_the_engine_has_a_fix_of_its_own() -> None:
    inside = f"[t{'.' * 158}]"
    finding = first_finding(
        f"""
        nvtx  [d            ]{inside}
        cpu   G.SSSSSSSSSSSS.{"." * len(inside)}
        s7    .aaaaaaaaaaaa..{"." * len(inside)}
        """,
        DECODING,
    )
    assert "`tokenize`" in finding.cause
    assert finding.action == "tokenize in another process"


def test_launches_of_a_step_are_those_of_a_batch_without_a_graph() -> None:
    finding = first_finding(
        """
        nvtx  [d                                                     ]..
        cpu   LLLL.LLLL.LLLL.LLLL.LLLL.LLLL.LLLL.LLLL.LLLL.LLLL.SSSS..
        s7    ....a.....b....c....d....e....f....g....h....i....jj.....
        """,
        DECODING,
    )
    assert finding.rule == "launch_bound"
    assert finding.action == "record CUDA graphs for these batches"


LONG_PROMPT = {"d": "execute_context_0(0)_generation_4(4)", "p": "execute_context_1(480)_generation_4(4)"}
WITH_PROMPT = """
        nvtx  [d       ][d       ][d       ][p                                                ]
        cpu   G.SSSSSSSSG.SSSSSSSSG.SSSSSSSSG.SSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSS
        s7    .aaaaaaaaa.aaaaaaaaa.aaaaaaaaa.ccccccccccccccccccccccccccccccccccccccccccccccccc.
        """


def test_a_long_prompt_is_a_pause_for_all_others() -> None:
    finding = first_finding(WITH_PROMPT, LONG_PROMPT)
    assert finding.rule == "prompts_block"
    # 40 µs more of the GPU for 480 tokens: 120 of them add the time of a step, and 64 is the next lower power of two.
    # The GPU is idle for 0.8 µs more than in other steps, too
    assert finding.title.endswith("takes 51.0 µs, others take 10.0 µs; with chunks of 64 tokens, about 16.2 µs")
    assert "--max-num-batched-tokens 64" in finding.remedy
    assert finding.gain_ns is None


def rules_of(*story: Any) -> list[str]:
    return [finding.rule for finding in advised(*story)]


def test_requests_wait_for_steps_with_prompts_only() -> None:
    # four requests generate, and one more after its prompt
    waiting = {"d": "step[DECODE bs=5]", "p": "step[EXTEND bs=1 toks=480]"}
    assert first_finding(WITH_PROMPT, waiting).rule == "prompts_block"
    # one request after the other: nobody waits
    assert not rules_of(WITH_PROMPT, {**waiting, "d": "step[DECODE bs=1]"})


def test_launches_of_steps_with_prompts_are_no_work_of_their_tokens() -> None:
    eager = """
        nvtx  [d       ][d       ][d       ][p                                                  ]
        cpu   G.SSSSSSSSG.SSSSSSSSG.SSSSSSSSLLLL.LLLL.LLLL.LLLL.LLLL.LLLL.LLLL.LLLL.LLLL.LLLL.SS
        s7    .aaaaaaaaa.aaaaaaaaa.aaaaaaaa.....a....b....c....d....e....f....g....h....i....jj.
        """
    assert "prompts_block" not in rules_of(eager, LONG_PROMPT)


@pytest.mark.parametrize(
    "names", [BURST, {"p": "step[EXTEND bs=4 toks=80]", "d": "step[DECODE bs=4]"}], ids=["vLLM", "SGLang"]
)
def test_a_server_without_requests_is_idle_and_not_slow(names: dict[str, str]) -> None:
    assert not rules_of(repeated(ANSWERED_BURST, between="." * 4000, times=1), names)


def test_what_an_engine_does_before_it_has_a_request_is_work() -> None:
    tokenizing = ANSWERED_BURST.replace("nvtx  ", f"nvtx  [t{'.' * 3997}]").replace("cpu   ", f"cpu   {'.' * 4000}")
    tokenizing = tokenizing.replace("s7    ", f"s7    {'.' * 4000}")
    finding = first_finding(tokenizing, {**BURST, "t": "tokenize"})
    assert finding.rule == "host_code"
    assert "`tokenize`" in finding.cause


def test_requests_that_wait_for_the_scheduler_are_no_idle_time() -> None:
    idle = repeated(ANSWERED_BURST, between="." * 4000, times=1)
    queued = requests(*[{"received": number * 4018, "last_token": number * 4018 + 9000} for number in range(13)])
    finding = first_finding(idle, BURST, queued)
    assert finding.rule == "host_code"
    assert "between the steps of the engine" in finding.cause


@pytest.mark.parametrize(
    ("name", "action"),
    [("output", "schedule the next step while the GPU works"), ("sample", "sample all requests at once")],
)
def test_waits_for_tokens_have_the_fixes_of_engines(name: str, action: str) -> None:
    picture = """
        nvtx  [d ].[r       ]........
        cpu   G.....SSSSSSSS..L......
        s7    .aaaaaaaaaaaa....bb....
        """
    finding = first_finding(picture, {"d": DECODING["d"], "r": name})
    assert (finding.rule, finding.action) == ("wait", action)


def test_what_one_fix_of_a_server_ends_counts_together() -> None:
    """Sampling requests one by one costs waits and launches, and what is around them is not the narrower place."""
    step = "step / execute_context_#(#)_generation_#(#)"
    causes = [("host_code", step), ("wait", f"{step} / sample"), ("launch_bound", f"{step} / sample"), ("wait", step)]
    simulated = pd.DataFrame(causes, columns=["rule", "path"], index=[7, 8, 9, 10])

    def scores(gains: list[float]) -> list[float]:
        # that of launches counts less, since a graph would be captured in pieces
        score = pd.Series([gains[0], gains[1], 0.4 * gains[2], gains[3]], simulated.index)
        ranked = _rank_one_action(simulated.assign(gain_pct=gains), score)
        assert ranked.index.equals(simulated.index)
        return ranked.tolist()

    assert scores([13.4, 12.0, 9.4, 1.0]) == pytest.approx([13.4, 21.4, 3.76, 1.0])
    nearly_equal = scores([14.4, 8.4, 5.8, 1.0])
    assert nearly_equal[1] > nearly_equal[0] == 14.4
    clearly_more = scores([16.0, 8.4, 5.8, 1.0])
    assert clearly_more[0] == 16.0 > clearly_more[1] == pytest.approx(14.2)


def test_the_outermost_range_can_name_the_fix() -> None:
    inside = f"[t[r{'.' * 156}]]"
    finding = first_finding(
        f"""
        nvtx  [d            ]{inside}
        cpu   G.SSSSSSSSSSSS.{"." * len(inside)}
        s7    .aaaaaaaaaaaa..{"." * len(inside)}
        """,
        {**DECODING, "r": "regex"},
    )
    assert finding.action == "tokenize in another process"


def test_a_rare_pause_is_not_that_of_prompts() -> None:
    # eleven steps with a prompt of 8 tokens are as short as others, and one is long for another reason
    long, names = WITH_PROMPT, {**LONG_PROMPT, "p": "execute_context_1(8)_generation_4(4)"}
    assert not [finding for finding in advised(long, names) if finding.rule == "prompts_block"]


def test_short_prompts_are_no_pause() -> None:
    picture = WITH_PROMPT.replace(" " * 32, "").replace("S" * 32, "").replace("c" * 32, "")
    assert not [finding for finding in advised(picture, LONG_PROMPT) if finding.rule == "prompts_block"]


ANSWERED = {"received": 0, "tokenized": 0, "scheduled": 700, "first_token": 800, "last_token": 900, "output_tokens": 9}
HEALTHY = """
        nvtx  [d       ]
        cpu   G.SSSSSSSS
        s7    .aaaaaaaaa
        """


def test_requests_that_queue_for_a_small_batch() -> None:
    finding = first_finding(HEALTHY, DECODING, requests(*[ANSWERED] * 20))
    assert finding.rule == "few_at_a_time"
    assert finding.title.endswith("4 per step; 700 µs of the 800 µs to the first token")
    many = {"d": "execute_context_0(0)_generation_40(40)"}
    assert not advised(HEALTHY, many, requests(*[ANSWERED] * 20))
    # most of the time is that of prompts, which a larger batch does not shorten
    busy = rules_of(WITH_PROMPT, {**DECODING, "p": "execute_context_1(48)_generation_4(4)"}, requests(*[ANSWERED] * 20))
    assert "few_at_a_time" not in busy


def test_preempted_requests_need_room_in_the_cache() -> None:
    finding = first_finding(HEALTHY, DECODING, requests(*[ANSWERED] * 18, *[ANSWERED | {"preemptions": 1}] * 2))
    assert finding.rule == "cache_full"
    assert finding.title.endswith("2 preemptions for 20 requests")


# -- the KV cache, and the roofline of decode -------------------------------------------------------------------------


def cache_lines(*lines: tuple[float | None, int | None, int, float]) -> pd.DataFrame:
    """Make lines of a log: µs, iteration, engine, percent."""
    frame = pd.DataFrame(lines, columns=list(TABLES["kv_cache"]), dtype="object")
    times = [None if line[0] is None else round(line[0] * US) for line in lines]
    return conform("kv_cache", frame.assign(time_ns=pd.array(times, dtype="int64[pyarrow]")))


def with_tables(picture: str, names: dict[str, str], **tables: pd.DataFrame) -> Timeline:
    return Timeline(Profile({**named(picture, names).tables, **tables}))


def usage(table: pd.DataFrame) -> dict[str, list[float]]:
    """Return the mean and the largest usage of the KV cache by the kind of step."""
    return {row["kind"]: [row["kv_cache_pct"], row["most_kv_cache_pct"]] for row in table.to_dict("records")}


def test_each_step_has_the_usage_of_the_kv_cache_of_the_nearest_line() -> None:
    # steps begin at 0, 9, 18, 34 and 44 µs
    every = cache_lines(*((time, None, 0, time + 1) for time in (0, 9, 18, 34, 44)))
    table = engine_table(with_tables(PICTURE, NAMES, kv_cache=every))
    assert usage(table.frame) == {DECODE: [(1 + 10 + 35 + 45) / 4, 45], MIXED: [19, 19]}
    assert not table.notes
    # of two lines, one is nearer to the last two steps
    few = engine_table(with_tables(PICTURE, NAMES, kv_cache=cache_lines((5, None, 0, 10), (45, None, 0, 90))))
    assert usage(few.frame) == {DECODE: [(10 + 10 + 90 + 90) / 4, 90], MIXED: [10, 10]}
    assert "from 2 lines of the log" in few.notes[0]


def test_the_usage_of_other_times_and_of_several_engines_is_unknown() -> None:
    later = engine_table(with_tables(PICTURE, NAMES, kv_cache=cache_lines((11_000_000, None, 0, 10))))
    assert "kv_cache_pct" not in later.frame
    assert "time zone" in later.notes[0]
    several = engine_table(with_tables(PICTURE, NAMES, kv_cache=cache_lines((5, None, 0, 10), (6, None, 1, 20))))
    assert "kv_cache_pct" not in several.frame
    assert "2 engines" in several.notes[0]


def test_iterations_of_tensorrt_llm_join_without_a_clock() -> None:
    names = {
        "a": "[Executor] _forward_step 7: 0 ctx reqs, 0 ctx tokens, 1 gen reqs",
        "p": "[Executor] _forward_step 8: 1 ctx reqs, 80 ctx tokens, 1 gen reqs",
        "b": "[Executor] _forward_step 9: 0 ctx reqs, 0 ctx tokens, 2 gen reqs",
    }
    lines = cache_lines((None, 9, 0, 30), (None, 7, 0, 10), (None, 8, 0, 20), (None, 9, 0, 40), (None, 99, 0, 90))
    # times of a log are to the second
    for time in (None, 0):
        known = lines.assign(time_ns=pd.array([time] * len(lines), dtype="int64[pyarrow]"))
        table = engine_table(with_tables(PICTURE, names, kv_cache=known))
        assert usage(table.frame) == {DECODE: [(10 + 10 + 40 + 40) / 4, 40], MIXED: [20, 20]}


@given(
    lines=st.lists(
        st.tuples(st.none() | st.integers(-100, 150), st.none() | st.integers(0, 9), st.just(0), st.integers(0, 100)),
        max_size=6,
    )
)
def test_a_step_has_the_usage_of_some_line(lines: list[tuple[int | None, int | None, int, float]]) -> None:
    table = engine_table(with_tables(PICTURE, NAMES, kv_cache=cache_lines(*lines))).frame
    timed = [percent for time, _, _, percent in lines if time is not None]
    assert ("kv_cache_pct" in table) == bool(timed)
    for mean, most in usage(table).values() if timed else ():
        assert min(timed) <= mean <= most
        assert most in timed


def test_preempted_requests_tell_how_full_the_cache_was() -> None:
    preempted = requests(*[ANSWERED] * 18, *[ANSWERED | {"preemptions": 1}] * 2)
    lines = cache_lines(*((10 * step, None, 0, 50 + 4 * step) for step in range(12)))
    (finding,) = advised(HEALTHY, DECODING, preempted, kv_cache=lines)
    assert finding.rule == "cache_full"
    assert finding.evidence == ("The KV cache was up to 94.0 % full",)
    (queued,) = advised(HEALTHY, DECODING, requests(*[ANSWERED] * 20), kv_cache=lines)
    assert (queued.rule, queued.evidence) == ("cache_full", finding.evidence)
    assert queued.title.endswith("they queue for 700 µs of the 800 µs to the first token")
    emptier = cache_lines(*((10 * step, None, 0, 30 + 4 * step) for step in range(12)))
    (few,) = advised(HEALTHY, DECODING, requests(*[ANSWERED] * 20), kv_cache=emptier)
    assert (few.rule, few.evidence) == ("few_at_a_time", ("The KV cache was up to 74.0 % full",))
    assert not first_finding(HEALTHY, DECODING, preempted).evidence
    # prompts take longer, too, if few requests share a step
    full = cache_lines(*((80 * step, None, 0, 95) for step in range(12)))
    for decodes, rules in ((3, {"cache_full"}), (1, set())):
        picture = "\n".join(f"{line[:14]}{line[44 - 10 * decodes :]}" for line in WITH_PROMPT.splitlines())
        names = {**DECODING, "p": "execute_context_1(48)_generation_4(4)"}
        found = advised(picture, names, requests(*[ANSWERED] * 20), kv_cache=full)
        assert {each.rule for each in found} & {"cache_full", "few_at_a_time"} == rules


GPU_TABLE = {
    "device": 0,
    "uuid": "",
    "name": "GPU",
    "compute_capability": "9.0",
    # a byte per ns
    "memory_bandwidth_bytes_per_s": 1_000_000_000,
}


def roofline(names: dict[str, str], *, gpu: Mapping[str, Any] = GPU_TABLE, **tables: pd.DataFrame) -> Any:
    devices = conform("devices", pd.DataFrame([gpu]))
    return decode_roofline(with_tables(PICTURE, names, devices=devices, **tables))


def model(**facts: int) -> pd.DataFrame:
    return conform("served_model", pd.DataFrame([facts], columns=list(TABLES["served_model"]), dtype="object"))


def test_a_decode_step_takes_at_least_the_time_of_its_bytes() -> None:
    lines = cache_lines(*((time, None, 0, 50) for time in (0, 9, 18, 34, 44)))
    sizes = model(weight_bytes=3_000, kv_token_bytes=10, kv_tokens=200)
    # 3,000 bytes of weights, and 1,000 of keys and values: 4 µs. Steps last 9, 9, 10 and 5 µs
    table = roofline(NAMES, kv_cache=lines, served_model=sizes)
    assert table.frame.to_dict("records") == [
        {
            "batch": batch,
            "steps": 2,
            "med_ns": time * US,
            "weight_bytes": 3_000,
            "kv_bytes": 1_000,
            "least_ns": 4 * US,
            "roofline_pct": pytest.approx(share),
            "low_roofline_pct": pytest.approx(low),
            "tokens_per_s": pytest.approx(tokens * 1e6),
            "roofline_tokens_per_s": pytest.approx(possible * 1e6),
        }
        for batch, time, share, low, tokens, possible in (
            ("1", 9, 400 / 9, 400 / 9, 2 / 18, 2 / 8),
            ("2", 7.5, (40 + 80) / 2, 40 + 0.1 * 40, 4 / 15, 4 / 8),
        )
    ]
    # six tokens in 33 µs, of 16 µs
    assert table.notes == (
        "These steps generate 181,818 tokens per second, 48.5 % of the 375,000 that their bytes allow.",
    )


def test_the_length_of_contexts_is_better_than_the_usage_of_the_cache() -> None:
    long = "execute_context_0(0)_generation_{0}(sq{0}sk{1}sqsq9sqsk9)"
    names = {**NAMES, "a": long.format(1, 100), "b": long.format(2, 300)}
    table = roofline(names, served_model=model(weight_bytes=3_000, kv_token_bytes=10)).frame
    assert table["kv_bytes"].tolist() == [1_000, 3_000]


@pytest.mark.parametrize(
    ("facts", "note"),
    [
        ({"weight_bytes": 3_000}, "nothing says how many bytes a token takes"),
        ({"weight_bytes": 3_000, "kv_token_bytes": 10, "kv_tokens": 9}, "nothing says how many tokens"),
    ],
)
def test_without_the_cache_the_least_time_is_that_of_the_weights(facts: dict[str, int], note: str) -> None:
    table = roofline(NAMES, served_model=model(**facts))
    assert table.frame["least_ns"].tolist() == [3 * US, 3 * US]
    assert table.frame["kv_bytes"].isna().all()
    assert note in table.notes[1]


def test_what_is_not_known_is_not_guessed() -> None:
    sizes = model(weight_bytes=3_000)
    without_weights = roofline(NAMES, served_model=model(kv_tokens=9))
    assert not len(without_weights.frame)
    assert "--attach" in without_weights.notes[0]
    assert roofline(NAMES).notes == without_weights.notes
    without_peak = roofline(NAMES, gpu=GPU_TABLE | {"memory_bandwidth_bytes_per_s": None}, served_model=sizes)
    assert not len(without_peak.frame)
    assert "peak rate" in without_peak.notes[0]
    # a program without an engine needs neither
    program = roofline({}, gpu=GPU_TABLE | {"memory_bandwidth_bytes_per_s": None})
    assert (len(program.frame), program.notes) == (0, ())
    above = roofline(NAMES, served_model=model(weight_bytes=7_000))
    assert "1 step: more than 100 %" in above.notes[2]


@given(
    weights=st.integers(1, 20_000),
    token=st.none() | st.integers(1, 100),
    room=st.none() | st.integers(1, 500),
    percent=st.none() | st.integers(0, 100),
    peak=st.integers(1, 10**10),
)
def test_rates_and_shares_of_the_roofline_agree(
    weights: int, token: int | None, room: int | None, percent: int | None, peak: int
) -> None:
    facts = {"weight_bytes": weights, "kv_token_bytes": token, "kv_tokens": room}
    lines = cache_lines() if percent is None else cache_lines((0, None, 0, percent))
    sizes = model(**{name: fact for name, fact in facts.items() if fact is not None})
    gpu = GPU_TABLE | {"memory_bandwidth_bytes_per_s": peak}
    table = roofline(NAMES, gpu=gpu, kv_cache=lines, served_model=sizes).frame
    assert table["steps"].sum() == 4
    # all steps of a row read the same here
    expected = weights + ((token or 0) * (room or 0) * (percent or 0) / 100)
    assert table["least_ns"].tolist() == pytest.approx([1e9 * expected / peak] * 2)
    assert (table["low_roofline_pct"] <= table["roofline_pct"] * (1 + 1e-9)).all()
    per_token = table["roofline_tokens_per_s"] * table["least_ns"] / 1e9
    assert per_token.tolist() == pytest.approx([1, 2])
