"""Give advice on a report: causes of lost time, each with its place, its fix and the predicted gain.

Causes and gains come from the simulated fixes (the result `what_if`); symptoms, such as low utilization, gaps or
short kernels, are evidence at most. Fixes with little gain are omitted, so a healthy program gets no advice.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from nightsight.advise.replays import replay_advice
from nightsight.advise.tables import Tables
from nightsight.events.communication import PAIRWISE
from nightsight.events.kernel_labels import label_of
from nightsight.events.loops import UNNAMED
from nightsight.model.report import Finding, Result, find
from nightsight.results.categories import COMMUNICATION, COMPUTE, HOST
from nightsight.results.causes import REPLAY, SIMULATED, WHAT_IF
from nightsight.results.entry import Entry
from nightsight.results.gpu import CUDA_GPU_KERN_SUM
from nightsight.results.gpu_time import CRITICAL_PATH, GPU_TIME, TIME_SPLIT
from nightsight.results.ncu import NCU_KERNELS, NCU_LIMITS, NCU_RULES
from nightsight.results.operators import CPU_OP_SHAPES
from nightsight.results.program import CUDA_API_SUM
from nightsight.results.ranks import COLLECTIVES, PIPELINE_STAGES, RANKS
from nightsight.results.rules import AT_START, KERNEL_WORDS, RULE, RULES, WORTH_PCT, Rule
from nightsight.units import format_value

NEEDS: Final[tuple[Entry, ...]] = (
    WHAT_IF,
    REPLAY,
    CRITICAL_PATH,
    GPU_TIME,
    TIME_SPLIT,
    CUDA_GPU_KERN_SUM,
    COLLECTIVES,
    CPU_OP_SHAPES,
    NCU_RULES,
    NCU_KERNELS,
    NCU_LIMITS,
)
"""The results that advice reads."""
_FIND_WAIT: Final = (
    "Find what it waits for: a queue that fills too slowly needs more workers; hold a lock for less time."
)
_OUTSIDE: Final = "outside all NVTX ranges"
_MOST_RANGES: Final = 2
_MOST_CAUSES: Final = 8
_MOST_EVIDENCE: Final = 3
_REPLAY_COLUMNS: Final = tuple(column.name for column in REPLAY.columns if not column.is_optional)
_WHAT_IF_COLUMNS: Final = tuple(column.name for column in WHAT_IF.columns if not column.is_optional)
# explains the order if its gain is larger than that of the first cause
_GRAPH_LATER: Final = "then use a CUDA graph, which cannot contain syncs"
# a cause with this share of its time before the loop belongs to the start-up
_MOSTLY_EARLY: Final = 0.9
# a cause that names the awaited rank comes first, unless another one gains this many times more
_NAMED_RANK_BONUS: Final = 1.2
# gains that differ by less than this factor are equal
_NEARLY_EQUAL: Final = 1.05
# more waits per step cut a CUDA graph into too many pieces
_MANY_WAITS: Final = 8
# the smallest share of pipeline bubbles to report, and the largest share of a step that its stages may not explain
_BUBBLE_PCT: Final = 10
# a rank is late by at least this time and this many steps
_LATE_NS: Final = 1e9
# labels of products (nightsight.events.kernel_labels), and of those for at most eight rows. Shorter ones are small, and
# do not wait for memory. Those that take this share of the window are reported
_PRODUCT: Final = r"(?:gemm|gemv)\b"
_SKINNY: Final = r"^gemv\b|\b(?:\d+x8|8x\d+)(?:x\d+)?\b"
_LEAST_SKINNY_NS: Final = 6_000
_SKINNY_PCT: Final = 30.0
# the operator that gets the mask as the program made it; others get it with as many rows as there are heads
_ATTENTION: Final = "aten::scaled_dot_product_attention"
_MOSTLY_MASKED: Final = 0.5
# the weight of padding to a fixed length, in percent of a step: that of a sixth of the tokens. In collections of texts,
# half of them and more are padding, but the mask may also separate packed samples
_FIXED_LENGTH_PCT: Final = 15.0
# a larger batch must save this share of the time of each sample
_LEAST_PER_ITEM: Final = 0.3
# and has this weight in the choice of the first finding: less than a CUDA graph, which does not change results
_COUNTS_PER_ITEM: Final = 0.3
# its shapes: query, key, value and mask
_SHAPE: Final = r"\[(\d+),(\d+),(\d+),(\d+)\]"
_MASKED: Final = re.compile(rf"\[{_SHAPE},{_SHAPE},{_SHAPE},{_SHAPE}")
# events: fewer than this many, in at least this many steps, are one
_ONCE: Final = 1.5
_FEWEST_STEPS: Final = 5
# what occurs in this share of the steps or less is an event, and not a part of each step
_MOST_OF_EVENT: Final = 0.34
_LATE_STEPS: Final = 20
_LONE_RANK_COLUMNS: Final = (
    (TIME_SPLIT, ("device", "category", "share_pct")),
    (COLLECTIVES, ("name", "skew_ns", "transfer_ns", "group_size", "exposed_ns", "total_ns", "avg_ns", "calls")),
)
_LONE_PCT: Final = 10.0


def advise(results: Sequence[Result], *, is_start_up: bool = False) -> tuple[Finding, ...]:
    """Return the advice: the most important finding first, the others by gain; empty if there is nothing to improve.

    Notes on events that occurred once come last. is_start_up: the results cover the time before the loop, where advice
    for each step does not apply.
    """
    tables = Tables(results)
    weighted = [
        *_cause_findings(tables, is_start_up=is_start_up),
        *((finding, finding.gain_pct or 0.0) for finding in (*replay_advice(tables), *_late_rank(tables))),
        *_pipeline_bubble(tables),
        *_lone_rank(tables),
        *((finding, 0.0) for finding in _skinny_products(tables)),
        *_padded_batches(tables),
        *_small_steps(tables),
    ]
    events = tuple(_single_events(tables))
    if not weighted:
        return events
    first = max(weighted, key=lambda pair: pair[1])
    others = (pair for pair in weighted if pair is not first)
    by_gain = sorted(others, key=lambda pair: -(pair[1] if pair[0].gain_pct is None else pair[0].gain_pct))
    return (*(finding for finding, _ in (first, *by_gain)), *events)


def advise_on_whole(findings: Iterable[Finding], start_up: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the advice on a whole run, with the start-up fix for causes almost entirely before the loop."""
    early = {(finding.rule, finding.cause): finding.gain_ns or 0 for finding in start_up}
    return tuple(
        _for_start_up(finding)
        if early.get((finding.rule, finding.cause), 0) > _MOSTLY_EARLY * (finding.gain_ns or 0)
        else finding
        for finding in findings
    )


def _for_start_up(finding: Finding) -> Finding:
    return replace(finding, remedy=RULE[finding.rule].at_start if finding.rule in RULE else AT_START, action="")


def _late_rank(tables: Tables) -> Iterator[Finding]:
    """Yield a finding if all other ranks once waited for one rank for much longer than a step."""
    ranks = tables.rows(RANKS, "rank", "step_ns", "late_ns", "late_at_ns")
    if not len(ranks):
        return
    ranks = ranks[ranks["late_ns"] >= np.maximum(_LATE_NS, _LATE_STEPS * ranks["step_ns"])]
    for row in ranks.sort_values(["late_ns", "rank"], ascending=[False, True]).head(1).to_dict("records"):
        late, at = (format_value(int(row[name]), name) for name in ("late_ns", "late_at_ns"))
        cause = f"Rank {row['rank']} arrived late once, and all others waited"
        yield Finding(
            "late_rank",
            "advice",
            f"{cause}: {late}",
            f"It arrived {at} after the first GPU operation. The whole job waited for it.",
            "Check what that rank did before: loading, compiling, a slow disk, a checkpoint that only it writes. Do it "
            "on all ranks at the same time, or before the others start.",
            source=RANKS.name,
            cause=cause,
            action="start it with the others",
        )


def _lone_rank(tables: Tables) -> Iterator[tuple[Finding, float]]:
    """Yield a finding if collectives with missing ranks take much of the window, with its weight.

    The weight is their share of the window in percent: no gain is predicted, but all of it may be waiting.
    """
    split, calls = (tables.rows(entry, *columns) for entry, columns in _LONE_RANK_COLUMNS)
    if not len(calls):
        return
    share = split["share_pct"].where(split["category"] == COMMUNICATION, 0.0).groupby(split["device"]).sum().mean()
    # matched ranks have a skew; the transfer is known if all members match; pairs always have two members
    is_matched = calls["skew_ns"].notna() & (calls["transfer_ns"].notna() | calls["name"].isin(PAIRWISE))
    is_lone = ~is_matched & (calls["group_size"].fillna(2) > 1)
    # the sum over all ranks and steps
    exposed = calls["exposed_ns"] * calls["total_ns"] / (calls["avg_ns"] * calls["calls"])
    share *= exposed.where(is_lone, 0.0).sum() / max(exposed.sum(), 1.0)
    if not share >= _LONE_PCT:
        return
    is_one = split["device"].nunique() == 1
    who, waits = ("This rank spends", "it waits") if is_one else ("These ranks spend", "they wait")
    others = " with missing ranks" * bool(calls["skew_ns"].notna().any())
    yield (
        Finding(
            "lone_rank",
            "advice",
            f"{who} {format_value(float(share), 'share_pct')} of the window in communication{others}: only captures of "
            f"all ranks show whether {waits} for others or for the link",
            "Communication ends when all ranks have arrived and the data is there; this capture lacks the others.",
            "Record all ranks and report them together: nightsight report rank* makes one report of the job, which "
            "names the rank that the others wait for (docs/ranks.md).",
            source=COLLECTIVES.name,
            action="record all ranks and report them together (`nightsight report rank*`)",
        ),
        float(share),
    )


def _pipeline_bubble(tables: Tables) -> Iterator[tuple[Finding, float]]:
    """Yield a finding if the stages of a pipeline wait for each other, with its weight.

    The weight is the percentage of a step that twice as many microbatches would save, if known.
    """
    stages = tables.rows(PIPELINE_STAGES, *PIPELINE_STAGES.column_names)
    if not len(stages):
        return
    stages = stages.dropna(subset=["even_pct", "microbatches"])
    mean_pct = stages.groupby("pipeline")["bubble_pct"].mean()
    if not len(mean_pct) or mean_pct.max() < _BUBBLE_PCT:
        return
    of_pipeline = stages[stages["pipeline"] == mean_pct.idxmax()]
    count, batches, bubble = len(of_pipeline), int(of_pipeline["microbatches"].iloc[0]), float(mean_pct.max())
    step, work = float(of_pipeline["step_ns"].mean()), of_pipeline["work_ns"]
    # the first microbatch passes through all stages; the others follow at the pace of the slowest stage
    fill = float(work.sum() - work.max()) / batches
    formula = f"({count} - 1) / ({batches} + {count} - 1) = {of_pipeline['even_pct'].iloc[0]:.0f} %"
    is_explained = bool(abs(fill + float(work.max()) - step) <= _BUBBLE_PCT / 100 * step)
    saving = f"{format_value(fill / 2, 'gain_ns')} of the {format_value(step, 'gain_ns')} of a step"
    gain = f" Twice as many, each half as large, would save up to {saving}, if kernels stay as efficient."
    cause = "Pipeline stages wait for each other"
    finding = Finding(
        "pipeline_bubble",
        "advice",
        f"{cause}: {bubble:.0f} % of a step",
        f"A step has {batches:,} {'microbatch' if batches == 1 else 'microbatches'} on {count:,} stages. While the "
        f"pipeline fills and drains, even balanced stages wait: {formula} of a step.{gain * is_explained}",
        "Split a batch into more microbatches: with 1F1B this needs no more memory. Or give each rank several shorter "
        "stages (interleaved schedule).",
        source=PIPELINE_STAGES.name,
        cause=cause,
        action="use more microbatches",
    )
    yield finding, 100 * fill / 2 / step if is_explained else 0.0


def _skinny_products(tables: Tables) -> Iterator[Finding]:
    """Yield a finding if products of a few rows, each of which reads all of its weights, take much of the window.

    They occur when one or a few sequences are decoded at a time. The gain depends on the load, and is not predicted.
    """
    kernels = tables.rows(CUDA_GPU_KERN_SUM, "name", "total_ns", "instances", "avg_ns")
    labels = kernels["name"].astype("str").map(label_of)
    is_product = labels.str.match(_PRODUCT)
    is_skinny = is_product & labels.str.contains(_SKINNY) & (kernels["avg_ns"] >= _LEAST_SKINNY_NS)
    skinny_ns, product_ns = (float(kernels["total_ns"][chosen].sum()) for chosen in (is_skinny, is_product))
    share = 100 * skinny_ns / max(tables.window_ns, 1)
    if share < _SKINNY_PCT or skinny_ns < product_ns / 2:
        return
    counts = kernels["instances"][is_skinny].groupby(labels[is_skinny]).sum().sort_values(ascending=False)
    cause = "Products of a few rows read all weights"
    yield Finding(
        "memory_bound_decode",
        "advice",
        f"{cause}: {format_value(share, 'share_pct')} of the window",
        "Tokens of one or a few sequences at a time use a small part of the GPU's arithmetic: reading the weights "
        "takes most of the time. More sequences at once take hardly longer. The gain depends on the load.",
        "Decode more sequences at once (a larger batch, continuous batching), several tokens at once (speculative "
        "decoding), or smaller weights (FP8, INT4).",
        tuple(f"{label}: {count:,} times" for label, count in counts.head(_MOST_EVIDENCE).items()),
        source=CUDA_GPU_KERN_SUM.name,
        cause=cause,
        action="decode more sequences at once, or quantize the weights",
    )


def _padded_batches(tables: Tables) -> Iterator[tuple[Finding, float]]:
    """Yield a finding if most calls of attention get a mask for each sample of the batch, the same for all heads.

    Only shapes of operators show it. The capture does not show how much of a batch is padding, so no gain is predicted.
    The finding has a weight if all batches have one length: then they are not padded to their longest sample.
    """
    operators = tables.rows(CPU_OP_SHAPES, "name", "calls", "shapes")
    if not len(operators):
        return
    attention = operators[operators["name"].astype("str") == _ATTENTION]
    mask = attention["shapes"].astype("str").map(_mask_of_samples)
    counts = attention["calls"][mask != ""].groupby(mask[mask != ""]).sum().astype("int64").nlargest(_MOST_EVIDENCE)
    if not len(counts) or attention["calls"][mask != ""].sum() < _MOSTLY_MASKED * attention["calls"].sum():
        return
    cause, widths = "Attention gets a mask for each sample", {shape.rpartition("×")[2] for shape in mask[mask != ""]}
    finding = Finding(
        "padding",
        "advice",
        f"{cause}, so batches are probably padded",
        "Padding is computed like other tokens, in every layer. The capture has no lengths, so no gain is predicted; "
        "it is about the share of padding. (If samples are packed, the mask separates them, and no time is lost.)",
        "Count the padding: `1 - attention_mask.float().mean()`. Pad a batch to its longest sample, not to a fixed "
        'length (`DataCollatorWithPadding(tokenizer, padding="longest")`), put samples of similar length into one '
        'batch (`train_sampling_strategy="group_by_length"` in TrainingArguments of transformers 5, '
        "`group_by_length=True` before), or pack them without padding (`DataCollatorWithFlattening()`).",
        tuple(f"{_ATTENTION} with a mask of {shape}: {count:,} calls" for shape, count in counts.items()),
        source=CPU_OP_SHAPES.name,
        cause=cause,
        action="pad less: to the longest sample, by groups of similar length, or not at all",
    )
    yield finding, _FIXED_LENGTH_PCT if len(widths) == 1 else 0.0


def _small_steps(tables: Tables) -> Iterator[tuple[Finding, float]]:
    """Yield a finding if a much larger batch would hardly take longer because kernels are small.

    A step does not become shorter, so the finding has no gain; each sample, environment or request has. Its weight is a
    part of that gain, because a larger batch may change results, and delays the first ones.
    """
    columns = ("times", "blocks", "filled_pct", "multiprocessors", "larger_ns")
    for row in tables.rows(REPLAY, *_REPLAY_COLUMNS, *columns).head(1).to_dict("records"):
        per_item = 1 - row["larger_ns"] / max(row["times"] * row["unprofiled_ns"], 1)
        if not (row["times"] > 1 and per_item >= _LEAST_PER_ITEM):
            continue
        step, cause = _step(row), "Steps are small for this GPU"
        before, after = (format_value(float(row[name]), name) for name in ("unprofiled_ns", "larger_ns"))
        as_long = "as long" if before == after else f"{after} instead of {before}"
        blocks = f"at most {row['blocks']:,} {'block' if row['blocks'] == 1 else 'blocks'}"
        evidence = f"Kernels with 95 % of the time have {blocks}; the GPU has {row['multiprocessors']:,} SMs"
        if pd.notna(row["filled_pct"]):
            filled = format_value(float(row["filled_pct"]), "filled_pct")
            evidence = f"Kernels with most of the time have {blocks}, {filled} of what the SMs hold at once or less"
        finding = Finding(
            "small_batch",
            "advice",
            f"{cause}: with {row['times']} times the work, {step.each} would take {as_long}, "
            f"{100 * per_item:.0f} % less per item",
            "Kernels fill a small part of the GPU, so launches and latencies determine the time. With more data, the "
            "same kernels run on more SMs at the same time. Host code other than launches is assumed to take as many "
            "times as long; vectorized code takes less.",
            "Process more per step: a larger batch where results allow it, many environments at once "
            "(`gymnasium.make_vec(name, num_envs=64)`), requests together (dynamic batching), lists of texts instead "
            "of one text (`tokenizer(texts, padding=True)`), independent systems or seeds side by side (torch.vmap, "
            "jax.vmap).",
            (evidence,),
            source=REPLAY.name,
            cause=cause,
            action="process more per step",
        )
        yield finding, _COUNTS_PER_ITEM * 100 * per_item


def _mask_of_samples(shapes: str) -> str:
    """Return the shape of the mask of an attention, such as 32×1×1×512, if each sample has its own; "" otherwise."""
    if (found := _MASKED.match(shapes.replace(" ", ""))) is None:
        return ""
    shape = list(map(int, found.groups()))
    batch, queries, keys, mask = shape[0], shape[2], shape[6], shape[12:]
    # a bias for the distance of tokens differs by query or head
    has_one_of_keys = mask[2] == 1 < queries or (mask[1] == 1 and mask[2] == queries)
    is_of_sample = batch > 1 and mask[0] == batch and mask[3] == keys and has_one_of_keys
    return "×".join(map(str, mask)) if is_of_sample else ""


def unchecked_rules(results: Sequence[Result]) -> dict[str, str]:
    """Return, by name, the rules that could not be checked, each with the reason."""
    simulated = find(results, WHAT_IF.name)
    if simulated is not None and simulated.table is None:
        return dict.fromkeys(RULE, simulated.unavailable)
    tables = Tables(results)
    replays = tables.rows(REPLAY, "calls", "doubt").to_dict("records")
    if not replays:
        return dict.fromkeys(RULE, "there is nothing to simulate")
    if doubt := replays[0]["doubt"]:
        return dict.fromkeys(RULE, doubt)
    why = "no CUDA calls were recorded"
    calls = find(results, CUDA_API_SUM.name)
    if calls is not None and calls.table is not None:
        why = "no CUDA call was made in this window: its work was launched earlier"
    reasons = {} if replays[0]["calls"] else dict.fromkeys([rule.name for rule in RULES if not rule.of_kernels], why)
    if not len(tables.rows(NCU_LIMITS)):
        reasons |= dict.fromkeys(sorted(KERNEL_WORDS.keys() - RULE.keys()), "no kernel was replayed with ncu")
    return reasons


def _cause_findings(tables: Tables, *, is_start_up: bool) -> Iterator[tuple[Finding, float]]:
    """Yield a finding for each fix with enough gain, and its weight for the first place."""
    replays, simulated = tables.rows(REPLAY, *_REPLAY_COLUMNS), tables.rows(WHAT_IF, *_WHAT_IF_COLUMNS)
    simulated = simulated[simulated["gain_pct"].notna() & simulated["rule"].isin(list(RULE))]
    if not len(replays):
        return
    replay: dict[Any, Any] = replays.iloc[0].to_dict()
    rules = simulated["rule"].map(RULE)
    score = simulated["gain_pct"] * simulated["rule"].map(lambda rule: RULE[rule].counts).astype("float64")
    # a cause that names the awaited rank is more specific than one that all ranks share
    score *= np.where((simulated["rule"] == "host_code") & (simulated["name"] != ""), _NAMED_RANK_BONUS, 1.0)
    score = _rank_narrower_first(simulated, _rank_after_waits(simulated, score))
    is_worthwhile = simulated["gain_pct"] >= rules.map(lambda rule: rule.worth_pct).astype("float64")
    # an event may not occur again, so no gain per step is predicted
    is_worthwhile &= ~_occurs_once(simulated, replay)
    ranked = simulated.assign(score=score)[is_worthwhile].sort_values("score", ascending=False, kind="stable")
    named_paths: set[str] = set()
    count = 0
    for row in ranked.to_dict("records"):
        if RULE[row["rule"]].shares_time:
            # in the best sequence, its gain is in addition to that of the earlier finding
            if row["path"] in named_paths and not (pd.notna(row["order"]) and row["order"] > 1):
                continue
            named_paths.add(row["path"])
        cause = _cause_finding(row, replay, tables, simulated if not count and not is_start_up else simulated[:0])
        if row["rule"] == "launch_bound" and row["gain_pct"] > ranked["gain_pct"].iloc[0]:
            cause = replace(cause, action=_GRAPH_LATER)
        yield _for_start_up(cause) if is_start_up else cause, row["score"]
        count += 1
        if count == _MOST_CAUSES:
            return


def _rank_after_waits(simulated: pd.DataFrame, score: "pd.Series[float]") -> "pd.Series[float]":
    """Return the scores, with a CUDA graph ranked below the waits that would cut it into many pieces.

    Waits with a negligible gain are not ranked first: the simulated graphs end at them anyway.
    """
    is_wait = simulated["rule"].isin(["wait", "wait_and_host_code"])
    if simulated.loc[is_wait, "cases"].sum() <= _MANY_WAITS or score[is_wait].max() < WORTH_PCT:
        return score
    return score.mask(simulated["rule"] == "launch_bound", np.minimum(score, 0.99 * score[is_wait].max()))


def _occurs_once(simulated: pd.DataFrame, replay: Mapping[Any, Any]) -> "pd.Series[bool]":
    """Return which fixes concern an event in a single step of the whole window."""
    count = replay["of_repetitions"] if replay["repetitions"] == replay["of_repetitions"] >= _FEWEST_STEPS else np.inf
    # older reports lack the column
    share = simulated.get("in_steps_pct", pd.Series(100.0, simulated.index)).fillna(100)
    return share / 100 * count <= _ONCE


def _single_events(tables: Tables) -> Iterator[Finding]:
    """Yield a note on the most expensive cause that occurs in a single step."""
    replays, simulated = tables.rows(REPLAY, *_REPLAY_COLUMNS), tables.rows(WHAT_IF, *_WHAT_IF_COLUMNS)
    simulated = simulated[simulated["gain_pct"].notna() & simulated["rule"].isin(list(RULE))]
    if not len(replays) or not len(simulated):
        return
    replay: dict[Any, Any] = replays.iloc[0].to_dict()
    once = simulated[_occurs_once(simulated, replay) & (simulated["gain_pct"] >= WORTH_PCT)]
    for row in once.nlargest(1, "gain_pct").to_dict("records"):
        cause = _cause_finding({**row, "in_steps_pct": 100.0}, replay, tables, simulated[:0]).cause
        time = format_value(float(row["time_ns"]) * replay["of_repetitions"], "time_ns")
        yield Finding(
            "occurred_once",
            "info",
            f"{cause} in one step: {time}",
            f"It occurred in 1 of {replay['of_repetitions']:,} steps, so no gain per step is predicted.",
            RULE[row["rule"]].remedy,
            source=WHAT_IF.name,
            cause=cause,
        )


def _rank_narrower_first(simulated: pd.DataFrame, score: "pd.Series[float]") -> "pd.Series[float]":
    """Return the scores, with host code ranked above a wait around it that gains hardly more: its place says more."""
    rules, paths, gains = (simulated[name].tolist() for name in ("rule", "path", "gain_pct"))
    waits = [(path, gain) for rule, path, gain in zip(rules, paths, gains, strict=True) if rule == "wait"]
    ranked = score.to_numpy(copy=True)
    for row, (rule, path, gain) in enumerate(zip(rules, paths, gains, strict=True)):
        most = max((of_wait for around, of_wait in waits if path.startswith(f"{around} / ")), default=0.0)
        if rule == "host_code" and gain < most <= _NEARLY_EQUAL * gain:
            ranked[row] = max(ranked[row], most * (1 + 1e-6))
    return pd.Series(ranked, score.index)


def _cause_finding(row: dict[Any, Any], replay: dict[Any, Any], tables: Tables, others: pd.DataFrame) -> Finding:
    rule, step, share = RULE[row["rule"]], _step(replay), _share_of_steps(row)
    before, gain = float(replay["unprofiled_ns"]), float(row["gain_ns"])
    of_which = step.each if share == 1 else f"{step.one} on average"
    gain_of_step = f"{format_value(gain, 'gain_ns')} of the {format_value(before, 'gain_ns')} of {of_which}"
    cases = f"{row['cases'] / share:,.0f}" if row["cases"] >= share else f"{row['cases'] / share:.1f}"
    per = step.per if share == 1 else _in_some(share, step)
    texts = {
        "each": per,
        "where": _in_place(row),
        "cases": cases,
        "things": rule.things[cases != "1"],
        "name": row["name"] or "calls",
        "most": f", most in `{row['name']}`" if row["name"] else "",
    }
    remaining, error = before - gain, _error_pct(replay, row["gain_pct"]) / 100 * before
    profiled = "without the profiler" if replay["call_cost_ns"] or pd.notna(replay["timed_ns"]) else "as profiled"
    spread = f"{format_value(remaining, 'gain_ns')} ± {format_value(min(error, remaining), 'gain_ns')}"
    predicted = f"With the fix, {step.one} takes {spread} {profiled}."
    waits = row["waits_in"]
    waiting = (
        (f"Most of this time is spent in `{waits}`, waiting for another thread, a process or a file.",) if waits else ()
    )
    framework = str(replay.get("framework", ""))
    remedy = (
        rule.remedies.get(framework, rule.remedy) if replay["of_repetitions"] or not rule.one_time else rule.one_time
    )
    title = f"{rule.title}: {{name}}" if rule.of_kernels else rule.title
    title = rule.of_rank if rule.of_rank and row["name"] else title
    cause = title.format(**texts) + f" {per}" * (share < 1 and "{each}" not in title)
    each_time = (f"It takes {format_value(row['time_ns'] / share, 'time_ns')} each time.",) if share < 1 else ()
    return Finding(
        rule.name,
        "advice",
        f"{cause}: {gain_of_step} can be saved" if rule.saves else f"{cause}: {gain_of_step}",
        " ".join((rule.detail, *each_time, *waiting, predicted, *_next_fixes(row, others))),
        f"{_FIND_WAIT} {remedy}" if waits else remedy,
        tuple(_evidence(rule, row, replay, tables))[:_MOST_EVIDENCE],
        gain_ns=round(gain * max(replay["of_repetitions"], 1)),
        gain_pct=float(row["gain_pct"]),
        source=WHAT_IF.name,
        cause=cause,
        action=rule.actions.get(framework, rule.action),
        kernels=tuple(filter(None, str(row.get("kernels", "")).split("\n"))),
    )


class _Step(NamedTuple):
    """The unit of gains in words: a step, a repetition of an unnamed loop, or the window."""

    each: str
    one: str
    per: str


def _step(replay: Mapping[Any, Any]) -> _Step:
    if not replay["of_repetitions"]:
        return _Step("the window", "the window", "in all")
    name = "repetition" if replay["family"].startswith(UNNAMED) else "step"
    return _Step(f"each {name}", f"a {name}", f"per {name}")


def _share_of_steps(row: Mapping[Any, Any]) -> float:
    """Return the share of the steps in which a cause occurs if it is an event, such as a checkpoint; otherwise 1."""
    # older reports lack the column
    share = float(row.get("in_steps_pct", 100.0)) / 100
    return share if 0 < share <= _MOST_OF_EVENT else 1.0


def _in_some(share: float, step: "_Step") -> str:
    return f"in 1 of {1 / share:.0f} {step.one.removeprefix('a ')}s"


def _in_place(row: Mapping[Any, Any]) -> str:
    location = describe_place(row["path"], row["function"], row["caller"])
    place = location if location == _OUTSIDE else f"in {location}"
    # older reports lack the column
    also = row.get("also")
    others = [path for path in also.split("\n") if path] if isinstance(also, str) else []
    if not others:
        return place
    # the code between ranges is part of what is around them
    named = [describe_place(path) for path in others if not path.startswith("(")]
    place = " and ".join((", ".join((place, *named[: _MOST_RANGES - 1])), *named[_MOST_RANGES - 1 : _MOST_RANGES]))
    # the code between ranges belongs to them
    return f"{place}, with the code around" if len(named) < len(others) and location != _OUTSIDE else place


def describe_place(path: str, function: str = "", caller: str = "") -> str:
    """Return the innermost range of a path, the function in it and its caller, as parts of a sentence."""
    name, _, where = function.removesuffix(")").partition(" (") if function.endswith(")") else (function, "", "")
    location = f"`{name}` {'at' if where.startswith('line') else 'in'} {where}" if where else f"`{name}`"
    if path.startswith("("):
        if caller:
            return f"`{name}`{f' ({where})' * bool(where)}, called from `{caller.partition(' (')[0]}`"
        return f"`{function}`" if function else _OUTSIDE
    inner = f"`{path.rsplit(' / ', 1)[-1]}`" if path else "several places"
    location += f", called from `{caller.partition(' (')[0]}`" * bool(caller)
    return f"{inner} ({location})" if function else inner


def _innermost_ranges(path: str) -> str:
    """Return the innermost ranges of a path."""
    *outer, parent, inner = ("", *path.split(" / "))
    return f"{'… / ' if any(outer) else ''}{parent} / {inner}" if parent else inner


def _error_pct(replay: Mapping[Any, Any], gain_pct: float) -> float:
    """Return the possible error of a gain; both are percentages of a step.

    It is the unexplained part of the simulation, plus half of the profiler's overhead in the remaining time.
    """
    cost = 1 - replay["unprofiled_ns"] / replay["replayed_ns"] if replay["replayed_ns"] else 0.0
    return float(abs(replay["unexplained_pct"]) + 50 * max(cost, 0.0) * (1 - gain_pct / 100) + 0.5)


def _next_fixes(row: dict[Any, Any], others: pd.DataFrame) -> Iterator[str]:
    """Yield the further fixes of the best sequence if this fix is its first."""
    following = others[others["order"].fillna(0) > 1].sort_values("order")
    if row["order"] != 1 or following.empty:
        return
    steps = []
    for fix in following.to_dict("records"):
        where = f" {_in_place(fix)}" if fix["path"] else ""
        steps.append(f"{RULE[fix['rule']].action}{where} ({format_value(float(fix['after_ns']), 'gain_ns')} left)")
    yield f"Then: {', then '.join(steps)}."


def _evidence(rule: Rule, row: dict[Any, Any], replay: dict[Any, Any], tables: Tables) -> Iterator[str]:
    """Yield sentences with the numbers that support a finding."""
    step, in_steps = _step(replay), _share_of_steps(row)
    amount = format_value(float(row["time_ns"]) / in_steps, "time_ns")
    count, per = row["cases"] / in_steps, step.per if in_steps == 1 else _in_some(in_steps, step)
    cases = f"{count:,.0f}" if count >= 100 else f"{count:.3g}"
    one, many = rule.things
    where = f"In {row['path']}: " if row["path"] and not row["path"].startswith("(") else ""
    yield f"{where}{cases} {one if cases == '1' else many} {per}, {amount} in total, as profiled"
    segments = tables.rows(CRITICAL_PATH, "cause", "name", "path", "time_pct", "step_ns")
    paths = segments["path"].astype("str")
    if row["path"] and HOST in rule.causes:
        segments = segments[paths == row["path"]]
    elif row["path"]:
        segments = segments[(paths == row["path"]) | paths.str.startswith(f"{row['path']} / ") | (paths == "")]
    for cause in rule.causes:
        for segment in segments[segments["cause"] == cause].head(1).to_dict("records"):
            name = label_of(segment["name"]) if cause in (COMPUTE, COMMUNICATION) else segment["name"]
            what = " ".join(part for part in (cause, name) if part)
            where = f" in {_innermost_ranges(segment['path'])}" if segment["path"] else ""
            time = format_value(float(segment["step_ns"]), "step_ns")
            share = format_value(float(segment["time_pct"]), "time_pct")
            yield f"On the critical path: {what}{where}, {time} {step.per}, {share} of the window"
    unexplained = f"{replay['unexplained_pct']:+.1f} %"
    if unexplained not in ("+0.0 %", "-0.0 %"):
        yield SIMULATED.format(one=step.one, difference=unexplained.replace("-", "\N{MINUS SIGN}"))
