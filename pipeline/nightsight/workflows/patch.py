"""Turn proven switches into a unified diff of the program, where the edit of a line is certain.

Each switch recorded the lines where it changed something. The syntax tree shows whether the expected call is there.
"""

import ast
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from io import StringIO
from pathlib import Path
from typing import Final

from nightsight.model.prove import Place, Proof, ProofReport
from nightsight.results.switches import SWITCH, Edit

_MODULE: Final = "torch"


@dataclass(frozen=True)
class Patch:
    """A unified diff, "" for none, and the switches that it leaves out, each with the reason."""

    diff: str
    left_out: Mapping[str, str]


def patch_of(report: ProofReport, folder: Path) -> Patch:
    """Return the diff that applies the best proven switches to a program whose paths are relative to `folder`."""
    best = report.best_proven
    if best is None:
        return Patch("", {})
    places = _changed_lines(best, report.proofs)
    left_out: dict[str, str] = {}
    edits: dict[str, list[tuple[int, str]]] = {}
    for name in best.switches:
        if name not in SWITCH or (SWITCH[name].edit is None and not SWITCH[name].environment):
            left_out[name] = "it is not certain which lines to edit"
        elif SWITCH[name].environment:
            left_out[name] = f"it is an environment variable: {SWITCH[name].code}"
        elif not places.get(name):
            left_out[name] = "a library makes the call, not the program"
        for path, line in places.get(name, ()) if name not in left_out else ():
            edits.setdefault(path, []).append((line, name))
    texts: list[str] = []
    for path, lines in sorted(edits.items()):
        try:
            # with its line ends: git compares them, too
            source = old = Path(path).read_bytes().decode()
        except (OSError, ValueError):
            left_out |= dict.fromkeys((name for _, name in lines), f"cannot read {path}")
            continue
        # from the end, so that the lines before keep their numbers
        for line, name in sorted(lines, reverse=True):
            new = edited(source, line, name)
            if new is None:
                left_out[name] = f"it is not certain how line {line} of {Path(path).name} is edited"
            source = source if new is None else new
        label = os.path.relpath(path, folder) if Path(path).is_relative_to(folder) else path
        names = (label, label) if label == path else (f"a/{label}", f"b/{label}")
        texts += (
            text if text.endswith("\n") else f"{text}\n\\ No newline at end of file\n"
            for text in unified_diff(_lines(old), _lines(source), *names)
        )
    return Patch("".join(texts), left_out)


def _changed_lines(best: Proof, proofs: Sequence[Proof]) -> dict[str, tuple[Place, ...]]:
    """Return the lines that each switch changed, when it was alone or in the best set."""
    places: dict[str, tuple[Place, ...]] = {}
    for proof in (*proofs, best):
        places |= {name: lines for name, lines in proof.places.items() if lines}
    return places


def edited(source: str, line: int, name: str) -> str | None:
    """Return a source with the edit of a switch at a line; None if that is not certain."""
    edit = SWITCH[name].edit
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return None
    if edit is None:
        return None
    if not edit.callees:
        return _after_import(source, tree, line, SWITCH[name].code)
    statements = [each for each in ast.walk(tree) if isinstance(each, ast.stmt) and _covers(each, line)]
    innermost = max(statements, key=lambda each: each.lineno, default=None)
    calls = [] if innermost is None else [*_calls(innermost, line, edit)]
    if innermost is None or len(calls) != 1:
        return None
    new = _without(source, tree, innermost, calls[0]) if edit.removes else _with_keywords(source, calls[0], edit)
    try:
        return new if new is not None and ast.parse(new) else None
    except SyntaxError:
        return None


def _lines(source: str) -> list[str]:
    """Return the lines with their ends, as the syntax tree and git count them: a form feed does not end a line."""
    return list(StringIO(source, newline=""))


def _covers(node: ast.stmt | ast.Call, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _calls(statement: ast.stmt, line: int, edit: Edit) -> Iterator[ast.Call]:
    """Yield the calls at a line that an edit concerns."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and _covers(node, line):
            called = node.func
            name = (
                called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
            )
            if name in edit.callees:
                yield node


def _offset(source: str, line: int, column: int) -> int:
    """Return the offset in bytes of a place, as the syntax tree counts."""
    lines = source.encode().splitlines(keepends=True)
    return sum(map(len, lines[: line - 1])) + column


def _with_keywords(source: str, call: ast.Call, edit: Edit) -> str | None:
    """Add arguments to a call, or change their values."""
    if any(keyword.arg is None or keyword.arg in edit.unless for keyword in call.keywords):
        # **options may hold anything
        return None
    text = source.encode()
    present = {keyword.arg: keyword.value for keyword in call.keywords}
    added = [f"{name}={value}" for name, value in edit.keywords.items() if name not in present]
    arguments: list[ast.expr] = [*call.args, *(keyword.value for keyword in call.keywords)]
    ends = [_offset(source, each.end_lineno or 0, each.end_col_offset or 0) for each in arguments]
    changes = [(max(ends), max(ends), ", " + ", ".join(added))] if ends and added else []
    if added and not ends:
        end = _offset(source, call.end_lineno or 0, call.end_col_offset or 0) - 1
        changes = [(end, end, ", ".join(added))]
    for name, value in edit.keywords.items():
        if name in present:
            old = present[name]
            start = _offset(source, old.lineno, old.col_offset)
            changes.append((start, _offset(source, old.end_lineno or 0, old.end_col_offset or 0), value))
    for start, end, new in sorted(changes, reverse=True):
        text = text[:start] + new.encode() + text[end:]
    return text.decode()


def _without(source: str, tree: ast.Module, statement: ast.stmt, call: ast.Call) -> str | None:
    """Remove a call that is a statement, without other code on its lines."""
    lines = _lines(source)
    first, last = statement.lineno - 1, statement.end_lineno or statement.lineno
    if not isinstance(statement, ast.Expr) or statement.value is not call or not _is_alone(lines, statement):
        return None
    bodies = [
        body
        for node in ast.walk(tree)
        for body in (getattr(node, field, None) for field in ("body", "orelse", "finalbody"))
        if isinstance(body, list) and statement in body
    ]
    # a body needs a statement
    kept = [] if bodies and len(bodies[0]) > 1 else [f"{lines[first][: statement.col_offset]}pass{_end(lines)}"]
    return "".join([*lines[:first], *kept, *lines[last:]])


def _end(lines: Sequence[str]) -> str:
    """Return the line end of a file."""
    return "\r\n" if lines[0].endswith("\r\n") else "\n"


def _is_alone(lines: Sequence[str], statement: ast.stmt) -> bool:
    """Whether nothing else is on the lines of a statement, except a comment."""
    before = lines[statement.lineno - 1].encode()[: statement.col_offset].decode()
    after = lines[(statement.end_lineno or 1) - 1].encode()[statement.end_col_offset or 0 :].decode().strip()
    return not before.strip() and (not after or after.startswith("#"))


def _after_import(source: str, tree: ast.Module, line: int, code: str) -> str | None:
    """Add lines after a line that imports torch by its name."""
    lines = _lines(source)
    for node in ast.walk(tree):
        names = [(alias.name, alias.asname) for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.Import) and _covers(node, line) and (_MODULE, None) in names and _is_alone(lines, node):
            end = node.end_lineno or line
            indent = lines[line - 1][: node.col_offset]
            last = lines[end - 1] if lines[end - 1].endswith("\n") else f"{lines[end - 1]}{_end(lines)}"
            added = [f"{indent}{each}{_end(lines)}" for each in code.split("\n")]
            return "".join([*lines[: end - 1], last, *added, *lines[end:]])
    return None
