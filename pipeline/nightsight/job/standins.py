"""Chooses the ranks that represent a large job."""

import numpy as np
import pandas as pd

from nightsight.events.communication import kinds_of_calls, number_collectives
from nightsight.job.ranks import RankedCaptures


def communication_of(captures: RankedCaptures) -> pd.DataFrame:
    """Return the communication of all ranks, by GPU and the order of their calls."""
    frames = []
    for place, facts in enumerate(captures.facts):
        frame, shift_ns = facts.communication, captures.clocks[place].shift_ns
        frames.append(
            frame.assign(
                **{name: frame[name] + shift_ns for name in ("start_ns", "end_ns", "called_ns")},
                device=captures.renumbered_devices(place, frame["device"].to_numpy(dtype=np.int64)),
                process=captures.renumbered_ids(place, frame["process"].to_numpy(dtype=np.int64)),
            )
        )
    kernels = pd.concat(frames).sort_values(["device", "called_ns", "start_ns"], kind="stable", ignore_index=True)
    return kernels.assign(collective=number_collectives(kernels))


def stand_ins(communication: pd.DataFrame, captures: RankedCaptures, most: int) -> pd.DataFrame:
    """Return for each rank a similar one, `like`, and its capture, `like_capture`; from at most `most` captures.

    Ranks are similar if they call the same collectives and spend equal time in them: a straggler spends the least.
    """
    ranks = captures.ranks.sort_values("rank", ignore_index=True)
    mean_time = (communication["end_ns"] - communication["start_ns"]).groupby(communication["device"]).mean()
    device = [
        captures.devices[place].get(number, -1)
        for place, number in zip(ranks["capture"].tolist(), ranks["device"].tolist(), strict=True)
    ]
    ranks = ranks.assign(
        time=mean_time.reindex(device, fill_value=0.0).to_numpy(),
        kind=kinds_of_calls(communication).reindex(device, fill_value="").to_numpy(),
    )
    by_time = ranks.sort_values(["time", "rank"], ignore_index=True)
    kinds = ranks["kind"].value_counts().index.tolist()
    middle = [group.iloc[len(group) // 2] for kind in kinds for group in [by_time[by_time["kind"] == kind]]]
    spread = [by_time.iloc[int(place)] for place in np.linspace(0, len(by_time) - 1, 2 * most)]
    chosen: list[int] = []
    for rank in (by_time.iloc[0], *middle[: most - 1], by_time.iloc[-1], *spread):
        if rank["capture"] not in chosen and len(chosen) < most:
            chosen.append(int(rank["capture"]))
    representatives = ranks[ranks["capture"].isin(chosen)]
    # ranks of different kinds get the largest distance
    distance = np.abs(ranks["time"].to_numpy()[:, None] - representatives["time"].to_numpy())
    distance += (ranks["kind"].to_numpy()[:, None] != representatives["kind"].to_numpy()) * (1.0 + distance.max())
    # a chosen rank represents itself, even if another one spends the same time
    distance[ranks["rank"].to_numpy()[:, None] == representatives["rank"].to_numpy()] = -1.0
    nearest = representatives.iloc[distance.argmin(axis=1)]
    return ranks.assign(like=nearest["rank"].to_numpy(), like_capture=nearest["capture"].to_numpy())
