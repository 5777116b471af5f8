"""Writes issues about regressions in a history: what became slower, by how much, and between which commits."""

import datetime as dt
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from nightsight.errors import UsageError
from nightsight.publish.github import Issue, State
from nightsight.render.export.markdown import escape
from nightsight.texts import excerpt, middle_cut, printable
from nightsight.units import signed

_MOST_CHANGES: Final = 20
_LENGTH: Final = 80
_STATES: Final = {
    "accepted": "**Closed**: it was accepted in the settings.",
    "recovered": "**Closed**: it has recovered to the previous level.",
    "ended": "**Closed**: further nights cannot show whether it recovers, for the reason above. If the first level of "
    "the new epoch is too slow, look for the commit anyway.",
}
_HINT: Final = "nightsight history show --format json > FILE"
_SETTLED: Final = dt.timedelta(days=7)
"""An event that is missing for this long does not return with the next night."""


class Regressions:
    """The events of `history show --format json` as issues; UsageError for any other document.

    `link`: the address of the trend page. `commits`: the prefix of the addresses of commits.
    """

    def __init__(self, document: object, *, link: str = "", commits: str = "") -> None:
        try:
            if not isinstance(document, Mapping) or document["format"] != 1:
                raise UsageError("this is not an event list of this version", _HINT)
            self._is_complete = document["complete"] is True
            self._tracks = [
                tuple(str(track[name]) for name in ("machine", "workload", "tested_since", "last"))
                for track in document["tracks"]
            ]
            self._slower = [event for event in document["events"] if event["direction"] == "slower"]
            self.issues = [_issue(event, link, commits) for event in document["events"]]
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise UsageError(f"the list of events lacks {error}", _HINT) from None

    def ended(self, key: str, facts: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """Return why an open issue that is not one of `issues` has ended, "" if it may return or the reason is unknown.

        Also return the facts to keep in it, such as the night since which it is missing.
        """
        try:
            machine, workloads, time = facts["machine"], facts["workloads"], facts["time"]
            tracks = [times for of, workload, *times in self._tracks if of == machine and workload in workloads]
            if not (self._is_complete and tracks):
                return "", facts
            for event in self._slower:
                if key in map(_key, event["ids"]) and not set(workloads).isdisjoint(event["workloads"]):
                    return f"it is part of another change now. {_sentence(event['sentence'])}", facts
            if all(since > time for since, _ in tracks):
                return (
                    "it is older than the nights that are tested, so its level counts as normal.",
                    facts,
                )
            newest = max(last for _, last in tracks)
            missing = facts.get("missing", newest)
            if dt.datetime.fromisoformat(newest) - dt.datetime.fromisoformat(missing) >= _SETTLED:
                return f"no night since {missing[:10]} shows it.", facts
        except (KeyError, TypeError, ValueError):  # somebody edited them
            return "", facts
        return "", {**facts, "missing": missing}


def _issue(event: Mapping[str, Any], link: str, commits: str) -> Issue:
    # a change may turn out to be a night earlier or later, but an improvement never replaces a regression
    keys = (event["id"], *(event["ids"] if event["direction"] == "slower" else ()))
    return Issue(
        tuple(dict.fromkeys(map(_key, keys))),
        middle_cut(f"Slower: {printable(event['sentence'])}", 200),
        "\n\n".join(_paragraphs(event, link, commits)),
        {"machine": event["machine"], "workloads": event["workloads"], "time": event["time"]},
        _state(event),
    )


def _state(event: Mapping[str, Any]) -> State:
    if event["state"] == "suspect":
        return "kept"
    return "closed" if _why_closed(event) else "open"


def _why_closed(event: Mapping[str, Any]) -> str:
    if event["state"] in _STATES:
        return _STATES[event["state"]]
    if event["direction"] != "slower":
        return "**Closed**: it is no longer slower."
    # a change that the canary shares was not caused by a commit
    return "**Closed**: it was not the code." if event["cause"] == "environment" else ""


def _key(name: str) -> str:
    """Return a name that is safe in an HTML comment."""
    return re.sub(r"[^\w.:/+-]+", "-", name, flags=re.ASCII)[:200]


def _paragraphs(event: Mapping[str, Any], link: str, commits: str) -> Iterator[str]:
    yield _sentence(event["sentence"])
    if why := _why_closed(event):
        yield why
    first, last = (_commit(event[name], commits) for name in ("first_commit", "last_commit"))
    between = f"After {first}, up to and including {last}." if first and last else ""
    yield f"First seen: {_plain(event['time'])}; last run before it: {_plain(event['before'])}. {between}".rstrip()
    yield "\n".join(_change_rows(event["changes"]))
    if len(event["changes"]) > _MOST_CHANGES:
        yield f"… {len(event['changes']) - _MOST_CHANGES} more in the history."
    yield f"Machine: {_plain(event['machine'])}." + (f" [History]({link})" if link else "")
    yield (
        "To find the commit: `nightsight bisect`. To accept the change, name it with a reason and a date in "
        "`nightsight.toml`. This issue is edited as nights come in. It is closed when the change has recovered, is "
        "accepted or can no longer be judged, and then stays closed."
    )


def _change_rows(changes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "| Workload | What | Change |\n|---|---|---:|"
    # a new measure has no change in percent, and counts as the largest
    changed = sorted(
        changes, key=lambda change: -abs(math.inf if change["change_pct"] is None else change["change_pct"])
    )
    for change in changed[:_MOST_CHANGES]:
        percent = "new" if change["change_pct"] is None else f"{signed(change['change_pct'])} %"
        yield f"| {_plain(change['workload'])} | {_plain(change['name'])} | {percent} |"


def _commit(name: str, commits: str) -> str:
    if not re.fullmatch("[0-9a-f]{7,64}", name or ""):
        return ""
    return f"[`{name[:12]}`]({commits}{name})" if commits else f"`{name[:12]}`"


def _sentence(sentence: str) -> str:
    return escape(excerpt(sentence, 400))


def _plain(text: object) -> str:
    return escape(excerpt(text, _LENGTH))
