"""Packs the timeline for the page: decides which events are drawn, and in how much detail, within a size limit."""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from sys import maxsize
from typing import Any, Final

import numpy as np

from nightsight.events.categories import Activity
from nightsight.events.kernel_labels import KernelLabels
from nightsight.events.ranges import NUMBER
from nightsight.events.timeline import Timeline
from nightsight.intervals import Codes
from nightsight.model.report import Profile, Result
from nightsight.render.embedded import compact_json
from nightsight.render.figure.shares import CAUSE_COLORS
from nightsight.render.table.layouts import labels_of
from nightsight.render.table.replayed import BRIEF
from nightsight.render.timeline.activity import CATEGORIES, Account, Activities, Span, account, by_piece
from nightsight.render.timeline.columns import deflate, gzip_base64
from nightsight.render.timeline.counters import Curve, curves
from nightsight.render.timeline.detail import on_statistics, sentences, thin
from nightsight.render.timeline.labels import Economy, EventLabels, fold
from nightsight.render.timeline.layers import RowSample, TimelineLayer, whole
from nightsight.render.timeline.ranks import Ranks, has_collectives, numbered_collectives, ranks_of_job
from nightsight.render.timeline.rows import MOST_ROWS, OF_GPUS, TimelineEvents, lay_events, merge_events
from nightsight.render.timeline.sums import Sums, fitting, sums_of
from nightsight.render.tracks import Places
from nightsight.results.categories import BUSY
from nightsight.texts import middle_cut

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
# and the same share for the activity of devices at every instant
_FOR_ACTIVITY: Final = 1 / 8
# and for the steps and collectives of ranks
_RANKS: Final = 1 / 8
# of exact events, compressed: the rest of a page nearly always leaves this room
_SURELY_FITS: Final = 400_000
_HALVINGS: Final = 6
_ATTEMPTS: Final = 3
_LESS: Final = 0.95
# compressed size in the header of a row's event counts, and of a layer's description
_ROW_BYTES: Final = 8
_LAYER_BYTES: Final = 80


def timeline_of(
    profile: Profile,
    *,
    results: Sequence[Result] = (),
    activities: Activities = dict,
    events: Callable[[], TimelineEvents] | None = None,
) -> Callable[[int], bytes | None]:
    """Compute what a timeline of any size needs; return a function from a size limit in bytes to the timeline.

    It is base64 of gzip; None if there are no events, or none fit. The function can be called once: it holds the events
    of a large capture no longer than it needs them.

    `results` are those of the profile's report; the curves of memory and of operations in flight come from them.
    `activities` returns the activity of each device, and `events` the value of `all_events` if it is known.
    """
    full_window = Timeline.of(profile).window
    window = full_window.bounds
    places = Places(profile)
    ranks = ranks_of_job(profile, results)
    source = _Content(
        lambda most_rows: events() if events and most_rows == maxsize else _events(profile, most_rows),
        lambda most_points: curves(profile, results, window=window, most_points=most_points),
        window,
        full_window.name,
        lambda device: places.gpu(device)[1],
        activities,
        labels_of(results) if results else None,
        ranks,
    )
    return _packer(source)


def steps_payload(sides: Sequence[tuple[str, Profile]], *, most_ns: int) -> bytes | None:
    """Return the timelines of several profiles on one axis, in the format of `timeline_of`.

    Each side has a title, and a profile whose events begin at 0 and end by `most_ns`.
    """
    source = _Content(
        lambda most_rows: merge_events([(title, lay_events(profile, most_rows=most_rows)) for title, profile in sides]),
        lambda _: [],
        (0, most_ns),
        "one step",
        str,
        None,
    )
    return _packer(source)(MOST_BYTES)


def all_events(profile: Profile) -> TimelineEvents:
    """Return the events of all rows, the largest part of a timeline; they are independent of the report."""
    return _events(profile, maxsize)


def _events(profile: Profile, most_rows: int) -> TimelineEvents:
    collective = numbered_collectives(profile) if has_collectives(profile) else None
    return lay_events(profile, most_rows=most_rows, collective=collective)


@dataclass(frozen=True)
class _Content:
    """The content of a timeline: functions for events and curves within limits, the window, and names of GPUs.

    activities: returns that of each device; None if the times are not those of a capture. kernels: the labels of
    kernels in the tables of the page; None to label only the drawn kernels. ranks: the ranks of a job, or None.
    """

    lay: Callable[[int], TimelineEvents]
    curves: Callable[[int], Sequence[Curve]]
    window: Span
    window_name: str
    gpu: Callable[[int], str]
    activities: Activities | None
    kernels: KernelLabels | None = None
    ranks: Ranks | None = None


def _packer(source: _Content) -> Callable[[int], bytes | None]:
    # compute this first, because it temporarily takes as much memory as the events
    activities = source.activities() if source.activities else {}

    def scene_of(economy_number: int) -> _Drawing | None:
        most_rows, most_points, economy = _ECONOMIES[economy_number]
        return _scene(source, activities, source.curves(most_points), (most_rows, economy))

    first = [scene_of(0)]
    if first[0]:
        # what is surely needed is computed now, and kept
        if first[0].sample.exact_size <= _SURELY_FITS:
            _ = first[0].exact
        elif first[0].sample.exact_size > MOST_BYTES:
            _ = first[0].sums

    def pack(most_bytes: int) -> bytes | None:
        for number in range(len(_ECONOMIES)):
            scene = first.pop() if first else scene_of(number)
            if scene is None:
                return None
            if payload := _payload(scene, most_bytes):
                return payload
        return None

    return pack


@dataclass(frozen=True)
class _Drawing:
    """Everything to draw, with times in ns since its start; `words` is the header without the parts about layers.

    everything: the events of all rows, drawn or not. activities: that of each device, with the number of its group.
    """

    events: TimelineEvents
    everything: TimelineEvents
    activities: tuple[tuple[int, Activity], ...]
    window: Span
    span_ns: int
    words: dict[str, Any]
    left_out: list[str]
    ranks: Ranks | None

    @property
    def devices(self) -> list[Activity]:
        return [activity for _, activity in self.activities]

    @cached_property
    def sample(self) -> RowSample:
        return RowSample(self.events)

    @cached_property
    def exact(self) -> TimelineLayer:
        """All drawn events as one exact layer."""
        return whole(self.events, self.span_ns, quantum_ns=1)

    @property
    def is_all(self) -> bool:
        """Whether all rows are drawn."""
        return len(self.events.rows) == len(self.everything.rows)

    @cached_property
    def sums(self) -> Sums | None:
        return sums_of(self.everything, span_ns=self.span_ns, origin_ns=self.window[0])


def _scene(
    source: _Content, activities: Mapping[int, Activity], all_curves: Sequence[Curve], limits: tuple[int, Economy]
) -> _Drawing | None:
    """Return the events and curves to draw within limits on rows and text; None if there are no events.

    Events are laid out again for each economy. Few captures need a second one, and keeping the events with unshifted
    times for it would take 75 MB for a million kernels.
    """
    most_rows, economy = limits
    # sums count all rows, even those that will not be drawn
    events = everything = source.lay(maxsize)
    if not len(events.start):
        return None
    if most_rows < len(events.rows):
        events = source.lay(most_rows)
    window = source.window
    # include the whole window and all curves, even where there are no events
    begin = min(int(everything.start.min()), window[0], *(int(curve.time[0]) for curve in all_curves))
    end = max(int(everything.end.max()), window[1], *(int(curve.time[-1]) for curve in all_curves))
    label, labels, left_out = fold(everything.label, everything.labels, economy)
    short = _kernel_labels(source, everything, {*labels.names}, economy)
    old_labels, everything = everything.label, _relabel(everything, begin, label, labels)
    if len(events.rows) == len(everything.rows):
        events = everything
    else:
        # labels were folded for all events; translate those of the drawn ones by their old number
        of_label = np.zeros(int(old_labels.max()) + 1, dtype=np.int32)
        of_label[old_labels] = label
        events = _relabel(events, begin, of_label[events.label], labels)
    window_span = (window[0] - begin, window[1] - begin)
    groups = _groups(source, events, all_curves, begin_ns=begin)
    words = {
        "format": FORMAT,
        # as text: the page's numbers are exact up to 2^53, and some captures count from 1970
        "begin_ns": None if source.activities is None else str(begin),
        "span_ns": end - begin,
        "window": window_span,
        "window_name": source.window_name,
        **_names(labels, short),
        "number": NUMBER,
        "categories": [[category, CAUSE_COLORS[category], category in BUSY] for category in CATEGORIES],
        **groups,
        "totals": {"events": events.total, "rows": events.total_rows},
    }
    numbers = {group["label"]: number for number, group in enumerate(groups["groups"])}
    of_groups = tuple(
        (numbers[source.gpu(device)], Activity(one.edge - begin, one.category))
        for device, one in sorted(activities.items())
        if source.gpu(device) in numbers and len(one.category)
    )
    notes = [*_rows_left_out(events), *events.left_out, *left_out]
    return _Drawing(events, everything, of_groups, window_span, end - begin, words, notes, source.ranks)


def _relabel(events: TimelineEvents, begin_ns: int, label: Codes, labels: EventLabels) -> TimelineEvents:
    return replace(events, start=events.start - begin_ns, end=events.end - begin_ns, label=label, labels=labels)


def _names(labels: EventLabels, short: Mapping[str, str]) -> dict[str, Any]:
    names = list(dict.fromkeys(labels.names))
    facts = [list(label) for label in zip(labels.places, labels.details, labels.categories, strict=True)]
    return {
        "names": names,
        "short": [[place, short[name]] for place, name in enumerate(names) if name in short],
        "labels": facts,
    }


def _kernel_labels(source: _Content, events: TimelineEvents, kept_names: set[str], economy: Economy) -> dict[str, str]:
    """Return the labels of kernels by their names, as cut by the economy, if the labels are shorter."""
    of_rows = (slice(*events.bounds[row : row + 2]) for row, of in enumerate(events.rows) if of.kind == "kernel")
    codes = np.flatnonzero(np.bincount(np.concatenate([events.label[:0], *(events.label[row] for row in of_rows)])))
    short_names = {
        name: middle_cut(name, economy.name_length) for name in (events.labels.names[code] for code in codes.tolist())
    }
    # of hundreds of thousands of names, few are kept
    short_names = {name: short_name for name, short_name in short_names.items() if short_name in kept_names}
    kernels = source.kernels or KernelLabels(short_names)
    short = {name: kernels.short(name, BRIEF) for name in short_names if not name.startswith("[")}
    return {short_names[name]: label for name, label in short.items() if len(label) < len(name)}


def _groups(source: _Content, events: TimelineEvents, visible: Sequence[Curve], *, begin_ns: int) -> dict[str, Any]:
    """Return the groups, GPUs before processes, and the rows and curves in them, for the header."""
    of_curves = [source.gpu(curve.device) for curve in visible]
    of_gpus = [*(row.group for row in events.rows if row.kind in OF_GPUS), *of_curves]
    place = {label: place for place, label in enumerate(dict.fromkeys([*of_gpus, *(row.group for row in events.rows)]))}
    return {
        "groups": [{"label": label} for label in place],
        "rows": [{"group": place[row.group], "label": row.label, "kind": row.kind} for row in events.rows],
        "curves": [
            {"group": place[label], **_curve(curve, begin_ns)} for label, curve in zip(of_curves, visible, strict=True)
        ],
    }


def _curve(curve: Curve, begin_ns: int) -> dict[str, Any]:
    # write 3.0 as 3, which is shorter in JSON
    value = [int(value) if value == int(value) else round(value, 3) for value in curve.value.tolist()]
    time = (curve.time - begin_ns).tolist()
    return {"label": curve.label, "unit": curve.unit, "time_ns": time, "value": value, "max": max(value)}


def _rows_left_out(events: TimelineEvents) -> list[str]:
    if len(events.rows) == events.total_rows:
        return []
    return [f"Only the {len(events.rows)} busiest of {events.total_rows:,} rows are drawn."]


def _payload(scene: _Drawing, most_bytes: int) -> bytes | None:
    """Pack the scene in as much detail as fits; None if it does not fit, or text leaves little room for events."""
    # base64 needs four characters for three bytes
    most = most_bytes // 4 * 3
    words = len(deflate(compact_json(scene.words)).compressed)
    if words > most * _WORDS and words + scene.sample.exact_size > most:
        return None
    room = float(most - words - _ROW_BYTES * len(scene.events.rows) - 4 * _LAYER_BYTES)
    scene = _with_ranks(scene, room * _RANKS)
    for _ in range(_ATTEMPTS):
        payload = _write_payload(scene, room)
        if len(payload) <= most_bytes:
            return payload
        # sizes are estimates: subtract the excess, and a little more
        room = _LESS * room - (len(payload) * 0.75 - most)
        # without any room, the next try would only be larger
        if room <= 0:
            break
    return None


def _with_ranks(scene: _Drawing, room: float) -> _Drawing:
    """Return the scene with those data of its ranks that fit into `room` bytes."""
    if (ranks := scene.ranks) is None:
        return scene
    reduced, notes = ranks.fitting(room), list[str]()
    if reduced.together is None:
        notes.append(
            "Collectives of ranks are not connected: there are too many of them (page size limit, --max-bytes)."
        )
        events, everything = (
            replace(events_of_scene, collective=None) for events_of_scene in (scene.events, scene.everything)
        )
        scene = replace(scene, events=events, everything=everything)
    if reduced.steps is not ranks.steps:
        notes.append("Steps of ranks cannot be aligned: there are too many of them (page size limit, --max-bytes).")
    return replace(scene, ranks=reduced, left_out=[*scene.left_out, *notes])


def _write_payload(scene: _Drawing, room: float) -> bytes:
    of_ranks = scene.ranks.bodies if scene.ranks else []
    room -= sum(part.size for part in of_ranks)
    overall = account(scene.devices, origin_ns=scene.window[0], room=room * _FOR_ACTIVITY)
    activity_room = 0.0 if overall is None else room * _FOR_ACTIVITY if overall.width_ns else overall.size
    layers, sums = _fit_layers(scene, room - activity_room)
    accounts = [overall, *_fine(scene, layers, activity_room - overall.size)] if overall else []
    bodies = [layer.columns.body for layer in layers] + ([sums.columns.body] if sums else [])
    bodies += [account.columns.body for account in accounts]
    at_ranks = len(bodies)
    bodies += [part.body for part in of_ranks]
    begins = list(accumulate((len(body.data) for body in bodies), initial=0))
    account_begins = begins[at_ranks - len(accounts) :]
    numbers = {group["label"]: number for number, group in enumerate(scene.words["groups"])}
    # if every event is exact, no remark on statistics is needed
    is_exact = scene.is_all and layers[0].quantum_ns == 1
    remarks = [] if is_exact else [on_statistics(sums, has_exact_part=scene.is_all and len(layers) > 1)]
    of_layers = {
        "layers": [layer.header(at) for layer, at in zip(layers, begins, strict=False)],
        "sums": sums and sums.header(begins[len(layers)]),
        "activity": [account.header(at) for account, at in zip(accounts, account_begins, strict=False)],
        "activity_groups": [group for group, _ in scene.activities],
        "ranks": scene.ranks and scene.ranks.header(numbers, begins[at_ranks:]),
        "thinned": [*sentences(layers, origin_ns=scene.window[0]), *scene.left_out, *remarks],
    }
    header = compact_json({**scene.words, **of_layers})
    return gzip_base64([deflate(struct.pack("<I", len(header)) + header), *bodies])


def _fine(scene: _Drawing, layers: list[TimelineLayer], room: float) -> Iterator[Account]:
    """Yield the activity of devices piece by piece in the exact part, or as much of its middle as fits."""
    for layer in layers[1:]:
        begin, end = layer.begin_ns, min(layer.end_ns, scene.span_ns)
        cuts = ((end - begin) // 2 - ((end - begin) >> halvings + 1) for halvings in range(_HALVINGS))
        tries = (by_piece(scene.devices, (begin + cut, end - cut), room) for cut in cuts if end - begin > 2 * cut)
        if exact := next(filter(None, tries), None):
            yield exact


def _fit_layers(scene: _Drawing, room: float) -> tuple[list[TimelineLayer], Sums | None]:
    """Return the layers that fit, and sums of all events unless the layers already have every event exactly."""
    fits = scene.sample.exact_size <= room and scene.exact.columns.size <= room
    layers = [scene.exact] if fits else []
    # statistics can then be computed from the events themselves
    if layers and scene.is_all:
        return layers, None
    sums = fitting(scene.sums, room * _SUMS)
    room -= sums.size if sums else 0
    if not layers or layers[0].columns.size > room:
        layers = thin(scene.events, scene.sample, span_ns=scene.span_ns, window=scene.window, room=room)
    return layers, sums
