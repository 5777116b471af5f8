"""Comparisons of real runs on a GPU host. Two commands of at most 9 minutes each, whose runs take about 10 s:

    ONLY=attention,copying python -m tests.gpu.trials rounds ab
    ONLY=mlp python -m tests.gpu.trials rounds bisect

Rounds: five programs as they are, twice each, ten times. `mlp` also runs three times with a kernel that takes 3, 5, 10
and 50 % longer, with a synchronization in each step, and with operations that were fused before; `hosted`, whose step
takes as long as the CPU needs to launch it, with a kernel that takes 51 % longer, with a copy to the host in each step,
and with a CPU that does something else for 100 and 200 µs of a step. All run once a round, in the opposite order each
other round, so that any two of them are pairs. What was not changed must not be flagged; each change must be found, and
what changed be named, unless the noise of the host can hide it; and no gate may pass what it should not. Then
`nightsight ab` or `nightsight bisect` finds a slower kernel in a repository: 8 and 15 runs, for which the rounds leave
time.

A line for each comparison; exit status 1 if one says something else than it should. In the environment: SECONDS_LEFT is
the time for all, ONLY programs or cases of the rounds ("copying,mlp again,synchronization"), NSYS the nsys. In $OUT, as
they come: trials.txt, the lines; reports.jsonl.xz, each run; and the comparison that `ab` wrote. A command that was cut
off loses nothing: `python -m tests.gpu.trials judge reports.jsonl.xz` says what its runs show, and `draw` how often
comparisons flag something whose pairs are drawn from the unchanged ones, and what a gate decides on them.
"""

import json
import lzma
import multiprocessing
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from nightsight.collect.conditions import logging_gpus
from nightsight.collect.nsys import collect_nsys
from nightsight.collect.workloads import Request, resolve
from nightsight.compare import Settings, compare, measures
from nightsight.errors import PipelineError
from nightsight.model.compare import Comparison, Measures
from nightsight.model.report import Capture, Report
from nightsight.read import read
from nightsight.runs.noise import METRIC_LABELS
from nightsight.workflows.analysis import build_report

ROOT: Final = Path(__file__).parents[2]
PIPELINE: Final = ROOT / "pipeline"
TIME_S: Final = 540.0
# how many runs the parts after the rounds make, each a few seconds longer than one of a round: it writes its page
_RUNS: Final = {"ab": 8, "bisect": 15}
_PAGE_S: Final = 3.0
_ROUNDS: Final = 10
_ROUNDS_OF_CHANGES: Final = 3
_REPORTS: Final = "reports.jsonl.xz"
_MOST_BYTES: Final = 16_000_000
_DRAWN: Final = 150
_COMMON: Final = """
import sys
import torch
given = dict(word.split("=") for word in sys.argv[1:])
LONGER, SYNC, FUSED = float(given.get("longer", LONGER)), int(given.get("sync", 0)), int(given.get("fused", 1))
COPY, BUSY = int(given.get("copy", 0)), float(given.get("busy", 0)) * 1e-6
device = "cuda" if torch.cuda.is_available() else "cpu"
nvtx = torch.cuda.nvtx if device == "cuda" else None
torch.manual_seed(0)
SIZE = 1 if device == "cuda" else 16
def run(step, count=60):
    for _ in range(count):
        if nvtx: nvtx.range_push("step")
        step()
        if nvtx: nvtx.range_pop()
    if device == "cuda": torch.cuda.synchronize()
"""
MLP: Final = (
    _COMMON
    + """
size = 2048 // SIZE
layers = [torch.nn.Linear(size, size) for _ in range(4)]
model = torch.nn.Sequential(*layers).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(1024, size, device=device)
# a kernel that only this line launches, and whose time is that of its memory traffic
angles = torch.randn(int((1 << 26) // SIZE * (1 + LONGER / 100)), device=device)
def activation(y):
    if FUSED: return torch.nn.functional.gelu(y, approximate="tanh")
    return 0.5 * y * (1 + torch.tanh(0.7978845608 * (y + 0.044715 * y * y * y)))
def step():
    y = x
    for layer in layers:
        y = activation(layer(y))
    loss = y.square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.sin(angles, out=angles)
    if SYNC: loss.item()
run(step)
"""
)
ATTENTION: Final = (
    _COMMON
    + """
q, k, v = (torch.randn(8, 16, 1024 // SIZE, 64, device=device, dtype=torch.bfloat16) for _ in range(3))
weight = torch.randn(1024, 1024, device=device, dtype=torch.bfloat16)
def step():
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    y = y.transpose(1, 2).reshape(-1, 1024) @ weight
    torch.softmax(y.float(), -1)
run(step)
"""
)
COPYING: Final = (
    _COMMON
    + """
host = torch.randn((1 << 22) // SIZE, pin_memory=device == "cuda")
table = torch.randn((1 << 18) // SIZE, 64, device=device)
rows = torch.randint(len(table), (1 << 18,), device=device)
def step():
    y = host.to(device, non_blocking=True).cumsum(0)
    z = table[rows].sum(1)
    y[: len(z)] += z[: len(y)]
    y.sort()
run(step)
"""
)
HOSTED: Final = (
    _COMMON
    + """
from time import perf_counter
size = 1024 // SIZE
layers = [layer for _ in range(6) for layer in (torch.nn.Linear(size, size), torch.nn.GELU())]
model = torch.nn.Sequential(*layers).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
given_x, given_y = (torch.randn(512, size, pin_memory=device == "cuda") for _ in "xy")
angles = torch.randn(int(1.2e7 / SIZE * (1 + LONGER / 100)), device=device)
def step():
    x, y = (given.to(device, non_blocking=True) for given in (given_x, given_y))
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.sin(angles, out=angles)
    if COPY: loss.detach().cpu()
    end = perf_counter() + BUSY
    while BUSY and perf_counter() < end: pass
run(step, 100)
"""
)
WAITING: Final = (
    HOSTED.replace("size = 1024", "size = 1536")
    .replace("512", "1024")
    .replace("range(6)", "range(4)")
    .replace("1.2e7", "3e7")
    .replace("    if COPY", "    loss.item()\n    if COPY")
)
PROGRAMS: Final = {"mlp": MLP, "attention": ATTENTION, "copying": COPYING, "hosted": HOSTED, "waiting": WAITING}


@dataclass(frozen=True)
class Case:
    """What runs in a round: a program with arguments. Its change is named by any of `words` in any of `kinds`.

    gate: what a gate may decide on it; what noise can hide is not always named.
    """

    name: str
    program: str
    arguments: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    gate: tuple[int, ...] = (0, 4)

    @property
    def rounds(self) -> int:
        """In how many rounds it runs: changes are found by few runs, and that nothing is flagged is shown by many."""
        return _ROUNDS_OF_CHANGES if self.kinds else _ROUNDS


_SLOWER: Final = (("kernel",), ("sin_kernel",))
_WAITS: Final = (("copy", "api", "cause"), ("Device to", "Synchronize", "sync"))
_GREEN, _RED, _NOT_GREEN = (0,), (1,), (1, 4)
CASES: Final = (
    *(Case(name, name) for name in PROGRAMS),
    *(Case(f"{name} again", name) for name in PROGRAMS),
    *(Case(f"kernel {share} % longer", "mlp", (f"longer={share}",), *_SLOWER, _GREEN) for share in (3, 5, 10)),
    Case("kernel 50 % longer", "mlp", ("longer=50",), *_SLOWER, _RED),
    Case("synchronization", "mlp", ("sync=1",), *_WAITS, _RED),
    Case("lost fusion", "mlp", ("fused=0",), ("kernel", "family", "cause"), ("tanh", "elementwise", "fus"), _RED),
    Case("kernel 51 % longer", "hosted", ("longer=51",), *_SLOWER, _RED),
    Case("copy to the host", "hosted", ("copy=1",), *_WAITS, _RED),
    *(
        Case(f"host busy for {time} µs", "hosted", (f"busy={time}",), ("gate", "range"), ("step",), _NOT_GREEN)
        for time in (100, 200)
    ),
)
_AS_THEY_ARE: Final = CASES[: len(PROGRAMS)]


def main(words: Sequence[str]) -> int:
    """Run the parts that are named, or all; return the exit status."""
    if words[:1] == ["draw"]:
        failed = sum(_say_alarms(kept(Path(word))) for word in words[1:])
    elif words[:1] == ["judge"]:
        failed = sum(_judged(kept(Path(word))) for word in words[1:])
    else:
        with TemporaryDirectory() as folder:
            failed = _run(words or ("rounds", *_RUNS), Path(folder))
    _say("all as it should be" if not failed else f"{failed} NOT as it should be")
    return int(failed > 0)


def _run(parts: Sequence[str], folder: Path) -> int:
    """Run parts in the time there is; return how many comparisons say something else than they should."""
    deadline = time.monotonic() + float(os.environ.get("SECONDS_LEFT", TIME_S))
    failed = 0
    if "rounds" in parts:
        after = sum(count for name, count in _RUNS.items() if name in parts)
        failed += _judged(rounds(folder, deadline, after))
    for name, trial in (("ab", found_by_ab), ("bisect", found_by_bisect)):
        if name in parts:
            left_s = deadline - time.monotonic()
            if left_s < 30:
                _say(f"{name}: NOT RUN, {left_s:.0f} s are left; run it alone: python -m tests.gpu.trials {name}")
                failed += 1
            else:
                failed += not trial(folder / name, left_s)
    return failed


# -- rounds -----------------------------------------------------------------------------------------------------------

Runs = dict[str, dict[int, Measures]]
"""What was measured, by case and round."""


def rounds(folder: Path, deadline: float, after: int) -> Runs:
    """Run the cases in rounds, until there are enough or the time is up for `after` further runs; keep each report."""
    cases = list(_chosen(os.environ.get("ONLY", "")))
    # captures are analyzed on another core while the next program runs
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        kept = _Kept(pool)
        _collect(cases[0], folder / "first")
        number, order, of_run_s = 0, 0, 0.0
        while number < _ROUNDS:
            now = [case for case in cases if number < case.rounds]
            changed = {case.program for case in now if case not in _AS_THEY_ARE}
            now = [case for case in now if case.program in changed]
            needed_s = len(now) * of_run_s + after * (of_run_s + _PAGE_S)
            if not now or (number >= _ROUNDS_OF_CHANGES and time.monotonic() + needed_s > deadline):
                break
            began = time.monotonic()
            for case in now if number % 2 == 0 else now[::-1]:
                kept.add(case, number, order, _collect(case, folder / str(order)))
                order += 1
            took_s = time.monotonic() - began
            of_run_s = took_s / len(now)
            number += 1
            _say(f"round {number}: {len(now)} runs in {took_s:.0f} s")
        return kept.runs()


def _chosen(only: str) -> Iterator[Case]:
    """Yield the cases of these names and programs, each after its program as it is; all if none is named."""
    names = [name.strip() for name in only.split(",") if name.strip()] or list(PROGRAMS)
    asked = [case for case in CASES if {case.name, case.program} & {*names}]
    for case in CASES:
        if case in asked or (case in _AS_THEY_ARE and case.name in {each.program for each in asked}):
            yield case


def _collect(case: Case, folder: Path) -> Capture | None:
    """Run a case under nsys; None if that failed."""
    folder.mkdir(parents=True)
    script = folder / f"{case.program}.py"
    script.write_text(f"LONGER = 0\n{PROGRAMS[case.program]}", encoding="utf-8")
    program = resolve(str(script), case.arguments, python=sys.executable)
    nsys = os.environ.get("NSYS")
    request = Request(folder / "capture", folder / "log", 120, nsys=Path(nsys) if nsys else None, names=())
    try:
        with logging_gpus() as log:
            capture = collect_nsys(program, request)
    except PipelineError as error:
        _say(f"    {case.name} failed: {error.message} {error.hint}")
        return None
    return replace(capture, conditions=log.conditions)


def _reported(capture: Capture) -> str:
    """Return the report of a capture as JSON, and delete its files."""
    report = build_report(read(capture.files[-1]), capture.workload, capture=capture)
    for file in capture.files:
        file.unlink()
    return report.to_json()


@dataclass
class _Kept:
    """The reports of the runs, each written as soon as it is there: as a line of JSON, compressed by itself."""

    pool: ProcessPoolExecutor
    waiting: list[tuple[dict[str, object], Future[str]]] = field(default_factory=list)
    by_case: Runs = field(default_factory=dict)
    bytes: int = 0

    def add(self, case: Case, number: int, order: int, capture: Capture | None) -> None:
        if capture is not None:
            facts: dict[str, object] = {"case": case.name, "round": number, "order": order}
            self.waiting.append((facts, self.pool.submit(_reported, capture)))
        while self.waiting and self.waiting[0][1].done():
            self._write()

    def runs(self) -> Runs:
        while self.waiting:
            self._write()
        return self.by_case

    def _write(self) -> None:
        facts, future = self.waiting.pop(0)
        line = json.dumps({**facts, "report": future.result()}) + "\n"
        packed = lzma.compress(line.encode())
        if (out := _out()) and self.bytes + len(packed) < _MOST_BYTES:
            self.bytes += len(packed)
            with (out / _REPORTS).open("ab") as file:
                file.write(packed)
        _add(self.by_case, line)


def kept(path: Path) -> Runs:
    """Return the runs that were kept, up to where the file was cut off."""
    runs: Runs = {}
    try:
        with lzma.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                _add(runs, line)
    except EOFError:
        _say(f"{path} was cut off")
    return runs


def _add(runs: Runs, line: str) -> None:
    row = json.loads(line)
    report = Report.from_json(row["report"])
    facts = {"source": str(row["order"]), "series": "rounds", "side": row["case"], "order": row["order"]}
    runs.setdefault(row["case"], {})[row["round"]] = measures(report, **facts)


# -- what they show ---------------------------------------------------------------------------------------------------


def _judged(runs: Runs) -> int:
    """Say what the comparisons of the cases show; return how many are wrong."""
    conditions = {str(run.conditions) for of_case in runs.values() for run in list(of_case.values())[:1]}
    for text in sorted(conditions - {"()"})[:1]:
        _say(f"conditions: {text}")
    judged = [_judge(case, runs) for case in CASES[len(PROGRAMS) :] if case.name in runs]
    if not judged:
        _say("WRONG | nothing was measured that could be judged")
    return judged.count(False) + (not judged)


def _judge(case: Case, runs: Mapping[str, Mapping[int, Measures]]) -> bool:
    """Say what a comparison of a case with its program as it is finds; return whether that is right."""
    both = sorted(runs[case.program].keys() & runs[case.name].keys())
    before, after = ([runs[name][number] for number in both] for name in (case.program, case.name))
    if not both:
        _say(f"WRONG | {case.name} | no pairs")
        return False
    comparison = compare(before, after, settings=Settings())
    flags = flagged(comparison)
    named = [f"{kind} {name}"[:70] for kind, name in flags if named_by(case, kind, name)]
    is_named = bool(named) or len(case.gate) > 1 if case.kinds else not flags
    is_right = is_named and len(both) >= case.rounds and comparison.decision.status in case.gate
    outcome = f"{comparison.verdict} | {comparison.sentence}"
    by = f"{len(flags)} flagged{f', named by {named[0]}' if named else ''}"
    count = f"{len(both)} of {case.rounds} pairs{'' if comparison.is_paired else ', not paired'}"
    _say(f"{'ok' if is_right else 'WRONG'} | {case.name} | {count} | {outcome} | {by} | {_spread(before, after)}")
    for kind, name in flags if not is_right else ():
        row = _row(comparison, kind, name)
        _say(f"    {kind} {name[:80]}: {row['change_pct']:+.2f} % [{row['low_pct']:.2f}, {row['high_pct']:.2f}]")
    return is_right


def flagged(comparison: Comparison) -> list[tuple[str, str]]:
    """Return what changed for sure, by kind and name: measures, and causes that appeared or went."""
    changes = comparison.changes
    sure = changes[changes["verdict"].isin(["regressed", "improved", "added", "removed"])]
    causes = comparison.causes[comparison.causes["verdict"].isin(["added", "removed"])]
    return [
        *zip(sure["kind"], sure["name"], strict=True),
        *(("cause", f"{row.rule} {row.title}") for row in causes.itertuples(index=False)),
    ]


def named_by(case: Case, kind: str, name: str) -> bool:
    """Whether this names the change of a case."""
    return kind in case.kinds and any(word.lower() in name.lower() for word in case.words)


def drawn(
    runs: Runs, program: str, count: int, drawings: int, *, case: str = "", in_turns: bool = True
) -> list[Comparison]:
    """Compare runs of a program as it is, drawn at random, so that twenty runs make many comparisons.

    In turns: the pairs are drawn, and which run of a pair is called the baseline. Otherwise any runs are drawn for each
    side, or those of `case` for the candidate: all of them if there are fewer than `count`. Nothing if the program has
    too few.
    """
    again = runs.get(f"{program} again", {})
    rounds = [(run, again[number]) for number, run in sorted(runs[program].items()) if number in again]
    lots, comparisons = random.Random(f"{program} {count} {case}"), []
    every = [replace(run, series="") for of_round in rounds for run in of_round]
    most = len(rounds) if in_turns else len(every) if case else len(every) // 2
    for _ in range(drawings if count <= most else 0):
        sides: Sequence[Sequence[Measures]]
        if in_turns:
            sides = [*zip(*(lots.sample(pair, 2) for pair in lots.sample(rounds, count)), strict=True)]
        elif case:
            changed = [replace(run, series="") for run in runs[case].values()]
            sides = lots.sample(every, count), lots.sample(changed, min(count, len(changed)))
        else:
            few = lots.sample(every, 2 * count)
            sides = few[:count], few[count:]
        comparisons.append(compare(*sides, settings=Settings()))
    return comparisons


def gated(comparisons: Sequence[Comparison]) -> Counter[str]:
    """Count what a gate decides: green, open, red; and what it calls better."""
    named = {0: "green", 1: "red", 4: "open"}
    counts = Counter(named[each.decision.status] for each in comparisons)
    counts["better"] = sum(each.verdict == "improved" for each in comparisons)
    return counts


def _say_alarms(runs: Runs) -> bool:
    """Say how often comparisons of drawn runs flag something, and what a gate decides on them.

    Return whether more than 3 % of the unchanged pairs are flagged, or a gate is wrong on more than 2 % of any.
    """
    programs = [name for name in PROGRAMS if f"{name} again" in runs]
    alarms: list[list[tuple[str, str]]] = []
    unchanged: list[Comparison] = []
    for name, count, in_turns in product(programs, (3, 5, 10), (True, False)):
        comparisons = drawn(runs, name, count, _DRAWN, in_turns=in_turns)
        flags = [flagged(each) for each in comparisons if in_turns]
        alarms += flags
        unchanged += comparisons
        if comparisons:
            share = f", {sum(map(bool, flags))} of {len(flags)} flagged" if in_turns else ""
            _say(f"{name}, {count} {'pairs' if in_turns else f'+ {count}'}: {_rates(comparisons)}{share}")
    _say(f"in all: {sum(map(bool, alarms))} of {len(alarms)} flagged; {_rates(unchanged)}")
    for (kind, name), count in Counter(flag for flags in alarms for flag in flags).most_common(10):
        _say(f"    {count} times {kind} {name[:90]}")
    for case in CASES:
        if case.kinds and case.name in runs:
            _say(f"{case.name}: {_rates(drawn(runs, case.program, 5, _DRAWN, case=case.name, in_turns=False))}")
    gate = gated(unchanged)
    return sum(map(bool, alarms)) > 0.03 * len(alarms) or gate["red"] + gate["better"] > 0.02 * len(unchanged)


def _rates(comparisons: Sequence[Comparison]) -> str:
    gate = gated(comparisons)
    shares = (f"{100 * gate[name] / len(comparisons):.1f} % {name}" for name in ("green", "open", "red", "better"))
    return f"gate {', '.join(shares)}" if comparisons else "too few runs"


def _row(comparison: Comparison, kind: str, name: str) -> dict[str, float]:
    changes = comparison.changes
    rows = changes[(changes["kind"] == kind) & (changes["name"] == name)].to_dict("records")
    return {str(key): value for key, value in rows[0].items()} if rows else dict.fromkeys(_SHARES, float("nan"))


_SHARES: Final = ("change_pct", "low_pct", "high_pct")


def _spread(baseline: Sequence[Measures], candidate: Sequence[Measures]) -> str:
    """Return by how much pairs differ, and the standard deviation of that, of each metric."""
    texts = []
    for metric in METRIC_LABELS:
        values = ([run.metric(metric) for run in side] for side in (baseline, candidate))
        shares = [100 * (other / one - 1) for one, other in zip(*values, strict=True) if one > 0]
        if len(shares) > 1:
            texts.append(f"{metric} {statistics.median(shares):+.2f} % ± {statistics.stdev(shares):.2f}")
    return ", ".join(texts)


# -- commits ----------------------------------------------------------------------------------------------------------


def found_by_ab(folder: Path, left_s: float) -> bool:
    """Whether `ab` finds a kernel that a commit made 10 % longer, and names it."""
    _commits(folder, (0, 10))
    done = _nightsight(
        folder, left_s, "ab", "--base", "HEAD~1", "--head", "HEAD", "--pairs", "3", "--gate", "-o", "out"
    )
    text = (folder / "out/comparison.md").read_text(encoding="utf-8") if done else ""
    if (out := _out()) and text:
        for name in ("comparison.html", "comparison.md"):
            shutil.copy(folder / "out" / name, out / f"ab_{name}")
    is_found = any("sin" in line and "regressed" in line for line in (*text.splitlines(), *done.splitlines()))
    _say(f"{'ok' if is_found else 'WRONG'} | ab | {_last(done, 4)}")
    return is_found


def found_by_bisect(folder: Path, left_s: float) -> bool:
    """Whether `bisect` finds the commit that made a kernel 50 % longer."""
    _commits(folder, (0, 0, 50))
    done = _nightsight(folder, left_s, "bisect", "--good", "HEAD~2", "--bad", "HEAD", "--metric", "kernel_ns")
    is_found = " longer by 50 %" in done
    _say(f"{'ok' if is_found else 'WRONG'} | bisect | {_last(done, 2)}")
    return is_found


def _commits(folder: Path, longer: Sequence[int]) -> None:
    folder.mkdir()
    _git(folder, "init", "--quiet")
    for number, share in enumerate(longer):
        (folder / "bench.py").write_text(f"# {number}\nLONGER = {share}\n{MLP}", encoding="utf-8")
        _git(folder, "add", "bench.py")
        _git(folder, "commit", "--quiet", "-m", f"A kernel is longer by {share} %")


def _git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", *words], cwd=folder, check=True)


def _nightsight(folder: Path, left_s: float, command: str, *options: str) -> str:
    nsys = ["--nsys", os.environ["NSYS"]] if os.environ.get("NSYS") else []
    nsys += ["--python", sys.executable]
    words = [sys.executable, str(PIPELINE), command, *options, *nsys, "--names", "off", "--collector", "nsys"]
    try:
        done = subprocess.run(
            [*words, "bench.py"], cwd=folder, capture_output=True, text=True, check=False, timeout=left_s
        )
    except subprocess.TimeoutExpired:
        return ""
    if done.returncode not in (0, 1):
        _say(f"    status {done.returncode}: {done.stderr.strip()[-1500:]}")
    return done.stdout


def _last(text: str, lines: int) -> str:
    return " / ".join(text.strip().splitlines()[-lines:]) or "nothing was found in time"


def _out() -> Path | None:
    """Return the folder for what is to be kept."""
    return Path(out) if (out := os.environ.get("OUT")) else None


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
    if out := _out():
        with (out / "trials.txt").open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
