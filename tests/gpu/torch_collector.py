"""Tries every option of the torch collector, and prints a line for each: `python -m tests.gpu.torch_collector`.

A line has the size of the traces, the time of the run against that of a plain one, the median step in the last trace,
and what nightsight reads in that. It also runs where there is no GPU. Exit status 1 if a run failed or lacks what its
options ask for.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pandas as pd

from nightsight.collect.tools import has_gpu
from nightsight.model.report import Profile
from nightsight.read import read

ROOT: Final = Path(__file__).parents[2]
PROGRAM: Final = """
import sys, torch
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True, dropout=0.0)
model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).to(device)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(int(sys.argv[1])):
    with torch.profiler.record_function("draw data"):
        x = torch.randn(16, 64, 256, device=device).tanh()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 5 == 4:
        loss.item()
"""
STEPS: Final = 20
SCHEDULE: Final = ("--wait", "5", "--warmup", "2", "--active", "3")


def main() -> int:
    """Run the program with each option."""
    failed = 0
    with TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(PROGRAM, encoding="utf-8")
        began = time.monotonic()
        subprocess.run([sys.executable, str(script), str(STEPS)], check=True)
        plain_s = time.monotonic() - began
        _say(f"plain run: {plain_s:.1f} s, {STEPS} steps")
        for options, check in RUNS:
            line, is_good = _tried(script, options, check, plain_s)
            _say(f"{' '.join(options) or 'default'} | {line}")
            failed += not is_good
        for target, *arguments in (("mlp", "--active", "3"), ("transformer", "--record", "modules")):
            line, is_good = _tried(Path(target), arguments, _kernels, plain_s)
            _say(f"{target} {' '.join(arguments)} | {line}")
            failed += not is_good
    return int(failed > 0)


def _tried(target: Path, options: Sequence[str], check: Callable[[Profile], bool], plain_s: float) -> tuple[str, bool]:
    """Profile a program; return what there is to say, and whether it ended well and has what was asked for."""
    with TemporaryDirectory() as folder:
        began = time.monotonic()
        done = subprocess.run(
            [
                *(
                    sys.executable,
                    str(ROOT / "pipeline"),
                    "profile",
                    "--collector",
                    "torch",
                    "--python",
                    sys.executable,
                ),
                *("--reports", folder, *options, str(target)),
                *(["--", str(STEPS)] if target.suffix else []),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        took_s = time.monotonic() - began
        traces = sorted(Path(folder).glob("*/2*/capture/*.json.gz"), key=lambda path: path.stat().st_mtime)
        if done.returncode or not traces:
            return f"FAILED ({done.returncode}): {done.stderr.strip()[-300:]}", False
        profile = read(traces[-1])
        is_good = check(profile)
        size = sum(path.stat().st_size for path in traces)
        facts = (
            f"{len(traces)} trace(s), {size / 1e6:.2f} MB | {took_s:.1f} s ({took_s / plain_s:.1f} of the plain run)"
        )
        return f"{'ok' if is_good else 'LACKS WHAT WAS ASKED FOR'} | {facts} | {_contents(profile)}", is_good


def _contents(profile: Profile) -> str:
    """Say how much of what is in a trace."""
    counts = {name: len(profile.tables.get(name, ())) for name in ("kernels", "api_calls", "cpu_ops", "ranges")}
    counts["python functions"] = len(profile.tables.get("python_functions", ()))
    counts["allocations"] = len(profile.tables.get("memory_usage", ()))
    ranges = profile.table("ranges")
    steps = ranges[ranges["name"].astype("str").isin(["ProfilerStep", "step"])]
    length = (steps["end_ns"] - steps["start_ns"]).median() / 1e6 if len(steps) else float("nan")
    return f"step {length:.2f} ms | {', '.join(f'{count} {name}' for name, count in counts.items() if count)}"


def _names(profile: Profile) -> pd.Series:
    tables = [profile.tables[name]["name"].astype("str") for name in ("ranges", "cpu_ops")]
    return pd.concat(tables, ignore_index=True)


def _kernels(profile: Profile) -> bool:
    return len(profile.tables.get("kernels", ())) > 0 or not has_gpu()


def _steps(count: int) -> Callable[[Profile], bool]:
    return lambda profile: _has_steps(profile, count) and _kernels(profile)


def _has_steps(profile: Profile, count: int) -> bool:
    return int((_names(profile) == "Optimizer.step#AdamW.step").sum()) == count


def _nothing_on_the_gpu(profile: Profile) -> bool:
    return _has_steps(profile, 3) and not len(profile.tables.get("kernels", ()))


def _modules(profile: Profile) -> bool:
    return bool((profile.table("cpu_ops")["module"] == "layers.3.linear1").any())


def _without_data(profile: Profile) -> bool:
    names = _names(profile)
    return bool((names == "draw data").any() and not (names == "aten::tanh").any())


def _functions(profile: Profile) -> bool:
    return len(profile.tables.get("python_functions", ())) > 0


def _memory(profile: Profile) -> bool:
    return len(profile.tables.get("memory_usage", ())) > 0 or not has_gpu()


def _nothing_on_the_cpu(profile: Profile) -> bool:
    return profile.table("cpu_ops").empty and _kernels(profile)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


RUNS: Final[tuple[tuple[tuple[str, ...], Callable[[Profile], bool]], ...]] = (
    ((), _steps(STEPS)),
    (SCHEDULE, _steps(3)),
    ((*SCHEDULE, "--cycles", "2"), _steps(3)),
    ((*SCHEDULE, "--record", "shapes"), _steps(3)),
    ((*SCHEDULE, "--record", "stack"), _functions),
    ((*SCHEDULE, "--record", "memory"), _memory),
    ((*SCHEDULE, "--record", "modules"), _modules),
    ((*SCHEDULE, "--record", "sync"), _kernels),
    ((*SCHEDULE, "--record", "threads"), _steps(3)),
    ((*SCHEDULE, "--record", "all"), _modules),
    ((*SCHEDULE, "--skip-range", "draw data"), _without_data),
    ((*SCHEDULE, "--step-range", "draw data"), _kernels),
    ((*SCHEDULE, "--activities", "cpu"), _nothing_on_the_gpu),
    *([((*SCHEDULE, "--activities", "cuda"), _nothing_on_the_cpu)] if has_gpu() else []),
)


if __name__ == "__main__":
    sys.exit(main())
