"""What it costs to get work onto the GPU: API, queue and execution time of every launch, joined by process.

A CUDA graph launch is one launch, whatever it contains.
"""

from typing import Final

import numpy as np
import pandas as pd

from pipeline.analyze.analysis import Analysis, Table
from pipeline.analyze.api import api_name
from pipeline.model import Profile
from pipeline.tables import summarize

_KEYS: Final = ["process", "correlation"]
GRAPH: Final = "[CUDA graph]"


def launches(profile: Profile) -> pd.DataFrame:
    """Return one row per launch: device, name, start_ns, end_ns on the GPU, and api, api_start_ns, api_end_ns.

    A LEFT join that adds no row: a launch whose call was not recorded has NA in the API columns.
    """
    columns = [*_KEYS, "device", "name", "start_ns", "end_ns"]
    kernels = profile.table("kernels").assign(name=lambda frame: frame["name"].astype("str"))
    # Kineto does not say which kernels a graph launched; that many share one call does
    shared = kernels.duplicated(_KEYS, keep=False) & kernels["correlation"].notna()
    in_graph = (shared | kernels["graph_node"].notna()).to_numpy(dtype=bool)
    single, nodes = kernels[~in_graph][columns], kernels[in_graph][columns].assign(name=GRAPH)
    if "graph_launches" in profile.tables:
        nodes = pd.concat([nodes, profile.table("graph_launches").assign(name=GRAPH)[columns]])
    graphs = nodes.groupby([*_KEYS, "device"], as_index=False)
    whole = graphs.agg(name=("name", "first"), start_ns=("start_ns", "min"), end_ns=("end_ns", "max"))
    launched = pd.concat([single, whole], ignore_index=True)
    return launched.merge(launch_calls(profile), on=_KEYS, how="left", validate="m:1")


def launch_overhead(profile: Profile) -> Table:
    """One row per kernel (and one for graphs) with the three phases of its launches."""
    launched = launches(profile)
    api_end = launched["api_end_ns"]
    queue = launched["start_ns"] - api_end
    launched = launched.assign(
        api_ns=api_end - launched["api_start_ns"],
        queue_ns=queue.where(queue >= 0),
        execution_ns=launched["end_ns"] - launched["start_ns"],
    )
    keys = ["device", "name"]
    tables = {
        phase: summarize(launched, keys, f"{phase}_ns").set_index(keys) for phase in ("api", "queue", "execution")
    }
    table = pd.DataFrame({"launches": tables["execution"]["count"], "queued": tables["queue"]["count"]})
    for phase, statistics in tables.items():
        for name in ("total", "med", "max"):
            table[f"{phase}_{name}_ns"] = statistics[name]
    table = table.reset_index().sort_values(["api_total_ns", "name"], ascending=[False, True], ignore_index=True)
    return Table(table[_COLUMNS], _unmatched(launched))


_COLUMNS: Final = [
    *("launches", "api_total_ns", "api_med_ns", "api_max_ns", "queued", "queue_med_ns", "queue_max_ns"),
    *("execution_total_ns", "execution_med_ns", "device", "name"),
]


def launch_calls(profile: Profile) -> pd.DataFrame:
    """Return the outermost call of each (process, correlation): a driver call can share its runtime call's id."""
    calls = profile.table("api_calls").sort_values(["start_ns", "end_ns"], ascending=[True, False], kind="stable")
    calls = calls[calls["correlation"].notna()].drop_duplicates(_KEYS)
    columns = {"start_ns": "api_start_ns", "end_ns": "api_end_ns", "name": "api"}
    calls = calls.assign(name=api_name(calls["name"]))
    return calls[[*_KEYS, "thread", *columns]].rename(columns=columns).astype(_NULLABLE)


_NULLABLE: Final = dict.fromkeys(("process", "thread", "api_start_ns", "api_end_ns"), "int64[pyarrow]")


def _unmatched(launched: pd.DataFrame) -> tuple[str, ...]:
    count, total = int(np.asarray(launched["api_end_ns"].isna()).sum()), len(launched)
    if not count:
        return ()
    share = f"{count:,} of {total:,} launches ({count / total:.0%})"
    return (f"{share} have no recorded API call; only their execution is counted.",)


ANALYSES: Final = (
    Analysis(
        "launch_overhead",
        "Launch overhead",
        "API: the CPU's time inside the launch call. Queue: from the end of the call to the start of the kernel, "
        "counted only when positive (Queued); it is no overhead in itself, the GPU had other work. Execution: on the "
        "GPU. The three overlap and do not add up. The first launch of a kernel also loads its code: compare Max.",
        ("kernels", "api_calls"),
        launch_overhead,
    ),
)
