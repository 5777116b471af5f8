"""The steps of an inference engine: when the GPU runs them, and their time by kind."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.events.engine import KINDS, cache_usage, engine_steps
from nightsight.events.steps import begin_of_work
from nightsight.events.timeline import Timeline, busy_spans, by_device, launch_times, operation_column
from nightsight.intervals import NOTHING, Floats, Ints, covered
from nightsight.results.serving import DECODE, ENGINE_STEPS
from nightsight.system.parallel import memoize
from nightsight.units import counted

_P99: Final = 0.99
_MOSTLY: Final = 0.9
_EDGE: Final = 2
_SEVERAL: Final = (
    "The steps of {count} engines differ (data parallelism): these are those of the engine with most work on a GPU."
)
_SEVERAL_CACHES: Final = (
    "The log has the KV cache of {count} engines, and no line says which of them runs these steps, so its usage is "
    "unknown."
)
_NO_LINE: Final = (
    "No line of the log of the engine about its KV cache is from the time of these steps: it is the log of another "
    "run, or its times are not those of the time zone of the capture (UTC, if the capture does not have it)."
)
_FEW_LINES: Final = "The usage of the KV cache is from {lines} of the log: each step has that of the nearest one."
_CACHE: Final = ["kv_cache_pct", "most_kv_cache_pct"]
_LATEST: Final = np.iinfo(np.int64).max


class EngineSteps(NamedTuple):
    """The steps of an engine's process that begin in the window, on the GPU where they have most work; times in ns.

    batch: as `engine_steps` returns it. begin and end: on the GPU; done: when the last operation of a step ends.
    operations: those of the process on the GPU, and step: the one that launched each, -1 for none. Without GPU work in
    the capture: device -1, and times of the CPU. engines: the number of engines with different steps.
    """

    device: int
    batch: pd.DataFrame
    begin: Ints
    end: Ints
    done: Ints
    operations: Ints
    step: Ints
    engines: int = 1


@memoize
def steps_on_gpu(timeline: Timeline) -> EngineSteps | None:
    """Return the steps of the engine that launches most work in them; None without any.

    The ranks of a tensor-parallel engine run the same steps. A step ends where the next one begins, but with its last
    operation if the engine has no request then.
    """
    steps, window = engine_steps(timeline.profile), timeline.window
    steps = steps[steps["start_ns"].between(window.start_ns, window.end_ns, inclusive="left")]
    best: EngineSteps | None = None
    most = -1
    launched, processes = launch_times(timeline), operation_column(timeline, "process")
    engines = _engine_count(steps)
    for _, of_engine in steps.groupby("engine", sort=True):
        batch, process = of_engine.reset_index(drop=True), of_engine["process"].iloc[0]
        starts, is_last = batch["start_ns"].to_numpy(), np.append(batch["is_first"].to_numpy()[1:], True)
        if not len(processes) and len(starts) > most:
            end = np.where(is_last, batch["end_ns"], np.append(starts[1:], 0))
            best, most = EngineSteps(-1, batch, starts, end, end, NOTHING, NOTHING, engines), len(starts)
        for device, of_device in by_device(timeline).items():
            rows = of_device[(processes[of_device] == process) | (processes[of_device] < 0)]
            step = np.searchsorted(starts, launched[rows], side="right") - 1
            # what runs between two steps, such as copies of inputs, belongs to the one before
            work = int((timeline.operations.end[rows] - timeline.operations.start[rows])[step >= 0].sum())
            if work > most:
                begin, end = begin_of_work(timeline, rows, starts)
                # what is launched soon before the next step, such as copies of inputs, is for its requests
                soon = np.append((batch["end_ns"].to_numpy()[:-1] + starts[1:]) // 2, _LATEST)
                is_own, last = (step >= 0) & (launched[rows] < soon[step]), begin.copy()
                np.maximum.at(last, step[is_own], timeline.operations.end[rows[is_own]])
                end = np.where(is_last, np.minimum(end, last), end)
                best, most = EngineSteps(device, batch, begin, end, last, rows, step, engines), work
    return best


def _engine_count(steps: pd.DataFrame) -> int:
    """Return how many engines there are: the ranks of one run the same steps, but for those at the window's edges."""
    engines: list[pd.DataFrame] = []
    for _, of_engine in steps.groupby("engine", sort=True):
        batches = of_engine[["kind", "prefills", "decodes", "prefill_tokens"]].fillna(-1).reset_index(drop=True)
        if not any(_are_ranks(batches, other) for other in engines):
            engines.append(batches)
    return len(engines)


def _are_ranks(first: pd.DataFrame, second: pd.DataFrame) -> bool:
    """Whether most batches are the same if one sequence is moved by at most _EDGE steps."""
    return any(
        (first == second.shift(moved).reindex(first.index)).all(axis=1).sum() >= _MOSTLY * max(len(first), len(second))
        for moved in range(-_EDGE, _EDGE + 1)
    )


def engine_table(timeline: Timeline) -> Table:
    """Return one row per kind of step, in the order of KINDS."""
    if (steps := steps_on_gpu(timeline)) is None:
        return Table(ENGINE_STEPS.empty())
    batch, time = steps.batch, steps.end - steps.begin
    on_gpu = busy_spans(timeline).get(steps.device)
    busy = np.full(len(time), np.nan) if on_gpu is None else covered(on_gpu, steps.begin, steps.end).astype("float64")
    in_graph = np.isin(np.arange(len(time)), steps.step[timeline.operations.in_graph[steps.operations]])
    is_decode = (batch["kind"] == KINDS.index(DECODE)).to_numpy()
    # launches of steps without a graph take time, too, which is not that of their tokens
    work = time if on_gpu is None else busy
    usual = float(np.median(work[is_decode])) if is_decode.any() else 0.0
    prompts = batch["prefill_tokens"].to_numpy()
    cache, lines = cache_usage(timeline.profile, batch)
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
                "most_tokens": _most(prompts[chosen]) if kind != DECODE else np.nan,
                "token_ns": _time_of_token(work[chosen] - usual, prompts[chosen]) if kind != DECODE else np.nan,
                "waits_pct": 100 * float(batch["waits"][chosen].mean()),
                "graph_pct": float("nan") if on_gpu is None else 100 * float(in_graph[chosen].mean()),
                "kv_cache_pct": _mean(cache[chosen]),
                "most_kv_cache_pct": _most(cache[chosen]),
            }
        )
    table = pd.DataFrame(rows, columns=ENGINE_STEPS.column_names)
    unknown = [name for name in ("token_ns", *_CACHE) if not table[name].notna().any()]
    return Table(table.drop(columns=unknown), tuple(_step_notes(timeline, steps, lines)))


def _step_notes(timeline: Timeline, steps: EngineSteps, lines: int) -> Iterator[str]:
    """Yield what a reader must know: the engines, and from how many lines of a log the usage of the KV cache is."""
    if steps.engines > 1:
        yield _SEVERAL.format(count=steps.engines)
    engines = timeline.profile.recorded("kv_cache")["engine"].nunique()
    if engines > 1:
        yield _SEVERAL_CACHES.format(count=engines)
    elif engines and not lines:
        yield _NO_LINE
    elif 0 < lines < _MOSTLY * len(steps.begin):
        yield _FEW_LINES.format(lines=counted(lines, "line"))


def _time_of_token(added_ns: "np.ndarray[Any, np.dtype[np.floating[Any]]]", tokens: Floats) -> float:
    """Return what a token of a prompt adds to its step, NaN if steps with prompts take no longer than others."""
    added = float(added_ns.sum()) / float(tokens.sum())
    return added if added > 0 else float("nan")


def _most(values: Floats) -> float:
    """Return the largest of the known values, NaN without any."""
    return float(values[~np.isnan(values)].max(initial=-1)) if (~np.isnan(values)).any() else float("nan")


def _mean(values: Floats) -> float:
    """Return the mean of the known values, NaN without any."""
    numbers = values[~np.isnan(values)]
    return float(numbers.mean()) if len(numbers) else float("nan")


ANALYSES: Final = (Analysis(ENGINE_STEPS, engine_table, "ranges"),)
