"""The whole pipeline on real tools: needs a GPU and an nsys whose importer works. `pytest tests/gpu` on a GPU host."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nightsight.collect.tools import find_nsys, has_gpu
from nightsight.errors import MissingTable
from nightsight.model.report import Profile, Report
from nightsight.read.nsys.tables import read_nsys
from nightsight.results.causes import REPLAY
from nightsight.stats import REPORTS, Selection, details_of, stats_texts
from tests.gpu import processes
from tests.reports import unpacked

ROOT = Path(__file__).parents[2]
NSYS = find_nsys()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(NSYS is None or not has_gpu(), reason="needs a GPU and nsys"),
]
SECRET = "planted-secret-123"
UNIFIED_MEMORY = ("--nsys-arg=--cuda-um-cpu-page-faults=true", "--nsys-arg=--cuda-um-gpu-page-faults=true")
# what docs/stats.md says of options; {start} and {end} are those of the range `steps`
VARIANTS = [
    *((report,) for report in REPORTS),
    *((report, f"--timeunit={unit}") for report in ("nvtx_sum", "cuda_gpu_trace") for unit in ("usec", "ms", "s")),
    *(
        (f"{report}:{argument}",)
        for report in ("cuda_gpu_kern_sum", "cuda_gpu_trace", "cuda_kern_exec_sum", "cuda_api_gpu_sum")
        for argument in ("base", "mangled", "nvtx-name", "nvtx-name:base")
    ),
    ("nvtx_kern_sum:base",),
    ("nvtx_kern_sum:mangled",),
    ("um_sum:rows=2",),
    *(
        (report, f"--filter-time={span}")
        for report in ("cuda_api_sum", "cuda_gpu_trace", "nvtx_pushpop_trace")
        for span in ("{start}/{end}", "{start}ns/", "/{end}")
    ),
    *(
        (report, f"--filter-nvtx={name}")
        for report in ("cuda_api_sum", "cuda_gpu_trace")
        for name in ("steps", "step/1", "step@io/2", "worker", 'with "quotes", and comma', "started by torch")
    ),
]
STEPS = """
import os, sys, time, torch
x = torch.ones(1 << 20, device="cuda")
for i in range(10):
    (x + i).sum().item()
print("planted-output-456", flush=True)
{end}
"""


def nightsight(
    command: str, *arguments: object, cwd: Path, expect: int = 0, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of ours; `replay` is `profile` with ncu, which all others do without."""
    begin = {"profile": ("profile", "--no-ncu"), "replay": ("profile",)}.get(command, (command,))
    whole = [sys.executable, str(ROOT / "pipeline"), *begin, *map(str, arguments)]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    variables = {**os.environ, "PYTHONPATH": path, **(environment or {})}
    done = subprocess.run(whole, cwd=cwd, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == expect, done.stderr
    return done


def run_folder(root: Path) -> Path:
    (folder,) = (path.parent for path in root.glob("reports/*/2*/run.json"))
    return folder


def attached(folder: Path) -> str:
    return "".join(unpacked((folder / name).read_text()) for name in ("report.html", "report.json", "run.json"))


@pytest.fixture(scope="module")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("mlp")
    nightsight("replay", "mlp", cwd=root, environment={"CI_JOB_NAME": SECRET})
    return run_folder(root)


def test_mlp_has_kernels_ranges_and_step_times(mlp: Path) -> None:
    report = Report.from_json((mlp / "report.json").read_text())
    assert report.environment.collector == "nsys"
    assert report.benchmark is not None
    assert len(report.benchmark.step_ns) == 7
    ranges = report.result("nvtx_ranges").rows.set_index("path")
    kernels = {str(path): int(count) for path, count in ranges["kernels"].items()}
    assert ranges["instances"].to_dict()["measure / step"] == 20
    assert kernels["measure / step / backward"] > kernels["measure / step / forward"] > 0
    assert report.result("cuda_gpu_kern_sum").rows["instances"].sum() == kernels["measure"]
    # whether the machine is calm is not for this test to say
    assert not set(distrusted(report)) - {"doubtful_benchmark"}


def test_the_kernels_that_take_most_of_the_time_were_replayed(mlp: Path) -> None:
    report = Report.from_json((mlp / "report.json").read_text())
    (match,) = report.result("ncu_match").rows.to_dict("records")
    assert match["match_pct"] == 100
    assert match["coverage_pct"] >= 90
    kernels = report.result("ncu_kernels").rows
    assert 1 <= len(kernels) <= 12
    assert kernels["memory_pct"].between(0, 100).all()
    assert sum(report.stages_s.values()) < 90


def test_kernels_that_are_not_there_are_named(tmp_path: Path) -> None:
    stderr = nightsight("replay", "--collector", "ncu", "--ncu-kernel", "no_such", "mlp", cwd=tmp_path, expect=3).stderr
    assert "No kernel was replayed" in stderr
    assert "elementwise_kernel" in stderr


def test_a_budget_keeps_what_was_replayed(tmp_path: Path) -> None:
    nightsight("replay", "--collector", "ncu", "--ncu-all", "--ncu-budget", "16", "mlp", cwd=tmp_path)
    report = Report.from_json((run_folder(tmp_path) / "report.json").read_text())
    assert "replay_cut_short" in {finding.rule for finding in report.findings}
    assert len(report.result("ncu_kernels").rows) >= 1


def test_nothing_private_is_attached_nor_in_the_capture(mlp: Path) -> None:
    assert SECRET not in attached(mlp)
    assert str(mlp.parents[2]) not in attached(mlp)
    assert all(SECRET.encode() not in path.read_bytes() for path in (mlp / "capture").iterdir())


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Capture a program that gives every report of `nsys stats` something to show."""
    pytest.importorskip("nvtx")
    root = tmp_path_factory.mktemp("everything")
    program = Path(__file__).with_name("everything.py")
    nightsight("profile", "--trace", "cuda,nvtx,osrt", *UNIFIED_MEMORY, program, cwd=root)
    return run_folder(root) / "capture" / "everything.sqlite"


@pytest.fixture(scope="module")
def profile(everything: Path) -> Profile:
    return recorded(everything)


@pytest.fixture(scope="module")
def theirs(everything: Path, profile: Profile, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], str]:
    """Ask nsys for all variants, several at a time: one by one it takes minutes."""

    def answer(variant: tuple[str, ...]) -> str:
        report, *options = filled_in(variant, profile)
        database = shutil.copy(everything, tmp_path_factory.mktemp("copy"))
        return nsys_stats(Path(database), "-r", report, *options)

    with ThreadPoolExecutor(8) as pool:
        return dict(zip(VARIANTS, pool.map(answer, VARIANTS), strict=True))


def recorded(database: Path) -> Profile:
    """Read an export as `nightsight stats` does: ranges as they were recorded, not what they mean."""
    return read_nsys(database, details=details_of(Selection(list(REPORTS))))


def filled_in(variant: tuple[str, ...], profile: Profile) -> list[str]:
    steps = profile.table("ranges").set_index("name").loc["steps"]
    return [part.format(start=steps["start_ns"], end=steps["end_ns"]) for part in variant]


def nsys_stats(database: Path, *options: str) -> str:
    command = [str(NSYS), "stats", "-q", "--format", "csv", *options, str(database)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


@pytest.mark.parametrize("report", REPORTS)
def test_stats_equal_nsys_stats(mlp: Path, report: str, tmp_path: Path) -> None:
    database = Path(shutil.copy(mlp / "capture" / "mlp.sqlite", tmp_path))
    theirs = nsys_stats(database, "-r", report)
    try:
        ((_, _, ours),) = stats_texts(recorded(database), Selection([report]))
    except MissingTable:
        assert without_rows(theirs)
    else:
        assert as_nsys_quotes(ours) == theirs or (without_rows(ours) and without_rows(theirs))


@pytest.mark.parametrize("variant", VARIANTS, ids=" ".join)
def test_stats_equal_nsys_stats_where_there_is_something_to_show(
    profile: Profile, theirs: dict[tuple[str, ...], str], variant: tuple[str, ...]
) -> None:
    report, *options = filled_in(variant, profile)
    named = dict(option.removeprefix("--").replace("-", "_", 1).split("=", 1) for option in options)
    ((_, _, ours),) = stats_texts(profile, Selection([report], **named))
    is_filtered = any("filter" in option for option in options)
    if is_filtered and without_rows(ours):
        assert without_rows(theirs[variant])
    else:
        assert not without_rows(ours)
        assert as_nsys_quotes(ours) == theirs[variant]


def as_nsys_quotes(table: str) -> str:
    """NVIDIA leaves quotes inside quoted fields as they are."""
    return table.strip().replace('""', '"')


def without_rows(table: str) -> bool:
    """With -q, nsys prints nothing at all for a report that it cannot make or that has no rows."""
    return "\n" not in table.strip()


@pytest.mark.parametrize(
    ("end", "message"), [("sys.exit(3)", "exit status 3"), ("raise RuntimeError('half way')", "exit status 1")]
)
def test_a_program_that_fails_keeps_its_capture(tmp_path: Path, end: str, message: str) -> None:
    (tmp_path / "failing.py").write_text(STEPS.format(end=end))
    assert message in nightsight("profile", "failing.py", cwd=tmp_path, expect=1).stderr
    folder = run_folder(tmp_path)
    report = Report.from_json((folder / "report.json").read_text())
    assert report.findings[0].rule == "partial_capture"
    assert report.result("cuda_gpu_kern_sum").rows["instances"].sum() >= 10
    assert "planted-output" not in attached(folder)


def test_a_program_that_aborts_takes_its_buffers_along_and_the_report_says_so(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(STEPS.format(end="os.abort()"))
    assert "SIGABRT" in nightsight("profile", "failing.py", cwd=tmp_path, expect=1).stderr
    report = Report.from_json((run_folder(tmp_path) / "report.json").read_text())
    assert distrusted(report) == ["partial_capture", "lost_events"]


def test_a_timeout_ends_all_of_it_and_keeps_the_capture(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(STEPS.format(end="time.sleep(600)"))
    done = nightsight("profile", "--timeout", 25, "endless.py", cwd=tmp_path, expect=1)
    assert "stopped after 25 s" in done.stderr
    assert len(Report.from_json((run_folder(tmp_path) / "report.json").read_text()).result("cuda_gpu_kern_sum").rows)
    assert not running("endless.py")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_of_it_and_keeps_the_capture(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "endless.py").write_text(STEPS.format(end="open('there', 'w'); time.sleep(600)"))
    command = [sys.executable, str(ROOT / "pipeline"), "profile", "endless.py"]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, start_new_session=True)
    wait_for(tmp_path / "there")
    process.send_signal(number)
    assert process.wait(120) == 128 + number
    report = Report.from_json((run_folder(tmp_path) / "report.json").read_text())
    assert report.result("cuda_gpu_kern_sum").rows["instances"].sum() >= 10
    assert not running("endless.py")


def test_a_compiled_program(tmp_path: Path) -> None:
    if not shutil.which("nvcc"):
        pytest.skip("needs nvcc")
    source = tmp_path / "add.cu"
    source.write_text(
        "__global__ void add(float *x) { x[threadIdx.x] += 1; }\n"
        "int main() { float *x; cudaMalloc(&x, 4096); for (int i = 0; i < 7; i++) add<<<1, 32>>>(x);\n"
        "return cudaDeviceSynchronize(); }\n"
    )
    subprocess.run(["nvcc", "-arch=native", "-o", "add", "add.cu"], cwd=tmp_path, check=True)
    nightsight("profile", "--", "./add", cwd=tmp_path)
    kernels = Report.from_json((run_folder(tmp_path) / "report.json").read_text()).result("cuda_gpu_kern_sum").rows
    assert kernels[["instances", "name"]].to_numpy().tolist() == [[7, "add(float *)"]]


def test_torchrun(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STEPS.format(end=""))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", 1, "train.py"]
    nightsight("profile", "--", *launcher, cwd=tmp_path)
    report = Report.from_json((run_folder(tmp_path) / "report.json").read_text())
    assert report.result("cuda_gpu_kern_sum").rows["instances"].sum() >= 10


@pytest.mark.parametrize("way", processes.WAYS)
def test_processes_that_a_program_starts_are_recorded(tmp_path: Path, way: str) -> None:
    nightsight("profile", "--no-time-steps", "--window", "whole", processes.__file__, "--", way, cwd=tmp_path)
    report = Report.from_json((run_folder(tmp_path) / "report.json").read_text())
    if way == "fork":
        assert "forked_work_lost" in [finding.rule for finding in report.findings]
        return
    count = processes.KERNELS * (3 if way == "service" else 1)
    assert count <= report.result("cuda_gpu_kern_sum").rows["instances"].sum() <= count + 5


def test_a_program_of_mpi_with_one_rank(tmp_path: Path) -> None:
    if not (shutil.which("nvcc") and shutil.which("mpicxx") and shutil.which("mpirun")):
        pytest.skip("needs nvcc and MPI")
    (tmp_path / "add.cu").write_text(
        "#include <mpi.h>\n__global__ void add(float *x) { x[threadIdx.x] += 1; }\n"
        "int main(int count, char **words) { MPI_Init(&count, &words); float *x; cudaMalloc(&x, 4096);\n"
        "for (int i = 0; i < 7; i++) { add<<<1, 32>>>(x); MPI_Barrier(MPI_COMM_WORLD); }\n"
        "cudaDeviceSynchronize(); MPI_Finalize(); return 0; }\n"
    )
    build = ["nvcc", "-arch=native", "-ccbin", "mpicxx", "-o", "add", "add.cu"]
    subprocess.run(build, cwd=tmp_path, check=True)
    nightsight("profile", "--", "mpirun", "--allow-run-as-root", "-n", 1, "./add", cwd=tmp_path)
    kernels = Report.from_json((run_folder(tmp_path) / "report.json").read_text()).result("cuda_gpu_kern_sum").rows
    assert kernels[["instances", "name"]].to_numpy().tolist() == [[7, "add(float *)"]]


def test_a_program_of_lightning(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    (tmp_path / "train.py").write_text(
        "import lightning, torch\n"
        "class Net(lightning.LightningModule):\n"
        "    def __init__(self): super().__init__(); self.layer = torch.nn.Linear(64, 1)\n"
        "    def training_step(self, batch, _): return self.layer(batch[0]).square().mean()\n"
        "    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.1)\n"
        "data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(640, 64)), batch_size=8)\n"
        "options = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False)\n"
        "lightning.Trainer(max_epochs=1, **options).fit(Net(), data)\n"
    )
    nightsight("profile", "--no-time-steps", "train.py", cwd=tmp_path)
    report = Report.from_json((run_folder(tmp_path) / "report.json").read_text())
    assert report.rows(REPLAY)["family"].tolist() == ["step (ends with SGD.step)"]


@pytest.mark.parametrize(
    ("step", "family"),
    [
        # without a model: iterations of the loop
        ("[x.mul(number) for number in range(50)][-1].sum().item()", "the same 51 launches"),
        ("model(x).sum().backward(); optimizer.step()", "step (ends with AdamW.step)"),
        ("with torch.inference_mode(): model(x).sum().item()", "Net"),
    ],
)
def test_steps_of_a_program_without_ranges_are_timed_without_the_profiler(
    tmp_path: Path, step: str, family: str
) -> None:
    (tmp_path / "train.py").write_text(
        "import time, torch\n"
        "class Net(torch.nn.Sequential): pass\n"
        "model = Net(*[torch.nn.Linear(256, 256) for _ in range(30)]).cuda()\n"
        "optimizer, x = torch.optim.AdamW(model.parameters()), torch.ones(64, 256, device='cuda')\n"
        "for i in range(200):\n"
        "    if i == 100: torch.cuda.synchronize(); since = time.perf_counter()\n"
        f"    {step}\n"
        "torch.cuda.synchronize()\n"
        "open('step_s', 'w').write(str((time.perf_counter() - since) / 100))\n"
    )
    # the last run is that without the profiler
    nightsight("profile", "train.py", cwd=tmp_path)
    replayed = Report.from_json((run_folder(tmp_path) / "report.json").read_text()).rows(REPLAY).iloc[0]
    if family.startswith("the same") and sys.version_info < (3, 12):
        pytest.skip("loops need Python 3.12")
    assert replayed["family"] == family
    assert replayed["timed_ns"] / 1e9 == pytest.approx(float((tmp_path / "step_s").read_text()), rel=0.25)


@pytest.mark.parametrize("workload", ["matmul", "memcpy", "launch_bound"])
def test_the_other_workloads(tmp_path: Path, workload: str) -> None:
    nightsight("profile", workload, "--", "--iterations", 5, cwd=tmp_path)
    report = Report.from_json((run_folder(tmp_path) / "report.json").read_text())
    wanted = "memory_operations" if workload == "memcpy" else "launch_overhead"
    assert len(report.result(wanted).rows)
    assert report.benchmark


def test_torch_collector_records_kernels_on_a_gpu(tmp_path: Path) -> None:
    nightsight("profile", "--collector", "torch", "mlp", cwd=tmp_path)
    report = Report.from_json((run_folder(tmp_path) / "report.json").read_text())
    assert report.result("cuda_gpu_kern_sum").rows["instances"].sum() > 100
    assert len(report.result("launch_overhead").rows)
    assert len(report.result("cpu_ops").rows)


def test_a_capture_range_that_never_starts_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(STEPS.format(end=""))
    done = nightsight("profile", "--capture-range", "cudaProfilerApi", "plain.py", cwd=tmp_path, expect=3)
    assert "never started" in done.stderr


def test_memory_usage_and_stacks_are_recorded(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STEPS.format(end=""))
    nightsight("profile", "--memory-usage", "--python-backtrace", "train.py", cwd=tmp_path)
    report = Report.from_json((run_folder(tmp_path) / "report.json").read_text())
    assert report.result("memory_usage").rows["peak_bytes"].max() >= 4 << 20
    # either there are stacks, or the report says why not
    waits = report.result("cuda_api_sync").rows
    has_stacks = "frame" in waits and bool((waits["frame"] != "").any())
    assert has_stacks != ("no_stacks" in distrusted(report))


def test_the_gpu_is_sampled_or_a_finding_says_why_not(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STEPS.format(end=""))
    command = [sys.executable, str(ROOT / "pipeline"), "profile", "--gpu-metrics", "train.py"]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        assert "nsys did not start train: Illegal --gpu-metrics" in done.stderr
        return
    report = Report.from_json((run_folder(tmp_path) / "report.json").read_text())
    assert len(report.result("gpu_metrics").rows)


def test_an_option_nsys_does_not_know_is_reported_in_its_words(tmp_path: Path) -> None:
    done = nightsight("profile", "--nsys-arg", "--no-such-option=1", "mlp", cwd=tmp_path, expect=3)
    assert "no-such-option" in done.stderr


def test_doctor_finds_everything(tmp_path: Path) -> None:
    checks = json.loads(nightsight("doctor", "--json", cwd=tmp_path).stdout)
    assert {check["name"]: check["status"] for check in checks}["nsys"] == "ok"


def distrusted(report: Report) -> list[str]:
    """The rules of what makes the numbers doubtful: advice does not."""
    return [finding.rule for finding in report.findings if finding.severity != "advice"]


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} did not appear"
        time.sleep(0.1)


def running(part: str) -> list[str]:
    lines: Sequence[str] = subprocess.run(
        ["ps", "-eo", "args"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [line for line in lines if part in line and "defunct" not in line]
