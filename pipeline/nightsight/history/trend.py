"""From rows to trends: tracks of nights, changes of level with their state, and events with their cause.

Series that move in one night on one machine are one event, of all workloads. It is the environment if a canary (a
workload whose code never changes) moved too, if the software around it changed, or if the commit is the same before
and after; it is the code if a canary was measured and stayed.

An epoch is over when the same workload has been measured for three nights under another key on such a GPU, or not at
all for a month while others were. Then nothing can be suspected any more, and what was confirmed has ended.
"""

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

import numpy as np

from nightsight.events.kernel_names import base_name
from nightsight.history.levels import NIGHTS, changes, rule
from nightsight.history.rows import HistoryRow, stored_name
from nightsight.history.store import HistoryRows
from nightsight.intervals import Floats
from nightsight.model.compare import GATE, AcceptedChange
from nightsight.model.history import (
    LEAST_PCT,
    TOGETHER,
    Cause,
    Event,
    Key,
    LevelChange,
    Night,
    Series,
    State,
    Track,
    Trends,
    digest,
    off_level,
)
from nightsight.texts import middle_cut
from nightsight.units import counted, format_value, signed

_MOST_KERNELS: Final = 60
_MOST_APART: Final = 3  # nights
# share of the longest gate metric: smaller metrics are drawn, but not tested
_LEAST_SHARE: Final = 0.005
_STATES: Final[tuple[State, ...]] = ("confirmed", "suspect", "accepted", "ended", "recovered")
_LEAST_EPOCH: Final = 3  # nights: one run with another driver ends no series
_GIVEN_UP: Final = dt.timedelta(days=30)


def trends(rows: HistoryRows, *, canaries: Sequence[str] = (), accepted: Sequence[AcceptedChange] = ()) -> Trends:
    """Return the trends in the rows of a history."""
    tracks = tuple(map(_track, _by_key(rows.rows)))
    level_changes = [_with_acceptance(change, accepted) for track in tracks for change in _changes(track)]
    level_changes = list(_with_ended_epochs(level_changes, tracks))
    events = []
    for of_event in _by_event(level_changes):
        machine = of_event[0].track.key.machine
        watching = [track for track in tracks if track.key.machine == machine and track.workload in canaries]
        events.append(_event(of_event, watching))
    events.sort(key=lambda event: (event.main.night.time, event.id), reverse=True)
    return Trends(tracks, tuple(events), rule(), rows.problems, tuple(canaries))


def _by_key(rows: Sequence[HistoryRow]) -> list[list[HistoryRow]]:
    groups: dict[tuple[str, Key], list[HistoryRow]] = {}
    for row in rows:
        groups.setdefault((row.workload, row.key), []).append(row)
    return [groups[key] for key in sorted(groups)]


def _track(rows: Sequence[HistoryRow]) -> Track:
    """Put the rows of one workload and key together: one night for those of a commit that lie within 12 hours."""
    # disturbed runs count only if the night has no others
    nights = [[row for row in night if not row.flags] or night for night in _nights(rows)]
    gate = dict.fromkeys(name for row in rows for name in row.values.get("gate", {}))
    # the first that moved names an event
    metrics = [*(name for name in GATE if name in gate), *(name for name in gate if name not in GATE)]
    kernels = dict.fromkeys(name for row in rows for name in row.values.get("kernel", {}))
    names: list[tuple[str, str]] = [*(("gate", name) for name in metrics), *(("kernel", name) for name in kernels)]
    values = np.full((len(names), len(nights)), np.nan)
    for place, night in enumerate(nights):
        for line, (kind, name) in enumerate(names):
            numbers = [value for row in night for value in row.values.get(kind, {}).get(name, ())]
            if numbers:
                values[line, place] = (
                    sorted(numbers)[len(numbers) // 2] if len(numbers) % 2 else float(np.median(numbers))
                )
    sizes = np.nansum(values, axis=1)
    order = sorted(range(len(metrics), len(names)), key=lambda line: (-sizes[line], names[line][1]))
    rows_kept = [*range(len(metrics)), *order[:_MOST_KERNELS]]
    points = tuple(map(_night, nights))
    series = [Series(names[line][0], names[line][1], values[line]) for line in rows_kept]
    return Track(rows[0].workload, rows[0].key, points, tuple(_with_levels(series, points)))


def _nights(rows: Sequence[HistoryRow]) -> Iterator[list[HistoryRow]]:
    night: list[HistoryRow] = []
    for row in rows:
        is_same = night and row.commit and row.commit == night[0].commit and not row.commit.endswith("+")
        if night and not (is_same and _time(row.time) - _time(night[0].time) <= TOGETHER):
            yield night
            night = []
        night.append(row)
    if night:
        yield night


def _night(rows: Sequence[HistoryRow]) -> Night:
    runs = sum(max(len(values) for named in row.values.values() for values in named.values()) for row in rows)
    link = next((row.link for row in reversed(rows) if row.link), "")
    proof = next((row.proof for row in reversed(rows) if row.proof), "")
    flags = tuple(sorted({flag for row in rows for flag in row.flags}))
    return Night(rows[0].time, rows[0].commit, link, runs, rows[-1].versions, flags, proof)


def _with_levels(series: Sequence[Series], nights: Sequence[Night]) -> Iterator[Series]:
    if not series:
        return
    values = np.array([each.values for each in series])
    tested = values.copy()
    tested[:, [bool(night.flags) for night in nights]] = np.nan
    longest = max((_typical(each.values) for each in series if each.unit == "ns" and each.kind == "gate"), default=0.0)
    for each, line in zip(series, tested, strict=True):
        if each.unit == "ns" and _high(line) < _LEAST_SHARE * longest:
            line[:] = np.nan
    for each, line, starts in zip(series, tested, changes(tested), strict=True):
        parts = pairwise((0, *starts, len(nights)))
        levels = tuple((start, end - 1, _typical(line[start:end])) for start, end in parts)
        yield replace(each, levels=levels if np.isfinite(line).any() else ())


def _changes(track: Track) -> list[LevelChange]:
    """Return the changes of all series of a track; an undone change has recovered, and its undoing does not count."""
    level_changes: list[LevelChange] = []
    suspects: list[LevelChange] = []
    undisturbed = np.array([not night.flags for night in track.nights])
    for series in track.series:
        undone = set()
        for at, ((_, _, before), (start, _, after)) in enumerate(pairwise(series.levels)):
            later = [level for level in range(at + 2, len(series.levels)) if _is_near(series.levels[level][2], before)]
            if at in undone:
                continue
            if later:
                undone.add(later[0] - 1)
            reason = f"recovered on {track.nights[series.levels[later[0]][0]].time[:10]}" if later else ""
            state: State = "recovered" if later else "confirmed"
            level_changes.append(LevelChange(track, series, start, before, after, state, reason))
        if series.levels:
            suspects += _suspect(track, series, undisturbed)
    # a kernel alone is not suspicious: among many, some are off every night
    return [*level_changes, *(suspects if any(change.series.kind == "gate" for change in suspects) else ())]


def _suspect(track: Track, series: Series, undisturbed: "np.typing.NDArray[np.bool_]") -> Iterator[LevelChange]:
    start = series.levels[-1][0]
    places = start + np.flatnonzero((np.isfinite(series.values) & undisturbed)[start:])
    values = series.values[places]
    count, _ = off_level(values)
    if count:
        before, after = float(np.median(values[:-count])), float(np.median(values[-count:]))
        yield LevelChange(track, series, int(places[-count]), before, after, "suspect")


def _with_acceptance(change: LevelChange, accepted: Sequence[AcceptedChange]) -> LevelChange:
    night, series, of = change.night.time[:10], change.series, change.track.workload
    in_force = [replace(each, name=stored_name(each.name)) for each in accepted if night <= each.date]
    by = next((each for each in in_force if each.covers(series.kind, series.name, of, change.change_pct)), None)
    return replace(change, state="accepted", reason=by.reason) if by and change.state != "recovered" else change


def _with_ended_epochs(changes: Sequence[LevelChange], tracks: Sequence[Track]) -> Iterator[LevelChange]:
    """Yield changes; confirmed changes of closed epochs have ended, and old ones are dropped."""
    over = {id(track): why for track in tracks if (why := _end(track, tracks))}
    dates = sorted({night.time[:10] for track in tracks for night in track.nights if night.time})
    for change in changes:
        why = over.get(id(change.track), "")
        if not why:
            yield change
        # no night comes to push it out of the last nights
        elif change.state != "suspect" and change.night.time[:10] >= dates[-NIGHTS:][0]:
            yield replace(change, state="ended", reason=why) if change.state == "confirmed" else change


def _end(track: Track, tracks: Sequence[Track]) -> str:
    """Return why the epoch of a track is over, "" if it is not."""
    if not track.nights[-1].time:
        return ""
    last = _time(track.nights[-1].time)
    later = [
        other
        for other in tracks
        if (other.workload, other.key.gpu_name) == (track.workload, track.key.gpu_name)
        and len(other.nights) >= _LEAST_EPOCH
        and _time(other.nights[0].time) > last
    ]
    if later:
        following = min(later, key=lambda other: other.nights[0].time)
        changed = ", ".join(following.key.differences(track.key))
        return f"measured with {changed} since {following.nights[0].time[:10]}, which began a new epoch"
    newest = max(_time(other.nights[-1].time) for other in tracks)
    return f"not measured since {track.nights[-1].time[:10]}" if newest - last > _GIVEN_UP else ""


def _by_event(changes: Sequence[LevelChange]) -> Iterator[list[LevelChange]]:
    """Group changes by machine and night; the place of a change may be wrong by one night."""
    # the most important change names the event, and gathers the others
    remaining = sorted(changes, key=_rank)
    while remaining:
        main = remaining[0]
        near = [change for change in remaining if change is main or _is_same_night(change, main)]
        remaining = [change for change in remaining if all(change is not other for other in near)]
        yield near


def _rank(change: LevelChange) -> tuple[bool, int, int, float]:
    series = change.track.series
    metric = series.index(change.series) if change.series.kind == "gate" else len(series)
    return (change.series.kind != "gate", _STATES.index(change.state), metric, -abs(change.candidate - change.baseline))


def _is_same_night(change: LevelChange, main: LevelChange) -> bool:
    """Whether a change may have happened in the night of another: noise limits how accurately its place is known."""
    if change.track.key.machine != main.track.key.machine:
        return False
    nights = change.track.nights
    distances = [abs((_time(night.time) - _time(main.night.time)).total_seconds()) for night in nights]
    place = int(np.argmin(distances))
    low, high = sorted((place, change.place))
    # the changes of two series may be of different nights, those of one series are further apart
    if high - low > _MOST_APART or distances[place] > TOGETHER.total_seconds():
        return False
    between = change.series.values[low:high]
    to_old, to_new = (np.nansum(np.abs(between - level)) for level in (change.baseline, change.candidate))
    worse = to_old - to_new if place > change.place else to_new - to_old
    return high - low <= 1 or bool(worse < abs(change.candidate - change.baseline))


def _event(changes: Sequence[LevelChange], canaries: Sequence[Track]) -> Event:
    """Describe changes of one night; `canaries`: those of this machine."""
    canary_workloads = {track.workload for track in canaries}
    main = next((change for change in changes if change.track.workload not in canary_workloads), changes[0])
    ordered = (main, *(change for change in changes if change is not main))
    # accepting the step's time accepts its parts
    deciding = [change for change in ordered if change.series.kind == "gate"] or ordered
    state = "accepted" if main.state == "accepted" else min((change.state for change in deciding), key=_STATES.index)
    cause, why = _cause(ordered, canaries)
    track = main.track
    ids = tuple(dict.fromkeys(_identities(ordered)))
    ends = {
        "suspect": "Seen in {} so far.".format(counted(len(track.nights) - main.place, "night")),
        "recovered": f"It {main.reason}.",
        "accepted": f"Accepted: {main.reason}.",
        "ended": f"It never recovered: {main.reason}.",
        "confirmed": "",
    }
    sentence = " ".join(filter(None, (_changed_metrics(ordered), *_kernel_set(main), why, ends[state])))
    return Event(ids, state, cause, sentence, ordered)


def _identities(changes: Sequence[LevelChange]) -> Iterator[str]:
    """Yield the id of the event, and its ids if its place moved or another workload named it."""
    for distance in range(_MOST_APART + 1):
        for change in changes:
            for place in (change.place - distance, change.place + distance):
                if 0 <= place < len(change.track.nights):
                    night = change.track.nights[place]
                    yield digest("/".join((*change.track.key.machine, night.time[:10], night.commit)), 10)


def _changed_metrics(changes: Sequence[LevelChange]) -> str:
    main = changes[0]
    workloads = list(dict.fromkeys(change.track.workload for change in changes))
    names = workloads[0] + (f" and {counted(len(workloads) - 1, 'more workload')}" if len(workloads) > 1 else "")
    kernels = [change for change in changes[1:] if change.series.kind == "kernel"]
    others = len(changes) - 1 - len(kernels)
    others_moved = [
        *([counted(others, "other metric")] if others else []),
        *(
            [f"{counted(len(kernels), 'kernel')}, most of all `{_short(kernels[0].series)}` ({_percent(kernels[0])})"]
            if kernels
            else []
        ),
    ]
    others_text = f"; also {' and '.join(others_moved)}" if others_moved else ""
    way = "slower" if main.candidate > main.baseline else "faster"
    if not main.series.unit:
        way = "up" if way == "slower" else "down"
    numbers = " → ".join(format_value(value, main.series.column) for value in (main.baseline, main.candidate))
    since = f" since {main.night.time[:10]}" if main.night.time else ""
    return f"{names}: {main.series.label} {way}{since}, {numbers} ({_percent(main)}){others_text}."


def _cause(changes: Sequence[LevelChange], canaries: Sequence[Track]) -> tuple[Cause, str]:
    main = changes[0]
    before, after = main.before, main.night
    canary_pct = {track.workload: share for track in canaries if (share := _canary_change_pct(track, main)) is not None}
    # a change of level is more reliable than a few nights
    canary_pct |= {c.track.workload: c.change_pct for c in changes if any(c.track is track for track in canaries)}
    for canary, share in canary_pct.items():
        if abs(share) >= LEAST_PCT:
            return (
                "environment",
                f"The canary {canary} moved too ({signed(share)} %): the machine changed, not the code.",
            )
    updates = [
        f"{name.removesuffix('_version')} {before.versions[name]} → {version}"
        for name, version in after.versions.items()
        if before.versions.get(name) not in ("", None, version)
    ]
    if updates:
        return "environment", f"Changed on the same night: {', '.join(updates)}."
    if after.commit and after.commit == before.commit and not after.commit.endswith("+"):
        return "environment", f"The commit is the same before and after ({after.commit[:10]}): the code did not change."
    commits = f" Commits {before.commit[:10]}..{after.commit[:10]}." if before.commit and after.commit else ""
    if canary_pct:
        return "code", f"The canary did not move, so the code changed.{commits}"
    missed = " The canary was not measured on these nights." if canaries else ""
    return "unknown", f"{missed}{commits}".strip()


def _canary_change_pct(canary: Track, main: LevelChange) -> float | None:
    """Return by how much a canary moved in the night of a change, in percent; None if it was not measured then."""
    series = next((series for series in canary.series if series.kind == "gate"), None)
    if series is None:
        return None
    sides = []
    for night, side in ((main.before, -1), (main.night, 1)):
        at = _time(night.time)
        near = [
            place
            for place, of_canary in enumerate(canary.nights)
            if not of_canary.flags and side * (_time(of_canary.time) - at) >= -TOGETHER
        ]
        near = near[-4:] if side < 0 else near[:4]
        is_there = any(abs(_time(canary.nights[place].time) - at) <= TOGETHER for place in near)
        measured = series.values[near][np.isfinite(series.values[near])]
        if not is_there or not len(measured) or not np.median(measured) > 0:
            return None
        sides.append(float(np.median(measured)))
    return 100 * (sides[1] / sides[0] - 1)


def _kernel_set(main: LevelChange) -> Iterator[str]:
    """Say which kernels are new since the night of a change, and which went: of those that take part of the time."""
    place, nights = main.place, len(main.track.nights)
    before, after = slice(max(place - 8, 0), place - 1), slice(place, min(place + 4, nights))
    least = _LEAST_SHARE * max((series.last for series in main.track.series if series.kind == "gate"), default=0.0)
    kernels = [series for series in main.track.series if series.kind == "kernel" and _high(series.values) > least]
    for word, absent, present in (("new", before, after), ("gone", after, before)):
        names = [
            _short(series)
            for series in kernels
            if not np.isfinite(series.values[absent]).any() and np.isfinite(series.values[present]).all()
        ]
        if names and absent.start < absent.stop and present.start < present.stop:
            yield f"{counted(len(names), 'kernel')} {word}, such as `{names[0]}`."


def _short(series: Series) -> str:
    name = base_name(series.name) or series.name
    return middle_cut(name, 60)


def _is_near(level: float, other: float) -> bool:
    low, high = sorted((level, other))
    return high <= low * (1 + LEAST_PCT / 100)


def _typical(values: Floats) -> float:
    measured = values[np.isfinite(values)]
    return float(np.median(measured)) if len(measured) else float("nan")


def _high(values: Floats) -> float:
    measured = values[np.isfinite(values)]
    return float(np.quantile(measured, 0.9)) if len(measured) else 0.0


def _percent(change: LevelChange) -> str:
    return "from 0" if not change.baseline else f"{signed(change.change_pct)} %"


def _time(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text) if text else dt.datetime.min.replace(tzinfo=dt.UTC)
