"""A history for other tools: OpenMetrics for Prometheus and GitLab, CSV files and a configuration for Apache Otava."""

import csv
import datetime as dt
import io
import json
from collections.abc import Iterator

import numpy as np

from nightsight.model.history import Series, Track, Trends
from nightsight.openmetrics import escaped, openmetrics_text


def openmetrics(trends: Trends) -> str:
    """Return all nights with their times as OpenMetrics text."""

    def samples(unit: str, family: str, factor: float) -> Iterator[str]:
        for track in trends.tracks:
            for series in track.series:
                if series.unit == unit:
                    yield from _samples(track, series, family, factor)

    return openmetrics_text(samples)


def _samples(track: Track, series: Series, family: str, factor: float) -> Iterator[str]:
    key = track.key
    labels = {
        "workload": track.workload,
        "kind": series.kind,
        "name": series.name,
        "gpu": key.gpu_name,
        "driver": key.driver,
        "cuda": key.cuda,
        "clocks": key.clocks,
        "collector": key.collector,
        "arguments": key.arguments,
    }
    label_text = ",".join(f'{name}="{escaped(text)}"' for name, text in labels.items() if text)
    times: dict[float, float] = {}
    for place in np.flatnonzero(np.isfinite(series.values)):
        if time_text := track.nights[place].time:
            # two samples of one time would be an error
            times[dt.datetime.fromisoformat(time_text).timestamp()] = float(series.values[place]) * factor
    for time in sorted(times):
        yield f"{family}{{{label_text}}} {times[time]:.9g} {time:.0f}"


def otava_files(trends: Trends) -> dict[str, str]:
    """Return a CSV file for each track, and the otava.yaml that names them.

    Otava takes no gaps: metrics that a night lacks are left out, and so are nights whose numbers are disturbed.
    """
    files: dict[str, str] = {}
    tests = ["tests:"]
    for number, track in enumerate(trends.tracks, start=1):
        undisturbed = [place for place, night in enumerate(track.nights) if night.time and not night.flags]
        series = [each for each in track.series if undisturbed and np.isfinite(each.values[undisturbed]).all()]
        if not series:
            continue
        name = f"track-{number}.csv"
        names = [each.name if each.kind == "gate" else f"{each.kind}: {each.name}" for each in series]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["time", "commit", *names])
        for place in undisturbed:
            night = track.nights[place]
            writer.writerow([night.time, night.commit, *(f"{each.values[place]:.9g}" for each in series)])
        files[name] = text.getvalue()
        tests += [
            # JSON texts are YAML texts
            f"  {json.dumps(f'{track.workload}, {track.key.gpu_name}, {track.key.text}')}:",
            "    type: csv",
            f"    file: {name}",
            "    time_column: time",
            "    attributes: [commit]",
            "    metrics:",
            *(f"      {json.dumps(metric)}: {{column: {json.dumps(metric)}, direction: -1}}" for metric in names),
        ]
    return {**files, "otava.yaml": "\n".join((*tests, ""))} if files else {}
