"""CUDA graphs of models in training, on a GPU: `python -m tests.gpu.graphs [NAME ...]`, about five minutes for all.

Needs only PyTorch. Each program trains a small model for 60 steps, without the switch `cuda_graphs` of `nightsight
prove`, with it, and without it again. A line for each: its step in both forms, the largest relative difference of
losses, and what the switch says. Exit status 1 if one differs by more than two unchanged runs do, if the switch should
have an effect and has none, or the other way round. In $OUT, or a temporary folder: a log of each run.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from typing import Any, Final

WORKLOADS: Final = Path(__file__).parents[2] / "workloads"
SWITCH: Final = "cuda_graphs"
# relative, of losses in FP32; three times what unchanged runs differ in is allowed, too
_LEAST_DIFFERENCE: Final = 1e-6
_HEAD: Final = """
import torch
torch.manual_seed(0)
def batches(*size, count=60):
    # made before the loop: the steps only train
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(*size, generator=generator).cuda() for _ in range(count)]
def layers(count=20, width=128):
    parts = [part for _ in range(count) for part in (torch.nn.Linear(width, width), torch.nn.GELU())]
    return torch.nn.Sequential(*parts)
def encoder(dropout):
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
def train(model, inputs, loss_of=lambda model, x: model(x).float().square().mean(), passes=1):
    model = model.cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    began, ends = [], []
    for number, x in enumerate(inputs):
        x = x.cuda(non_blocking=True)
        events = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        events[0].record()
        for _ in range(passes):
            loss_of(model, x).backward()
        optimizer.step()
        optimizer.zero_grad()
        events[1].record()
        began.append(events[0])
        ends.append(events[1])
    torch.cuda.synchronize()
    times = sorted(one.elapsed_time(other) for one, other in zip(began[20:], ends[20:]))
    print("step_ms", times[len(times) // 2])
"""


@dataclass(frozen=True)
class Case:
    """A program. is_captured: whether the switch should have an effect."""

    name: str
    code: str
    is_captured: bool = True


CASES: Final = (
    Case("mlp", "train(layers(), batches(32, 128))"),
    Case("accumulation", "train(layers(), batches(32, 128), passes=3)"),
    Case(
        "images_with_batch_norm",
        """
parts = []
for count in range(8):
    parts += [torch.nn.Conv2d(3 if not count else 16, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU()]
train(torch.nn.Sequential(*parts), batches(8, 3, 32, 32))
""",
    ),
    Case("encoder", "train(encoder(0.0), batches(4, 32, 64))"),
    Case("encoder_with_dropout", "train(encoder(0.1), batches(4, 32, 64))"),
    Case(
        "autocast",
        """
def loss_of(model, x):
    with torch.autocast("cuda", torch.bfloat16):
        return model(x).float().square().mean()
train(encoder(0.0), batches(4, 32, 64), loss_of)
""",
    ),
    # its threads pin memory while a graph is captured; the last batch is smaller
    Case(
        "pinned_loader",
        """
items = torch.utils.data.TensorDataset(torch.randn(32 * 59 + 7, 128))
loader = torch.utils.data.DataLoader(items, 32, num_workers=2, pin_memory=True)
if __name__ == "__main__":
    train(layers(), (batch for batch, in loader))
""",
    ),
    Case(
        "two_models",
        """
second = layers(8).cuda()
train(layers(8), batches(32, 128), lambda model, x: (model(x) * second(x)).square().mean())
""",
    ),
    # its layers have their weights in a list, too
    Case(
        "recurrent",
        """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.LSTM(64, 64, 2, batch_first=True)
    def forward(self, x):
        return self.layers(x)[0]
train(Model(), batches(8, 32, 64))
""",
        is_captured=False,
    ),
    # it is not captured, and trains on as it was
    Case(
        "value_that_is_read",
        """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = layers()
    def forward(self, x):
        result = self.layers(x)
        return result / max(result.abs().max().item(), 1e-3)
train(Model(), batches(32, 128))
""",
        is_captured=False,
    ),
    Case(
        "counted_calls",
        """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.calls = layers(), 0
    def forward(self, x):
        self.calls += 1
        return self.layers(x) * (1 + 0.1 * self.calls)
train(Model(), batches(32, 128))
""",
        is_captured=False,
    ),
)


@dataclass(frozen=True)
class Run:
    """A run of a program. failure: the end of its output if it failed."""

    step_ms: float
    losses: list[float]
    effect: int
    why: str
    failure: str = ""


def run(case: Case, folder: Path, *, is_on: bool) -> Run:
    """Run a program with the hook of `nightsight prove`."""
    folder.mkdir(parents=True)
    script = folder / f"{case.name}.py"
    script.write_text(_HEAD + case.code)
    environment = {
        **os.environ,
        "PYTHONPATH": str(WORKLOADS / "timed"),
        "NIGHTSIGHT_TIMES": str(folder),
        "NIGHTSIGHT_PROOF": str(folder),
        "NIGHTSIGHT_SWITCHES": SWITCH if is_on else "",
    }
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    (folder / "log.txt").write_text(done.stdout + done.stderr)
    outcomes: list[Any] = [json.loads(file.read_text()) for file in folder.glob("*.outcome")]
    outcome = next((each for each in outcomes if each["losses"]), None)
    if done.returncode or outcome is None:
        return Run(0.0, [], 0, "", f"status {done.returncode}: {done.stderr.strip()[-600:]}")
    step_ms = float(done.stdout.split("step_ms")[1])
    return Run(step_ms, outcome["losses"], outcome["effects"].get(SWITCH, 0), outcome["why"].get(SWITCH, ""))


def difference(one: list[float], other: list[float]) -> float:
    """Return the largest relative difference of losses; infinite if their numbers differ, or one is not a number."""
    if len(one) != len(other):
        return inf
    pairs = zip(one, other, strict=True)
    differences = [abs(first - second) / max(abs(first), 1e-12) for first, second in pairs]
    return max(differences) if all(map(isfinite, differences)) else inf


def is_right(case: Case, folder: Path) -> bool:
    """Run a program in both forms, and print what they did; return whether it is as it should be."""
    runs = [run(case, folder / case.name / f"{number}", is_on=number == 1) for number in range(3)]
    plain, graphed, again = runs
    if failures := [each.failure for each in runs if each.failure]:
        print(f"{case.name}: FAILED {failures[0]}", flush=True)
        return False
    noise, worst = difference(plain.losses, again.losses), difference(plain.losses, graphed.losses)
    is_same = worst <= max(_LEAST_DIFFERENCE, 3 * noise)
    before, after = min(plain.step_ms, again.step_ms), graphed.step_ms
    is_expected = bool(graphed.effect) == case.is_captured
    doubts = [*["losses differ"] * (not is_same), *["another effect was expected"] * (not is_expected)]
    print(
        f"{case.name}: {before:.3f} -> {after:.3f} ms; {len(plain.losses)} losses differ by {worst:.1e} "
        f"(unchanged runs by {noise:.1e}); {graphed.effect} captured {graphed.why} {'WRONG: ' * bool(doubts)}"
        f"{', '.join(doubts)}",
        flush=True,
    )
    return not doubts


def main() -> None:
    """Run all programs, or those that are named."""
    folder = Path(os.environ.get("OUT") or tempfile.mkdtemp()) / "graphs"
    shutil.rmtree(folder, ignore_errors=True)
    chosen = [case for case in CASES if not sys.argv[1:] or case.name in sys.argv[1:]]
    wrong = [case.name for case in chosen if not is_right(case, folder)]
    print(f"{len(chosen) - len(wrong)} of {len(chosen)} as they should be", flush=True)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
