"""What names cost and tell, for programs without annotations: `python -m tests.gpu.names` on a GPU host, 2 minutes.

Two programs are timed without nsys and with it in each mode of `--names`: the one of the capture `python_names`, and a
small transformer in training. Each line has the time of a step in the program itself, against that under nsys without
names, the size of the capture, what was named, how the steps were found, and the first finding. Exit status 1 if a run
failed, or lacks what its mode should name. PROGRAM=transformer in the environment runs only that one; PAIRS=4 also
compares so many runs with `auto` and without names.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from nightsight.events.window import chosen_window
from nightsight.model.report import Profile, Report
from nightsight.read import read
from nightsight.tables import MODULE

ROOT: Final = Path(__file__).parents[2]
PAIRS: Final = int(os.environ.get("PAIRS", "0"))
MODES: Final = ("off", "auto", "modules", "shapes", "python", "modules,shapes,python")
_TIMED: Final = """
import json, os, time
def timed(step, count):
    times = []
    for _ in range(count):
        torch.cuda.synchronize()
        since = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - since)
    json.dump(sorted(times[count // 4:]), open(os.environ["KEEP_TIMES"], "w"))
"""
PROGRAMS: Final = {
    "mlp": _TIMED
    + """
import numpy as np
import torch
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(4)]).cuda()
optimizer = torch.optim.Adam(model.parameters())
def collate():
    values = np.random.standard_normal(200000)
    values.sort()
    return torch.from_numpy(values[:1024 * 64].reshape(64, 1024)).float()
def train():
    loss = model(collate().cuda()).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
timed(train, 60)
""",
    "transformer": _TIMED
    + """
import torch
class Block(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.before, self.after = torch.nn.LayerNorm(size), torch.nn.LayerNorm(size)
        self.attention = torch.nn.MultiheadAttention(size, 8, batch_first=True)
        into, out = torch.nn.Linear(size, 4 * size), torch.nn.Linear(4 * size, size)
        self.mlp = torch.nn.Sequential(into, torch.nn.GELU(), out)
    def forward(self, x):
        y = self.before(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.after(x))
class Model(torch.nn.Module):
    def __init__(self, size=512, depth=8, words=8192):
        super().__init__()
        self.embedding = torch.nn.Embedding(words, size)
        self.layers = torch.nn.ModuleList([Block(size) for _ in range(depth)])
        self.head = torch.nn.Linear(size, words)
    def forward(self, x):
        x = self.embedding(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)
model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters())
words = torch.randint(8192, (8, 257), device="cuda")
def train():
    with torch.autocast("cuda", torch.bfloat16):
        out = model(words[:, :-1])
        loss = torch.nn.functional.cross_entropy(out.flatten(0, 1), words[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
timed(train, 40)
""",
}


def main(modes: Sequence[str]) -> int:
    """Run both programs in the modes that are named (`operators` too), or in the usual ones."""
    failed = 0
    with TemporaryDirectory() as folder:
        for name, code in PROGRAMS.items():
            if os.environ.get("PROGRAM", name) != name:
                continue
            script = Path(folder) / f"{name}.py"
            script.write_text(code, encoding="utf-8")
            _say(f"{name} without nsys: {_alone(script):.3f} ms a step")
            base = 0.0
            for mode in modes or MODES:
                line, step_ms, is_good = summary(script, mode, base)
                base = base or step_ms
                _say(f"{name} --names {mode}: {line}")
                failed += not is_good
            if PAIRS:
                _say(f"{name} {cost(script, PAIRS)}")
    return int(failed > 0)


def cost(script: Path, pairs: int) -> str:
    """Return what `auto` costs: the median over interleaved pairs of runs, because the host's times vary by run."""
    ratios = list[float]()
    for pair in range(pairs):
        modes = ("off", "auto") if pair % 2 == 0 else ("auto", "off")
        times = {mode: summary(script, mode, 0.0, label=f"{pair}")[1] for mode in modes}
        ratios.append(times["auto"] / times["off"] if all(times.values()) else float("nan"))
    percent = sorted(100 * ratio - 100 for ratio in ratios)
    middle = statistics.median(percent)
    return f"auto against off, {pairs} pairs: {middle:+.1f} % ({percent[0]:+.1f} to {percent[-1]:+.1f})"


def summary(script: Path, mode: str, base_ms: float, *, label: str = "") -> tuple[str, float, bool]:
    """Profile a program in a mode; return a line on what came of it, the time of its step in ms, and if all is well."""
    begin, folder = time.monotonic(), script.parent / f"{script.stem}-{mode.replace(',', '-')}{label}"
    times = folder.with_suffix(".json")
    done = subprocess.run(
        [
            *(sys.executable, str(ROOT / "pipeline"), "profile", "--no-ncu", "--no-calibrate", "--collector", "nsys"),
            *(
                # the last run would replace the times of this one
                "--no-time-steps",
                "--keep-env",
                "KEEP_TIMES",
                "--python",
                sys.executable,
                "--names",
                mode,
                "--reports",
                str(folder),
                str(script),
            ),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KEEP_TIMES": str(times)},
    )
    captures = list(folder.glob("*/2*/capture/*.sqlite"))
    if done.returncode or not captures:
        return f"FAILED ({done.returncode}): {done.stderr.strip()[-1500:]}", 0.0, False
    profile = read(captures[0])
    report = Report.from_json(next(folder.glob("*/2*/report.json")).read_text(encoding="utf-8"))
    step_ms = _median_ms(times)
    lacking = sorted(_lacking(profile, mode))
    more = f" ({100 * step_ms / base_ms - 100:+.1f} %)" if base_ms else ""
    parts = (
        f"{step_ms:.3f} ms a step{more}",
        f"{captures[0].stat().st_size / 1e6:.1f} MB",
        f"{time.monotonic() - begin:.0f} s",
        *found(profile, report),
        *([f"LACKS {', '.join(lacking)}"] if lacking else []),
    )
    return " | ".join(parts), step_ms, not lacking


def found(profile: Profile, report: Report) -> Iterator[str]:
    """Yield what was named, how steps were found, and the first finding."""
    operators, ranges = profile.tables.get("cpu_ops"), profile.table("ranges")
    yield f"{len(operators) if operators is not None else 0:,} operators"
    modules = ranges.loc[ranges["style"] == MODULE, "name"].astype("str")
    yield f"{len(modules):,} calls of {modules.nunique():,} modules ({', '.join(sorted(set(modules))[:4])})"
    yield f"{len(profile.tables.get('python_samples', ())):,} samples of Python"
    window = chosen_window(profile)
    yield f"{len(window.repetitions)} steps: {window.family}"
    yield from (f"note: {finding.title}" for finding in report.findings if finding.rule == "names")
    advice = [finding.title for finding in report.findings if finding.severity == "advice"]
    yield advice[0] if advice else "no advice"


def _lacking(profile: Profile, mode: str) -> Iterator[str]:
    """Yield what a mode should have named and did not."""
    wanted = ("modules", "python") if mode == "auto" else mode.split(",")
    operators, ranges = profile.tables.get("cpu_ops"), profile.table("ranges")
    if "modules" in wanted and not (ranges["style"] == MODULE).any():
        yield "modules"
    if {"operators", "shapes"} & set(wanted) and operators is None:
        yield "operators"
    if "shapes" in wanted and operators is not None and not (operators["shapes"] != "").any():
        yield "shapes"
    if "python" in wanted and "python_samples" not in profile.tables:
        yield "python"


def _alone(script: Path) -> float:
    times = script.with_suffix(".json")
    subprocess.run([sys.executable, str(script)], check=True, env={**os.environ, "KEEP_TIMES": str(times)})
    return _median_ms(times)


def _median_ms(times: Path) -> float:
    seconds = json.loads(times.read_text(encoding="utf-8"))
    return 1e3 * float(seconds[len(seconds) // 2])


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
