"""Fleets to test with: summaries of captures that were never made, and what they say together."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from nightsight.events.kernel_labels import family_of
from nightsight.fleet import fleet_of
from nightsight.model.fleet import TABLES, Fleet, Summary, conform

STEP: Final = 10e6
HOST: Final = "The GPU waits for host code in `step`"


def summary(
    capture: str,
    *,
    step_ns: float = STEP,
    gpus: int = 1,
    split: Mapping[str, float] | None = None,
    causes: Mapping[str, float] | None = None,
    kernels: Mapping[str, tuple[int, int]] | None = None,
    **facts: Any,
) -> Summary:
    """Summarize 100 steps. split: shares of a step. causes: gains in percent by rule. kernels: instances, total_ns."""
    gpu_ns = int(100 * gpus * step_ns)
    shares = split or {"compute": 0.75, "host code": 0.25}
    groups = {name: "idle" if name == "host code" else "busy" for name in shares}
    capture_row = {
        **dict.fromkeys((column.name for column in TABLES["captures"]), ""),
        **dict.fromkeys(("kernels", "kernel_ns", "copies", "copy_ns", "copied_bytes"), 0),
        "workload": "mlp",
        "gpu": "NVIDIA H200",
        "driver": "580.95",
        "asked": "auto",
        "lone": 0,
        "repeated": "step #",
        "repetitions": 100,
        "gpus": gpus,
        "gpu_ns": gpu_ns,
        "busy_ns": int(gpu_ns * shares.get("compute", 0)),
        "step_ns": step_ns,
        "unprofiled_step_ns": None,
        "captured_utc": "2026-11-20 02:00:00",
        **facts,
    }
    gains = [
        (rule, f"{HOST}: {rule}", "do it ahead of time", gain, gain / 100 * gpu_ns)
        for rule, gain in (causes or {}).items()
    ]
    frames = {
        "captures": pd.DataFrame([capture_row]),
        "split": pd.DataFrame(
            [(groups[name], name, int(share * gpu_ns), share * step_ns) for name, share in shares.items()],
            columns=["group", "category", "time_ns", "step_ns"],
        ),
        "causes": pd.DataFrame(gains, columns=["rule", "cause", "action", "gain_pct", "lost_ns"]),
        "kernels": pd.DataFrame(
            [(name, family_of(name), count, total) for name, (count, total) in (kernels or {}).items()],
            columns=["name", "family", "instances", "total_ns"],
        ),
    }
    return Summary({name: conform(frame.assign(capture=capture), TABLES[name]) for name, frame in frames.items()})


def made_fleet(summaries: Sequence[Summary], **files: Sequence[str]) -> Fleet:
    """Put summaries together; their files are called as they are, unless other columns are given."""
    captures = [each["captures"]["capture"].iloc[0] for each in summaries]
    given = {"file": [f"{capture}.sqlite" for capture in captures], "report": "", "workload": "", **files}
    return fleet_of(pd.DataFrame({"capture": captures, **given}), summaries)
