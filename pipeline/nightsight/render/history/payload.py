"""All nights of all series for the charts, as small integers: differences from the median of the series."""

import datetime as dt
from typing import Any, Final

import numpy as np

from nightsight.model.history import Series, Track, Trends
from nightsight.render.embedded import compact_json, gzip_text
from nightsight.render.history.page import Links, TrendGroup, groups
from nightsight.texts import printable

_STEPS: Final = 10_000  # of the median: a hundredth of a percent each


def trend_payload(trends: Trends, links: Links) -> str:
    """Return the data of the charts, as base64 of gzip of JSON."""
    changes: dict[int, list[Any]] = {}
    for event in trends.events:
        for change in event.changes:
            percent = round(change.change_pct, 1) if change.baseline else None
            marks = changes.setdefault(id(change.series), [])
            marks.append([change.place, change.state, change.night.commit[:10], percent])
    return gzip_text(compact_json([_group(group, links, changes) for group in groups(trends)]))


def _group(group: TrendGroup, links: Links, changes: dict[int, list[Any]]) -> dict[str, Any]:
    return {
        "epochs": [_epoch(track, links) for track in group.tracks],
        "series": [
            {
                "unit": parts[0][1].unit,
                "parts": [[epoch, *_packed_series(series), changes.get(id(series), [])] for epoch, series in parts],
            }
            for _, parts in group.series
        ],
    }


def _epoch(track: Track, links: Links) -> dict[str, Any]:
    times = [int(dt.datetime.fromisoformat(night.time).timestamp()) if night.time else 0 for night in track.nights]
    return {
        "key": printable(track.key.text or "unknown machine"),
        "times": times,
        "commits": [printable(night.commit[:10]) if night.commit else "" for night in track.nights],
        "links": [links.report(night) for night in track.nights],
        "runs": [night.runs for night in track.nights],
        "flags": [" and ".join(map(printable, night.flags)) for night in track.nights],
    }


def _packed_series(series: Series) -> tuple[float, list[int | None], list[Any]]:
    """Return the median of a series, its values as steps from there, and its levels."""
    positive = series.values[series.values > 0]
    median = float(np.median(positive)) if len(positive) else 1.0
    steps = np.round((series.values / median - 1) * _STEPS)
    levels = [[first, last, float(f"{level:.6g}")] for first, last, level in series.levels if np.isfinite(level)]
    return median, [int(step) if np.isfinite(step) else None for step in steps], levels
