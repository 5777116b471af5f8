"""Writes comments and issues on GitHub with `gh`, which holds the job's token.

A comment or issue is identified by a marker, an HTML comment in its first line, and by its author, because anybody can
copy a marker. Files of another workflow run, perhaps of a fork, are checked before use: they may only name the pull
request whose head was measured, and they cannot notify anybody.
"""

import json
import logging
import math
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from nightsight.errors import PipelineError, ToolError
from nightsight.render.export.markdown import escape, unescape

_LOG: Final = logging.getLogger(__name__)
BOT: Final = "github-actions[bot]"
"""The author of comments and issues that are written with a workflow's token."""

MOST_BYTES: Final = 60_000
"""The maximum size of a comment or issue. GitHub rejects more than 65,536 characters."""

_MOST_FILES: Final = 50
_COMMENT: Final = "<!-- nightsight -->"
_LABEL: Final = "nightsight"
_MARKER: Final = re.compile(r"\s*<!--\s*nightsight(?::[^\n>]*)?\s*-->[ \t]*\n?")
_ISSUE: Final = re.compile(r"<!-- nightsight:(\S+) -->(?:\n|$)")
_FOLDED: Final = re.compile(r"<details><summary>(.*)</summary>")
# the picture of a comparison
_BLOCK: Final = "```text"
_END_OF_BLOCK: Final = "```"
# bold, borders of a table, and the text between them; a character after a backslash is text
_PARTS: Final = re.compile(r"\*\*|\||(?:\\.|\*(?!\*)|[^*|])+", re.DOTALL)
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,9}")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_REPOSITORY: Final = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


State = Literal["open", "closed", "kept"]


@dataclass(frozen=True)
class CommentSection:
    """The part of a comment about one workload: its name, and Markdown."""

    workload: str
    text: str


@dataclass(frozen=True)
class Issue:
    """A regression as an issue: the first of `keys` is its own, the others may identify an existing issue.

    facts: hidden in the issue, to decide later whether it has ended. state: `kept` leaves an existing issue unchanged.
    """

    keys: tuple[str, ...]
    title: str
    text: str
    facts: Mapping[str, Any]
    state: State


class Repository:
    """A repository on GitHub."""

    def __init__(self, name: str) -> None:
        if not _REPOSITORY.fullmatch(name):
            raise PipelineError(f"{name!r} is not a repository", "Use --repository OWNER/NAME or GITHUB_REPOSITORY.")
        self.name = name

    def ask(self, path: str, *, method: str = "GET", fields: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401
        """Call the API at `path` of this repository; the pages of a list are joined into one list."""
        command = ["gh", "api", "--method", method, f"repos/{self.name}/{path}"]
        command += ["--paginate"] if method == "GET" else ["--input", "-"]
        try:
            done = subprocess.run(
                command, input=json.dumps(fields or {}), capture_output=True, encoding="utf-8", check=False
            )
        except FileNotFoundError:
            raise ToolError(
                "gh is not on PATH", "Install the GitHub CLI, or run this on a GitHub-hosted runner."
            ) from None
        if done.returncode:
            reason = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()[-1]
            raise Refused(
                f"GitHub refused to {method} {path}: {reason}",
                "The job needs GH_TOKEN: ${{ github.token }} and write access: `permissions:` in the workflow.",
            )
        pages = list(_json_values(done.stdout))
        return (
            [entry for page in pages for entry in page]
            if pages and isinstance(pages[0], list)
            else next(iter(pages), None)
        )


class Refused(PipelineError):
    """GitHub refused a request."""


def comment(repository: Repository, number: int, sections: Sequence[CommentSection], *, author: str = BOT) -> str:
    """Write or update our comment on a pull request; return its address."""
    body = comment_text(sections)
    for existing in repository.ask(f"issues/{number}/comments?per_page=100"):
        if existing["user"]["login"] == author and existing["body"].startswith(_COMMENT):
            written = repository.ask(f"issues/comments/{existing['id']}", method="PATCH", fields={"body": body})
            break
    else:
        written = repository.ask(f"issues/{number}/comments", method="POST", fields={"body": body})
    return str(written["html_url"])


def comment_text(sections: Sequence[CommentSection]) -> str:
    """Join sections into one comment; if too long, cut sections to their first paragraph, longest first."""
    texts = [_MARKER.sub("", section.text, count=1).strip() for section in sections]
    for index in sorted(range(len(texts)), key=lambda index: -len(texts[index].encode())):
        if len("\n\n".join((_COMMENT, *texts)).encode()) <= MOST_BYTES:
            break
        # a single paragraph may also be too long
        brief = texts[index].partition("\n\n")[0].encode()[:1000].decode(errors="ignore")
        texts[index] = f"{brief}\n\nThe rest is in the report."
    return "\n\n".join((_COMMENT, *texts)) + "\n"


def read_download(folder: Path) -> tuple[int, list[CommentSection]] | None:
    """Return the pull request and the sections in the files of another workflow run: `number` and `WORKLOAD.md`.

    None without files, because the run measured nothing.
    """
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    if not files:
        return None
    numbers = {_read(path).strip() for path in files if path.name == "number"}
    if len(numbers) != 1 or not _NUMBER.fullmatch(number := next(iter(numbers))):
        raise PipelineError(
            "the files of the other run name no pull request, or several", "They need one file `number` with digits."
        )
    texts = [path for path in files if path.suffix == ".md"]
    if not texts or len(texts) > _MOST_FILES:
        raise PipelineError(f"the other run left {len(texts) or 'no'} comparisons as .md files", "See its log.")
    return int(number), [CommentSection(path.stem, _harmless(_read(path))) for path in texts]


def require_head(repository: Repository, number: int, commit: str) -> None:
    """Raise PipelineError unless `commit` is the head of this open pull request."""
    if not _COMMIT.fullmatch(commit):
        raise PipelineError(
            f"{commit!r} is not a commit", "Give all 40 digits: ${{ github.event.workflow_run.head_sha }}."
        )
    pull = repository.ask(f"pulls/{number}")
    if pull["head"]["sha"] != commit or pull["state"] != "open":
        raise PipelineError(
            f"{commit[:12]} is not the head of an open pull request {number}: nothing was written",
            "Something was pushed in the meantime, or the other run names a wrong pull request.",
        )


def with_links(repository: Repository, sections: Iterable[CommentSection], run: int) -> list[CommentSection]:
    """Add to each section the link to `nightsight-WORKLOAD.html` among the artifacts of a run."""
    artifacts = repository.ask(f"actions/runs/{run}/artifacts?per_page=100")
    pages = artifacts if isinstance(artifacts, list) else [artifacts]
    ids = {entry["name"]: int(entry["id"]) for page in pages for entry in page["artifacts"]}
    place = f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{repository.name}/actions/runs/{run}"

    def with_link(section: CommentSection) -> CommentSection:
        artifact = ids.get(f"nightsight-{section.workload}.html")
        link = f"[Report]({place}/artifacts/{artifact})" if artifact else f"[Log]({place})"
        return CommentSection(section.workload, f"{section.text.rstrip()}\n\n{link}\n")

    return [with_link(section) for section in sections]


def publish_issues(
    repository: Repository,
    issues: Sequence[Issue],
    *,
    ended: Callable[[str, Mapping[str, Any]], tuple[str, Mapping[str, Any]]] = lambda _key, facts: ("", facts),
    author: str = BOT,
) -> list[str]:
    """Open, update or close one issue for each regression; return a line for each that changed.

    A closed issue stays closed. `ended`: takes the key and the facts of an open issue that is not one of these; returns
    why it ended ("" leaves it open), and the facts to keep.
    """
    existing = _own_issues(repository, author)
    keys = _match_issues(issues, existing)
    lines = [_write(repository, issue, existing.get(keys.get(place, ""))) for place, issue in enumerate(issues)]
    for key in existing.keys() - keys.values():
        entry = existing[key]
        if entry["state"] != "open":
            continue
        before = _facts(entry)
        why, facts = ended(key, before)
        if why:
            body = f"{entry['body'].rstrip()}\n\n**Closed**: {why}\n"
            lines.append(_edit(repository, entry, {"body": body, "state": "closed"}))
        elif facts != before:
            _edit(repository, entry, {"body": entry["body"].replace(_hidden(before), _hidden(facts), 1)})
    return list(filter(None, lines))


def _own_issues(repository: Repository, author: str) -> dict[str, Any]:
    """Return the issues that we wrote, by their keys."""
    issues = {}
    for entry in repository.ask(f"issues?labels={_LABEL}&state=all&per_page=100"):
        # editing in the browser changes line endings
        entry["body"] = (entry["body"] or "").replace("\r\n", "\n")
        if entry["user"]["login"] == author and (key := _ISSUE.match(entry["body"])):
            issues[key[1]] = entry
    return issues


def _write(repository: Repository, issue: Issue, existing: Mapping[str, Any] | None) -> str:
    """Open, update or close an issue, and return a line about it, "" if nothing changed."""
    body = f"<!-- nightsight:{issue.keys[0]} -->\n<!-- {_hidden(issue.facts)} -->\n{issue.text.strip()}\n"
    if existing is None and issue.state == "open":
        _make_label(repository)
        fields = {"title": issue.title, "body": body, "labels": [_LABEL]}
        return f"opened: {repository.ask('issues', method='POST', fields=fields)['html_url']}"
    if existing is None or existing["state"] != "open" or issue.state == "kept":
        return ""
    state = {"state": "closed"} if issue.state == "closed" else {}
    return _edit(repository, existing, {"body": body, **state}) if state or existing["body"] != body else ""


def _edit(repository: Repository, entry: Mapping[str, Any], fields: Mapping[str, str]) -> str:
    repository.ask(f"issues/{entry['number']}", method="PATCH", fields=fields)
    return f"{'closed' if 'state' in fields else 'updated'}: {entry['html_url']}"


def _match_issues(issues: Sequence[Issue], existing: Mapping[str, Any]) -> dict[int, str]:
    """Return the key of the existing issue for each issue, by its position. A key belongs to one issue, the nearest.

    If noise moves a change beyond the range of its keys, it takes over the open issue whose event has disappeared.
    """
    near = [
        (distance, place, key)
        for place, issue in enumerate(issues)
        for distance, key in enumerate(issue.keys)
        if key in existing and (not distance or _is_alike(issue, existing[key]))
    ]
    far = [
        (math.inf, place, key)
        for place, issue in enumerate(issues)
        for key, entry in existing.items()
        if issue.state == "open" and entry["state"] == "open" and _is_alike(issue, entry)
    ]
    keys: dict[int, str] = {}
    for _, place, key in sorted([*near, *far]):
        if key not in keys.values():
            keys.setdefault(place, key)
    return keys


def _is_alike(issue: Issue, entry: Mapping[str, Any]) -> bool:
    """Whether both are from one machine and share a workload: other changes may have happened in the same nights."""
    facts = _facts(entry)
    workloads = facts.get("workloads")
    is_shared = isinstance(workloads, list) and any(name in issue.facts["workloads"] for name in workloads)
    return is_shared and facts.get("machine") == issue.facts["machine"]


def _hidden(facts: Mapping[str, Any]) -> str:
    """Return facts as text that is safe in an HTML comment and notifies nobody."""
    text = json.dumps(facts)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("@", "\\u0040")


def _facts(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the hidden facts of an issue; empty if somebody removed them."""
    _, _, after_marker = entry["body"].partition("\n")
    try:
        facts = json.loads(after_marker.partition("\n")[0].removeprefix("<!--").removesuffix("-->"))
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}


def _make_label(repository: Repository) -> None:
    fields = {"name": _LABEL, "color": "b60205", "description": "A regression that nightsight found"}
    try:
        repository.ask("labels", method="POST", fields=fields)
    except Refused as error:
        # it is there
        _LOG.debug("%s", error.message)


def _harmless(text: str) -> str:
    """Return untrusted Markdown with only the markup that our comparisons use; everything else becomes plain text.

    Third-level headings, bold, tables, folded parts and blocks of text are kept. Links, pictures, HTML, mentions and
    all other markup are escaped. Our own comparisons stay unchanged.
    """
    lines = []
    is_folded = is_block = False
    for line in re.split(r"\r\n|\r|\n", _MARKER.sub("", text, count=1)):
        if is_block or line == _BLOCK:
            is_block = line != _END_OF_BLOCK
            # nothing else may end the block, which makes its lines plain text
            lines.append(line if line in (_BLOCK, _END_OF_BLOCK) else line.replace("`", "'"))
        elif not is_folded and (title := _FOLDED.fullmatch(line)):
            is_folded = True
            lines.append(f"<details><summary>{_plain(title[1])}</summary>")
        elif is_folded and line == "</details>":
            is_folded = False
            lines.append(line)
        else:
            heading, rest = ("### ", line[4:]) if line.startswith("### ") else ("", line)
            markup = ("**", "|") if line.startswith("|") else ("**",)
            lines.append(heading + "".join(part if part in markup else _plain(part) for part in _PARTS.findall(rest)))
    # following text must not disappear in an open part
    return "\n".join([*lines, *[_END_OF_BLOCK] * is_block, *["", "</details>", ""] * is_folded])


def _plain(text: str) -> str:
    return escape(unescape(text))


def _read(path: Path) -> str:
    if path.stat().st_size > MOST_BYTES:
        raise PipelineError(f"{path.name} of the other run has more than {MOST_BYTES} bytes", "See its log.")
    return path.read_bytes().decode(errors="replace")


def _json_values(text: str) -> Iterator[Any]:
    """Yield consecutive JSON values: gh prints one for each page."""
    decoder, place = json.JSONDecoder(), 0
    while text := text[place:].lstrip():
        try:
            value, place = decoder.raw_decode(text)
        except ValueError:
            raise PipelineError(f"gh did not print JSON: {text[:80]!r}", "Check it: gh api user") from None
        yield value
