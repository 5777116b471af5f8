"""A `gh api` for machines without GitHub: it answers from a state in `gh.json` beside it, and writes it back.

Pages, refusals and what it prints for them are those of gh 2.60 and GitHub's API.
"""

import fcntl
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

STATE = Path(__file__).with_name("gh.json")
PAGE = 2
"""So few entries are a page here, so that what is looked for is not on the first."""


def main(arguments: Sequence[str]) -> int:
    assert list(arguments[:2]) == ["api", "--method"], arguments
    method, path, *options = arguments[2:]
    if not os.environ.get("GH_TOKEN"):
        sys.stderr.write("gh: To use GitHub CLI in a GitHub Actions workflow, set the GH_TOKEN environment variable.\n")
        return 4
    with STATE.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        state = json.loads(file.read())
        fields = json.load(sys.stdin) if "--input" in options else {}
        state["calls"].append([method, path, fields])
        status, answer = answered(state, method, path.removeprefix(f"repos/{state['repository']}/"), fields)
        file.seek(0)
        file.truncate()
        file.write(json.dumps(state))
    if status >= 400:
        say({"message": answer})
        sys.stderr.write(f"gh: {answer} (HTTP {status})\n")
        return 1
    # --paginate prints page after page
    pages = [answer]
    if isinstance(answer, list) and "--paginate" in options:
        pages = [answer[start : start + PAGE] for start in range(0, max(len(answer), 1), PAGE)]
    for page in pages:
        say(page)
    return 0


def answered(state: dict[str, Any], method: str, path: str, fields: dict[str, Any]) -> tuple[int, Any]:
    if method != "GET" and state["may"] == "read":
        return 403, "Resource not accessible by integration"
    if len(fields.get("body", "")) > 65_536:
        return 422, "Validation Failed"
    path, _, query = path.partition("?")
    for pattern, function in ROUTES:
        if match := re.fullmatch(pattern, f"{method} {path}"):
            return function(state, fields, query, *match.groups())
    return 404, "Not Found"


def comments(state: Any, fields: Any, query: str, number: str) -> tuple[int, Any]:
    return (200, state["comments"].setdefault(number, [])) if number in state["pulls"] else (404, "Not Found")


def add_comment(state: Any, fields: Any, query: str, number: str) -> tuple[int, Any]:
    entry = {
        "id": 1 + sum(map(len, state["comments"].values())),
        "body": fields["body"],
        "user": {"login": state["login"]},
        "html_url": f"https://github.com/{state['repository']}/pull/{number}#issuecomment",
    }
    state["comments"].setdefault(number, []).append(entry)
    return 201, entry


def edit_comment(state: Any, fields: Any, query: str, identity: str) -> tuple[int, Any]:
    for entry in (entry for entries in state["comments"].values() for entry in entries):
        if entry["id"] == int(identity):
            entry.update(fields)
            return 200, entry
    return 404, "Not Found"


def pull(state: Any, fields: Any, query: str, number: str) -> tuple[int, Any]:
    return (200, state["pulls"][number]) if number in state["pulls"] else (404, "Not Found")


def artifacts(state: Any, fields: Any, query: str, run: str) -> tuple[int, Any]:
    names = state["artifacts"].get(run, [])
    listed = [{"id": 100 + number, "name": name} for number, name in enumerate(names)]
    return 200, {"total_count": len(names), "artifacts": listed}


def issues(state: Any, fields: Any, query: str) -> tuple[int, Any]:
    assert query == "labels=nightsight&state=all&per_page=100", query
    return 200, [entry for entry in state["issues"] if "nightsight" in entry["labels"]]


def add_issue(state: Any, fields: Any, query: str) -> tuple[int, Any]:
    if set(fields["labels"]) - set(state["labels"]):
        return 422, "Validation Failed"
    number = 1 + len(state["issues"])
    entry = {
        **fields,
        "number": number,
        "state": "open",
        "user": {"login": state["login"]},
        "html_url": f"https://github.com/{state['repository']}/issues/{number}",
    }
    state["issues"].append(entry)
    return 201, entry


def edit_issue(state: Any, fields: Any, query: str, number: str) -> tuple[int, Any]:
    state["issues"][int(number) - 1].update(fields)
    return 200, state["issues"][int(number) - 1]


def add_label(state: Any, fields: Any, query: str) -> tuple[int, Any]:
    if fields["name"] in state["labels"]:
        return 422, "Validation Failed"
    state["labels"].append(fields["name"])
    return 201, fields


ROUTES: tuple[tuple[str, Callable[..., tuple[int, Any]]], ...] = (
    (r"GET issues/(\d+)/comments", comments),
    (r"POST issues/(\d+)/comments", add_comment),
    (r"PATCH issues/comments/(\d+)", edit_comment),
    (r"GET pulls/(\d+)", pull),
    (r"GET actions/runs/(\d+)/artifacts", artifacts),
    (r"GET issues", issues),
    (r"POST issues", add_issue),
    (r"PATCH issues/(\d+)", edit_issue),
    (r"POST labels", add_label),
)


def say(value: object) -> None:
    sys.stdout.write(json.dumps(value))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
