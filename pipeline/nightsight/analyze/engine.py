"""The steps of an inference engine: when the GPU runs them, and their time by kind."""

from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.events.engine import KINDS, engine_steps
from nightsight.events.steps import begin_of_work, launch_times
from nightsight.events.timeline import Timeline, busy_spans, by_device, operation_column
from nightsight.intervals import Floats, Ints, covered
from nightsight.results.serving import DECODE, ENGINE_STEPS
from nightsight.system.parallel import memoize

_P99: Final = 0.99
_NOTHING: Final = np.empty(0, dtype=np.int64)


class EngineSteps(NamedTuple):
    """The steps of an engine's process that begin in the window, on the GPU where they have most work; times in ns.

    batch: as `engine_steps` returns it. begin and end: on the GPU. operations: those of the process on the GPU, and
    step: the one that launched each, -1 for none. Without GPU work in the capture: device -1, and times of the CPU.
    """

    device: int
    batch: pd.DataFrame
    begin: Ints
    end: Ints
    operations: Ints
    step: Ints


@memoize
def steps_on_gpu(timeline: Timeline) -> EngineSteps | None:
    """Return the steps of the process that launches most work in them; None without any.

    The ranks of a tensor-parallel engine run the same steps.
    """
    steps, window = engine_steps(timeline.profile), timeline.window
    best: EngineSteps | None = None
    most = -1
    launched, processes = launch_times(timeline), operation_column(timeline, "process")
    for process, of_process in steps.groupby("process", sort=True):
        batch = of_process[of_process["start_ns"].between(window.start_ns, window.end_ns, inclusive="left")]
        starts = batch["start_ns"].to_numpy()
        if not len(starts):
            continue
        if not len(processes) and len(starts) > most:
            end = np.append(starts[1:], batch["end_ns"].to_numpy()[-1:])
            best, most = EngineSteps(-1, batch.reset_index(drop=True), starts, end, _NOTHING, _NOTHING), len(starts)
        for device, of_device in by_device(timeline).items():
            rows = of_device[(processes[of_device] == process) | (processes[of_device] < 0)]
            step = np.searchsorted(starts, launched[rows], side="right") - 1
            # what runs between two steps, such as copies of inputs, belongs to the one before
            work = int((timeline.operations.end[rows] - timeline.operations.start[rows])[step >= 0].sum())
            if work > most:
                begin, end = begin_of_work(timeline, rows, starts)
                # the engine may have nothing to do after its last step
                last = int(timeline.operations.end[rows[step == len(starts) - 1]].max(initial=int(begin[-1])))
                end[-1] = max(min(int(end[-1]), last), int(begin[-1]))
                best, most = EngineSteps(device, batch.reset_index(drop=True), begin, end, rows, step), work
    return best


def engine_table(timeline: Timeline) -> Table:
    """Return one row per kind of step, in the order of KINDS."""
    if (steps := steps_on_gpu(timeline)) is None:
        return Table(ENGINE_STEPS.empty())
    batch, time = steps.batch, steps.end - steps.begin
    on_gpu = busy_spans(timeline).get(steps.device)
    busy = np.full(len(time), np.nan) if on_gpu is None else covered(on_gpu, steps.begin, steps.end).astype("float64")
    inside = steps.operations[(steps.step >= 0) & timeline.operations.in_graph[steps.operations]]
    in_graph = np.isin(np.arange(len(time)), steps.step[np.isin(steps.operations, inside)])
    is_decode = (batch["kind"] == KINDS.index(DECODE)).to_numpy()
    usual = float(np.median(time[is_decode])) if is_decode.any() else 0.0
    prompts = batch["prefill_tokens"].to_numpy()
    rows = []
    for position, kind in enumerate(KINDS):
        chosen = (batch["kind"] == position).to_numpy()
        if not chosen.any():
            continue
        total = int(time[chosen].sum())
        rows.append(
            {
                "kind": kind,
                "steps": int(chosen.sum()),
                "time_pct": 100 * total / max(int(time.sum()), 1),
                "total_ns": total,
                "med_ns": float(np.median(time[chosen])),
                "p99_ns": float(np.quantile(time[chosen], _P99)),
                "busy_pct": 100 * float(busy[chosen].sum()) / max(total, 1),
                "idle_ns": float((time - busy)[chosen].mean()),
                "requests": _mean(batch["requests"].to_numpy()[chosen]),
                "tokens": _mean((batch["prefill_tokens"] + batch["decode_tokens"]).to_numpy()[chosen]),
                "token_ns": float((time[chosen] - usual).sum()) / prompts[chosen].sum() if kind != DECODE else np.nan,
                "graph_pct": float("nan") if on_gpu is None else 100 * float(in_graph[chosen].mean()),
            }
        )
    table = pd.DataFrame(rows, columns=ENGINE_STEPS.column_names)
    return Table(table if table["token_ns"].notna().any() else table.drop(columns="token_ns"))


def _mean(values: Floats) -> float:
    """Return the mean of the known values, NaN without any."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


ANALYSES: Final = (Analysis(ENGINE_STEPS, engine_table, "ranges"),)
