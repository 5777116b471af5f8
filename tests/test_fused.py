"""Kernels that torch.compile wrote: from the log of PyTorch to their operators, lines and bandwidth on the page."""

import json
import lzma
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze.operator_work.fused import fused_kernels, work_of_fused
from nightsight.analyze.operator_work.roofline import operator_roofline
from nightsight.captures import unprofiled_file
from nightsight.collect.compilations import compile_log, take_compile_log
from nightsight.collect.workloads import Request
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile, Report
from nightsight.render.page.html import render_html
from nightsight.render.page.page import page
from nightsight.render.table.fused import with_fused
from nightsight.render.table.grouped import kernel_groups
from nightsight.runs.unprofiled import from_text, to_text, with_unprofiled
from nightsight.sanitize.private import Private
from nightsight.tables import conform
from nightsight.workflows.analysis import build_report
from tests.properties import examples
from tests.replays import joined, launch, rule
from tests.reports import advised, kernel_table, result, small_report
from tests.test_analyze_operator_roofline import operator
from tests.timeline import draw

# made by tests/data/torch/make.py
LOG = Path(__file__).parent / "data/torch/fused_2.13.0.log.xz"
KERNEL, OTHER = "triton_poi_fused_gelu_0", "triton_poi_fused_add_1"
H200_BYTES_PER_S = 4.8e12


@cache
def log() -> str:
    return lzma.decompress(LOG.read_bytes()).decode()


def taken(*texts: str) -> pd.DataFrame:
    """Take the kernels of a run whose processes left these logs."""
    with TemporaryDirectory() as folder:
        request = Request(logs=Path(folder))
        (logs,) = (Path(path) for path in compile_log(request).values())
        logs.mkdir(parents=True)
        for number, text in enumerate(texts):
            (logs / f"dedicated_log_torch_trace_{number}.log").write_text(text)
        table = take_compile_log(request)["fused_kernels"]
        # it holds source text
        assert not logs.exists()
    return table


def described(table: pd.DataFrame, name: str) -> list[tuple[Any, ...]]:
    rows = table[table["name"] == name].drop(columns=["name", "graphs"]).astype(object)
    return [tuple(row) for row in rows.where(rows.notna(), None).itertuples(index=False)]


def test_the_log_of_pytorch_has_operators_lines_and_bytes_of_kernels() -> None:
    table = taken(log())
    assert len(table) == 20
    # 8 x 16 vectors of 64 floats: the input, weight and bias are read; mean, deviation, sum and result are written
    rows, size = 8 * 16, 8 * 16 * 64 * 4
    places = "forward (make.py:62), forward (make.py:63)"
    (first, *others) = described(table, "triton_per_fused_add_native_layer_norm_0")
    assert not others
    assert first[:2] == ("native_layer_norm, add", places)
    # two weights and biases of 64 floats each; the sum of lines 62 and 63 and the normalized values of both are kept
    assert first[2:4] == (size + 4 * 64 * 4, 2 * size + 4 * rows * 4)
    # the same kernel for both blocks: a product, its half, erf, plus one, and the product of both
    gelu = rows * 256
    assert described(table, "triton_poi_fused_gelu_view_1") == [
        ("view, gelu", "forward (make.py:64)", 4 * gelu, 4 * gelu, 5 * gelu)
    ]
    # the backward pass has the lines of the forward pass
    (backward,) = described(table, "triton_poi_fused_gelu_gelu_backward_view_1")
    assert backward[:2] == ("view, gelu, gelu_backward", "forward (make.py:65), forward (make.py:64)")


def test_a_kernel_that_needs_a_part_of_a_buffer_reads_only_that() -> None:
    # once for 4 rows, and once for any number of rows
    known, dynamic = described(taken(log()), "triton_poi_fused_add_mul_slice_0")
    assert known == ("slice, mul, add", "scale (make.py:69)", (4 * 32 + 32) * 4, 4 * 32 * 4, 2 * 4 * 32)
    assert dynamic == ("slice, mul, add", "scale (make.py:69)", None, None, None)


def test_a_sum_in_two_kernels_is_counted_in_both_by_what_each_adds_up() -> None:
    table, elements = taken(log()), 1024 * 4096
    (parts,), (whole,) = (described(table, name) for name in ("triton_red_fused_sum_0", "triton_per_fused_sum_1"))
    assert (parts[2], parts[4]) == (4 * elements, elements)
    # the first kernel writes sums, which the second adds up
    assert parts[3] == whole[2]
    assert whole[3:] == (4, whole[2] // 4)
    # smaller types
    assert described(table, "triton_poi_fused__to_copy_mul_sigmoid_0")[0][2:4] == (128 * 64 * 4, 128 * 64 * 2)


def test_bytes_are_those_that_inductor_estimates_itself() -> None:
    # kernel_num_gb of the same program with torch._inductor.config.benchmark_kernel
    inductor = {
        "triton_poi_fused_gelu_view_1": 262144,
        "triton_poi_fused_add_view_3": 98304,
        "triton_red_fused_sum_view_0": 33024,
        "triton_poi_fused_gelu_gelu_backward_view_1": 393216,
        "triton_red_fused_gelu_gelu_backward_sum_view_2": 132096,
        "triton_per_fused_add_native_layer_norm_native_layer_norm_backward_view_3": 199424,
        "triton_red_fused_native_layer_norm_backward_view_4": 66048,
        "triton_red_fused_native_layer_norm_native_layer_norm_backward_5": 67072,
        "triton_red_fused_sum_view_6": 33024,
        "triton_per_fused_add_native_layer_norm_native_layer_norm_backward_view_7": 166656,
        "triton_red_fused_sum_0": 16777344,
        "triton_per_fused_sum_1": 132,
        "triton_red_fused_amax_mul_2": 16781312,
        "triton_poi_fused_relu_0": 32768,
        "triton_poi_fused_exp_0": 32768,
        "triton_poi_fused__to_copy_mul_sigmoid_0": 49152,
        # it also counts reads of means and deviations, which these kernels only write
        "triton_per_fused_add_native_layer_norm_0": 103424 - 4 * 128 * 4,
        "triton_per_fused_add_native_layer_norm_view_2": 168960 - 4 * 128 * 4,
    }
    table = taken(log()).set_index("name")
    total = (table["read_bytes"] + table["written_bytes"]).dropna()
    assert total.drop("triton_poi_fused_add_mul_slice_0").to_dict() == inductor


def test_a_product_counts_only_where_a_kernel_multiplies() -> None:
    node = "#   %relu : Tensor"
    with_product = log().replace(node, f'#   %mm : Tensor "f32[64, 64]" = call_function[target=mm](args = ()\n\t{node}')
    # the kernel after a product: its input, or a bias that it adds
    assert described(taken(with_product), "triton_poi_fused_relu_0")[0][4] is None
    # a template of Inductor
    template = with_product.replace("def triton_poi_fused_relu_0(", "tl.dot(a, b)\n\tdef triton_poi_fused_relu_0(")
    assert described(taken(template), "triton_poi_fused_relu_0")[0][4] == 2 * 64**3 + 64 * 64


def test_a_kernel_with_calls_in_several_places_names_all_of_them() -> None:
    assert described(taken(log()), "triton_poi_fused_exp_0")[0][1] == "twice (make.py:81), twice (make.py:82)"


def test_equal_kernels_of_several_graphs_are_one_row() -> None:
    once, twice = taken(log()), taken(log(), log())
    assert set(once["graphs"]) == {1}
    assert set(twice["graphs"]) == {2}
    pd.testing.assert_frame_equal(once.drop(columns="graphs"), twice.drop(columns="graphs"))


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        # a graph from the cache
        (
            r'\{"artifact": \{"name": "inductor_post_grad_graph", "encoding": "string"\}',
            '{"inductor_post_grad_graph": {}',
        ),
        # code for a GPU, with the indentation inside `with torch.cuda._DeviceGuard(0)`
        (r"empty_strided_cpu\(", "empty_strided_cuda("),
        (r"raw_streamNone", "stream0"),
        (r"(?m)^\t(        )(?=\w+ = |\w+\.run|assert_)", "\t            "),
        # older versions: no shapes in comments, a grid in calls
        (r' : Tensor "[^"]*"', " : "),
        (r"(, \d+)(, stream=)", r"\1, grid=grid(8)\2"),
        # calls with example values, to tune kernels when they are compiled
        (
            r"\t# AOT ID: ",
            '\tr"""\n\tCompile-time auto-tuning block:\n\ttriton_poi_fused_exp_0 = async_compile.triton('
            "'triton_poi_fused_exp_0', '''\n\t''', device_str='cuda')\n"
            '\t    triton_poi_fused_exp_0.run(other, others, 8, stream=stream0)\n\t"""\n\\g<0>',
        ),
    ],
)
def test_other_forms_of_the_log_say_the_same(pattern: str, replacement: str) -> None:
    text, changes = re.subn(pattern, replacement, log())
    assert changes
    pd.testing.assert_frame_equal(taken(text), taken(log()))


def test_neither_source_text_nor_folders_nor_values_are_kept() -> None:
    text = taken(log()).to_json()
    assert "make.py" in text
    assert not re.search(r"secret|home|user|return|torch\.|self|site-packages|/tmp|tl\.", text.replace("\\/", "/"))


def test_without_the_graph_operators_stay_and_without_comments_nothing_is_guessed() -> None:
    table = taken(log().replace("inductor_post_grad_graph", "other").replace("dynamo_output_graph", "other"))
    assert set(table["places"]) == {""}
    assert "view, gelu" in set(table["operators"])
    assert table["flop"].isna().all()
    bare = taken(re.sub(r"(?m)^\t *#.*\n", "", log()))
    assert set(bare["operators"]) == {""}
    assert bare["flop"].isna().all()


@given(
    st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from(["cut", "drop", "double", "number", "noise"])),
        max_size=30,
    ),
    st.text(max_size=40),
)
@examples(40)
def test_damaged_logs_give_rows_of_the_right_form(damages: list[tuple[float, str]], noise: str) -> None:
    lines = log().splitlines(keepends=True)
    for place, kind in damages:
        at = int(place * len(lines))
        lines[at] = {
            "cut": lines[at][: len(lines[at]) // 2] + "\n",
            "drop": "",
            "double": lines[at] * 2,
            "number": re.sub(r"\d+", "9" * 30, lines[at]),
            "noise": f"\t{noise}\n",
        }[kind]
    table = taken("".join(lines))
    assert len(table) <= 60
    assert table["name"].astype("str").str.fullmatch(r"\w+").all()
    assert table["operators"].astype("str").str.fullmatch(r"[\w., ]*").all()
    assert table["places"].astype("str").str.fullmatch(r"[^/\\]*").all()
    numbers = table[["read_bytes", "written_bytes", "flop"]].to_numpy(dtype=np.float64, na_value=0.0)
    assert ((numbers >= 0) & (numbers <= 2**60)).all()
    # the file next to the capture can be read again
    assert len(from_text(to_text({"fused_kernels": table})).get("fused_kernels", ())) == len(table)


@given(st.text(alphabet="\t\n #%=()[]{}'\":,.0123456789abcdefgru_", max_size=300))
@examples(100)
def test_any_text_as_graph_and_code_is_read(text: str) -> None:
    body = "".join(f"\t{line}\n" for line in text.splitlines())
    heads = ('"inductor_post_grad_graph": {}', '"dynamo_output_graph": {}', '"inductor_output_code": {}')
    taken("".join(f"V1128 04:42:48.24 51 a.py:1] {{{head}}}\n{body}" for head in heads))


def test_huge_entries_are_read() -> None:
    # a kernel that is called fifty thousand times, and an operator with a hundred thousand arguments
    (call,) = re.findall(r"(?m)^\t +triton_poi_fused_relu_0\.run\(.*\n", log())
    names = ", ".join(f"arg{number}" for number in range(100_000))
    text, changes = re.subn(r"relu\.default\([^)]*\)", f"relu.default([{names}])", log().replace(call, call * 50_000))
    assert changes
    assert described(taken(text), "triton_poi_fused_relu_0") == described(taken(log()), "triton_poi_fused_relu_0")


# -- analysis ----------------------------------------------------------------------------------------------------------


def kernels_of(*rows: dict[str, Any]) -> pd.DataFrame:
    common = {"operators": "view, gelu", "places": "forward (model.py:42)", "graphs": 1, "flop": 5000}
    sizes = {"read_bytes": 2_400_000, "written_bytes": 2_400_000}
    return conform("fused_kernels", pd.DataFrame([{**common, **sizes, **row} for row in rows]))


def timeline(picture: str, table: pd.DataFrame, **tables: pd.DataFrame) -> Timeline:
    """Draw kernels: `g` is KERNEL, `a` is OTHER."""
    drawn = draw(picture)
    names = {"g": KERNEL, "a": OTHER, "x": "triton_red_fused_sum_7"}
    kernels = drawn.table("kernels")
    kernels = kernels.assign(name=[names.get(name, name) for name in kernels["name"].astype("str")])
    facts = pd.DataFrame([{"device": 0, "name": "H200", "compute_capability": "9.0"}])
    replaced = {"kernels": conform("kernels", kernels), "devices": conform("devices", facts), "fused_kernels": table}
    return Timeline(Profile({**drawn.tables, **replaced, **tables}))


def test_bandwidth_is_the_bytes_of_a_launch_over_its_mean_duration() -> None:
    (row,) = fused_kernels(timeline("s7  gg.gg.mm", kernels_of({"name": KERNEL}))).frame.to_dict("records")
    assert (row["name"], row["instances"], row["avg_ns"], row["kernels"]) == (KERNEL, 2, 2000, 1)
    assert (row["operators"], row["places"]) == ("view, gelu", "forward (model.py:42)")
    assert row["time_pct"] == pytest.approx(100 * 4 / 6)
    assert row["data_bytes_per_s"] == pytest.approx(4.8e6 / 2e-6)
    assert row["memory_pct"] == pytest.approx(100 * 2.4e12 / H200_BYTES_PER_S)
    assert row["work_flop_per_s"] == pytest.approx(5000 / 2e-6)


def test_a_name_of_several_kernels_has_all_their_operators_and_no_bytes() -> None:
    other = {"name": KERNEL, "operators": "gelu, mul", "places": "g (b.py:1)", "read_bytes": 8}
    table = kernels_of({"name": KERNEL}, other, {"name": OTHER}, {"name": OTHER, "places": "g (b.py:1)"})
    frame = fused_kernels(timeline("s7  gg.aa", table)).frame
    shown = frame[["name", "operators", "places", "kernels", "work_flop"]].to_numpy().tolist()
    places = "forward (model.py:42), g (b.py:1)"
    assert sorted(shown) == [[OTHER, "view, gelu", places, 2, 5000], [KERNEL, "view, gelu, mul", places, 2, 5000]]
    # known if all of them have the same
    assert frame.set_index("name")["data_bytes"].dropna().to_dict() == {OTHER: 4_800_000}


def test_equal_rows_of_several_ranks_are_one_kernel() -> None:
    table = kernels_of({"name": KERNEL}, {"name": KERNEL, "graphs": 2})
    (row,) = fused_kernels(timeline("s7  gg", table)).frame.to_dict("records")
    assert (row["kernels"], row["data_bytes"]) == (1, 4_800_000)


def test_lines_of_a_function_are_together() -> None:
    rows = [{"name": KERNEL, "places": places} for places in ("f (a.py:12), g (a.py:3), f (b.py:1)", "f (a.py:9)", "")]
    (row,) = fused_kernels(timeline("s7  gg", kernels_of(*rows))).frame.to_dict("records")
    assert row["places"] == "f (a.py:9, 12), g (a.py:3), f (b.py:1)"
    # of a damaged file
    (row,) = fused_kernels(timeline("s7  gg", kernels_of({"name": KERNEL, "places": "x, :, (a.py"}))).frame.to_dict(
        "records"
    )
    assert row["places"].startswith("x, ")


def test_unknown_bytes_of_one_of_them_make_the_bytes_unknown() -> None:
    table = kernels_of({"name": KERNEL}, {"name": KERNEL, "read_bytes": None, "places": ""})
    work = work_of_fused(timeline("s7  gg", table))
    assert work["data_bytes"].isna().tolist() == [True]
    assert work["work_flop"].tolist() == [5000]


def test_long_lists_are_shortened_and_kernels_without_a_description_are_noted() -> None:
    places = ", ".join(f"f{number} (m.py:7)" for number in range(20))
    table = fused_kernels(timeline("s7  gg.xx", kernels_of({"name": KERNEL, "places": places})))
    assert table.frame["places"].tolist()[0].endswith("f11 (m.py:7), and more")
    assert any(note.startswith("50.0 % of the time is of other kernels") for note in table.notes)
    assert not fused_kernels(timeline("s7  gg.mm", kernels_of({"name": KERNEL}))).notes


def test_two_gpus_have_rows_of_their_own_and_one_without_a_peak_no_share() -> None:
    frame = fused_kernels(timeline("s7  gg..\ns7:1  .gggg", kernels_of({"name": KERNEL}))).frame
    assert frame[["device", "avg_ns"]].to_numpy().tolist() == [[1, 4000], [0, 2000]]
    assert frame["memory_pct"].isna().tolist() == [True, False]


def test_the_roofline_of_operators_knows_the_bytes_of_fused_kernels() -> None:
    # torch.profiler records the launch of a Triton kernel as an operator of its name
    call = conform("cpu_ops", pd.DataFrame([operator(KERNEL, 0, 2, [[512]], ["float"])]))
    drawn = timeline("cpu  L..\ns7   .gg", kernels_of({"name": KERNEL}), cpu_ops=call)
    (row,) = operator_roofline(drawn).frame.to_dict("records")
    assert row["data_bytes"] == 4_800_000
    assert (row["memory_pct"], row["bound"]) == (pytest.approx(50.0), "latency")
    assert np.isnan(row["work_flop"])
    (row,) = operator_roofline(timeline("cpu  L..\ns7   .gg", kernels_of({"name": OTHER}), cpu_ops=call)).frame.to_dict(
        "records"
    )
    assert np.isnan(row["data_bytes"])


# -- files, page, advice -----------------------------------------------------------------------------------------------


def test_the_file_next_to_a_capture_keeps_them(tmp_path: Path) -> None:
    capture = tmp_path / "train.sqlite"
    table = taken(log())
    unprofiled_file(capture).write_text(to_text({"fused_kernels": table}))
    # they need no date of the capture
    frame = with_unprofiled(Profile({}), capture).table("fused_kernels")
    pd.testing.assert_frame_equal(frame, table)


def test_sanitized_kernels_have_the_names_of_those_in_the_capture() -> None:
    private = Private()
    for name in taken(log())["name"].astype("str"):
        assert private.text(name) == name


def with_kernels(*names: str) -> Report:
    rows = fused_kernels(timeline("s7  gg", kernels_of({"name": KERNEL}))).frame
    results = (result("cuda_gpu_kern_sum", kernel_table(names)), result("fused_kernels", rows))
    return small_report(results=results)


def test_kernel_time_names_operators_and_lines_beside_the_kernel_in_all_groups() -> None:
    report = with_kernels(KERNEL, "ampere_sgemm_128x64_nn")
    results = with_fused(report.results)
    (kernels, _) = results
    shown = kernels.rows[["name", "operators", "places"]].to_numpy().tolist()
    assert shown == [[KERNEL, "view, gelu", "forward (model.py:42)"], ["ampere_sgemm_128x64_nn", "", ""]]
    tree = kernel_groups(small_report(results=tuple(results)))["family"]
    assert tree.loc[tree["name"] == KERNEL, "places"].tolist() == ["forward (model.py:42)"]
    html = render_html(report)
    assert html.count("forward (model.py:42)") >= 2
    assert "Operators and places: what kernels of torch.compile fuse" in html


def test_kernel_time_without_fused_kernels_stays_as_it_is() -> None:
    report = with_kernels("ampere_sgemm_128x64_nn")
    assert with_fused(report.results) == report.results
    assert with_fused(report.results[:1]) == report.results[:1]


def test_a_report_of_a_capture_with_the_file_has_them() -> None:
    drawn = timeline("nvtx  [step][step][step]\ns7    .gg....gg....gg.", kernels_of({"name": KERNEL}))
    report = build_report(drawn.profile, "train")
    (result,) = (each for each in report.results if each.name == "fused_kernels")
    assert result.rows["name"].tolist() == [KERNEL]
    document = json.loads(report.to_json())
    assert "forward (model.py:42)" in json.dumps(document)
    assert any(section.anchor == "fused_kernels" for section in sections(report))


def sections(report: Report) -> Iterator[Any]:
    yield from page(report).results


def test_a_finding_about_a_fused_kernel_names_its_operators_and_lines() -> None:
    joint = joined(draw("cpu  L..L..\ns7   aaaaaaaabb"), launch("a", rules=[rule("UncoalescedGlobalAccess", 50)]))
    tables = {**joint.profile.tables, "fused_kernels": kernels_of({"name": "a"})}
    (finding,) = (each for each in advised(Timeline(Profile(tables))) if each.rule.startswith("ncu_"))
    assert finding.evidence[-1] == "a fuses view, gelu of forward (model.py:42)"
    tables["fused_kernels"] = kernels_of({"name": "a"}, {"name": "a", "operators": "mul"})
    (finding,) = (each for each in advised(Timeline(Profile(tables))) if each.rule.startswith("ncu_"))
    assert finding.evidence[-1] == "a fuses view, gelu, mul of forward (model.py:42) (2 kernels have this name)"
