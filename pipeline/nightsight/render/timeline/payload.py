"""Packs the timeline for the page: decides what is drawn, and in how much detail, within a size limit."""

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from sys import maxsize
from typing import Any, Final

import numpy as np

from nightsight.events.ranges import NUMBER
from nightsight.events.timeline import Timeline
from nightsight.intervals import Ints
from nightsight.model import Profile, Result
from nightsight.render.export.tracks import Places
from nightsight.render.timeline.columns import deflated, gzip_base64
from nightsight.render.timeline.counters import Curve, curves
from nightsight.render.timeline.detail import exactly, on_statistics, sentences, thinned
from nightsight.render.timeline.labels import Economy, Labels, fold
from nightsight.render.timeline.layers import Layer, Sample
from nightsight.render.timeline.rows import MOST_ROWS, Events, lay_events
from nightsight.render.timeline.sums import Sums, fitting, sums_of

FORMAT: Final = 2
MOST_BYTES: Final = 1_200_000

# limits on rows, on the points of all curves, and on text; tried in this order until the payload fits
_ECONOMIES: Final = (
    (MOST_ROWS, 20_000, Economy(20_000, 4096)),
    (MOST_ROWS, 10_000, Economy(4_000, 500)),
    (MOST_ROWS, 2_000, Economy(500, 120)),
    (40, 500, Economy(100, 80)),
    (10, 0, Economy(20, 40)),
)
# at most this share of the bytes is for names and other text
_WORDS: Final = 1 / 3
# and at most this share for sums, which are needed if not every event is drawn exactly
_SUMS: Final = 1 / 8
_ATTEMPTS: Final = 3
_LESS: Final = 0.95
# compressed size in the header of a row's event counts, and of a layer's description
_ROW_BYTES: Final = 8
_LAYER_BYTES: Final = 80
Span = tuple[int, int]


def timeline_payload(profile: Profile, *, results: Sequence[Result] = (), most_bytes: int = MOST_BYTES) -> bytes | None:
    """Return the timeline as base64 of gzip, at most `most_bytes` long; None if there are no events or none fit.

    `results` are those of the profile's report; the curves of memory and of operations in flight come from them.
    """
    for most_rows, most_points, economy in _ECONOMIES:
        recorded = Timeline(profile).window
        drawn = curves(profile, results, window=(recorded.start_ns, recorded.end_ns), most_points=most_points)
        scene = _scene(profile, drawn, most_rows, economy)
        if scene is None:
            return None
        if payload := _payload(scene, most_bytes):
            return payload
    return None


@dataclass(frozen=True)
class _Scene:
    """Everything to draw, with times in ns since its begin; `words` is the header without what depends on the layers.

    everything: the events of all rows, drawn or not.
    """

    events: Events
    everything: Events
    window: Span
    span_ns: int
    words: dict[str, Any]
    left_out: list[str]

    @cached_property
    def sample(self) -> Sample:
        return Sample(self.events)

    @property
    def is_all(self) -> bool:
        """Whether all rows are drawn."""
        return len(self.events.rows) == len(self.everything.rows)

    @cached_property
    def sums(self) -> Sums | None:
        return sums_of(self.everything, span_ns=self.span_ns, origin_ns=self.window[0])


def _scene(profile: Profile, drawn: Sequence[Curve], most_rows: int, economy: Economy) -> _Scene | None:
    """Return what there is to draw; None if there are no events.

    Events are laid anew for each economy: keeping those with unshifted times for a second one, which few captures need,
    would take 75 MB for a million kernels.
    """
    # sums count all rows, even those that will not be drawn
    events = everything = lay_events(profile, most_rows=maxsize)
    if not len(events.start):
        return None
    if most_rows < len(events.rows):
        events = lay_events(profile, most_rows=most_rows)
    recorded = Timeline(profile).window
    window = (recorded.start_ns, recorded.end_ns)
    # include the whole window and all curves, even where there are no events
    begin = min(int(everything.start.min()), window[0], *(int(curve.time[0]) for curve in drawn))
    end = max(int(everything.end.max()), window[1], *(int(curve.time[-1]) for curve in drawn))
    label, labels, left_out = fold(everything.label, everything.labels, economy)
    known, everything = everything.label, _told(everything, begin, label, labels)
    if len(events.rows) == len(everything.rows):
        events = everything
    else:
        # labels were folded for all events; translate those of the drawn ones by their old number
        of_label = np.zeros(int(known.max()) + 1, dtype=np.int64)
        of_label[known] = label
        events = _told(events, begin, of_label[events.label], labels)
    moved = (window[0] - begin, window[1] - begin)
    words = {
        "format": FORMAT,
        "span_ns": end - begin,
        "window": moved,
        "window_name": recorded.name,
        **_names(labels),
        "number": NUMBER,
        **_groups(profile, events, drawn, begin_ns=begin),
        "totals": {"events": events.total, "rows": events.total_rows},
    }
    return _Scene(events, everything, moved, end - begin, words, [*_rows_left_out(events), *left_out])


def _told(events: Events, begin_ns: int, label: Ints, labels: Labels) -> Events:
    return replace(events, start=events.start - begin_ns, end=events.end - begin_ns, label=label, labels=labels)


def _names(labels: Labels) -> dict[str, Any]:
    said = [[place, detail] for place, detail in zip(labels.places, labels.details, strict=True)]
    return {"names": list(dict.fromkeys(labels.names)), "labels": said}


def _groups(profile: Profile, events: Events, drawn: Sequence[Curve], *, begin_ns: int) -> dict[str, Any]:
    """Return the groups, GPUs before processes, and the rows and curves in them, for the header."""
    gpus = Places(profile)
    of_curves = [gpus.gpu(curve.device)[1] for curve in drawn]
    of_gpus = [*(row.group for row in events.rows if row.kind == "kernel"), *of_curves]
    place = {label: place for place, label in enumerate(dict.fromkeys([*of_gpus, *(row.group for row in events.rows)]))}
    return {
        "groups": [{"label": label} for label in place],
        "rows": [{"group": place[row.group], "label": row.label, "kind": row.kind} for row in events.rows],
        "curves": [
            {"group": place[label], **_curve(curve, begin_ns)} for label, curve in zip(of_curves, drawn, strict=True)
        ],
    }


def _curve(curve: Curve, begin_ns: int) -> dict[str, Any]:
    # write 3.0 as 3, which is shorter in JSON
    value = [int(value) if value == int(value) else round(value, 3) for value in curve.value.tolist()]
    time = (curve.time - begin_ns).tolist()
    return {"label": curve.label, "unit": curve.unit, "time_ns": time, "value": value, "max": max(value)}


def _rows_left_out(events: Events) -> list[str]:
    if len(events.rows) == events.total_rows:
        return []
    return [f"Only the {len(events.rows)} busiest of {events.total_rows:,} rows are drawn."]


def _payload(scene: _Scene, most_bytes: int) -> bytes | None:
    """Pack the scene in as much detail as fits; None if it does not fit, or text leaves little room for events."""
    # base64 needs four characters for three bytes
    most = most_bytes // 4 * 3
    words = len(deflated(_json(scene.words)).compressed)
    if words > most * _WORDS and words + scene.sample.exact_size > most:
        return None
    room = float(most - words - _ROW_BYTES * len(scene.events.rows) - 2 * _LAYER_BYTES)
    for _ in range(_ATTEMPTS):
        payload = _written(scene, room)
        if len(payload) <= most_bytes:
            return payload
        # sizes are estimates: take off what was too much, and a little more
        room = _LESS * room - (len(payload) * 0.75 - most)
    return None


def _written(scene: _Scene, room: float) -> bytes:
    drawn, sums = _fitted(scene, room)
    bodies = [layer.columns.body for layer in drawn] + ([sums.columns.body] if sums else [])
    begins = list(accumulate((len(body.data) for body in bodies), initial=0))
    # no remark on statistics is needed if every event is there exactly
    is_exact = scene.is_all and drawn[0].quantum_ns == 1
    said = [] if is_exact else [on_statistics(sums, has_exact_part=scene.is_all and len(drawn) > 1)]
    of_layers = {
        "layers": [layer.header(at) for layer, at in zip(drawn, begins, strict=False)],
        "sums": sums and sums.header(begins[len(drawn)]),
        "thinned": [*sentences(drawn, origin_ns=scene.window[0]), *scene.left_out, *said],
    }
    header = _json({**scene.words, **of_layers})
    return gzip_base64([deflated(struct.pack("<I", len(header)) + header), *bodies])


def _fitted(scene: _Scene, room: float) -> tuple[list[Layer], Sums | None]:
    """Return the layers that fit, and sums of all events unless the layers already have every event exactly."""
    drawn = exactly(scene.events, scene.sample, span_ns=scene.span_ns, room=room)
    # statistics can then be computed from the events themselves
    if drawn and scene.is_all:
        return drawn, None
    sums = fitting(scene.sums, room * _SUMS)
    room -= sums.size if sums else 0
    if not drawn or len(drawn[0].columns.body.compressed) > room:
        drawn = thinned(scene.events, scene.sample, span_ns=scene.span_ns, window=scene.window, room=room)
    return drawn, sums


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
