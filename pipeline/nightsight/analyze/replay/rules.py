"""Results of ncu's rules for each replayed kernel, weighted by the kernel's share of the timeline."""

from typing import Final

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.replay.join import in_order, replays
from nightsight.events.timeline import Timeline
from nightsight.results.ncu import NCU_RULES

_TEXTS: Final = ["rule", "name", "title", "kind", "message", "speedup_kind"]
_GLOBAL: Final = "global"
# ncu's INF or OK: a statement about the kernel, without advice
_VERDICT: Final = "info"
# ncu could not apply the rule
_FAILED: Final = "error"
_SILENT: Final = "No rule had a result, or the sections with the metrics of the rules were not collected."


def ncu_rules(timeline: Timeline) -> Table:
    """Return one row per launch and rule: largest bound first, then rules without a bound, statements last."""
    rules = timeline.profile.table("kernel_rules").astype(dict.fromkeys(_TEXTS, "str"))
    rules = rules[rules["kind"] != _FAILED]
    is_verdict = (rules["kind"] == _VERDICT) & rules["speedup_pct"].isna()
    # ncu's CSV has neither titles nor names: fall back to the rule's identifier
    title = rules["title"].where(rules["title"] != "", rules["name"]).where(lambda texts: texts != "", rules["rule"])
    rules = rules.assign(title=title).drop(columns="name")
    share = replays(timeline).set_index("launch")["gpu_pct"].astype("float64")
    # only a global estimate is about the kernel's time, so only it can be weighted with that
    is_global = rules["speedup_kind"] == _GLOBAL
    bound = (rules["speedup_pct"].clip(0, 100) * rules["launch"].map(share) / 100.0).where(is_global)
    table = in_order(timeline, rules.assign(bound_pct=bound, is_local=~is_global, is_verdict=is_verdict))
    table = table.sort_values(
        ["is_verdict", "bound_pct", "is_local", "speedup_pct"],
        ascending=[True, False, True, False],
        kind="stable",
        ignore_index=True,
    )
    return Table(table[NCU_RULES.column_names], () if len(table) else (_SILENT,))


ANALYSES: Final = (Analysis(NCU_RULES, ncu_rules),)
