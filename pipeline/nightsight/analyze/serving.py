"""The figures of serving benchmarks, one row per figure."""

from collections.abc import Iterator
from typing import Final

import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.events.timeline import Timeline, by_device
from nightsight.results.serving import (
    OUTPUT_TOKENS,
    PER_GPU,
    PER_USER,
    PROFILED_RUN,
    SERVING,
    TPOT,
    UNKNOWN_RUN,
)

_KEYS: Final = ["metric", "measured", "source"]
_ALLOWED: Final = {column.name: [text for text, _ in column.values] for column in SERVING.columns if column.values}
_NUMBERS: Final = [name for name in SERVING.column_names if name not in _KEYS]
_NS_PER_S: Final = 1e9
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
    figures = pd.concat([figures, *_rates_of_tokens(figures, len(by_device(timeline)))])
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


def _rates_of_tokens(figures: pd.DataFrame, gpus: int) -> Iterator[pd.DataFrame]:
    """Yield the tokens per second that a user and a GPU get; a result file of another run says nothing about GPUs."""
    metric, statistic, value = (figures[name] for name in ("metric", "statistic", "value"))
    per_token = figures[(metric == TPOT) & (statistic == "avg_ns") & (value > 0)]
    yield per_token.assign(metric=PER_USER, statistic="rate_per_s", value=_NS_PER_S / per_token["value"])
    all_output = (metric == OUTPUT_TOKENS) & (statistic == "rate_per_s") & (figures["measured"] != UNKNOWN_RUN)
    per_gpu = figures[all_output & (gpus > 1)]
    yield per_gpu.assign(metric=PER_GPU, value=per_gpu["value"] / max(gpus, 1))


ANALYSES: Final = (Analysis(SERVING, serving, "serving_figures"),)
