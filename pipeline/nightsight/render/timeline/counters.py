"""The step curves below the rows of each GPU in the timeline: memory, operations in flight, metrics, the KV cache."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from nightsight.events.window import whole_window
from nightsight.intervals import Floats, Ints
from nightsight.model.report import Profile, Result
from nightsight.render.table.view import floats, short_text
from nightsight.results.launches import IN_FLIGHT
from nightsight.results.program import MEMORY_OVER_TIME
from nightsight.tables import used_devices

MOST_POINTS: Final = 2000
MOST_CURVES: Final = 64
# result: its column, the label, the unit
_OF_RESULTS: Final = {
    MEMORY_OVER_TIME.name: ("bytes", "Memory in use", "bytes"),
    IN_FLIGHT.name: ("in_flight_max", "Operations in flight", "count"),
}
_OF_WINDOW: Final = ("in_flight",)
_HIGHEST: Final = 1e18


@dataclass(frozen=True)
class Curve:
    """A step curve of a device: each value holds from its time (the profile's, in ns, ascending) to the next."""

    device: int
    label: str
    unit: str
    time: Ints
    value: Floats


def curves(profile: Profile, results: Sequence[Result], *, window: tuple[int, int], most_points: int) -> list[Curve]:
    """Return the available curves in order of device, with at most `most_points` points in total.

    Thinning keeps the largest value of each piece. Times in `results` are relative to the start of the window (ns).
    """
    available = [*_of_results(results, window), *_of_metrics(profile), *_of_cache(profile)]
    available = sorted(available, key=lambda curve: curve.device)[:MOST_CURVES]
    # all curves get the same number of points
    most = min(MOST_POINTS, most_points // max(len(available), 1))
    return [_thin(curve, most) for curve in available] if most else []


def _of_results(results: Sequence[Result], window: tuple[int, int]) -> Iterator[Curve]:
    for result in results:
        column, label, unit = _OF_RESULTS.get(result.name, ("", "", ""))
        if column and {"device", "time_ns", column} <= set(result.rows.columns):
            for device, rows in result.rows.groupby("device", sort=True):
                time, value = floats(rows["time_ns"]), floats(rows[column])
                if result.name in _OF_WINDOW:
                    # the last interval ends with the window
                    time, value = np.append(time, window[1] - window[0]), np.append(value, 0.0)
                yield from _curve(_device_number(device), label, unit, _points(time, value, window[0]))


def _of_metrics(profile: Profile) -> Iterator[Curve]:
    samples = profile.recorded("gpu_metrics")
    if not len(samples):
        return
    for (device, metric), rows in samples.groupby(["device", "metric"], observed=True, sort=True):
        unit = "pct" if "%" in str(metric) else "count"
        points = _points(floats(rows["start_ns"]), floats(rows["value"]), 0)
        yield from _curve(_device_number(device), short_text(str(metric)), unit, points)


def _of_cache(profile: Profile) -> Iterator[Curve]:
    """Yield how full the KV cache of an engine is, by its log, on its first GPU: all have the same usage."""
    log = profile.recorded("kv_cache")
    log = log[log["time_ns"].notna()]
    if log["engine"].nunique() == 1:
        # a server logs before and after a capture
        whole = whole_window(profile)
        log = log[log["time_ns"] < whole.end_ns]
        log = log.assign(time_ns=log["time_ns"].clip(lower=whole.start_ns)).drop_duplicates("time_ns", keep="last")
        device = min(used_devices(profile.tables), default=-1)
        yield from _curve(device, "KV cache", "pct", _points(floats(log["time_ns"]), floats(log["usage_pct"]), 0))


def _device_number(device: object) -> int:
    return int(str(device))


def _curve(device: int, label: str, unit: str, points: tuple[Ints, Floats]) -> Iterator[Curve]:
    time, value = points
    # values are never negative, so the first point always counts as a change
    changes = np.diff(value, prepend=-1) != 0
    if changes.any():
        yield Curve(device, label, unit, time[changes], value[changes])


def _points(time: Floats, value: Floats, origin: int) -> tuple[Ints, Floats]:
    """Return the finite points in order of time, values clipped to 0."""
    is_finite = np.isfinite(time) & np.isfinite(value)
    time, value = time[is_finite], value[is_finite].clip(0, _HIGHEST)
    order = np.argsort(time, kind="stable")
    return time[order].astype(np.int64) + origin, value[order]


def _thin(curve: Curve, most: int) -> Curve:
    """Thin a curve to at most `most` points: the first time of each piece, with the largest value in that piece.

    The last point is a separate piece, because its value holds to the end of the capture.
    """
    time, value = curve.time, curve.value
    if len(time) <= most:
        return curve
    pieces = max(most - 1, 1)
    # + 1 rounds up, so that there are at most `pieces` pieces
    piece = (time - time[0]) // ((time[-1] - time[0]) // pieces + 1)
    piece[-1] = pieces
    first = np.flatnonzero(np.diff(piece, prepend=-1))[-most:]
    return replace(curve, time=time[first], value=np.maximum.reduceat(value, first))
