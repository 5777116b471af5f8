"""Programs in which a switch is faster and wrong, or nothing better: none may be called proven.

Each has the loop of a training script. What the switch changes makes a step shorter by a planted pause, so that speed
alone would prove it. `python -m tests.traps FOLDER [NAME ...]` proves all of them, on a GPU if there is one.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True)
class Trap:
    """A program and the switch that must not be proven for it.

    has_effect: whether the switch changes something. needs_gpu: without one, it does not.
    """

    name: str
    switch: str
    code: str
    has_effect: bool = True
    needs_gpu: bool = False


_HEAD: Final = """
import time, torch
kind = "cuda" if torch.cuda.is_available() else "cpu"
def pause(is_fast):
    time.sleep(0.001 if is_fast else 0.03)
"""
_LOOP: Final = """
for step in range(16):
    inputs = torch.randn(16, 64).to(kind)
    optimizer.zero_grad()
    loss = model(inputs).float().square().mean()
    loss.backward()
    optimizer.step()
"""
_SGD: Final = "optimizer = torch.optim.SGD(model.parameters(), lr=0.05)"
_ADAM: Final = "optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)"


def _module(forward: str, before: str = "", made: str = "Model()") -> str:
    """Return the definition of a model: a linear layer whose result is `product`."""
    return f"""
class Model(torch.nn.Linear):
    calls = 0
    def __init__(self):
        super().__init__(64, 64)
        {before}
    def forward(self, x):
        product = super().forward(x)
        {forward}
model = {made}.to(kind)
"""


def _items(item: str) -> str:
    return f"""{_HEAD}
class Items(torch.utils.data.Dataset):
    served = 0
    def __len__(self):
        return 64
    def __getitem__(self, number):
        time.sleep(0.005)
        Items.served += 1
        return {item}
model = torch.nn.Linear(4, 1).to(kind)
{_SGD}
if __name__ == "__main__":
    for batch in torch.utils.data.DataLoader(Items(), batch_size=4):
        optimizer.zero_grad()
        model(batch.to(kind)).square().mean().backward()
        optimizer.step()
"""


_IS_BF16: Final = "pause(product.dtype == torch.bfloat16)"
_IS_FUSED: Final = 'pause(optimizer.defaults.get("fused"))'

TRAPS: Final = (
    Trap(
        "precision_that_cancels",
        "bf16",
        _HEAD + _module(f"{_IS_BF16}; return (product + 1000) - 1000") + _SGD + _LOOP,
    ),
    Trap(
        "precision_that_diverges",
        "bf16",
        _HEAD
        + _module(
            f"{_IS_BF16}; return torch.sin(product)",
            "torch.nn.init.normal_(self.weight, std=0.5)",
            "torch.nn.Sequential(*(Model() for _ in range(6)))",
        )
        + _SGD.replace("0.05", "0.9")
        + _LOOP,
    ),
    Trap(
        "weights_that_differ_by_little",
        "bf16_weights",
        _HEAD
        + _module(
            f"{_IS_BF16}; return product - 1",
            "torch.nn.init.constant_(self.weight, 1.001 / 64); torch.nn.init.zeros_(self.bias)",
        )
        + """
model.eval()
with torch.no_grad():
    for step in range(16):
        model(torch.ones(16, 64).to(kind))
""",
    ),
    Trap(
        "dropout_without_a_seed",
        "fused_optimizer",
        f"{_HEAD}torch.seed()\n"
        + _module(f"{_IS_FUSED}; return torch.nn.functional.dropout(product, 0.9)")
        + _ADAM
        + _LOOP,
    ),
    Trap(
        "optimizer_with_another_default",
        "fused_optimizer",
        _HEAD
        + _module(f"{_IS_FUSED}; return product")
        + _ADAM
        + """
for group in optimizer.param_groups:
    group["lr"] *= 2 if group["fused"] else 1
"""
        + _LOOP,
    ),
    # each worker counts what it has served
    Trap("data_that_depends_on_its_order", "loader_workers", _items("torch.full((4,), 0.01 * Items.served)")),
    Trap("data_drawn_in_workers", "loader_workers", _items("torch.randn(4)")),
    Trap(
        "compile_that_falls_back",
        "compile",
        f"{_HEAD}torch._dynamo.config.suppress_errors = True\n"
        + _module("pause(False); print(end='', flush=True); return product")
        + _SGD
        + _LOOP,
    ),
    Trap(
        "flag_that_the_program_sets",
        "tf32",
        f"{_HEAD}torch.backends.cuda.matmul.allow_tf32 = False\n" + _module("return product") + _SGD + _LOOP,
        has_effect=False,
    ),
    Trap(
        "forward_that_counts_its_calls",
        "stored_activations",
        _HEAD
        + "import torch.utils.checkpoint\n"
        + _module("Model.calls += 1; return product * (1 + 0.01 * Model.calls)")
        + """
class Stored(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = model
    def forward(self, x):
        before = Model.calls
        result = torch.utils.checkpoint.checkpoint(self.inner, x.requires_grad_(), use_reentrant=True)
        x.register_hook(lambda _: pause(Model.calls - before == 1))
        return result
model = Stored()
"""
        + _SGD
        + _LOOP,
    ),
    # a graph has what the forward pass did when it was captured
    Trap(
        "global_that_a_forward_pass_changes",
        "cuda_graphs",
        _HEAD
        + "calls = []\n"
        + _module("pause(False); calls.append(0); return product * (1 + 0.01 * len(calls))")
        + _SGD
        + _LOOP,
        needs_gpu=True,
    ),
    # the next batch overwrites what is still being copied
    Trap(
        "buffer_that_is_used_again",
        "non_blocking",
        _HEAD
        + """
model = torch.nn.Linear(1 << 20, 1).to(kind)
batches = [torch.full((16, 1 << 20), float(number)) for number in range(4)]
buffer = torch.empty(16, 1 << 20, pin_memory=kind == "cuda")
"""
        + _SGD.replace("0.05", "1e-9")
        + """
for step in range(32):
    buffer.copy_(batches[step % 4])
    inputs = buffer.to(kind)
    buffer.zero_()
    optimizer.zero_grad()
    model(inputs).mean().backward()
    optimizer.step()
""",
        needs_gpu=True,
    ),
)


def main() -> None:
    """Prove the traps and print their verdicts; the exit status is the number of those that are called proven."""
    folder, proven = Path(sys.argv[1]), 0
    package = Path(__file__).parents[1] / "pipeline"
    for trap in TRAPS:
        if sys.argv[2:] and trap.name not in sys.argv[2:]:
            continue
        script = folder / f"{trap.name}.py"
        script.write_text(trap.code)
        options = ("--switch", trap.switch, "--rounds", "2", "--budget", "1.5", "--format", "json")
        command = [sys.executable, str(package), "prove", *options, "--python", sys.executable, str(script)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{trap.name}: {done.stderr[-500:]}")
            continue
        (proof,) = json.loads(done.stdout)["proofs"]
        proven += proof["verdict"] == "proven"
        change = f"{1e-6 * proof['base_ns']:.1f} -> {1e-6 * proof['step_ns']:.1f} ms" if proof["step_ns"] else ""
        words = (proof["verdict"], change, proof["results"]["verdict"], proof["results"]["detail"], proof["why"])
        print(f"{trap.name} ({trap.switch}): {'; '.join(filter(None, words))}", flush=True)
    sys.exit(proven)


if __name__ == "__main__":
    main()
