"""All nights of all series for the charts, as small integers: differences from the median of the series."""

import base64
import datetime as dt
import gzip
import json
from typing import Any, Final

import numpy as np

from nightsight.model.history import Series, Track, Trends
from nightsight.render.history.page import Links, TrendGroup, groups
from nightsight.texts import printable

_STEPS: Final = 10_000  # of the median: a hundredth of a percent each


def trend_payload(trends: Trends, links: Links) -> str:
    """Return the data of the charts, as base64 of gzip of JSON."""
    changes: dict[int, list[Any]] = {}
    for event in trends.events:
        for change in event.changes:
            entries = changes.setdefault(id(change.series), [])
            commit = change.night.commit[:10]
            entries.append(
                [change.place, change.state, commit, round(change.change_pct, 1) if change.baseline else None]
            )
    document = [_group(group, links, changes) for group in groups(trends)]
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _group(group: TrendGroup, links: Links, changes: dict[int, list[Any]]) -> dict[str, Any]:
    return {
        "epochs": [_epoch(track, links) for track in group.tracks],
        "series": [
            {
                "unit": parts[0][1].unit,
                "parts": [
                    [place, *_numbers(series), _levels(series), changes.get(id(series), [])] for place, series in parts
                ],
            }
            for _, parts in group.series
        ],
    }


def _epoch(track: Track, links: Links) -> dict[str, Any]:
    return {
        "key": printable(track.key.text or "unknown machine"),
        "times": [_seconds(night.time) for night in track.nights],
        "commits": [printable(night.commit[:10]) if night.commit else "" for night in track.nights],
        "links": [links.report(night) for night in track.nights],
        "runs": [night.runs for night in track.nights],
        "flags": [" and ".join(map(printable, night.flags)) for night in track.nights],
    }


def _numbers(series: Series) -> tuple[float, list[int | None]]:
    positive = series.values[series.values > 0]
    middle = float(np.median(positive)) if len(positive) else 1.0
    steps = np.round((series.values / middle - 1) * _STEPS)
    return middle, [int(step) if np.isfinite(step) else None for step in steps]


def _levels(series: Series) -> list[Any]:
    return [[first, last, float(f"{level:.6g}")] for first, last, level in series.levels if np.isfinite(level)]


def _seconds(time: str) -> int:
    return int(dt.datetime.fromisoformat(time).timestamp()) if time else 0
