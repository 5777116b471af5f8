"""The figures of serving benchmarks, one row per figure."""

from typing import Final

import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.events.timeline import Timeline
from nightsight.results.serving import PROFILED_RUN, SERVING

_KEYS: Final = ["metric", "measured", "source"]
_ALLOWED: Final = {column.name: [text for text, _ in column.values] for column in SERVING.columns if column.values}
_NUMBERS: Final = [name for name in SERVING.column_names if name not in _KEYS]
_SLOWER: Final = (
    "The program was profiled during this benchmark, so it answered more slowly than usual. For figures without the "
    "profiler, run the benchmark alone and pass its file to `nightsight report --attach`."
)


def serving(timeline: Timeline) -> Table:
    """Return the figures of each source, in the order of the register."""
    figures = timeline.profile.recorded("serving_figures").astype({"value": "float64"})
    # the file next to a capture may have been edited, or be from another version
    is_known = figures["statistic"].isin(_NUMBERS)
    for name, allowed in _ALLOWED.items():
        is_known &= figures[name].isin(allowed)
    figures = figures[is_known].astype(dict.fromkeys((*_KEYS, "statistic"), "str"))
    table = figures.pivot_table(index=_KEYS, columns="statistic", values="value", aggfunc="last").reset_index()
    ranks = [table[name].map(allowed.index) for name, allowed in _ALLOWED.items()]
    order = pd.DataFrame({"source": table["source"], "measured": ranks[1], "metric": ranks[0]}).sort_values(
        ["measured", "source", "metric"], kind="stable"
    )
    table = table.loc[order.index, [name for name in SERVING.column_names if name in table]].reset_index(drop=True)
    if "count" in table:
        table["count"] = table["count"].round().astype("int64[pyarrow]")
    notes = (_SLOWER,) if (table["measured"] == PROFILED_RUN).any() else ()
    return Table(table, notes)


ANALYSES: Final = (Analysis(SERVING, serving, "serving_figures"),)
