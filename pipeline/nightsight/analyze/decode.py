"""The roofline of decode: a step reads all weights, and the keys and values of its requests, from the GPU's memory."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.copies import gpu_peaks
from nightsight.analyze.engine import EngineSteps, steps_on_gpu
from nightsight.events.engine import KINDS, cache_usage
from nightsight.events.timeline import Timeline
from nightsight.intervals import Flags, Floats
from nightsight.results.serving import DECODE, DECODE_ROOFLINE
from nightsight.units import counted, in_text

_LOW: Final = 0.1
_NS_PER_S: Final = 1e9
_NO_WEIGHTS: Final = (
    "How many bytes of weights a step reads is unknown, so steps that decode have no roofline. Add the log of the "
    "server with --attach: vLLM and SGLang write it when they start. For other engines, attach a file with "
    "`weight_bytes` (docs/inference.md)."
)
_NO_PEAK: Final = "The peak rate of this GPU's memory is unknown, so the steps that decode have no roofline."
_NO_CACHE: Final = "Keys and values are not counted{where}: {lacking}. The least time is only that of the weights."
_ALL: Final = " in {unknown} of {count} steps"
_NO_TOKEN: Final = "nothing says how many bytes a token takes"  # noqa: S105 (no secret)
_NO_USAGE: Final = "nothing says how many tokens are in the KV cache"
_ABOVE: Final = (
    "More than 100 %: the steps did not read all of these bytes. Of a mixture of experts, a step reads only those "
    "that its tokens choose; of the input embedding, a few rows; and small models stay in the L2 cache."
)


def decode_roofline(timeline: Timeline) -> Table:
    """Return one row per size of the batch of steps that only decode, as powers of two: graphs have such sizes."""
    steps = steps_on_gpu(timeline)
    is_decode = _decodes(steps)
    if steps is None or not is_decode.any():
        return Table(DECODE_ROOFLINE.empty())
    weights, token_bytes, kv_tokens = _model(timeline)
    peak = _peak(timeline, steps.device)
    if np.isnan(peak) or np.isnan(weights):
        return Table(DECODE_ROOFLINE.empty(), (_NO_PEAK if np.isnan(peak) else _NO_WEIGHTS,))
    batch = steps.batch[is_decode]
    usage, _ = cache_usage(timeline.profile, batch)
    tokens = batch["context_tokens"].to_numpy(dtype=np.float64)
    tokens = np.where(np.isnan(tokens), usage / 100 * kv_tokens, tokens)
    kv_bytes = tokens * token_bytes
    made = batch["decode_tokens"].fillna(batch["decodes"]).to_numpy(dtype=np.float64)
    requests = batch["decodes"].to_numpy(dtype=np.float64)
    table = pd.DataFrame(
        {
            # the next power of two
            "size": 2 ** np.ceil(np.log2(np.maximum(requests, 1))).astype(np.int64),
            "time_ns": (steps.end - steps.begin)[is_decode],
            "kv_bytes": kv_bytes,
            "least_ns": (weights + np.nan_to_num(kv_bytes)) / peak * _NS_PER_S,
            "made": made,
        }
    )
    table = table[table["time_ns"] > 0]
    rows = [_row(int(str(size)), of_size, weights) for size, of_size in table.groupby("size", sort=True)]
    frame = pd.DataFrame(rows, columns=DECODE_ROOFLINE.column_names) if rows else DECODE_ROOFLINE.empty()
    return Table(frame, tuple(_notes(table, has_token_bytes=not np.isnan(token_bytes))))


def _decodes(steps: EngineSteps | None) -> Flags:
    """Return which steps only decode, on a GPU."""
    if steps is None or steps.device < 0:
        return np.zeros(0, dtype=bool)
    flags: Flags = (steps.batch["kind"] == KINDS.index(DECODE)).to_numpy()
    return flags


def _peak(timeline: Timeline, device: int) -> float:
    """Return the peak rate of the memory of a GPU in bytes per second, NaN if it is unknown."""
    if "devices" not in timeline.profile.tables:
        return np.nan
    peaks = gpu_peaks(timeline).frame
    known = peaks["memory_bytes_per_s"][(peaks["device"] == device) & (peaks["memory_bytes_per_s"] > 0)]
    return float(known.iloc[0]) if len(known) else np.nan


def _model(timeline: Timeline) -> tuple[float, float, float]:
    """Return the bytes of weights, the bytes of a token in the KV cache, and the tokens that it has room for."""
    facts = timeline.profile.recorded("served_model").tail(1)
    columns = ("weight_bytes", "kv_token_bytes", "kv_tokens")
    weights, token_bytes, tokens = (facts[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in columns)
    return tuple(float(values[0]) if len(values) else np.nan for values in (weights, token_bytes, tokens))  # type: ignore[return-value]


def _row(size: int, steps: pd.DataFrame, weights: float) -> dict[str, Any]:
    time, least = (steps[name].to_numpy(dtype=np.float64) for name in ("time_ns", "least_ns"))
    share: Floats = 100 * least / time
    made = float(steps["made"].sum())
    return {
        "batch": f"{size // 2 + 1} to {size}" if size > 2 else f"{size}",
        "steps": len(steps),
        "med_ns": float(np.median(time)),
        "weight_bytes": weights,
        "kv_bytes": float(steps["kv_bytes"].mean()),
        "least_ns": float(least.mean()),
        "roofline_pct": float(np.median(share)),
        "low_roofline_pct": float(np.quantile(share, _LOW)),
        "tokens_per_s": made / float(time.sum()) * _NS_PER_S,
        "roofline_tokens_per_s": made / float(least.sum()) * _NS_PER_S,
    }


def _notes(steps: pd.DataFrame, *, has_token_bytes: bool) -> Iterator[str]:
    """Yield the sum of all steps in a sentence, and what is not counted."""
    time, least, made = (float(steps[name].sum()) for name in ("time_ns", "least_ns", "made"))
    if time:
        generated, possible = (f"{made / total * _NS_PER_S:,.0f}" for total in (time, least))
        share = in_text(100 * least / time, "share_pct")
        yield f"These steps generate {generated} tokens per second, {share} of the {possible} that their bytes allow."
    unknown = int(steps["kv_bytes"].isna().sum())
    if unknown:
        where = _ALL.format(unknown=f"{unknown:,}", count=f"{len(steps):,}") if unknown < len(steps) else ""
        yield _NO_CACHE.format(where=where, lacking=_NO_USAGE if has_token_bytes else _NO_TOKEN)
    if (steps["least_ns"] > steps["time_ns"]).any():
        count = int((steps["least_ns"] > steps["time_ns"]).sum())
        yield f"{counted(count, 'step')}: {_ABOVE[:1].lower()}{_ABOVE[1:]}" if count < len(steps) else _ABOVE


ANALYSES: Final = (Analysis(DECODE_ROOFLINE, decode_roofline, "ranges"),)
