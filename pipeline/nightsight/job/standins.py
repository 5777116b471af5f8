"""Chooses the ranks that represent a large job."""

import numpy as np
import pandas as pd

from nightsight.events.communication import kinds_of_calls, matched
from nightsight.job.ranks import Ranked, numbered, renumbered


def communication_of(ranked: Ranked) -> pd.DataFrame:
    """Return the communication of all ranks, by GPU and the order of their calls."""
    frames = []
    for place, facts in enumerate(ranked.facts):
        told, shift_ns = facts.communication, ranked.clocks[place].shift_ns
        frames.append(
            told.assign(
                **{name: told[name] + shift_ns for name in ("start_ns", "end_ns", "called_ns")},
                device=numbered(told["device"].to_numpy(dtype=np.int64), ranked.devices[place]),
                process=renumbered(told["process"].to_numpy(dtype=np.int64), facts.ids, place),
            )
        )
    found = pd.concat(frames).sort_values(["device", "called_ns", "start_ns"], kind="stable", ignore_index=True)
    return found.assign(collective=matched(found))


def stand_ins(told: pd.DataFrame, ranked: Ranked, most: int) -> pd.DataFrame:
    """Return for each rank a similar one, `like`, and its capture, `like_part`; from at most `most` captures.

    Ranks are similar if they call the same collectives and spend equal time in them: a straggler spends the least.
    """
    ranks = ranked.ranks.sort_values("rank", ignore_index=True)
    spent = (told["end_ns"] - told["start_ns"]).groupby(told["device"]).mean()
    device = [
        ranked.devices[place].get(known, -1)
        for place, known in zip(ranks["part"].tolist(), ranks["device"].tolist(), strict=True)
    ]
    ranks = ranks.assign(
        spent=spent.reindex(device, fill_value=0.0).to_numpy(),
        kind=kinds_of_calls(told).reindex(device, fill_value="").to_numpy(),
    )
    by_time = ranks.sort_values(["spent", "rank"], ignore_index=True)
    sizes = ranks["kind"].value_counts().index.tolist()
    middle = [group.iloc[len(group) // 2] for kind in sizes for group in [by_time[by_time["kind"] == kind]]]
    spread = [by_time.iloc[int(place)] for place in np.linspace(0, len(by_time) - 1, 2 * most)]
    parts: list[int] = []
    for one in (by_time.iloc[0], *middle[: most - 1], by_time.iloc[-1], *spread):
        if one["part"] not in parts and len(parts) < most:
            parts.append(int(one["part"]))
    shown = ranks[ranks["part"].isin(parts)]
    # ranks of different kinds get the largest distance
    far = np.abs(ranks["spent"].to_numpy()[:, None] - shown["spent"].to_numpy())
    far += (ranks["kind"].to_numpy()[:, None] != shown["kind"].to_numpy()) * (1.0 + far.max())
    # a chosen rank represents itself, whatever others spend
    far[ranks["rank"].to_numpy()[:, None] == shown["rank"].to_numpy()] = -1.0
    nearest = shown.iloc[far.argmin(axis=1)]
    return ranks.assign(like=nearest["rank"].to_numpy(), like_part=nearest["part"].to_numpy())
