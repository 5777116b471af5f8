"""What is said of each replayed launch: figures, stalls, instructions, rules and lines."""

from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze.replay.instructions import kind_of, ncu_instructions
from nightsight.analyze.replay.kernels import ncu_kernels
from nightsight.analyze.replay.metrics import METRICS
from nightsight.analyze.replay.rules import ncu_rules
from nightsight.analyze.replay.source import ncu_source
from nightsight.analyze.replay.stalls import ncu_stalls
from nightsight.events.timeline import Timeline
from nightsight.tables import SHAPE
from tests.properties import examples
from tests.recorded import Recorded
from tests.replays import alone, column, joined, launch, line, row, rule
from tests.timeline import draw

CYCLES = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
OPCODES = "sass__inst_executed_per_opcode"


# -- figures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("figure", sorted(METRICS))
def test_no_metric_is_tried_twice_for_a_figure(figure: str) -> None:
    assert len(set(METRICS[figure])) == len(METRICS[figure])


@pytest.mark.parametrize(
    "figure",
    [
        *("replay_ns", "sm_pct", "memory_pct", "dram_pct", "l2_pct", "l1_pct", "l2_hit_pct", "l1_hit_pct"),
        *("tensor_pct", "occupancy_pct", "theoretical_pct", "registers", "shared_bytes", "waves"),
    ],
)
def test_any_of_its_names_gives_a_figure_and_the_first_one_wins(figure: str) -> None:
    for name in METRICS[figure]:
        assert row(alone(launch("a", {name: 7})))[figure] == 7
    names = {name: float(number) for number, name in enumerate(METRICS[figure], start=3)}
    assert row(alone(launch("a", names)))[figure] == 3


def test_each_launch_falls_back_by_itself() -> None:
    first, second, *_ = METRICS["dram_pct"]
    assert column(alone(launch("a", {first: 1}), launch("b", {second: 2}), launch("c")), "dram_pct")[:2] == [1, 2]


def test_what_was_not_collected_is_missing_and_named_and_zero_is_zero() -> None:
    timeline = alone(launch("a", {METRICS["l1_hit_pct"][0]: 0.0}), launch("b"))
    table = ncu_kernels(timeline)
    assert table.frame["l1_hit_pct"].fillna(-1).tolist() == [0, -1]
    assert pd.isna(table.frame["registers"]).all()
    assert pd.isna(table.frame["tail_pct"]).all()
    assert set(table.frame["limiter"]) == {""}
    (note,) = table.notes
    assert "Registers" in note
    assert "L1 hit" not in note


@pytest.mark.parametrize("kind", ["tensor_fp64_pct", "tensor_integer_pct"])
def test_tensor_cores_that_work_on_one_type_alone_are_in_use(kind: str) -> None:
    for name in METRICS[kind]:
        metrics = {METRICS["tensor_pct"][-1]: 0.0, name: 40.0}
        assert row(alone(launch("a", metrics)))["tensor_pct"] == 40


def test_tensor_cores_of_cc_8_in_older_releases() -> None:
    pipe = "sm__inst_executed_pipe_tensor_op_{}.avg.pct_of_peak_sustained_active"
    metrics = {pipe.format(kind): share for kind, share in (("hmma", 7.0), ("imma", 0.0), ("dmma", 0.0))}
    assert row(alone(launch("a", metrics)))["tensor_pct"] == 7


@pytest.mark.parametrize(
    ("limits", "limiter"),
    [
        ({"registers": 2, "shared_mem": 4, "blocks": 32, "warps": 16, "barriers": 32}, "registers"),
        ({"registers": 4, "shared_mem": 1, "blocks": 32, "warps": 16}, "shared memory"),
        ({"registers": 1, "shared_mem": 1, "blocks": 32, "warps": 5, "barriers": 21}, "registers, shared memory"),
        ({"barriers": 2, "blocks": 3, "warps": 4}, "barriers"),
        ({"blocks": 16, "warps": 17}, "blocks"),
    ],
)
def test_the_limiter_allows_the_fewest_blocks(limits: dict[str, float], limiter: str) -> None:
    metrics = {f"launch__occupancy_limit_{name}": value for name, value in limits.items()}
    assert row(alone(launch("a", metrics)))["limiter"] == limiter


@pytest.mark.parametrize(
    ("waves", "tail"),
    [(0.0, 100), (0.25, 100), (1, 0), (1.5, 50), (2, 0), (2.9999999, 0), (9.1, 10), (15.515152, 6.25)],
)
def test_the_tail_is_the_last_wave_if_it_is_partial(waves: float, tail: float) -> None:
    metrics = {"launch__waves_per_multiprocessor": waves}
    assert row(alone(launch("a", metrics)))["tail_pct"] == pytest.approx(tail)


def test_coalescing_is_a_ratio_of_counts_or_as_given_and_missing_without_loads() -> None:
    sectors, requests, ratio = (
        METRICS[name][0] for name in ("load_sectors", "load_requests", "load_sectors_per_request")
    )
    assert row(alone(launch("a", {sectors: 64, requests: 2})))["sectors_per_request"] == 32
    assert row(alone(launch("a", {ratio: 8})))["sectors_per_request"] == 8
    assert pd.isna(row(alone(launch("a", {sectors: 0, requests: 0})))["sectors_per_request"])
    assert pd.isna(row(alone(launch("a", {sectors: 0, requests: 0, ratio: 0})))["sectors_per_request"])


@pytest.mark.parametrize(("total", "ideal", "excessive"), [(40, 10, 75), (10, 10, 0), (0, 0, None)])
def test_excessive_sectors_are_those_beyond_the_ideal(total: float, ideal: float, excessive: float | None) -> None:
    metrics = {METRICS["sectors"][0]: total, METRICS["ideal_sectors"][0]: ideal}
    excessive_pct = row(alone(launch("a", metrics)))["excessive_pct"]
    assert pd.isna(excessive_pct) if excessive is None else excessive_pct == excessive


def test_ranges_that_are_replayed_have_no_grid() -> None:
    nothing: dict[str, Any] = dict.fromkeys(SHAPE, 0)
    figures = row(joined(draw("s7   a"), launch("step", kind="range", range_path="measure / step", **nothing)))
    assert (figures["grid"], figures["block"], figures["path"]) == ("", "", "measure / step")
    assert row(alone(launch(grid=256, block=8)))["grid"] == "256, 1, 1"


def test_what_is_reported_for_one_launch_is_not_reported_for_a_whole_graph() -> None:
    of_one = {"launch__registers_per_thread": 16.0, "launch__waves_per_multiprocessor": 2.5}
    of_one |= {"launch__occupancy_limit_warps": 8.0, "sm__maximum_warps_per_active_cycle_pct": 50.0}
    of_all = {"sm__warps_active.avg.pct_of_peak_sustained_active": 40.0}
    timeline = alone(launch("graph", of_one | of_all, kind="graph"), launch("a", of_one))
    rows = ncu_kernels(timeline).frame.set_index("name")
    graph, kernel = rows.loc["graph"], rows.loc["a"]
    names = ["registers", "waves", "tail_pct", "theoretical_pct"]
    assert graph[names].isna().all()
    assert (graph["limiter"], graph["occupancy_pct"]) == ("", 40.0)
    (note,) = ncu_kernels(alone(launch("graph", of_one, kind="graph"))).notes
    assert note.endswith("and they are left out.")
    assert list(kernel[names]) == [16, 2.5, pytest.approx(100 / 3), 50.0]
    assert kernel["limiter"] == "warps"


# -- stalls and instructions ------------------------------------------------------------------------------------------


def test_stalls_are_shares_of_all_cycles_in_which_warps_do_not_issue() -> None:
    cycles = {"long_scoreboard": 6.0, "wait": 3.0, "barrier": 1.0, "selected": 90.0, "membar": 0.0}
    table = ncu_stalls(alone(launch("a", {CYCLES.format(name): value for name, value in cycles.items()}))).frame
    assert table[["reason", "stall_pct"]].to_numpy().tolist() == [
        ["long scoreboard", 60],
        ["wait", 30],
        ["barrier", 10],
    ]


def test_at_most_five_stalls_are_listed_and_samples_serve_where_cycles_lack() -> None:
    samples = {f"smsp__pcsamp_warps_issue_stalled_{name}": 10.0 for name in ("wait", "gmma", "misc", "drain", "membar")}
    more = {
        "smsp__pcsamp_warps_issue_stalled_no_instructions": 50.0,
        "smsp__pcsamp_warps_issue_stalled_wait_not_issued": 9.0,
    }
    by_cycles = launch("b", {CYCLES.format("wait"): 1.0, **samples})
    table = ncu_stalls(alone(launch("a", {**samples, **more}), by_cycles, launch("c")))
    sampled, counted = (table.frame[table.frame["launch"] == number] for number in (0, 1))
    assert sampled["reason"].tolist() == ["no instruction", "drain", "membar", "misc", "wait"]
    assert sampled["stall_pct"].tolist() == [50, 10, 10, 10, 10]
    assert counted["reason"].tolist() == ["wait"]
    assert table.notes == ("Launches whose stalls were not collected (section WarpStateStats): 1.",)


@pytest.mark.parametrize(
    ("kind", "opcodes"),
    [
        ("tensor", "HMMA HGMMA IMMA DMMA QGMMA BMMA UTCHMMA UTCQMMA OMMA"),
        ("fp64", "DADD DFMA DMUL DSETP"),
        ("fp32", "FADD FFMA FMUL FMNMX FSETP FSEL MUFU FCHK FADD2 FFMA2"),
        ("fp16", "HADD2 HFMA2 HMUL2 HSETP2 HMNMX2"),
        (
            "integer",
            "IADD3 IMAD ISETP LOP3 LEA SHF UIADD3 UISETP ULOP3 VIADD VIMNMX FLO POPC USHF UIMAD ULEA IDP REDUX CREDUX",
        ),
        ("load_store", "LDG STG LDS STS LDC ULDC LDGSTS LDSM ATOMG RED UTMALDG UTMASTG TEX SULD STAS REDG UBLKCP"),
        (
            "control",
            "BRA EXIT BAR BSSY BSYNC CALL RET NANOSLEEP DEPBAR LDGDEPBAR MEMBAR WARPSYNC SYNCS FENCE WARPGROUP",
        ),
        ("other", "MOV UMOV F2F F2FP I2F I2FP FRND S2R S2UR PRMT SHFL SEL VOTEU PLOP3 P2R NOP CS2R R2UR"),
    ],
)
def test_the_kind_of_opcodes(kind: str, opcodes: str) -> None:
    names = pd.Series(opcodes.split(), dtype="str")
    assert dict(zip(names, kind_of(names), strict=True)) == dict.fromkeys(names, kind)


def test_the_mix_is_a_share_of_all_instructions() -> None:
    table = ncu_instructions(alone(launch("a", {OPCODES: {"FFMA": 30.0, "LDG": 10.0, "MOV": 10.0}}), launch("b")))
    mix, missing = table.frame.to_dict("records")
    assert (mix["instructions"], mix["fp32_pct"], mix["load_store_pct"], mix["other_pct"]) == (50, 60, 20, 20)
    assert mix["tensor_pct"] == 0
    assert pd.isna(missing["fp32_pct"])
    assert table.notes == ("Launches whose opcodes were not counted (section InstructionStats): 1.",)


@examples(100)
@given(st.dictionaries(st.text("ABDFGHILMQSTU2", min_size=1, max_size=6), st.floats(1, 1e9), min_size=1))
def test_every_instruction_is_of_one_kind(counts: dict[str, float]) -> None:
    mix = ncu_instructions(alone(launch("a", {OPCODES: counts}))).frame
    assert mix.filter(like="_pct").sum(axis=1).item() == pytest.approx(100)


# -- rules and lines --------------------------------------------------------------------------------------------------


def test_the_bound_of_a_rule_is_its_estimate_times_the_share_of_the_kernel() -> None:
    rules = [rule("Big", 80), rule("Local", 90, speedup_kind="local"), rule("Silent", None), rule("Small", 10)]
    timeline = joined(draw("s7   aaa.b"), launch("b", rules=[rule("Most", 99)]), launch("a", rules=rules))
    table = ncu_rules(timeline).frame
    assert table[["name", "rule"]].to_numpy().tolist() == [
        *(["a", "Big"], ["b", "Most"], ["a", "Small"], ["a", "Local"], ["a", "Silent"])
    ]
    assert table["bound_pct"].tolist()[:3] == [60, 24.75, 7.5]
    assert table["bound_pct"].isna().tolist()[3:] == [True, True]


def test_no_bound_exceeds_the_share_of_the_kernel() -> None:
    table = ncu_rules(joined(draw("s7   aaa.b"), launch("a", rules=[rule("Big", 400)]))).frame
    assert table["bound_pct"].tolist() == [75]


def test_verdicts_come_last_without_an_estimate_and_titles_default_to_names() -> None:
    rules = [
        *(rule("Info", None, kind="info"), rule("Error", None, kind="error"), rule("Estimated", 5, kind="info")),
        rule("Warned", None, kind="warning", title=""),
        {**rule("Printed", None, kind="warning", title=""), "name": ""},
    ]
    table = ncu_rules(alone(launch("a", rules=rules))).frame
    assert table["title"].tolist() == ["Estimated title", "Warned", "Printed", "Info title"]
    assert table["kind"].tolist() == ["info", "warning", "warning", "info"]
    assert table[["speedup_pct", "bound_pct"]].isna().iloc[-1].all()
    assert table["bound_pct"].isna().all()


def test_samples_are_added_up_by_line_and_so_are_stalls() -> None:
    lines = [line(3, "wait"), line(2, "barrier"), line(2, "barrier"), line(13, "imc_miss", number=7), line(0, number=9)]
    table = ncu_source(alone(launch("a", lines=lines))).frame
    assert table[["file", "line", "samples", "share_pct", "stall"]].to_numpy().tolist() == [
        ["k.cu", 7, 13, 65, "imc miss"],
        ["k.cu", 1, 7, 35, "barrier"],
    ]
    assert table["pc"].isna().all()


def test_instructions_stand_for_themselves_where_there_are_no_lines() -> None:
    lines = [line(1, number=None, pc_bytes=0), line(2, "wait", number=None, pc_bytes=16), line(1, number=4)]
    table = ncu_source(alone(launch("a", lines=lines))).frame
    assert table[["line", "pc", "source"]].astype(object).fillna("-").to_numpy().tolist() == [
        ["-", 16, "MOV"],
        ["-", 0, "MOV"],
        [4, "-", "x = y;"],
    ]


def test_ten_lines_of_each_launch_are_enough() -> None:
    many = [line(number, number=number) for number in range(1, 15)]
    table = ncu_source(alone(launch("a", lines=many), launch("b", lines=many[:2]), launch("c", lines=[line(None)])))
    assert table.frame["launch"].value_counts().to_dict() == {0: 10, 1: 2}
    assert table.frame["line"].tolist()[:2] == [14, 13]
    assert table.notes == (
        "Launches whose instructions were not sampled (section SourceCounters; ncu does not sample whole ranges and "
        "graphs): 1.",
    )


@pytest.mark.parametrize("name", ["measure.details.csv", "measure.ncu-rep"])
def test_every_rule_of_a_real_report_is_in_the_table(name: str, recorded: Recorded) -> None:
    profile = recorded.profile(name)
    table = ncu_rules(Timeline(profile)).frame
    kernel_rules = profile.table("kernel_rules").query("kind != 'error'")
    assert sorted(table["message"]) == sorted(kernel_rules["message"].astype("str"))
    verdicts = table[table["kind"] == "info"]
    assert "SOLFPRoofline" in verdicts["rule"].tolist()
    assert verdicts["bound_pct"].isna().all()
    assert set(verdicts.index[-len(verdicts) :]) == set(range(len(table) - len(verdicts), len(table)))
