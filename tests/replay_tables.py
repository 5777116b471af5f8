"""Results of Nsight Compute as a report has them, and a report around them."""

from typing import Any

import pandas as pd

from nightsight.model.report import Report
from tests.reports import gpu_table, result, small_report

NAMES = ("void at::gemm<(int)64>(float *)", "void at::gemm<(int)64>(float *)", "add(int)")
GPU = "NVIDIA H200"


def kernels(names: tuple[str, ...] = NAMES, **changes: Any) -> pd.DataFrame:
    """Make one launch of each kernel; the launch numbers fall, the order is that of the names."""
    count = len(names)
    figures = {"sm_pct": 60.0, "memory_pct": 30.0, "dram_pct": float("nan"), "occupancy_pct": 12.5, "limiter": "warps"}
    columns = {
        "launch": range(count - 1, -1, -1),
        "name": names,
        "grid": [f"{place}, 1, 1" for place in range(1, count + 1)],
        "block": "64, 1, 1",
        "path": "measure",
        "device": 0,
        "gpu_pct": 30.0,
        "launches": 3,
        "timeline_med_ns": 1_000.0,
        "gpu_total_ns": 5,
        "busiest_gpu_ns": 5,
        "replay_ns": 1_100.0,
        **figures,
    }
    return pd.DataFrame({**columns, **changes})


def rules(
    titles: tuple[str, ...] = ("Small Grid",), messages: tuple[str, ...] = ("See https://x <b>.",)
) -> pd.DataFrame:
    estimates = {"speedup_kind": "global", "speedup_pct": 40.0, "bound_pct": 12.0}
    texts = {"name": NAMES[0], "rule": "Rule", "title": titles, "message": messages, "kind": "optimization"}
    return pd.DataFrame({"launch": 2, **texts, **estimates})


def points(*rows: tuple[int, str, float, float, float]) -> pd.DataFrame:
    """Make points: launch, kind, flop_per_s, flop_per_byte, l2_flop_per_byte."""
    table = pd.DataFrame(rows, columns=["launch", "kind", "flop_per_s", "flop_per_byte", "l2_flop_per_byte"])
    return table.assign(name="gemm", device=0, peak_pct=50.0)


def roofs(*rows: tuple[str, float | None, float | None], device: int = 0) -> pd.DataFrame:
    """Make roofs: name, bytes_per_s, flop_per_s."""
    table = pd.DataFrame(rows, columns=["roof", "bytes_per_s", "flop_per_s"], dtype=object)
    return table.assign(device=device, gpu=GPU)


H200 = roofs(("DRAM", 1e12, None), ("L2", 1e13, None), ("FP32", None, 1e14), ("FP64", None, 1e14), ("FP16", None, 1e15))


def stalls(**shares: float) -> pd.DataFrame:
    reasons = [reason.replace("_", " ") for reason in shares]
    return pd.DataFrame({"launch": 2, "name": NAMES[0], "reason": reasons, "stall_pct": list(shares.values())})


def instructions(*launches: int) -> pd.DataFrame:
    kinds = {"fp64_pct": 0.0, "fp32_pct": 70.0, "integer_pct": 29.5, "load_store_pct": 0.5}
    return pd.DataFrame({"launch": launches, "name": NAMES[0], "instructions": 1e6, **kinds})


def lines(*places: tuple[str, int | None, int | None], source: str = "x = y;") -> pd.DataFrame:
    table = pd.DataFrame(places, columns=["file", "line", "pc"], dtype=object)
    return table.assign(launch=2, name=NAMES[0], source=source, samples=5, share_pct=50.0, stall="long scoreboard")


def replay_report(**tables: pd.DataFrame | None) -> Report:
    """Put results of ncu beside those of a timeline; one that is None is unavailable."""
    made = {
        "ncu_match": pd.DataFrame({"replayed": [3], "matched": [3], "match_pct": [100.0], "coverage_pct": [90.0]}),
        "ncu_kernels": kernels(),
        "ncu_rules": rules(),
        "ncu_roofline": points((2, "FP32", 1e13, 100.0, 10.0), (0, "FP16", 1e12, 1.0, 0.5)),
        "ncu_roofs": H200,
        "ncu_stalls": stalls(long_scoreboard=60.0, wait=20.0),
        "ncu_instructions": instructions(2, 1),
        "ncu_source": lines(("/home/someone/k.cu", 12, None), ("", None, 0x2790)),
        **tables,
    }
    results = (result(name, table, unavailable="ncu was off", title=name) for name, table in made.items())
    return small_report(results=(result("gpu_time", gpu_table(25.0)), *results))
