import gzip
import json
import os
import re
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.workloads import missing
from tests.workload_runs import run_together

ROOT = Path(__file__).parent.parent
REGISTRY = tomllib.loads((ROOT / "workloads" / "registry.toml").read_text(encoding="utf-8"))
SHARED = {"--iterations", "--warmup", "--seed", "--device", "--trials", "--time-limit", "--benchmark"}
KEYS = {"module", "summary", "options", "ranges", "native", "recordings"}
SHORT = ("--iterations", "2", "--warmup", "1", "--device", "cpu")
SMALL = {
    "mlp": ("--dim", "8", "--layers", "2", "--batch", "4", "--optimizer", "adam", "--print-loss"),
    "matmul": ("--dim", "1,16", "--dtype", "all"),
    "elementwise": ("--dim", "7"),
    "cdist": ("--dim", "33"),
    "sleep": ("--ms", "1"),
    "gelu": ("--dim", "33"),
    "softmax": ("--dim", "33"),
    "vector_add": ("--size", "1000"),
    "memcpy": ("--sizes", "1,2", "--work", "2"),
    "launch_bound": ("--kernels", "3"),
    "streams": ("--dim", "8", "--threads", "3"),
    "jit": ("--part", "lazy", "--size", "100"),
    "dataloader": ("--workers", "1", "--dim", "8", "--batch", "2", "--sample-us", "1"),
    "allocator": ("--buffers", "2"),
    "attention": ("--impl", "all", "--seq", "33", "--dim", "8", "--dtype", "float16"),
    "transformer": ("--dim", "8", "--layers", "1", "--seq", "5"),
    "generate": ("--dim", "8", "--layers", "1", "--prompt", "3", "--tokens", "3"),
    "serve": ("--dim", "8", "--layers", "1", "--requests", "1", "--prompt", "1", "--tokens", "1"),
}
NATIVE = {name for name, entry in REGISTRY.items() if entry.get("native")}
COPIES = [
    f"{direction} {kind} {mode} {size} MiB"
    for mode in ("sync", "async")
    for size in (1, 2)
    for kind in ("pageable", "pinned")
    for direction in ("HtoD", "DtoH")
]
FUSED = ["naive", "torch", "triton", "compile"]
INSIDE_A_STEP = {
    "mlp": ["forward", "backward", "optimizer", "print loss"],
    "matmul": [f"matmul {dim} {dtype}" for dtype in ("float32", "tf32", "bfloat16", "float16") for dim in (1, 16)],
    "elementwise": ["add"],
    "cdist": ["cdist"],
    "sleep": ["sleep"],
    "gelu": FUSED,
    "softmax": FUSED,
    "vector_add": ["torch", "triton"],
    "memcpy": [*COPIES, "one stream", "two streams"],
    "launch_bound": ["launches"],
    "streams": ["hand out", "wait for threads"],
    "jit": ["lazy loading cold", "lazy loading steady"],
    "dataloader": ["next batch", "to device", "train"],
    "allocator": ["caching allocator", "empty_cache"],
    "attention": ["naive", "sdpa", "compile"],
    "transformer": ["embedding", "blocks", "logits", "loss", "backward", "optimizer"],
    "generate": ["prefill", "decode", "token", "token"],
    "serve": ["schedule", "execute_context_1(1)_generation_0(0)", "sample", "output"],
}

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")


Python = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def python(torch_python: str) -> Python:
    def start(
        *arguments: str | Path, folder: Path, first_on_path: Path = ROOT, executable: str = torch_python
    ) -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, "PYTHONPATH": f"{first_on_path}{os.pathsep}{ROOT}"}
        return subprocess.run(
            [executable, *map(str, arguments)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return start


def ranges(trace: Path) -> list[dict[str, Any]]:
    text = gzip.decompress(trace.read_bytes()) if trace.suffix == ".gz" else trace.read_bytes()
    events = [event for event in json.loads(text)["traceEvents"] if event.get("cat") == "user_annotation"]
    return sorted(events, key=lambda event: float(event["ts"]))


def named(name: str, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["name"] == name]


def inside(outer: dict[str, Any], events: list[dict[str, Any]]) -> list[str]:
    end = outer["ts"] + outer["dur"]
    return [e["name"] for e in events if e is not outer and outer["ts"] <= e["ts"] and e["ts"] + e["dur"] <= end]


def write_workload(folder: Path, step: str) -> Path:
    script = folder / "own.py"
    script.write_text(
        f"""
import torch
from workloads.runner import WorkloadParser, run

def prepare(options):
    print("seed", torch.initial_seed())
    remaining = [1, 2, 3, 4]
    def step():
        {step}
    return step

parser = WorkloadParser("A workload of one's own.")
parser.add_argument("--data", default="/home/me/secret")
parser.add_argument("--rate", type=float, default=0.5)
run(parser, prepare)
"""
    )
    return script


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each workload says to --help."""
    ended = run_together([(name, "--help") for name in REGISTRY], tmp_path_factory.mktemp("help"))
    return {name: done.stdout for name, done in zip(REGISTRY, ended, strict=True)}


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trace of each workload, whose Triton kernels the interpreter ran."""
    folder = tmp_path_factory.mktemp("traced")
    commands = [(name, *SHORT, *small) for name, small in SMALL.items()]
    ended = run_together(commands, folder, {"TRITON_INTERPRET": "1"}, is_traced=True)
    assert [done for done in ended if done.status] == []
    return folder


@pytest.mark.parametrize("name", REGISTRY)
def test_help_lists_what_the_registry_promises_and_the_shared_options(name: str, shown: dict[str, str]) -> None:
    entry = REGISTRY[name]
    assert {"module", "summary", "options", "ranges"} <= entry.keys() <= KEYS
    own, _, of_every_workload = shown[name].partition("options of every workload:")
    listed = set(re.findall(r"^  (--[\w-]+)", own, re.MULTILINE))
    assert listed == set(entry["options"].split())
    assert set(re.findall(r"^  (--[\w-]+)", of_every_workload, re.MULTILINE)) == SHARED


def test_registry_names_every_workload() -> None:
    assert REGISTRY.keys() == SMALL.keys() | NATIVE


def test_the_runs_on_a_gpu_leave_no_workload_out() -> None:
    assert missing() == set()


def test_plain_run_opens_the_nvtx_ranges_in_order(python: Python, tmp_path: Path) -> None:
    (tmp_path / "nvtx.py").write_text(
        "from contextlib import contextmanager\n"
        "@contextmanager\n"
        "def annotate(name, domain):\n"
        "    print('<', name, sep='')\n"
        "    yield\n"
        "    print(name, '>', sep='')\n"
    )
    small = ("--dim", "8", "--layers", "2", "--batch", "4")
    done = python("-m", "workloads.mlp", *SHORT, *small, folder=tmp_path, first_on_path=tmp_path)
    step = ["<forward", "forward>", "<backward", "backward>"]
    steps = 2 * ["<step", *step, "step>"]
    *seen, summary = done.stdout.splitlines()
    assert seen == ["<warmup", *step, "warmup>", "<measure", *steps, "measure>"]
    assert summary.startswith("2 steps on ")


def test_plain_run_without_nvtx_says_so_once(python: Python, tmp_path: Path) -> None:
    (tmp_path / "nvtx.py").write_text("raise ImportError\n")
    done = python("-m", "workloads.memcpy", *SHORT, *SMALL["memcpy"], folder=tmp_path, first_on_path=tmp_path)
    assert done.returncode == 0
    assert done.stderr.count("nvtx package is not installed") == 1
    assert "host to host" in done.stdout


@pytest.mark.parametrize(
    ("name", "options", "parameters"),
    [
        (
            "mlp",
            ("--steps", "3", "--dim", "8"),
            {"iterations": "3", "dim": "8", "layers": "4", "batch": "256", "optimizer": "none", "print_loss": "False"},
        ),
        ("matmul", ("--dtype", "bf16"), {"iterations": "2", "dim": "128,512", "dtype": "bfloat16"}),
        (
            "memcpy",
            ("--sizes", "1,2", "--mode", "sync"),
            {"iterations": "2", "sizes": "1,2", "mode": "sync", "work": "10"},
        ),
        ("launch_bound", ("--kernels", "3"), {"iterations": "2", "kernels": "3", "graph": "False"}),
    ],
)
def test_benchmark_writes_what_it_prints(
    name: str, options: tuple[str, ...], parameters: dict[str, str], python: Python, tmp_path: Path
) -> None:
    out = tmp_path / "out" / "bench.json"
    out.parent.mkdir()
    shared = {"warmup": "1", "seed": "0", "device": "cpu", "trials": "3"}
    arguments = (*SHORT, "--trials", "3", "--benchmark", str(out), *options)
    done = python("-m", f"workloads.{name}", *arguments, folder=tmp_path)
    document = json.loads(out.read_text(encoding="utf-8"))
    assert list(document)[:4] == ["step_ns", "steps_per_trial", "parameters", "facts"]
    assert document["parameters"] == shared | parameters
    assert document["steps_per_trial"] == int(parameters["iterations"])
    assert document["facts"].keys() == {"device", "device_name", "torch", "cuda", "python"}
    assert document["facts"]["device"] == "cpu"
    step_ns = document["step_ns"]
    assert len(step_ns) == 3
    assert min(step_ns) > 0
    assert f"mean {statistics.mean(step_ns) / 1e6:.4g} ms" in done.stdout
    assert f"median {statistics.median(step_ns) / 1e6:.4g} ms" in done.stdout
    assert f"standard deviation {statistics.stdev(step_ns) / 1e6:.2g} ms" in done.stdout
    assert list(out.parent.iterdir()) == [out]


def test_benchmark_of_one_trial_keeps_paths_and_text_out_and_sets_the_seed(python: Python, tmp_path: Path) -> None:
    script = write_workload(tmp_path, "torch.ones(1)")
    arguments = (*SHORT, "--seed", "7", "--trials", "1", "--benchmark", "bench.json")
    done = python(script, *arguments, folder=tmp_path)
    parameters = json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))["parameters"]
    assert parameters.keys() == {"iterations", "warmup", "seed", "device", "trials", "rate"}
    assert "standard deviation 0 ms" in done.stdout
    assert "seed 7" in done.stdout.splitlines()


@pytest.mark.parametrize("name", SMALL)
def test_a_trace_holds_the_measured_steps(name: str, traced: Path) -> None:
    # torch adds ranges of its own, whose names have a #
    events = [event for event in ranges(traced / f"{name}.json") if "#" not in event["name"]]
    (measure,) = named("measure", events)
    assert inside(measure, events) == 2 * ["step", *INSIDE_A_STEP[name]]
    assert [inside(step, events) for step in named("step", events)] == 2 * [INSIDE_A_STEP[name]]


@pytest.mark.parametrize("name", SMALL)
def test_the_registry_has_the_ranges_of_a_step(name: str) -> None:
    patterns = [
        re.sub(r"(?<![a-zA-Z])[A-Z]{2,}(?![a-zA-Z])", r"\\w+", re.escape(text)) for text in REGISTRY[name]["ranges"]
    ]
    assert [text for text in INSIDE_A_STEP[name] if not any(re.fullmatch(pattern, text) for pattern in patterns)] == []


@pytest.mark.parametrize("name", sorted(NATIVE))
def test_the_registry_has_the_ranges_in_the_source_of_a_native_program(name: str) -> None:
    source = (ROOT / "workloads" / f"{name}.cu").read_text(encoding="utf-8")
    ranges_of_run = {"warmup", "measure", "step"}
    assert set(re.findall(r'\bRange \w+\("([^"]+)"\)', source)) == ranges_of_run | set(REGISTRY[name]["ranges"])


@pytest.mark.nightly
def test_the_traces_are_the_only_files(traced: Path) -> None:
    assert {path.name for path in traced.iterdir()} == {f"{name}.json" for name in SMALL}


def test_a_trace_of_a_step_that_raises_keeps_what_was_recorded(python: Python, tmp_path: Path) -> None:
    script = write_workload(tmp_path, "torch.ones(1); remaining.pop()")
    arguments = ("--iterations", "9", "--warmup", "1", "--device", "cpu")
    done = python("-m", "workloads.traced", "--out", "trace.json.gz", "--", script, *arguments, folder=tmp_path)
    assert done.returncode == 1
    assert "IndexError: pop from empty list" in done.stderr
    # of the four that succeed one is the warm-up
    events = ranges(tmp_path / "trace.json.gz")
    assert len(named("step", events)) == 4
    assert len(named("measure", events)) == 1


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("mlp", ("--iterations", "0"), "argument --iterations: 0 is less than 1"),
        ("mlp", ("--warmup", "-1"), "argument --warmup: -1 is less than 0"),
        ("mlp", ("--steps", "-3"), "argument --steps: -3 is less than 1"),
        ("mlp", ("--device", "tpu"), "argument --device: invalid choice: 'tpu'"),
        ("mlp", ("--device", "cuda"), "no CUDA device"),
        ("mlp", ("--benchmark", "absent/bench.json"), "is not a file in a folder that exists"),
        ("matmul", ("--dtype", "int3"), "argument --dtype: invalid choice: 'int3'"),
        ("memcpy", ("--sizes", "1,,2"), "argument --sizes: invalid sizes value: '1,,2'"),
    ],
)
def test_wrong_options_end_with_status_2_and_one_line(
    name: str, options: tuple[str, ...], words: str, python: Python, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = python("-m", f"workloads.{name}", *options, folder=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert words in line


PROGRAM = """
import os, sys
import beside
print(sys.argv[1:], __name__, __file__, sys.path[0])
os.chdir("/")
{ending}
"""


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "import torch; torch.ones(4).add(1)",
        "raise ValueError('broken')",
        "sys.exit(7)",
        "sys.exit('cannot go on')",
        "brackets = (",
    ],
)
def test_traced_script_ends_as_python_would_end_it_and_leaves_a_trace(
    ending: str, python: Python, tmp_path: Path
) -> None:
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "beside.py").touch()
    (folder / "program.py").write_text(PROGRAM.format(ending=ending))
    command = (Path("scripts/program.py"), "--size", "4", "--", "-x")
    plain = python(*command, folder=tmp_path, executable=sys.executable)
    traced = python(
        "-m", "workloads.traced", "--out", "trace.json.gz", "--", *command, folder=tmp_path, executable=sys.executable
    )
    assert traced.returncode == plain.returncode
    assert traced.stdout == plain.stdout
    assert traced.stderr.endswith(plain.stderr)
    events = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))["traceEvents"]
    assert ("aten::add" in [event["name"] for event in events]) is ("torch" in ending)


def test_traced_script_that_is_not_there_is_a_usage_error(python: Python, tmp_path: Path) -> None:
    done = python("-m", "workloads.traced", "--out", "trace.json.gz", "--", "absent.py", folder=tmp_path)
    assert done.returncode == 2
    assert "there is no script" in done.stderr
    assert list(tmp_path.iterdir()) == []
