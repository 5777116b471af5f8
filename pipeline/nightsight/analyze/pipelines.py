"""Analyzes messages between ranks, and the pipelines that these form: how long each stage only waits."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.events.communication import messages, of_all_ranks, overlapping_work, ranks_of
from nightsight.events.steps import steps_in_window
from nightsight.events.timeline import Timeline, of_capture
from nightsight.intervals import Ints, Spans, covered, union, without
from nightsight.results.ranks import PIPELINE_STAGES, SENDS
from nightsight.system.parallel import memoize
from nightsight.tables import NULLABLE, aggregate, positions

# share of the steps of a first stage
_MOSTLY: Final = 0.5
_UNDIRECTED: Final = (
    "The capture does not say who sends, so the lower rank comes first (nsys export --include-json=true records it)."
)


@of_capture
def _timed_messages(timeline: Timeline) -> pd.DataFrame:
    """Return the messages of the capture, with the start and end of their kernels in ns.

    Columns added to those of `messages`: sent_ns, sent_end_ns, got_ns, got_end_ns.
    """
    kernels = of_all_ranks(timeline)
    sent_messages = messages(kernels)
    start, end = kernels["start_ns"].to_numpy(), kernels["end_ns"].to_numpy()
    times = {
        f"{side}{suffix}": values[sent_messages[side]]
        for side in ("sent", "got")
        for suffix, values in (("_ns", start), ("_end_ns", end))
    }
    return sent_messages.assign(**times)


@memoize
def _messages_in_window(timeline: Timeline) -> pd.DataFrame:
    """Return the messages that arrive in the window."""
    timed = _timed_messages(timeline)
    return timed[timeline.window.contains_end(timed["got_end_ns"])]


def sends(timeline: Timeline) -> Table:
    """Return one row per sender and receiver, the pair with the longest waits first."""
    arrived = _messages_in_window(timeline)
    if not len(arrived):
        return Table(pd.DataFrame(columns=SENDS.column_names))
    both_ready = np.maximum(arrived["sent_ns"], arrived["got_ns"])
    arrived = arrived.assign(
        transfer_ns=arrived["got_end_ns"] - both_ready,
        to_waited_ns=np.minimum(both_ready, arrived["got_end_ns"]) - arrived["got_ns"],
        from_waited_ns=np.minimum(both_ready, arrived["sent_end_ns"]) - arrived["sent_ns"],
        size=arrived["bytes"].astype("float64"),
    )
    grouped = arrived.groupby(["sender", "receiver"])
    table = aggregate(
        grouped,
        count=("size", "size"),
        message_bytes=("size", "mean"),
        transfer_ns=("transfer_ns", "median"),
        to_waited_ns=("to_waited_ns", "sum"),
        from_waited_ns=("from_waited_ns", "sum"),
    ).reset_index()
    steps = max(len(timeline.window.repetitions), 1)
    table["calls"] = table["count"] / steps
    for name in ("to_waited_ns", "from_waited_ns"):
        table[name] /= steps
    table["bytes_per_s"] = table["message_bytes"] / table["transfer_ns"].clip(lower=1) * 1e9
    for name, column in (("from_rank", "sender"), ("to_rank", "receiver")):
        table[name] = ranks_of(timeline, table[column].to_numpy())
    wait_ns = table["to_waited_ns"] + table["from_waited_ns"]
    order = ["wait_ns", "from_rank", "to_rank"]
    table = table.assign(wait_ns=wait_ns).sort_values(order, ascending=[False, True, True], ignore_index=True)
    return Table(table[SENDS.column_names], () if arrived["is_directed"].all() else (_UNDIRECTED,))


# -- pipelines --------------------------------------------------------------------------------------------------------


def chains(timeline: Timeline) -> list[list[int]]:
    """Return the devices of each pipeline in the order of its stages.

    Rings are not pipelines, and neither are neighbors that exchange messages: a step of a pipeline begins with a
    message from the first stage.
    """
    directed = _messages_in_window(timeline)
    directed = directed[directed["is_directed"]]
    neighbors: dict[int, set[int]] = {}
    for sender, receiver in directed[["sender", "receiver"]].drop_duplicates().itertuples(index=False):
        neighbors.setdefault(sender, set()).add(receiver)
        neighbors.setdefault(receiver, set()).add(sender)
    if not neighbors:
        return []
    begins = _begins(timeline, directed)
    pipelines, visited = [], set[int]()
    ends = sorted((device for device, near in neighbors.items() if len(near) == 1), key=lambda end: (-begins[end], end))
    for end in ends:
        if end in visited:
            continue
        chain = list(_chain_from(neighbors, end))
        visited.update(chain)
        if all(len(neighbors[device]) <= 2 for device in chain) and begins[chain[0]] > _MOSTLY:
            pipelines.append(chain)
    return sorted(pipelines, key=min)


def _chain_from(neighbors: dict[int, set[int]], first: int) -> Iterator[int]:
    """Yield the chain of devices that starts with one, until it branches or ends."""
    previous, device = -1, first
    while device >= 0:
        yield device
        ahead = neighbors[device] - {previous}
        previous, device = device, ahead.pop() if len(ahead) == 1 else -1


def _begins(timeline: Timeline, directed: pd.DataFrame) -> "pd.Series[float]":
    """Return the share of the steps of each device in which its first message is one that it sends."""
    sides = [
        pd.DataFrame({"device": directed[device_column], "time": directed[time_column], "is_send": is_send})
        for device_column, time_column, is_send in (("sender", "sent_ns", True), ("receiver", "got_ns", False))
    ]
    events = pd.concat(sides).sort_values(["device", "time", "is_send"], kind="stable")
    step = np.zeros(len(events), dtype=np.int64)
    for device, rows in positions(events["device"].to_numpy()).items():
        step[rows] = np.searchsorted(
            steps_in_window(timeline, device)[0], events["time"].to_numpy()[rows], side="right"
        )
    first = events.assign(step=step).drop_duplicates(["device", "step"])
    return first.groupby("device")["is_send"].mean()


def pipeline_stages(timeline: Timeline) -> Table:
    """Return one row per stage of each pipeline, in their order."""
    rows = [
        {"pipeline": number, "stage": stage, **facts}
        for number, chain in enumerate(chains(timeline))
        for stage, facts in enumerate(_stages(timeline, chain))
    ]
    if not rows:
        return Table(pd.DataFrame(columns=PIPELINE_STAGES.column_names))
    table = pd.DataFrame(rows).astype({"microbatches": NULLABLE, "even_pct": "float64"})
    return Table(table[PIPELINE_STAGES.column_names])


def _stages(timeline: Timeline, chain: list[int]) -> Iterator[dict[str, float | int | None]]:
    """Yield the columns of each stage of a pipeline."""
    timed = _timed_messages(timeline)
    count, goes_back = _microbatches(timeline, chain)
    even = 100 * (len(chain) - 1) / (count + len(chain) - 1) if count is not None and goes_back else None
    for device, rank in zip(chain, ranks_of(timeline, np.array(chain)).tolist(), strict=True):
        begin, end = steps_in_window(timeline, device)
        sent, received = (timed[timed[name] == device] for name in ("sender", "receiver"))
        other_work = overlapping_work(timeline)[device]
        until = [
            np.minimum(sent["got_ns"], sent["sent_end_ns"]),
            np.minimum(received["sent_ns"], received["got_end_ns"]),
        ]
        starts = np.concatenate([sent["sent_ns"], received["got_ns"]])
        waits = without(_spans(starts, np.concatenate(until)), other_work)
        ends = np.concatenate([sent["sent_end_ns"], received["got_end_ns"]])
        exposed = without(_spans(starts, ends), other_work)
        wait_ns, step = float(covered(waits, begin, end).mean()), float((end - begin).mean())
        yield {
            "rank": rank,
            "step_ns": step,
            "work_ns": step - float(covered(exposed, begin, end).mean()),
            "waited_ns": wait_ns,
            "bubble_pct": 100 * wait_ns / max(step, 1),
            "microbatches": count,
            "even_pct": even,
        }


def _spans(start: Ints, end: Ints) -> Spans:
    is_long = end > start
    return union(start[is_long], end[is_long])


def _microbatches(timeline: Timeline, chain: list[int]) -> tuple[int | None, bool]:
    """Return the number of messages per step from each stage to the next, None if stages differ; and if any go back."""
    arrived = _messages_in_window(timeline)
    place = pd.Series(range(len(chain)), index=chain)
    ahead = arrived["receiver"].map(place) - arrived["sender"].map(place)
    forward = arrived[ahead == 1]
    messages_with_size = forward.assign(size=forward["bytes"].astype("float64").fillna(-1.0))
    by_size = messages_with_size.groupby(["sender", "size"]).size().rename("count").reset_index()
    # the shape of a tensor may be sent ahead of it
    by_size["moved"] = by_size["count"] * by_size["size"].abs()
    most = by_size.sort_values("moved", ascending=False, kind="stable").drop_duplicates("sender")
    steps = most["sender"].map(lambda device: len(steps_in_window(timeline, device)[0]))
    counts = (most["count"] / steps).round(1)
    is_one = (
        len(most) == len(chain) - 1
        and (np.abs(counts - counts.round()) <= _MOST_DEVIATION).all()
        and counts.round().nunique() == 1
    )
    count = int(counts.round().iloc[0]) if is_one else 0
    return (count or None), bool((ahead == -1).any())


# deviation of the number of messages per step: some may be missing at the ends of the recording
_MOST_DEVIATION: Final = 0.2
ANALYSES: Final = (Analysis(SENDS, sends), Analysis(PIPELINE_STAGES, pipeline_stages))
