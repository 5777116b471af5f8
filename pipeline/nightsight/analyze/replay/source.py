"""Where each replayed kernel spends its time: source lines, else instructions, by warp samples."""

from typing import Final

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.replay.join import in_order, replays
from nightsight.analyze.replay.stalls import in_words
from nightsight.events.timeline import Timeline
from nightsight.results.ncu import NCU_SOURCE
from nightsight.tables import Frame, aggregate

_MOST: Final = 10
# instructions without a line differ by their address
_PLACE: Final = ["launch", "file", "line", "pc"]
_TEXTS: Final = ["file", "source", "sass", "stall"]
_NONE: Final = -1


def ncu_source(timeline: Timeline) -> Table:
    """Return up to ten rows per replayed launch: the lines, else instructions, with the most samples; percent."""
    places = _sampled_lines(timeline)
    share = 100.0 * places["samples"] / places.groupby("launch")["samples"].transform("sum")
    places = places.sort_values(["launch", "samples", *_PLACE[1:]], ascending=[True, False, True, True, True])
    # -1 stood for missing numbers, which `groupby` would drop
    places = places.assign(share_pct=share, **places[["line", "pc"]].replace(_NONE, None).astype("int64[pyarrow]"))
    table = in_order(timeline, places[places["samples"] > 0].groupby("launch").head(_MOST))[NCU_SOURCE.column_names]
    lacking = len(replays(timeline)) - places["launch"].nunique()
    notes = (
        f"Launches whose instructions were not sampled (section SourceCounters; ncu does not sample whole ranges and "
        f"graphs): {lacking:,}.",
    )
    return Table(table, notes if lacking else ())


def _sampled_lines(timeline: Timeline) -> Frame:
    """Return one row per line, and per instruction without a line: its samples and their most common stall."""
    rows = timeline.profile.table("kernel_lines").astype(dict.fromkeys(_TEXTS, "str"))
    rows = rows[rows["samples"].notna()].astype({"samples": "int64"})
    has_line = rows["line"].notna() & (rows["file"] != "")
    rows = rows.assign(
        line=rows["line"].where(has_line, _NONE).astype("int64"),
        pc=rows["pc_bytes"].where(~has_line, _NONE),
        source=rows["source"].where(has_line, rows["sass"]),
        stall_samples=rows["stall_samples"].fillna(0).astype("int64"),
    )
    places = aggregate(rows.groupby(_PLACE), source=("source", "first"), samples=("samples", "sum")).reset_index()
    return places.merge(_main_stalls(rows), on=_PLACE, how="left", validate="1:1").fillna({"stall": ""})


def _main_stalls(rows: Frame) -> Frame:
    stalled = rows[rows["stall_samples"] > 0]
    stalled = stalled.assign(stall=in_words(stalled["stall"]))
    sums = stalled.groupby([*_PLACE, "stall"])["stall_samples"].sum().reset_index()
    sums = sums.sort_values(["stall_samples", "stall"], ascending=[False, True])
    return sums.drop_duplicates(_PLACE)[[*_PLACE, "stall"]]


ANALYSES: Final = (Analysis(NCU_SOURCE, ncu_source),)
