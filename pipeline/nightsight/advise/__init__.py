"""Give advice on a report: causes of lost time, each with its place, its fix and the predicted gain.

Causes and gains come from the simulated fixes (the result `what_if`); symptoms, such as low utilization, gaps or
short kernels, are evidence at most. Fixes with little gain are omitted, so a healthy program gets no advice.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from nightsight.advise.replays import replay_advice
from nightsight.advise.tables import REPLAY_COLUMNS, GainUnit, Tables, step_of
from nightsight.advise.unsimulated import unsimulated_advice
from nightsight.events.kernel_labels import label_of
from nightsight.events.loops import LIBRARY_PATH
from nightsight.model.report import Finding, Result, find
from nightsight.results.categories import COMMUNICATION, COMPUTE, HOST
from nightsight.results.causes import REPLAY, SIMULATED, WHAT_IF, error_pct
from nightsight.results.code import code_for
from nightsight.results.entry import Entry
from nightsight.results.gpu import CUDA_GPU_KERN_SUM, FUSED_KERNELS
from nightsight.results.gpu_time import CRITICAL_PATH, GPU_TIME, TIME_SPLIT
from nightsight.results.ncu import NCU_KERNELS, NCU_LIMITS, NCU_RULES
from nightsight.results.operators import CPU_OP_SHAPES
from nightsight.results.program import (
    COMPILATIONS,
    CUDA_API_SUM,
    GRAPH_RECORDED,
    GRAPH_RECORDED_AGAIN,
    GRAPHS_SKIPPED,
    KERNELS_TUNED,
    SKIPS_FUNCTION,
)
from nightsight.results.ranks import COLLECTIVES
from nightsight.results.rules import AT_START, KERNEL_WORDS, RULE, RULES, WORTH_PCT, Rule
from nightsight.results.serving import ENGINE_STEPS, REQUEST_TIMES
from nightsight.results.switches import PYTORCH
from nightsight.tables import positions
from nightsight.units import DIGITS_IN_TEXT, in_text, scale_for, signed

NEEDS: Final[tuple[Entry, ...]] = (
    WHAT_IF,
    REPLAY,
    CRITICAL_PATH,
    GPU_TIME,
    TIME_SPLIT,
    CUDA_GPU_KERN_SUM,
    FUSED_KERNELS,
    COLLECTIVES,
    COMPILATIONS,
    CPU_OP_SHAPES,
    ENGINE_STEPS,
    REQUEST_TIMES,
    NCU_RULES,
    NCU_KERNELS,
    NCU_LIMITS,
)
"""The results that advice reads."""
_FIND_WAIT: Final = (
    "Find what it waits for: a queue that fills too slowly needs more workers; hold a lock for less time."
)
_OUTSIDE: Final = "in parts without NVTX ranges"
_BETWEEN_STEPS: Final = "between the steps of the engine"
_MOST_RANGES: Final = 2
_MOST_CAUSES: Final = 8
_MOST_EVIDENCE: Final = 3
# kernels of a finding whose operators are named
_MOST_FUSED: Final = 2
# a reason that accounts for a smaller share of the time of a finding is not why it takes long
_LEAST_OF_COMPILING: Final = 0.1
_WHAT_IF_COLUMNS: Final = (*(column.name for column in WHAT_IF.columns if not column.is_optional), "counted_pct")
# explains the order if its gain is larger than that of the first cause
_GRAPH_LATER: Final = "use CUDA graphs after that: they cannot contain syncs"
# a cause with this share of its time before the loop belongs to the start-up
_MOSTLY_EARLY: Final = 0.9
# a cause that names the awaited rank comes first, unless another one gains this many times more
_NAMED_RANK_BONUS: Final = 1.2
# gains that differ by less than this factor are equal
_NEARLY_EQUAL: Final = 1.05
# more waits per step cut a CUDA graph into too many pieces
_MANY_WAITS: Final = 8
# the weight of such a graph: a policy that acts once per environment and waits for each action gains 15 % from graphs
# of its model, 82 % from graphs of all between the waits, and 99 % per action from 64 environments at once
_COUNTS_IN_PIECES: Final = 0.5
# events: fewer than this many, in at least this many steps, are one
_ONCE: Final = 1.5
_FEWEST_STEPS: Final = 5
# what occurs in this share of the steps or less is an event, and not a part of each step
_MOST_OF_EVENT: Final = 0.34


def advise(results: Sequence[Result], *, is_start_up: bool = False) -> tuple[Finding, ...]:
    """Return the advice: the most important finding first, the others by gain; empty if there is nothing to improve.

    Notes on events that occurred once come last. is_start_up: the results cover the time before the loop, where advice
    for each step does not apply.
    """
    tables = Tables(results)
    fused = _fused_operators(tables)
    weighted = [
        *_cause_findings(tables, is_start_up=is_start_up),
        *((finding, finding.gain_pct or 0.0) for finding in replay_advice(tables)),
        *unsimulated_advice(tables),
    ]
    events = tuple(_single_events(tables))
    if not weighted:
        return events
    first = max(weighted, key=lambda pair: pair[1])
    others = (pair for pair in weighted if pair is not first)
    by_gain = sorted(others, key=lambda pair: -(pair[1] if pair[0].gain_pct is None else pair[0].gain_pct))
    return (*(_with_operators(finding, fused) for finding, _ in (first, *by_gain)), *events)


def _fused_operators(tables: Tables) -> dict[str, str]:
    """Return what kernels of torch.compile fuse, and where in the program, by name: `gelu, add of forward (m.py:4)`."""
    rows = tables.rows(FUSED_KERNELS, "name", "operators", "places", "kernels")
    texts = (rows[column].astype("str") for column in ("name", "operators", "places"))
    return {
        name: " of ".join(filter(None, (operators or "operators", places)))
        + (f" ({count} kernels have this name)" if count > 1 else "")
        for name, operators, places, count in zip(*texts, rows["kernels"].tolist(), strict=True)
        if operators or places
    }


def _with_operators(finding: Finding, fused: Mapping[str, str]) -> Finding:
    """Add to a finding about kernels what those of torch.compile fuse."""
    named = [name for name in finding.kernels if name in fused][:_MOST_FUSED]
    sentences = (f"{label_of(name)} fuses {fused[name]}" for name in named)
    return replace(finding, evidence=(*finding.evidence, *sentences)) if named else finding


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
    remedy = RULE[finding.rule].at_start if finding.rule in RULE else AT_START
    return replace(finding, remedy=remedy, action="", code="")


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


def _simulated(tables: Tables) -> tuple[dict[Any, Any], pd.DataFrame]:
    """Return the row of the simulation, empty without one, and the fixes whose gain is predicted."""
    replays, fixes = tables.rows(REPLAY, *REPLAY_COLUMNS), tables.rows(WHAT_IF, *_WHAT_IF_COLUMNS)
    fixes = fixes[fixes["gain_pct"].notna() & fixes["rule"].isin(list(RULE))]
    return next(iter(replays.to_dict("records")), {}), fixes


def _cause_findings(tables: Tables, *, is_start_up: bool) -> Iterator[tuple[Finding, float]]:
    """Yield a finding for each fix with enough gain, and its weight for the first place."""
    replay, simulated = _simulated(tables)
    if not replay:
        return
    rules = simulated["rule"].map(RULE)
    score = simulated["counted_pct"].astype("float64")
    # a cause that names the awaited rank is more specific than one that all ranks share
    names_rank = rules.map(lambda rule: rule.of_rank != "").astype(bool) & (simulated["name"] != "")
    score *= np.where(names_rank, _NAMED_RANK_BONUS, 1.0)
    score = _rank_narrower_first(simulated, _rank_after_waits(simulated, score))
    if step_of(replay).is_of_engine:
        score = _rank_one_action(simulated, score)
    is_worthwhile = simulated["gain_pct"] >= rules.map(lambda rule: rule.worth_pct).astype("float64")
    # an event may not occur again, so no gain per step is predicted
    is_worthwhile &= ~_occurs_once(simulated, replay)
    ranked = simulated.assign(score=score)[is_worthwhile].sort_values("score", ascending=False, kind="stable")
    named_paths: set[str] = set()
    named: set[tuple[str, str, str]] = set()
    count = 0
    for row in ranked.to_dict("records"):
        if RULE[row["rule"]].shares_time:
            # in the best sequence, its gain is in addition to that of the earlier finding
            if row["path"] in named_paths and not (pd.notna(row["order"]) and row["order"] > 1):
                continue
            named_paths.add(row["path"])
        if (RULE[row["rule"]].after, row["path"], row["name"]) in named:
            # the next fix of that finding, which names it
            continue
        named.add((row["rule"], row["path"], row["name"]))
        cause = _cause_finding(row, replay, tables, simulated if not count and not is_start_up else simulated[:0])
        if RULE[row["rule"]].is_graph and row["gain_pct"] > ranked["gain_pct"].iloc[0]:
            cause = replace(cause, action=_GRAPH_LATER)
        yield _for_start_up(cause) if is_start_up else cause, row["score"]
        count += 1
        if count == _MOST_CAUSES:
            return


def _rank_after_waits(simulated: pd.DataFrame, score: "pd.Series[float]") -> "pd.Series[float]":
    """Return the scores, with a CUDA graph ranked below the waits that would cut it into many pieces.

    Waits with a negligible gain are not ranked first: the simulated graphs end at them anyway. But each piece has to be
    captured, and what the program computes between them stays.
    """
    rules = simulated["rule"].map(RULE)
    is_wait, is_graph = (rules.map(attrgetter(field)).astype(bool) for field in ("is_wait", "is_graph"))
    if simulated.loc[is_wait, "cases"].sum() <= _MANY_WAITS:
        return score
    if score[is_wait].max() < WORTH_PCT:
        return score.mask(is_graph, _COUNTS_IN_PIECES * score)
    return score.mask(is_graph, np.minimum(score, 0.99 * score[is_wait].max()))


def _rank_one_action(simulated: pd.DataFrame, score: "pd.Series[float]") -> "pd.Series[float]":
    """Return the scores, with causes of one range of an engine that one action ends counted together for the largest.

    Sampling requests one by one costs waits and launches. They are ranked above a cause of the range around that gains
    hardly more: their place says more. All of their gains count, as no graph has to be captured in pieces.
    """
    rules, paths, gains = simulated["rule"], simulated["path"].tolist(), simulated["gain_pct"].to_numpy()
    actions = [
        next((f"{path}: {texts[0]}" for name, texts in RULE[rule].in_engine.items() if name and name in path), "")
        for rule, path in zip(rules, paths, strict=True)
    ]
    ranked = score.to_numpy(copy=True)
    codes, names = pd.factorize(pd.Series(actions, dtype=object))
    for code, rows in positions(codes).items():
        if names[code]:
            first, counted = rows[np.argmax(ranked[rows])], gains[rows].sum()
            around = [
                other
                for other, path in zip(ranked, paths, strict=True)
                if paths[first].startswith(f"{path} / ") and counted < other <= _NEARLY_EQUAL * counted
            ]
            ranked[first] = max([counted, *(other * (1 + 1e-6) for other in around)])
    return pd.Series(ranked, score.index)


def _occurs_once(simulated: pd.DataFrame, replay: Mapping[Any, Any]) -> "pd.Series[bool]":
    """Return which fixes concern an event in a single step of the whole window."""
    count = replay["of_repetitions"] if replay["repetitions"] == replay["of_repetitions"] >= _FEWEST_STEPS else np.inf
    # older reports lack the column
    share = simulated.get("in_steps_pct", pd.Series(100.0, simulated.index)).fillna(100)
    return share / 100 * count <= _ONCE


def _single_events(tables: Tables) -> Iterator[Finding]:
    """Yield a note on the most expensive cause that occurs in a single step."""
    replay, simulated = _simulated(tables)
    if not replay or not len(simulated):
        return
    events = simulated[_occurs_once(simulated, replay) & (simulated["gain_pct"] >= WORTH_PCT)]
    for row in events.nlargest(1, "gain_pct").to_dict("records"):
        cause = _cause_finding({**row, "in_steps_pct": 100.0}, replay, tables, simulated[:0]).cause
        time = in_text(float(row["time_ns"]) * replay["of_repetitions"], "time_ns")
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
    paths, gains = (simulated[name].tolist() for name in ("path", "gain_pct"))
    rules = [RULE[name] for name in simulated["rule"]]
    waits = [
        (path, gain) for rule, path, gain in zip(rules, paths, gains, strict=True) if rule.is_wait and not rule.is_host
    ]
    ranked = score.to_numpy(copy=True)
    for row, (rule, path, gain) in enumerate(zip(rules, paths, gains, strict=True)):
        most = max((of_wait for around, of_wait in waits if path.startswith(f"{around} / ")), default=0.0)
        if rule.is_host and not rule.is_wait and gain < most <= _NEARLY_EQUAL * gain:
            ranked[row] = max(ranked[row], most * (1 + 1e-6))
    return pd.Series(ranked, score.index)


def _cause_finding(row: dict[Any, Any], replay: dict[Any, Any], tables: Tables, others: pd.DataFrame) -> Finding:
    rule, step, share = RULE[row["rule"]], step_of(replay), _share_of_steps(row)
    before, gain = float(replay["unprofiled_ns"]), float(row["gain_ns"])
    of_which = step.each if share == 1 else f"{step.one} on average"
    gain_of_step = f"{in_text(gain, 'gain_ns')} of the {in_text(before, 'gain_ns')} of {of_which}"
    cases = f"{row['cases'] / share:,.0f}" if row["cases"] >= share else f"{row['cases'] / share:.1f}"
    per = step.per if share == 1 else _in_some(share, step)
    outside = _outside(tables)
    where = _in_place(row, step, outside)
    texts = {
        "each": per,
        "where": where,
        "cases": cases,
        "things": rule.things[cases != "1"],
        "name": row["name"] or "calls",
        "most": f", most in `{row['name']}`" if row["name"] else "",
    }
    remaining, error = before - gain, error_pct(replay, row["gain_pct"]) / 100 * before
    profiled = "without the profiler" if replay["call_cost_ns"] or pd.notna(replay["timed_ns"]) else "as profiled"
    scale = scale_for("ns", [remaining], DIGITS_IN_TEXT)
    # of a step that nearly vanishes, only the order of magnitude is known
    exact = f"{scale.format(remaining)} ± {scale.with_unit(error)}"
    spread = exact if error < remaining else f"about {scale.with_unit(remaining)}"
    predicted = f"With the fix, {step.one} takes {spread} {profiled}."
    waits = row["waits_in"]
    waiting = (
        (f"Most of this time is spent in `{waits}`, waiting for another thread, a process or a file.",) if waits else ()
    )
    framework = str(replay.get("framework", ""))
    names = row.get("kernels", "")
    kernels = tuple(filter(None, names.split("\n"))) if isinstance(names, str) else ()
    # of loads, only those that come and go have kernels
    is_one_time = bool(rule.one_time) and not replay["of_repetitions"] and (rule.compiles or not kernels)
    remedy = rule.one_time if is_one_time else rule.remedies.get(framework, rule.remedy)
    action = rule.action_in(framework)
    # the innermost range says most
    parts = reversed(row["path"].split(" / "))
    in_engine = rule.in_engine if step.is_of_engine else {}
    places = {**rule.in_places, **in_engine}
    anywhere = places.pop("", (action, remedy))
    of_place = (texts for part in parts for name, texts in places.items() if name in part)
    of_kernel = (texts for name, texts in rule.of_kernel.items() if name in "".join(kernels[:1]))
    action, remedy = next(chain(of_kernel, of_place), anywhere)
    title = f"{rule.title}: {{name}}" if rule.of_kernels else rule.title
    title = rule.of_rank if rule.of_rank and row["name"] else title
    took_ns = row["time_ns"] * max(replay["of_repetitions"], 1)
    why = _compile_reason(tables, took_ns) if rule.compiles else _obstacle(row)
    text = why.title or title
    cause = (text if where else text.replace(" {where}", "")).format(**texts) + why.because
    cause += f" {per}" * (share < 1 and "{each}" not in title)
    # an engine has options instead, and the log of torch.compile its own fix
    has_code = not (is_one_time or in_engine or why.fix)
    about = "\n".join((cause, why.detail, row["path"], *kernels[:1]))
    each_time = (f"It takes {in_text(row['time_ns'] / share, 'time_ns')} each time.",) if share < 1 else ()
    return Finding(
        rule.name,
        "advice",
        f"{cause}: {gain_of_step} can be saved" if rule.saves else f"{cause}: {gain_of_step}",
        " ".join(
            (
                *filter(None, ("" if why.title else rule.detail, why.detail)),
                *each_time,
                *waiting,
                predicted,
                *_next_fixes(row, others, step, outside, framework),
            )
        ),
        " ".join(filter(None, (why.fix or _FIND_WAIT * bool(waits), "" if why.title and why.fix else remedy))),
        tuple(_evidence(rule, row, replay, tables))[:_MOST_EVIDENCE],
        gain_ns=round(gain * max(replay["of_repetitions"], 1)),
        gain_pct=float(row["gain_pct"]),
        source=WHAT_IF.name,
        cause=cause,
        action=why.action or action,
        kernels=kernels,
        code=code_for(rule.name, framework or PYTORCH, about) if has_code else "",
        path="" if row["path"].startswith("(") else row["path"],
    )


class _Why(NamedTuple):
    """Why a cause occurs, from PyTorch's log: words for its title, a sentence, and the code that avoids it.

    because: continues the title of the rule; title: replaces it, and then `action`, the sentence and the code replace
    those of the rule, too.
    """

    because: str = ""
    detail: str = ""
    fix: str = ""
    title: str = ""
    action: str = ""


def _compile_reason(tables: Tables, took_ns: float) -> _Why:
    """Return why torch.compile compiled what took longest, if that is a good part of this time.

    The log has the recording of a CUDA graph alone, without what is done for it before and after.
    """
    # what every program does once says nothing
    one_time = ("", GRAPH_RECORDED, KERNELS_TUNED)
    rows = tables.rows(COMPILATIONS).to_dict("records")
    again = (row for row in rows if row["reason"] not in one_time and not row["reason"].startswith(GRAPHS_SKIPPED))
    row = next(again, None)
    if row is None or row["total_ns"] < _LEAST_OF_COMPILING * took_ns:
        return _Why()
    often = f"in {row['steps']:,} of {row['of_steps']:,} steps" if row["of_steps"] else f"{row['compilations']:,} times"
    took = in_text(float(row["total_ns"]), "total_ns")
    is_recorded = row["reason"] == GRAPH_RECORDED_AGAIN
    what = f"worked on `{row['name']}`" if is_recorded else f"compiled `{row['name']}` again"
    total = "for the recording alone" if is_recorded else "in total"
    reason = f"torch.compile {what} {often}, {took} {total}: {row['reason']}."
    fix = _as_sentence(row["fix"]) if row["fix"] else ""
    if is_recorded:
        title = "torch.compile records a CUDA graph again {where}"
        return _Why(detail=reason, fix=fix, title=title, action="keep inputs at the same addresses")
    return _Why(f", because {row['reason']}", reason, fix)


def _obstacle(row: Mapping[Any, Any]) -> _Why:
    """Return what kept torch.compile from making one graph of the code in which a cause occurs."""
    # older reports lack the columns
    values = (row.get(name) for name in ("obstacle", "obstacle_fix"))
    obstacles, fixes = (value.split("\n") if isinstance(value, str) else [""] for value in values)
    first, *others = obstacles
    if not first:
        return _Why()
    also = "".join(f" Also: {other}." for other in others)
    fix = " ".join(_as_sentence(each) for each in fixes if each)
    if first.startswith(GRAPHS_SKIPPED):
        skipped = first.removeprefix(GRAPHS_SKIPPED)
        return _Why(f", because {skipped}", f"torch.compile makes no CUDA graph of it: {skipped}.{also}", fix)
    if first.endswith(SKIPS_FUNCTION):
        detail = f"torch.compile cannot continue after it{SKIPS_FUNCTION}.{also}"
    else:
        detail = f"torch.compile compiles the code before and after it separately, and Python runs in between.{also}"
    because = f", at a graph break by {first.removesuffix(SKIPS_FUNCTION)}"
    return _Why(because, detail, fix, action="remove the graph break")


def _as_sentence(code: str) -> str:
    """Return words with code as a sentence; code at the start keeps its case."""
    starts_with_word = re.match(r"[a-z]+ ", code)
    return f"{code[0].upper() if starts_with_word else code[0]}{code[1:]}."


def _share_of_steps(row: Mapping[Any, Any]) -> float:
    """Return the share of the steps in which a cause occurs if it is an event, such as a checkpoint; otherwise 1."""
    # older reports lack the column
    share = float(row.get("in_steps_pct", 100.0)) / 100
    return share if 0 < share <= _MOST_OF_EVENT else 1.0


def _in_some(share: float, step: GainUnit) -> str:
    return f"in 1 of {1 / share:.0f} {step.one.removeprefix('a ')}s"


def _outside(tables: Tables) -> str:
    """Return the place outside of all ranges: "" if the program has none, so that this says nothing."""
    paths = tables.rows(CRITICAL_PATH, "path")["path"].astype("str")
    # work of the GPU has no path
    named = paths[paths != ""]
    is_of_program = ~(named.str.startswith("(") | named.str.match(LIBRARY_PATH))
    return _OUTSIDE if named.empty or is_of_program.any() else ""


def _in_place(row: Mapping[Any, Any], step: GainUnit, outside: str) -> str:
    # older reports lack the column
    also = row.get("also")
    others = [path for path in also.split("\n") if path] if isinstance(also, str) else []
    # the code between ranges belongs to the range around them
    named = [path for path in (row["path"], *others) if path and not path.startswith("(")]
    path, *more = named[: _MOST_RANGES + 1] or [row["path"]]
    place = describe_place(path, row["function"], row["caller"], more)
    if not place and row["path"]:
        return _BETWEEN_STEPS if step.is_of_engine else outside
    is_around = bool(named) and len(named) <= len(others)
    return f"in {place}{', with the code around' * is_around}" if place else ""


def describe_place(path: str, function: str = "", caller: str = "", others: Sequence[str] = ()) -> str:
    """Return the innermost range of a path and of others, the function in it and its caller, as parts of a sentence.

    "" if there is neither a range nor a function.
    """
    name, _, where = function.removesuffix(")").partition(" (") if function.endswith(")") else (function, "", "")
    called = f", called from `{caller.partition(' (')[0]}`" * bool(caller)
    if not path or path.startswith("("):
        return f"`{name}`{f' ({where})' * bool(where)}{called}" if function else ""
    *first, last = (f"`{each.rsplit(' / ', 1)[-1]}`" for each in (path, *others))
    ranges = " and ".join(filter(None, (", ".join(first), last)))
    location = f"`{name}` {'at' if where.startswith('line') else 'in'} {where}" if where else f"`{name}`"
    return f"{ranges} ({location}{called})" if function else ranges


def _innermost_ranges(path: str) -> str:
    """Return the innermost ranges of a path."""
    *outer, parent, inner = ("", *path.split(" / "))
    return f"{'… / ' if any(outer) else ''}{parent} / {inner}" if parent else inner


def _next_fixes(
    row: dict[Any, Any], others: pd.DataFrame, step: GainUnit, outside: str, framework: str
) -> Iterator[str]:
    """Yield the further fixes of the best sequence if this fix is its first."""
    following = others[others["order"].fillna(0) > 1].sort_values("order")
    if row["order"] != 1 or following.empty:
        return
    steps = []
    for fix in following.to_dict("records"):
        where = _in_place(fix, step, outside) if fix["path"] else ""
        action = RULE[fix["rule"]].action_in(framework)
        steps.append(f"{action}{f' {where}' * bool(where)} → {in_text(float(fix['after_ns']), 'gain_ns')}")
    yield f"Then: {', then '.join(steps)}."


def _evidence(rule: Rule, row: dict[Any, Any], replay: dict[Any, Any], tables: Tables) -> Iterator[str]:
    """Yield sentences with the numbers that support a finding."""
    step, in_steps = step_of(replay), _share_of_steps(row)
    amount = in_text(float(row["time_ns"]) / in_steps, "time_ns")
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
            time = in_text(float(segment["step_ns"]), "step_ns")
            share = in_text(float(segment["time_pct"]), "time_pct")
            yield f"On the critical path: {what}{where}, {time} {step.per}, {share} of the window"
    unexplained = f"{signed(replay['unexplained_pct'])} %"
    if unexplained[1:] != "0.0 %":
        yield SIMULATED.format(one=step.one, difference=unexplained)
