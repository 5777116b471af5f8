"""Implementations of one operation give what float64 gives, for any size, or say in one line why they cannot run."""

import json
import sys
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workload_runs import Ended, run_together

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("triton") is None, reason="needs torch and triton"
)
CPU = ("--device", "cpu", "--iterations", "1", "--warmup", "0")
ODD_SIZES = (1, 2, 127, 1000, 1024, 1025)
"""Numbers of elements or columns, of which few are a multiple of a block."""
SIZES = st.sampled_from(ODD_SIZES) | st.integers(1, 3000)


@pytest.fixture(scope="module")
def torch() -> Iterator[ModuleType]:
    """Import torch when a test needs it, with Triton's interpreter."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        yield import_module("torch")


def workload(name: str) -> ModuleType:
    return import_module(f"workloads.{name}")


def error_of(name: str, implementation: str, *inputs: Any) -> float:
    """The largest relative error of an implementation, as the workload states it."""
    module = workload(name)
    result = module.BUILDERS[implementation]("cpu")(*inputs)
    error: float = workload("variants").largest_relative_error(result, module.EXACT, inputs)
    return error


def numbers(torch: ModuleType, *shape: int, seed: int, spread: float) -> Any:
    return spread * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# the interpreter computes with NumPy, which warns of the infinity that the sigmoid of a large negative number needs
@pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning")
@pytest.mark.parametrize("implementation", ["naive", "torch", "triton"])
@given(
    shape=st.tuples(st.integers(1, 5), SIZES), seed=st.integers(0, 1 << 32), spread=st.sampled_from([1e-6, 1, 8, 1e6])
)
def test_gelu_is_that_of_float64(
    torch: ModuleType, implementation: str, shape: tuple[int, int], seed: int, spread: float
) -> None:
    assert error_of("gelu", implementation, numbers(torch, *shape, seed=seed, spread=spread)) < 1e-6


@pytest.mark.parametrize("implementation", ["naive", "torch", "triton"])
@given(shape=st.tuples(st.integers(1, 5), SIZES), seed=st.integers(0, 1 << 32), spread=st.sampled_from([0, 1, 8]))
def test_softmax_is_that_of_float64(
    torch: ModuleType, implementation: str, shape: tuple[int, int], seed: int, spread: float
) -> None:
    x = numbers(torch, *shape, seed=seed, spread=spread)
    assert error_of("softmax", implementation, x) < 1e-5
    # powers of these numbers are not finite, unless the largest of a row is subtracted first
    assert error_of("softmax", implementation, x - 1000) < 1e-5
    assert error_of("softmax", implementation, x + 1000) < 1e-5


@pytest.mark.parametrize("implementation", ["torch", "triton"])
@given(size=SIZES, seed=st.integers(0, 1 << 32), spread=st.sampled_from([1, 1e30]))
def test_vector_add_is_that_of_float64(
    torch: ModuleType, implementation: str, size: int, seed: int, spread: float
) -> None:
    left, right = (numbers(torch, size, seed=seed + part, spread=spread) for part in range(2))
    assert error_of("vector_add", implementation, left, right) < 1e-6


@pytest.mark.parametrize(("dtype", "least"), [("float32", 1e-6), ("float16", 2e-3), ("bfloat16", 2e-2)])
@pytest.mark.parametrize("implementation", ["naive", "sdpa"])
@given(shape=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 40), st.integers(1, 20)))
def test_attention_is_that_of_float64(
    torch: ModuleType, dtype: str, least: float, implementation: str, shape: tuple[int, ...]
) -> None:
    attention = workload("attention")
    inputs = [numbers(torch, *shape, seed=seed, spread=1).to(getattr(torch, dtype)) for seed in range(3)]
    result = attention.BUILDERS[implementation]("cpu")(*inputs)
    assert workload("variants").largest_relative_error(result, attention.exact(dtype), inputs) < least


def test_a_token_of_the_transformer_knows_nothing_of_later_ones(torch: ModuleType) -> None:
    sizes = SimpleNamespace(vocab=11, dim=8, heads=2, layers=2, seq=6)
    model = workload("transformer").Transformer(sizes)
    tokens = torch.tensor([[1, 2, 3, 4, 5, 6], [1, 2, 3, 7, 7, 7]])
    first, second = model(tokens)
    assert first.shape == (6, 11)
    assert torch.allclose(first[:3], second[:3], atol=1e-6)
    assert not torch.allclose(first[3:], second[3:], atol=1e-3)


@given(size=SIZES, factor=st.floats(-2, 2))
def test_the_kernel_that_is_compiled_anew_multiplies(torch: ModuleType, size: int, factor: float) -> None:
    x = numbers(torch, size, seed=size, spread=1)
    assert torch.allclose(workload("triton_kernels").scale(x, factor), x * factor)


@given(seed=st.integers(0, 99), heads=st.integers(1, 3), size=st.sampled_from((2, 3, 16)), block=st.integers(1, 5))
def test_the_kernel_of_paged_attention_attends_to_all_tokens_of_a_request(
    torch: ModuleType, seed: int, heads: int, size: int, block: int
) -> None:
    torch.manual_seed(seed)
    requests, most_blocks = 3, 80 // block
    positions = torch.randint(0, most_blocks * block, (requests,))
    # each has blocks of its own, in any order
    blocks = torch.randperm(requests * most_blocks).view(requests, most_blocks)
    keys, values = torch.randn(2, requests * most_blocks * block, heads, size)
    query = torch.randn(requests, heads, size)
    result = workload("triton_kernels").paged_attention(query, keys, values, blocks, positions, block)
    for request in range(requests):
        seen = (blocks[request, :, None] * block + torch.arange(block)).flatten()[: int(positions[request]) + 1]
        scores = torch.einsum("hd,thd->ht", query[request], keys[seen]) / size**0.5
        assert torch.allclose(result[request], torch.einsum("ht,thd->hd", scores.softmax(1), values[seen]), atol=1e-5)


def test_the_blocks_of_a_check_find_an_error_in_any_of_them(torch: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    variants = workload("variants")
    monkeypatch.setattr(variants, "_CHECKED_ELEMENTS", 20)
    x = numbers(torch, 9, 7, seed=1, spread=1)
    exact = workload("gelu").EXACT
    for row in range(9):
        wrong = exact.result(x)
        wrong[row, 3] += x[row, 3].abs() / 8
        assert variants.largest_relative_error(wrong, exact, (x,)) == pytest.approx(1 / 8, rel=1e-4)
        wrong[row, 3] = torch.nan
        assert variants.largest_relative_error(wrong, exact, (x,)) == float("inf")


def one_line(ended: Ended) -> str:
    """What was said on one line with status 2, as of an invalid option."""
    assert ended.status == 2
    (line,) = ended.stderr.splitlines()
    return line


REFUSED = [
    (("gelu", "--impl", "cuda"), "--impl cuda: CUDA C++ needs a GPU"),
    (("gelu", "--impl", "triton"), "--impl triton: Triton needs a GPU, or TRITON_INTERPRET=1"),
    (("gelu", "--impl", "hip"), "argument --impl: invalid choice: 'hip'"),
    (("softmax", "--impl", "cuda"), "argument --impl: invalid choice: 'cuda'"),
    (("softmax", "--impl", "triton"), "--impl triton: Triton needs a GPU, or TRITON_INTERPRET=1"),
    (("vector_add", "--impl", "extension"), "--impl extension: CUDA C++ needs a GPU"),
    (("vector_add", "--impl", "numba"), "--impl numba: "),
    (("vector_add", "--impl", "cupy"), "--impl cupy: "),
    (("gelu", "--dim", "99999999"), "these sizes need 3.2e+08 GB, and "),
    (("softmax", "--dim", "99999999999"), "these sizes need 2.4e+14 GB, and "),
    (("vector_add", "--size", "999999999999999"), "these sizes need 2.4e+07 GB, and "),
    (("mlp", "--dim", "99999999"), "these sizes need "),
    (("matmul", "--dim", "8,99999999"), "these sizes need 1.2e+08 GB, and "),
    (("elementwise", "--dim", "99999999"), "these sizes need 1.2e+08 GB, and "),
    (("cdist", "--dim", "99999999"), "these sizes need 3.2e+08 GB, and "),
    (("memcpy", "--sizes", "999999999"), "these sizes need "),
    (("streams", "--dim", "99999999"), "these sizes need "),
    (("jit", "--size", "999999999999999"), "these sizes need "),
    (("dataloader", "--dim", "99999999"), "these sizes need "),
    (("allocator", "--size", "999999999"), "these sizes need "),
    (("attention", "--seq", "99999999"), "these sizes need "),
    (("transformer", "--vocab", "999999999999"), "these sizes need "),
    (("transformer", "--dim", "10"), "4 heads cannot share 10 numbers"),
    (("launch_bound", "--graph"), "a CUDA graph needs a GPU"),
    (("dataloader", "--pin"), "--pin needs a GPU"),
    (("dataloader", "--workers", "-1"), "argument --workers: -1 is less than 0"),
    (("jit", "--part", "triton"), "--part triton: Triton needs a GPU, or TRITON_INTERPRET=1"),
    (("jit", "--part", "none"), "argument --part: invalid choice: 'none'"),
    (("memcpy", "--mode", "fast"), "argument --mode: invalid choice: 'fast'"),
    (("mlp", "--optimizer", "lion"), "argument --optimizer: invalid choice: 'lion'"),
    (("matmul", "--dim", "0"), "argument --dim: 0 is less than 1"),
    (("sleep", "--ms", "9999999999999999999"), "argument --ms: 9999999999999999999 is more than 3600000"),
    (("sleep", "--seed", "99999999999999999999"), "argument --seed: 99999999999999999999 is more than "),
    (("streams", "--threads", "257"), "argument --threads: 257 is more than 256"),
    (("dataloader", "--workers", "257"), "argument --workers: 257 is more than 256"),
    (("elementwise", "--dim", "9" * 400), "these sizes need 1e+291 GB, and "),
    (("sleep", "--ms", "0"), "argument --ms: 0 is less than 1"),
]


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory, torch_python: str) -> list[Ended]:
    commands = [(*command, *CPU) for command, _ in REFUSED]
    return run_together(commands, tmp_path_factory.mktemp("refused"), {"TRITON_INTERPRET": "0"}, python=torch_python)


@pytest.mark.parametrize("index", range(len(REFUSED)), ids=[" ".join(command)[:60] for command, _ in REFUSED])
def test_what_cannot_run_here_is_one_line(index: int, refused: list[Ended]) -> None:
    assert REFUSED[index][1] in one_line(refused[index])


def test_all_leaves_out_what_cannot_run_and_says_why(tmp_path: Path, torch_python: str) -> None:
    command = ("vector_add", "--size", "1000", *CPU, "--benchmark", str(tmp_path / "times.json"))
    (ended,) = run_together([command], tmp_path, {"TRITON_INTERPRET": "0"}, python=torch_python)
    assert ended.status == 0
    lines = dict(line.split(": ", 1) for line in ended.stdout.splitlines()[:-1])
    assert lines["torch"].startswith("largest relative error ")
    assert lines["extension"] == "left out, since CUDA C++ needs a GPU"
    assert lines["triton"].startswith("left out, since Triton needs a GPU")
    assert lines.keys() == {"torch", "extension", "triton", "numba", "cupy"}
    left_out = [f"{name}: {text}" for name, text in lines.items() if text.startswith("left out")]
    assert json.loads((tmp_path / "times.json").read_text())["notes"] == left_out


def test_a_transformer_alone_is_a_group_of_one_process(tmp_path: Path, torch_python: str) -> None:
    command = ("transformer", "--ddp", "--dim", "8", "--seq", "5", *CPU)
    (ended,) = run_together([command], tmp_path, python=torch_python)
    assert ended.status == 0
    assert ended.stdout.startswith("1 steps on ")


def test_each_step_of_jit_compiles_anew(torch: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []

    def backend(graph: Any, _inputs: object) -> Any:
        compiled.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    step = workload("jit")._compile(torch.zeros(4))
    for count in range(1, 13):
        step()
        assert len(compiled) == count


def refusal(name: str, implementation: str) -> str:
    """Why an implementation cannot be built for a GPU; nothing is run on one."""
    with pytest.raises(workload("runner").CannotRun) as raised:
        workload(name).BUILDERS[implementation]("cuda")
    return str(raised.value)


COMPILED = [("gelu", "cuda"), ("vector_add", "extension")]


@pytest.fixture
def extension(torch: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """What torch builds extensions with, which finds all that it needs."""
    module = import_module("torch.utils.cpp_extension")
    nvcc = tmp_path / "toolkit" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.touch()
    compiler = tmp_path / "c++"
    compiler.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(module, "CUDA_HOME", str(tmp_path / "toolkit"))
    monkeypatch.setattr(module, "is_ninja_available", lambda: True)
    return module


@pytest.mark.parametrize(("name", "implementation"), COMPILED)
def test_what_a_cuda_extension_lacks_is_named(
    name: str, implementation: str, extension: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c++").unlink()
    assert refusal(name, implementation) == "nvcc needs a C++ compiler, and none was found"
    monkeypatch.setattr(extension, "is_ninja_available", lambda: False)
    assert refusal(name, implementation) == f"ninja was not found: install the package ninja for {sys.executable}"
    (tmp_path / "toolkit" / "bin" / "nvcc").unlink()
    assert refusal(name, implementation) == "nvcc was not found: install the CUDA toolkit, or set CUDA_HOME"
    monkeypatch.setattr(extension, "CUDA_HOME", None)
    assert refusal(name, implementation) == "nvcc was not found: install the CUDA toolkit, or set CUDA_HOME"


@pytest.mark.parametrize(("name", "implementation"), COMPILED)
def test_of_what_a_compiler_says_the_first_error_is_shown(
    name: str, implementation: str, extension: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(**_: object) -> None:
        raise RuntimeError(
            "Error building extension 'x': [1/2] nvcc x.cu\n x.cu(3): error: expected a ;\nninja: stopped"
        )

    monkeypatch.setattr(extension, "load", build)
    monkeypatch.setattr(extension, "load_inline", build)
    message = "the CUDA extension could not be built: x.cu(3): error: expected a ;"
    assert refusal(name, implementation) == message


@pytest.mark.parametrize(("name", "implementation"), COMPILED)
def test_an_extension_is_built_from_source_that_is_there(
    name: str, implementation: str, extension: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = []

    def build(**given: Any) -> SimpleNamespace:
        sources.append(given.get("cuda_sources") or Path(given["sources"][0]).read_text(encoding="utf-8"))
        return SimpleNamespace(add=abs, gelu=abs)

    monkeypatch.setattr(extension, "load", build)
    monkeypatch.setattr(extension, "load_inline", build)
    assert workload(name).BUILDERS[implementation]("cuda") is abs
    (source,) = sources
    for check in ("is_cuda()", "is_contiguous()", "torch::kFloat32", "C10_CUDA_KERNEL_LAUNCH_CHECK();"):
        assert check in source


@pytest.mark.parametrize(
    ("name", "implementation", "package"),
    [
        ("gelu", "compile", "triton"),
        ("softmax", "compile", "triton"),
        ("vector_add", "numba", "numba"),
        ("vector_add", "cupy", "cupy"),
    ],
)
def test_a_missing_package_is_named(
    name: str, implementation: str, package: str, torch: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert refusal(name, implementation) == f"the package {package} is not installed for {sys.executable}"


@pytest.mark.parametrize("error", ["ImportError", "AttributeError"])
def test_a_package_that_cannot_be_imported_says_why(
    error: str, torch: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cupy.py").write_text(f"raise {error}('libcuda.so.1 is missing\\nmore')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    assert refusal("vector_add", "cupy") == "the package cupy cannot be imported: libcuda.so.1 is missing"


def test_rows_that_are_too_long_for_a_block_are_refused(torch: ModuleType) -> None:
    with pytest.raises(workload("runner").CannotRun, match="have at most 65536 elements"):
        workload("softmax").BUILDERS["triton"]("cpu")(torch.zeros(1, 65537))


def test_a_wrong_implementation_is_not_profiled(
    torch: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gelu = workload("gelu")
    monkeypatch.setitem(gelu.BUILDERS, "naive", lambda _device: torch.relu)
    with pytest.raises(SystemExit, match="naive is wrong: its largest relative error is "):
        gelu.prepare(SimpleNamespace(dim=33, impl="naive", device="cpu"))


def test_what_torch_compile_cannot_do_is_one_line(torch: ModuleType) -> None:
    def fails(_: object) -> None:
        raise import_module("torch._dynamo.exc").TorchDynamoException("no code\nfor this")

    variants = workload("variants")
    options = SimpleNamespace(impl="compile", device="cpu")
    with pytest.raises(workload("runner").CannotRun, match=r"^--impl compile: torch.compile failed: no code$"):
        variants.prepare_variants(options, {"compile": variants.eager(fails)}, (torch.zeros(1),), None)


def test_memory_that_is_not_enough_after_all_is_one_line(torch: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    runner = workload("runner")

    def prepare(_: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nmore")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["x.py", "--device", "cpu"])
        with pytest.raises(SystemExit) as ended:
            runner.run(runner.WorkloadParser(""), prepare)
    assert ended.value.code == 2
    assert capsys.readouterr().err == "x: error: the memory is not enough for these sizes; ask for less (see --help)\n"
