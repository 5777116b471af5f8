"""Operators, modules and functions of PyTorch among NVTX ranges: what their names say, in every form of them."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze import analyze
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from nightsight.read import read
from nightsight.read.nsys.names import ParsedNames, parse_names
from nightsight.stats import Selection, details_of, stats_table
from nightsight.tables import FUNCTION, MODULE, PUSH_POP, conform
from tests.build import GENERATIONS, build
from tests.properties import examples
from tests.recorded import Recorded
from tests.timeline import draw

SHAPES = st.lists(st.lists(st.integers(0, 2**40), max_size=4), min_size=1, max_size=4)
NAMES = st.one_of(
    st.sampled_from(["aten::mm", "AddmmBackward0", "torch::autograd::CppNode<Fused, Bias>", "my_op", "a, seq of b"]),
    st.text(max_size=12),
)


def parsed(*texts: str, of_torch: bool = True) -> ParsedNames:
    return parse_names(
        pa.array([text.encode("utf-8", "surrogatepass") for text in texts], pa.binary()),
        np.full(len(texts), of_torch),
    )


def one(text: str) -> tuple[str, bool, str, int | None]:
    names = parsed(text)
    (sequence,) = names.sequence
    return str(names.name[0]), bool(names.is_operator[0]), str(names.shapes[0]), None if pd.isna(sequence) else sequence


def written(name: str, sequence: int | None, number: int | None, shapes: list[list[int]] | None) -> str:
    """Write a name as torch::profiler::impl::getNvtxStr does."""
    text = name if sequence is None else f"{name}, seq = {sequence}"
    text += "" if number is None else f", op_id = {number}"
    if shapes is not None:
        inputs = ", ".join(f"({size},{place - 1})" for place, size in enumerate(range(len(shapes))))
        text += f", sizes = {shapes}, input_op_ids = [{inputs}]"
    return text


@given(NAMES, st.none() | st.integers(0, 2**59), st.none() | st.integers(1, 2**63), st.none() | SHAPES)
@examples(300)
def test_what_is_written_is_read_again(
    name: str, sequence: int | None, number: int | None, shapes: list[list[int]] | None
) -> None:
    name = name.encode("utf-8", "replace").decode()
    text = written(name, sequence, number, shapes)
    if sequence is None and shapes is None:
        return
    assert one(text) == (name, True, "" if shapes is None else json.dumps(shapes, separators=(",", ":")), sequence)


@given(st.lists(st.text(max_size=40) | st.from_regex(r"[a, ]{3}, (seq|op_id|sizes) = [\[\]0-9, ]{0,9}"), max_size=8))
@examples(300)
def test_any_text_is_a_name(texts: list[str]) -> None:
    names = parsed(*texts)
    assert len(names.name) == len(names.is_operator) == len(names.shapes) == len(names.sequence) == len(texts)
    for text, shapes in zip(names.name, names.shapes, strict=True):
        assert isinstance(text, str)
        assert shapes == "" or isinstance(json.loads(shapes), list)
    clean = [text.encode("utf-8", "surrogatepass").decode("utf-8", "replace") for text in texts]
    assert list(parsed(*texts, of_torch=False).name) == clean
    assert not parsed(*texts, of_torch=False).is_operator.any()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # torch 2.11
        (
            "aten::addmm, seq = 7, op_id = 12, sizes = [[1024], [64, 1024], []], input_op_ids = [(7,0), (9,1), (0,-1)]",
            ("aten::addmm", True, "[[1024],[64,1024],[]]", 7),
        ),
        ("AddmmBackward0, seq = 7, op_id = 12", ("AddmmBackward0", True, "", 7)),
        ("aten::empty, op_id = 12", ("aten::empty", True, "", None)),
        ("detach, op_id = 3", ("detach", True, "", None)),
        (
            "autograd::engine::evaluate_function: MulBackward0, op_id = 1",
            ("autograd::engine::evaluate_function: MulBackward0", True, "", None),
        ),
        # torch 1.8 to 1.10: no input_op_ids
        ("aten::mean, op_id = 4, sizes = [[64, 1024], []]", ("aten::mean", True, "[[64,1024],[]]", None)),
        # until torch 1.7: no op_id, and with shapes but no number no name
        ("AddBackward0, seq = 0, sizes = [[8], []]", ("AddBackward0", True, "[[8],[]]", 0)),
        (", sizes = [[8], []]", ("", True, "[[8],[]]", None)),
        ("aten::empty", ("aten::empty", True, "", None)),
        ("add, seq = 3", ("add", True, "", 3)),
        # a class of C++ with a comma in its name
        ("CppNode<A, B>, seq = 3, op_id = 9", ("CppNode<A, B>", True, "", 3)),
        # torch.profiler.record_function: the program's, or PyTorch's own
        ("Optimizer.step#Adam.step, op_id = 2850", ("Optimizer.step#Adam.step", False, "", None)),
        ("my step, op_id = 5", ("my step", False, "", None)),
        ("step 1, of 2, op_id = 5", ("step 1, of 2", False, "", None)),
        # not PyTorch's
        ("step 7", ("step 7", False, "", None)),
        ("loss, seq = five", ("loss, seq = five", False, "", None)),
        ("Loader::next", ("Loader::next", False, "", None)),
        ("a, sizes = [[,]], op_id = 3", ("a, sizes = [[,]]", False, "", None)),
        ("aten::x, sizes = [[,]]", ("aten::x", True, "", None)),
        ("", ("", False, "", None)),
    ],
)
def test_the_forms_of_all_versions(text: str, expected: tuple[str, bool, str, int | None]) -> None:
    assert one(text) == expected


def test_the_recorded_program_has_the_operators_of_its_model(recorded: Recorded) -> None:
    """Seven steps of four layers `Linear(1024, 1024)`, on batches of 64, trained by Adam."""
    operators = recorded.profile("python_names").table("cpu_ops")
    counts = operators["name"].value_counts()
    assert len(operators) == 1568
    assert (counts["aten::addmm"], counts["aten::mm"], counts["AddmmBackward0"]) == (28, 49, 28)
    assert not operators["name"].astype("str").str.contains("op_id|sizes").any()
    linear = operators[operators["name"] == "aten::linear"]
    assert set(linear["shapes"]) == {"[[64,1024],[1024,1024],[1024]]"}
    assert set(linear["module"]) == {"Linear"}
    assert set(operators.loc[operators["name"] == "aten::mean", "module"]) == {""}
    backward = operators[operators["name"] == "AddmmBackward0"]
    assert set(backward["forward_thread"]) == set(linear["thread"])
    assert set(backward["thread"]).isdisjoint(linear["thread"])
    assert operators.loc[~operators["name"].astype("str").str.contains("Backward"), "forward_thread"].isna().all()
    # the number of each of them is that of an operator in the forward pass
    forward = operators.loc[operators["name"] == "aten::addmm", "sequence"]
    assert set(backward["sequence"]) <= set(forward)


def test_ranges_of_the_recorded_program_are_modules_steps_and_backward_passes(recorded: Recorded) -> None:
    ranges = recorded.profile("python_names").table("ranges")
    counts = Counter(ranges[["style", "name"]].itertuples(index=False, name=None))
    assert counts == {
        (MODULE, "Linear"): 28,
        (MODULE, "Sequential"): 7,
        (FUNCTION, "Optimizer.step#Adam.step"): 7,
        (FUNCTION, "Optimizer.zero_grad#Adam.zero_grad"): 7,
        (FUNCTION, "torch.autograd.backward"): 7,
    }
    assert set(ranges["domain"]) == {""}
    report = recorded.report("python_names")
    (table,) = (result.rows for result in report.results if result.name == "nvtx_ranges")
    # of 1,588 rows before, one for each of these
    assert set(table["path"]) == {name for _, name in counts}
    assert len(table) == 5


def test_tables_of_nsys_have_every_range_by_its_full_name(capture_file: Any) -> None:
    profile = read(capture_file("python_names"), details=details_of(Selection(["nvtx_sum"])))
    assert "cpu_ops" not in profile.tables
    assert len(profile.table("ranges")) == 1694
    table = stats_table(profile, "nvtx_sum")
    assert table["Instances"].sum() == 1694
    assert len(table) == 1588
    assert table["Range"].str.contains("PyTorch:torch.nn.modules.Module.__call__", regex=False).sum() == 1


def renamed(names: list[tuple[str, str]], picture: str) -> Profile:
    """Draw a picture, and give its ranges these domains and names."""
    profile = draw(picture)
    domains, texts = zip(*names, strict=True)
    ranges = conform("ranges", profile.table("ranges").assign(name=texts, domain=domains))
    return replace(profile, tables={**profile.tables, "ranges": ranges})


PICTURE = "nvtx  [a     ]\nnvtx  .[b   ]\nnvtx  ..[c ]\ncpu   ...L\ns7    ....a"


@pytest.mark.parametrize("generation", GENERATIONS)
def test_modules_by_path_leave_no_room_for_their_class(tmp_path: Path, generation: str) -> None:
    names = [("", "nn.Module: layers.3"), ("PyTorch", "torch.nn.modules.Linear.forward"), ("", "aten::mm, op_id = 4")]
    profile = read(build(renamed(names, PICTURE), tmp_path / "x.sqlite", generation=generation))
    assert profile.table("ranges")[["name", "style", "domain"]].to_numpy().tolist() == [["layers.3", MODULE, ""]]
    assert profile.table("cpu_ops")[["name", "module"]].to_numpy().tolist() == [["aten::mm", "layers.3"]]
    assert tuple(analyze(Timeline(profile)))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("PyTorch", "torch.nn.modules.linear.Linear.forward"), ("", "Linear", MODULE)),
        (("PyTorch", "torch.optim.AdamW.step"), ("", "Optimizer.step#AdamW.step", FUNCTION)),
        (("PyTorch", "torch.autograd.backward"), ("", "torch.autograd.backward", FUNCTION)),
        (
            ("PyTorch", "torch.utils.data.dataloader._BaseDataLoaderIter.__next__"),
            ("", "BaseDataLoaderIter.__next__", FUNCTION),
        ),
        (("", "torch.autograd.backward"), ("", "torch.autograd.backward", FUNCTION)),
        (("", "Optimizer.step#SGD.step"), ("", "Optimizer.step#SGD.step", FUNCTION)),
        (("PyTorch", "torch.nn.modules.Module.__call__"), None),
        (("PyTorch", "torch.nn.functional.linear"), None),
        (("", "nightsight: cost"), None),
        (("mine", "torch.nn.modules.Linear.forward"), ("mine", "torch.nn.modules.Linear.forward", PUSH_POP)),
        (("mine", "aten::mm, seq = 3, op_id = 4"), ("mine", "aten::mm, seq = 3, op_id = 4", PUSH_POP)),
        (("", "forward"), ("", "forward", PUSH_POP)),
    ],
)
def test_what_a_range_is_called(tmp_path: Path, given: tuple[str, str], expected: tuple[str, str, str] | None) -> None:
    profile = read(build(renamed([given], "nvtx  [a]\ncpu   L..\ns7    .a."), tmp_path / "x.sqlite", generation="2025"))
    names = list(profile.table("ranges")[["domain", "name", "style"]].itertuples(index=False, name=None))
    assert names == [expected] * (expected is not None)
    assert "cpu_ops" not in profile.tables
    assert "--names shapes" in profile.missing["cpu_ops"]


def test_an_optimizer_that_is_named_twice_is_one(tmp_path: Path) -> None:
    names = [
        ("", "Optimizer.step#Adam.step, op_id = 3"),
        ("PyTorch", "torch.optim.Adam.step"),
        ("", "aten::mul, op_id = 4"),
    ]
    profile = read(build(renamed(names, PICTURE), tmp_path / "x.sqlite", generation="2025"))
    assert profile.table("ranges")["name"].tolist() == ["Optimizer.step#Adam.step"]


MARK = "nightsight: modules, {} of 3 levels, {} of 40 calls, 5000 ns each in 4000000 ns"


@pytest.mark.parametrize(
    ("levels", "calls", "title", "detail"),
    [
        (3, 40, "Naming all modules took 5 % of the program's time", "took 5.000 µs, measured"),
        (2, 10, "Naming modules down to level 2 of 3 took 1.2 % of the program's time", "it would be 5 %"),
        (0, 0, "No module was named", "it would be 5 %"),
    ],
)
def test_what_the_hook_says_of_its_cost_is_a_note(
    tmp_path: Path, levels: int, calls: int, title: str, detail: str
) -> None:
    profile = draw("nvtx  [a]\nmark  x.y\ncpu   L..\ns7    .a.")
    marks = conform("marks", profile.table("marks").assign(name=[MARK.format(levels, calls), "mine"]))
    profile = replace(profile, tables={**profile.tables, "marks": marks})
    exported = read(build(profile, tmp_path / "x.sqlite", generation="2025"))
    assert exported.table("marks")["name"].tolist() == ["mine"]
    (finding,) = exported.findings
    assert (finding.severity, finding.title) == ("info", title)
    assert detail in finding.detail
