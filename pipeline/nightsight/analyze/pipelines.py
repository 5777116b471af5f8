"""What ranks send to each other, and the pipelines that they so make up: how long each stage only waits."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.events.communication import messages, of_all_ranks, ranks_of, work_beside
from nightsight.events.steps import steps_in_window
from nightsight.events.timeline import Timeline, of_capture, positions
from nightsight.intervals import Spans, covered, union, without
from nightsight.results.ranks import PIPELINE_STAGES, SENDS
from nightsight.system.parallel import once
from nightsight.tables import NULLABLE

# of the steps of a first stage
_MOSTLY: Final = 0.5
_UNDIRECTED: Final = (
    "The capture does not say who sends, so the lower rank comes first (nsys export --include-json=true records it)."
)


@of_capture
def _timed(timeline: Timeline) -> pd.DataFrame:
    """Return the messages of the capture with when their kernels begin and end; in ns.

    Columns added to those of `messages`: sent_ns, sent_end_ns, got_ns, got_end_ns.
    """
    found = of_all_ranks(timeline)
    told = messages(found)
    start, end = found["start_ns"].to_numpy(), found["end_ns"].to_numpy()
    times = {
        f"{side}{suffix}": values[told[side]]
        for side in ("sent", "got")
        for suffix, values in (("_ns", start), ("_end_ns", end))
    }
    return told.assign(**times)


@once
def _met(timeline: Timeline) -> pd.DataFrame:
    """Return the messages that arrive in the window."""
    told, window = _timed(timeline), timeline.window
    return told[(told["got_end_ns"] > window.start_ns) & (told["got_end_ns"] <= window.end_ns)]


def sends(timeline: Timeline) -> Table:
    """Return one row per sender and receiver, the pair with the longest waits first."""
    told = _met(timeline)
    if not len(told):
        return Table(pd.DataFrame(columns=SENDS.column_names))
    both = np.maximum(told["sent_ns"], told["got_ns"])
    told = told.assign(
        transfer_ns=told["got_end_ns"] - both,
        to_waited_ns=np.minimum(both, told["got_end_ns"]) - told["got_ns"],
        from_waited_ns=np.minimum(both, told["sent_end_ns"]) - told["sent_ns"],
        size=told["bytes"].astype("float64"),
    )
    grouped = told.groupby(["sender", "receiver"])
    table = grouped.agg(
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
    waited = table["to_waited_ns"] + table["from_waited_ns"]
    table = table.assign(waited=waited).sort_values(
        ["waited", "from_rank", "to_rank"], ascending=[False, True, True], ignore_index=True
    )
    return Table(table[SENDS.column_names], () if told["is_directed"].all() else (_UNDIRECTED,))


# -- pipelines --------------------------------------------------------------------------------------------------------


def chains(timeline: Timeline) -> list[list[int]]:
    """Return the devices of each pipeline in the order of its stages.

    What sends in a circle is none, and neither are neighbours that exchange: a step of a pipeline begins with what the
    first stage sends.
    """
    told = _met(timeline)
    told = told[told["is_directed"]]
    neighbours: dict[int, set[int]] = {}
    for sender, receiver in told[["sender", "receiver"]].drop_duplicates().itertuples(index=False):
        neighbours.setdefault(sender, set()).add(receiver)
        neighbours.setdefault(receiver, set()).add(sender)
    if not neighbours:
        return []
    begins = _begins(timeline, told)
    found, seen = [], set[int]()
    ends = sorted(
        (device for device, near in neighbours.items() if len(near) == 1), key=lambda end: (-begins[end], end)
    )
    for end in ends:
        if end in seen:
            continue
        chain = list(_followed(neighbours, end))
        seen.update(chain)
        if all(len(neighbours[device]) <= 2 for device in chain) and begins[chain[0]] > _MOSTLY:
            found.append(chain)
    return sorted(found, key=min)


def _followed(neighbours: dict[int, set[int]], first: int) -> Iterator[int]:
    """Yield the chain of devices that starts with one, until it branches or ends."""
    before, here = -1, first
    while here >= 0:
        yield here
        ahead = neighbours[here] - {before}
        before, here = here, ahead.pop() if len(ahead) == 1 else -1


def _begins(timeline: Timeline, told: pd.DataFrame) -> "pd.Series[float]":
    """Return for each device in how many of its steps the first message is one that it sends: a share."""
    sides = [
        pd.DataFrame({"device": told[who], "time": told[when], "is_send": is_send})
        for who, when, is_send in (("sender", "sent_ns", True), ("receiver", "got_ns", False))
    ]
    every = pd.concat(sides).sort_values(["device", "time", "is_send"], kind="stable")
    step = np.zeros(len(every), dtype=np.int64)
    for device, mine in positions(every["device"].to_numpy()).items():
        step[mine] = np.searchsorted(steps_in_window(timeline, device)[0], every["time"].to_numpy()[mine], side="right")
    first = every.assign(step=step).drop_duplicates(["device", "step"])
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
    """Yield what is known of each stage of a pipeline."""
    told = _timed(timeline)
    count, goes_back = _microbatches(timeline, chain)
    even = 100 * (len(chain) - 1) / (count + len(chain) - 1) if count is not None and goes_back else None
    for device, rank in zip(chain, ranks_of(timeline, np.array(chain)).tolist(), strict=True):
        begin, end = steps_in_window(timeline, device)
        sent, got = (told[told[name] == device] for name in ("sender", "receiver"))
        beside = work_beside(timeline)[device]
        until = [np.minimum(sent["got_ns"], sent["sent_end_ns"]), np.minimum(got["sent_ns"], got["got_end_ns"])]
        starts = np.concatenate([sent["sent_ns"], got["got_ns"]])
        waits = without(_spans(starts, np.concatenate(until)), beside)
        ends = np.concatenate([sent["sent_end_ns"], got["got_end_ns"]])
        exposed = without(_spans(starts, ends), beside)
        waited, step = float(covered(waits, begin, end).mean()), float((end - begin).mean())
        yield {
            "rank": rank,
            "step_ns": step,
            "work_ns": step - float(covered(exposed, begin, end).mean()),
            "waited_ns": waited,
            "bubble_pct": 100 * waited / max(step, 1),
            "microbatches": count,
            "even_pct": even,
        }


def _spans(
    start: np.ndarray[tuple[int, ...], np.dtype[np.int64]], end: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
) -> Spans:
    lasting = end > start
    return union(start[lasting], end[lasting])


def _microbatches(timeline: Timeline, chain: list[int]) -> tuple[int | None, bool]:
    """Return how many messages each stage sends to the next in a step, None if stages differ, and if any go back."""
    told = _met(timeline)
    place = pd.Series(range(len(chain)), index=chain)
    ahead = told["receiver"].map(place) - told["sender"].map(place)
    forward = told[ahead == 1]
    sized = forward.assign(size=forward["bytes"].astype("float64").fillna(-1.0))
    by_size = sized.groupby(["sender", "size"]).size().rename("count").reset_index()
    # shapes may be sent ahead of what has them
    by_size["moved"] = by_size["count"] * by_size["size"].abs()
    most = by_size.sort_values("moved", ascending=False, kind="stable").drop_duplicates("sender")
    steps = most["sender"].map(lambda device: len(steps_in_window(timeline, device)[0]))
    counts = (most["count"] / steps).round(1)
    is_one = (
        len(most) == len(chain) - 1
        and (np.abs(counts - counts.round()) <= _ALIKE).all()
        and counts.round().nunique() == 1
    )
    count = int(counts.round().iloc[0]) if is_one else 0
    return (count or None), bool((ahead == -1).any())


# of a message in a step: at the edges of what was recorded some may be missing
_ALIKE: Final = 0.2
ANALYSES: Final = (Analysis(SENDS, sends), Analysis(PIPELINE_STAGES, pipeline_stages))
