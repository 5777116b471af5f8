"""Give advice that needs no simulation: what the results of a report show by themselves. Most of it has no gain.

`nightsight.results.rules` declares the texts of these rules.
"""

import re
from collections.abc import Iterator
from typing import Final

import numpy as np
import pandas as pd

from nightsight.advise.tables import REPLAY_COLUMNS, Tables, step_of
from nightsight.events.communication import PAIRWISE
from nightsight.events.kernel_labels import label_of
from nightsight.model.report import Finding
from nightsight.results.categories import COMMUNICATION
from nightsight.results.causes import REPLAY
from nightsight.results.entry import Entry
from nightsight.results.gpu import CUDA_GPU_KERN_SUM
from nightsight.results.gpu_time import TIME_SPLIT
from nightsight.results.operators import CPU_OP_SHAPES
from nightsight.results.ranks import COLLECTIVES, PIPELINE_STAGES, RANKS
from nightsight.results.rules import (
    CACHE_FULL,
    FEW_AT_A_TIME,
    LATE_RANK,
    LONE_RANK,
    MEMORY_BOUND_DECODE,
    NEEDED_COLLECTIVES,
    PADDING,
    PIPELINE_BUBBLE,
    PROMPTS_BLOCK,
    SMALL_BATCH,
    UnsimulatedRule,
)
from nightsight.results.serving import DECODE, ENGINE_STEPS, MEAN, MIXED, PREFILL, REQUEST_TIMES, TTFT
from nightsight.units import counted, in_text

Weighted = tuple[Finding, float]
"""A finding, and its weight in the choice of the first one, in percent of a step."""
_MOST_EVIDENCE: Final = 3
# the smallest share of pipeline bubbles to report, and the largest share of a step that its stages may not explain
_BUBBLE_PCT: Final = 10
# a rank is late by at least this time and this many steps
_LATE_NS: Final = 1e9
_LATE_STEPS: Final = 20
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
# a larger batch must save this share of the time of each sample, and has this weight in the choice of the first
# finding: less than a CUDA graph, which does not change results
_LEAST_PER_ITEM: Final = 0.3
_COUNTS_PER_ITEM: Final = 0.3
# the shapes of an attention: query, key, value and mask
_SHAPE: Final = r"\[(\d+),(\d+),(\d+),(\d+)\]"
_MASKED: Final = re.compile(rf"\[{_SHAPE},{_SHAPE},{_SHAPE},{_SHAPE}")
# a step with prompts that takes this many times as long as one without is a pause that users see
_BLOCKS: Final = 3.0
# in at least this share of such steps, requests wait
_WAITED_PCT: Final = 10.0
# sizes of chunks of prompts, as powers of two
_CHUNKS: Final = (6, 14)
# the cache is full if it is in the mean and in the fullest step that decodes: a burst begins and ends with few requests
_FULL_PCT: Final = 70.0
_MOST_FULL_PCT: Final = 90.0
# preemptions per request; the share of queueing in the time to the first token; requests of a step
_PREEMPTED: Final = 0.05
_MOSTLY: Final = 0.5
# decode's share of the time: with a full cache, the prompts also take longer because few requests share a step
_PARTLY: Final = 0.25
_FEW: Final = 16
_LONE_RANK_COLUMNS: Final = (
    (TIME_SPLIT, ("device", "category", "share_pct")),
    (COLLECTIVES, ("name", "skew_ns", "transfer_ns", "group_size", "exposed_ns", "total_ns", "avg_ns", "calls")),
)
# communication with ranks that are not in the capture is reported from this share of the window
_LONE_PCT: Final = 10.0
# and with ranks whose results each layer needs from this share
_NEEDED_PCT: Final = 5.0


def unsimulated_advice(tables: Tables) -> Iterator[Weighted]:
    """Yield the findings of all rules, each with its weight; 0: all other advice comes first."""
    yield from _late_rank(tables)
    yield from _pipeline_bubble(tables)
    yield from _lone_rank(tables)
    yield from _needed_collectives(tables)
    yield from _skinny_products(tables)
    yield from _padded_batches(tables)
    yield from _small_steps(tables)
    yield from _blocking_prompts(tables)
    yield from _waiting_requests(tables)


def _finding(rule: UnsimulatedRule, source: Entry, evidence: tuple[str, ...] = (), **values: object) -> Finding:
    """Return the finding of a rule, with these values in its texts."""
    texts = (rule.title, rule.rest, rule.detail, rule.remedy, rule.action)
    title, rest, detail, remedy, action = (text.format(**values) for text in texts)
    return Finding(
        rule.name,
        "advice",
        f"{title}{rest}",
        detail,
        remedy,
        evidence,
        source=source.name,
        cause=title if rest else "",
        action=action,
    )


def _late_rank(tables: Tables) -> Iterator[Weighted]:
    """Yield a finding if all other ranks once waited for one rank for much longer than a step."""
    ranks = tables.rows(RANKS, "rank", "step_ns", "late_ns", "late_at_ns")
    if not len(ranks):
        return
    ranks = ranks[ranks["late_ns"] >= np.maximum(_LATE_NS, _LATE_STEPS * ranks["step_ns"])]
    for row in ranks.sort_values(["late_ns", "rank"], ascending=[False, True]).head(1).to_dict("records"):
        late, at = (in_text(int(row[name]), name) for name in ("late_ns", "late_at_ns"))
        yield _finding(LATE_RANK, RANKS, rank=row["rank"], late=late, at=at), 0.0


def _lone_rank(tables: Tables) -> Iterator[Weighted]:
    """Yield a finding if collectives with missing ranks take much of the window.

    The weight is their share of the window in percent: no gain is predicted, but all of it may be waiting.
    """
    split, calls = (tables.rows(entry, *columns) for entry, columns in _LONE_RANK_COLUMNS)
    if not len(calls):
        return
    share = _communication_pct(split)
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
    share_text = in_text(float(share), "share_pct")
    yield _finding(LONE_RANK, COLLECTIVES, who=who, share=share_text, others=others, waits=waits), float(share)


def _communication_pct(split: pd.DataFrame) -> float:
    """Return the exposed communication in percent of the window, as the mean of all GPUs."""
    is_communication = split["category"] == COMMUNICATION
    return float(split["share_pct"].where(is_communication, 0.0).groupby(split["device"]).sum().mean())


def _needed_collectives(tables: Tables) -> Iterator[Weighted]:
    """Yield a finding if layers wait for all-reduces whose result they need, beyond the wait for other ranks."""
    split = tables.rows(TIME_SPLIT, *_LONE_RANK_COLUMNS[0][1])
    calls = tables.rows(COLLECTIVES, *_LONE_RANK_COLUMNS[1][1], "needed_ns", "message_bytes")
    if not len(calls):
        return
    share = _communication_pct(split)
    is_known = calls["transfer_ns"].notna() & calls["needed_ns"].notna()
    transfer_ns = calls["needed_ns"].clip(upper=calls["transfer_ns"] * calls["calls"]).where(is_known, 0.0)
    # the sums over all ranks and steps
    counts = calls["total_ns"] / (calls["avg_ns"] * calls["calls"])
    share *= (transfer_ns * counts).sum() / max((calls["exposed_ns"] * counts).sum(), 1.0)
    if not share >= _NEEDED_PCT:
        return
    most = calls.iloc[int(transfer_ns.to_numpy().argmax())]
    step = next((step_of(row) for row in tables.rows(REPLAY, *REPLAY_COLUMNS).to_dict("records")), None)
    size = f" for {in_text(int(most['message_bytes']), 'message_bytes')}" if pd.notna(most["message_bytes"]) else ""
    finding = _finding(
        NEEDED_COLLECTIVES,
        COLLECTIVES,
        share=in_text(float(share), "share_pct"),
        cases=f"{calls['calls'][transfer_ns > 0].sum():,.0f}",
        per=step.per if step else "in all",
        each=in_text(float(most["transfer_ns"]), "transfer_ns"),
        size=size,
    )
    yield finding, float(share) / 3


def _pipeline_bubble(tables: Tables) -> Iterator[Weighted]:
    """Yield a finding if the stages of a pipeline wait for each other.

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
    is_explained = bool(abs(fill + float(work.max()) - step) <= _BUBBLE_PCT / 100 * step)
    saving = f"{in_text(fill / 2, 'gain_ns')} of the {in_text(step, 'gain_ns')} of a step"
    gain = f" Twice as many, each half as large, would save up to {saving}, if kernels stay as efficient."
    finding = _finding(
        PIPELINE_BUBBLE,
        PIPELINE_STAGES,
        bubble=f"{bubble:.0f} %",
        batches=counted(batches, "microbatch"),
        stages=f"{count:,}",
        formula=f"({count} - 1) / ({batches} + {count} - 1) = {of_pipeline['even_pct'].iloc[0]:.0f} %",
        gain=gain * is_explained,
    )
    yield finding, 100 * fill / 2 / step if is_explained else 0.0


def _skinny_products(tables: Tables) -> Iterator[Weighted]:
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
    evidence = tuple(f"{label}: {count:,} times" for label, count in counts.head(_MOST_EVIDENCE).items())
    yield _finding(MEMORY_BOUND_DECODE, CUDA_GPU_KERN_SUM, evidence, share=in_text(share, "share_pct")), 0.0


def _padded_batches(tables: Tables) -> Iterator[Weighted]:
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
    widths = {shape.rpartition("×")[2] for shape in mask[mask != ""]}
    evidence = tuple(f"{_ATTENTION} with a mask of {shape}: {count:,} calls" for shape, count in counts.items())
    yield _finding(PADDING, CPU_OP_SHAPES, evidence), _FIXED_LENGTH_PCT if len(widths) == 1 else 0.0


def _small_steps(tables: Tables) -> Iterator[Weighted]:
    """Yield a finding if a much larger batch would hardly take longer because kernels are small.

    A step does not become shorter, so the finding has no gain; each sample, environment or request has. Its weight is a
    part of that gain, because a larger batch may change results, and delays the first ones.
    """
    columns = ("times", "blocks", "filled_pct", "multiprocessors", "larger_ns")
    for row in tables.rows(REPLAY, *REPLAY_COLUMNS, *columns).head(1).to_dict("records"):
        per_item = 1 - row["larger_ns"] / max(row["times"] * row["unprofiled_ns"], 1)
        if not (row["times"] > 1 and per_item >= _LEAST_PER_ITEM):
            continue
        before, after = (in_text(float(row[name]), name) for name in ("unprofiled_ns", "larger_ns"))
        blocks = f"at most {counted(row['blocks'], 'block')}"
        evidence = f"Kernels with 95 % of the time have {blocks}; the GPU has {row['multiprocessors']:,} SMs"
        if pd.notna(row["filled_pct"]):
            filled = in_text(float(row["filled_pct"]), "filled_pct")
            evidence = f"Kernels with most of the time have {blocks}, {filled} of what the SMs hold at once or less"
        finding = _finding(
            SMALL_BATCH,
            REPLAY,
            (evidence,),
            times=row["times"],
            each=step_of(row).each,
            duration="as long" if before == after else f"{after} instead of {before}",
            per_item=f"{100 * per_item:.0f} %",
        )
        yield finding, _COUNTS_PER_ITEM * 100 * per_item


def _blocking_prompts(tables: Tables) -> Iterator[Weighted]:
    """Yield a finding if steps of an engine with prompts take much longer than those that only decode.

    The weight is half of what the longest time between tokens would lose, in percent: the throughput stays.
    """
    columns = ("kind", "med_ns", "p99_ns", "idle_ns", "most_tokens", "token_ns", "waits_pct")
    rows = tables.rows(ENGINE_STEPS, *columns).to_dict("records")
    steps = {str(row["kind"]): row for row in rows}
    # engines that do not mix make the requests that generate wait for steps with prompts only
    blocking = [steps[kind] for kind in (MIXED, PREFILL) if kind in steps and steps[kind]["waits_pct"] >= _WAITED_PCT]
    prompts = next((row for row in blocking if row["token_ns"] > 0), None)
    if prompts is None or DECODE not in steps:
        return
    longest, usual = float(prompts["p99_ns"]), float(steps[DECODE]["med_ns"])
    if longest < _BLOCKS * usual:
        return
    # a power of two, as people set it
    chunk = 2 ** int(np.clip(np.log2(max(usual / prompts["token_ns"], 1)), *_CHUNKS))
    # without a graph, a step with few tokens has to be launched, too
    launching = max(float(prompts["idle_ns"] - steps[DECODE]["idle_ns"]), 0.0)
    after = usual + launching + chunk * prompts["token_ns"]
    mixed, decode, then = (in_text(value, "time_ns") for value in (longest, usual, after))
    # otherwise something else than prompts makes the longest steps long
    of_prompts = prompts["most_tokens"] * prompts["token_ns"]
    if after <= longest / 2 and chunk < prompts["most_tokens"] and of_prompts >= _MOSTLY * (longest - usual):
        finding = _finding(PROMPTS_BLOCK, ENGINE_STEPS, mixed=mixed, decode=decode, chunk=chunk, after=f"about {then}")
        yield finding, 50 * (1 - after / longest)


def _waiting_requests(tables: Tables) -> Iterator[Weighted]:
    """Yield a finding if requests are preempted, or queue while few are served; weights as the rules declare."""
    times = tables.rows(REQUEST_TIMES, "metric", "statistic", "requests", "preemptions", "time_ns", "queue_ns")
    for row in times[times["statistic"] == MEAN].head(1).to_dict("records"):
        share = row["preemptions"] / max(row["requests"], 1)
        if share >= _PREEMPTED:
            preemptions, requests = (int(row[name]) for name in ("preemptions", "requests"))
            told = f"{counted(preemptions, 'preemption')} for {counted(requests, 'request')}"
            yield _finding(CACHE_FULL, REQUEST_TIMES, _cache_evidence(tables), reason=told), 50 * min(share, 1)
            continue
        steps = tables.rows(ENGINE_STEPS, "kind", "steps", "time_pct", "requests")
        decode_pct = float(steps["time_pct"][steps["kind"] == DECODE].sum())
        # at the end of a burst, the steps that only decode have few requests
        generating = steps[steps["kind"] != PREFILL]
        batch = float((generating["requests"] * generating["steps"]).sum() / max(generating["steps"].sum(), 1))
        queued = row["queue_ns"] / row["time_ns"] if row["time_ns"] else 0
        cache = tables.rows(ENGINE_STEPS, "kind", "kv_cache_pct", "most_kv_cache_pct")
        decode = cache[cache["kind"] == DECODE]
        full, most = (decode[name].astype("float64").max() for name in ("kv_cache_pct", "most_kv_cache_pct"))
        is_full = full >= _FULL_PCT and most >= _MOST_FULL_PCT
        # if most of the time is that of prompts, more of them at a time take longer
        shared = _PARTLY if is_full else _MOSTLY
        if row["metric"] == TTFT and queued >= _MOSTLY and batch <= _FEW and decode_pct >= 100 * shared:
            queue, ttft = (in_text(row[name], name) for name in ("queue_ns", "time_ns"))
            evidence = _cache_evidence(tables)
            if is_full:
                told = f"they queue for {queue} of the {ttft} to the first token"
                yield _finding(CACHE_FULL, REQUEST_TIMES, evidence, reason=told), 50 * queued
                continue
            served = f"{batch:.3g}"
            finding = _finding(FEW_AT_A_TIME, REQUEST_TIMES, evidence, requests=served, queue=queue, ttft=ttft)
            yield finding, 50 * queued


def _cache_evidence(tables: Tables) -> tuple[str, ...]:
    """Return how full the KV cache was, by the log of the engine; nothing without one."""
    most = tables.rows(ENGINE_STEPS, "most_kv_cache_pct")["most_kv_cache_pct"].astype("float64").max()
    return () if pd.isna(most) else (f"The KV cache was up to {in_text(most, 'most_kv_cache_pct')} full",)


def _mask_of_samples(shapes: str) -> str:
    """Return the shape of the mask of an attention, such as 32×1×1×512, if each sample has its own; "" otherwise."""
    if (match := _MASKED.match(shapes.replace(" ", ""))) is None:
        return ""
    shape = list(map(int, match.groups()))
    batch, queries, keys, mask = shape[0], shape[2], shape[6], shape[12:]
    # a bias for the distance of tokens differs by query or head
    has_one_of_keys = mask[2] == 1 < queries or (mask[1] == 1 and mask[2] == queries)
    is_of_sample = batch > 1 and mask[0] == batch and mask[3] == keys and has_one_of_keys
    return "×".join(map(str, mask)) if is_of_sample else ""
