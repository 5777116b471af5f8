"""A folder on its own branch of the program's repository, such as a history, to which many jobs push.

The branch shares no commit with the program. Its first commit is the same wherever it is made, so that two jobs which
begin the branch at the same time agree on it; it tells git to keep the lines of both sides of a `.jsonl`. Whatever
needs the network runs in the checkout itself, since CI systems tie their credentials to it and not to a worktree.
"""

import logging
import os
import random
import re
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from nightsight.errors import PipelineError, ToolError

_LOG: Final = logging.getLogger(__name__)
_ATTEMPTS: Final = 12
_ATTRIBUTES: Final = "*.jsonl merge=union\n"
_FETCHED: Final = "refs/worktree/nightsight-fetched"
"""Where the branch stood when the folder was fetched; such references are each worktree's own."""
_SOMEBODY_ELSE: Final = re.compile(
    r"\[rejected\]|cannot lock ref|reference already exists|failed to update ref|incorrect old"
)
_ME: Final = {"NAME": "nightsight", "EMAIL": "nightsight@localhost"}
_FIRST: Final = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (*_ME.items(), ("DATE", "2000-01-01T00:00:00Z"))
}
_NO_HOOKS: Final = ("-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false", "-c", "core.autocrlf=false")


def fetch_branch(folder: Path, branch: str, *, remote: str) -> None:
    """Make `folder` a worktree of the branch as the remote has it, or with nothing in it if the remote has none."""
    _check(branch)
    root = _root()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise PipelineError(
            f"{folder} is not empty", f"Remove it (git worktree remove --force {folder}), or name another folder."
        )
    tip = _tip(root, branch, remote) or _first_commit(root)
    # what is left of a folder that a clean-up took away
    _git(root, "worktree", "prune")
    _git(root, "worktree", "add", "--quiet", "--force", "--detach", str(folder.absolute()), tip)
    _git(folder, "update-ref", _FETCHED, tip)


def push_branch(folder: Path, branch: str, *, remote: str, message: str) -> bool:
    """Commit what is new in the folder and push it, on top of what others have pushed; False if nothing is new."""
    _check(branch)
    root = _root()
    if not (folder / ".git").is_file():
        raise PipelineError(f"{folder} is not a worktree of a branch", f"Create it with nightsight ci fetch {folder}")
    _git(folder, "add", "--all")
    if _git(folder, "status", "--porcelain"):
        _git(folder, "commit", "--quiet", "--no-verify", "--message", message)
    base = _git(folder, "rev-parse", "--verify", _FETCHED)
    if _git(folder, "rev-parse", "HEAD") == base and _tip(root, branch, remote):
        return False
    for attempt in range(_ATTEMPTS):
        mine = _git(folder, "rev-parse", "HEAD")
        pushed = _run(root, "push", "--quiet", "--no-verify", remote, f"{mine}:refs/heads/{branch}")
        if pushed.returncode == 0:
            _git(folder, "update-ref", _FETCHED, mine)
            return True
        if not _SOMEBODY_ELSE.search(pushed.stderr):
            raise _failed(f"cannot push to the branch {branch}", pushed.stderr, _MAY_PUSH)
        _LOG.info("%s: somebody else has pushed meanwhile (%d)", branch, attempt + 1)
        # jobs that met once would meet again
        time.sleep(random.uniform(0, min(10, 0.1 * 2**attempt)))  # noqa: S311 (no secret)
        base = _rebased(root, folder, branch, remote, base)
    raise PipelineError(
        f"cannot push to the branch {branch}: others pushed first in all {_ATTEMPTS} attempts",
        f"The commit is in {folder}: run nightsight ci push {folder} again.",
    )


_MAY_PUSH: Final = "The job needs write access: `permissions: contents: write`, and a branch without protection."


def _rebased(root: Path, folder: Path, branch: str, remote: str, base: str) -> str:
    """Put the commits since `base` on top of the remote's branch, and return where that stands."""
    tip = _tip(root, branch, remote) or base
    done = _run(folder, "rebase", "--quiet", "--no-verify", "--onto", tip, base)
    if done.returncode:
        _run(folder, "rebase", "--abort")
        raise _failed(
            f"new commits in {folder} conflict with what others pushed to {branch}",
            done.stdout + done.stderr,
            "Both changed the same lines of a file. Fetch the branch into another folder and add the runs again.",
        )
    _git(folder, "update-ref", _FETCHED, tip)
    return tip


def _tip(root: Path, branch: str, remote: str) -> str:
    """Fetch the branch and return its last commit, or "" if the remote has none."""
    there = _run(root, "ls-remote", "--exit-code", "--heads", remote, f"refs/heads/{branch}")
    if there.returncode == 2:  # what --exit-code promises
        return ""
    if there.returncode == 0:
        there = _run(root, "fetch", "--quiet", "--no-tags", remote, f"refs/heads/{branch}")
    if there.returncode:
        raise _failed(f"cannot fetch the branch {branch}", there.stderr, "Check the name of the remote: git remote -v")
    return _git(root, "rev-parse", "FETCH_HEAD")


def _first_commit(root: Path) -> str:
    """Write a commit without parents that holds the rule for merging alone."""
    blob = _git(root, "hash-object", "-w", "--stdin", given=_ATTRIBUTES)
    tree = _git(root, "mktree", given=f"100644 blob {blob}\t.gitattributes\n")
    return _git(root, "commit-tree", tree, "-m", "A branch for results", environment=_FIRST)


def _check(branch: str) -> None:
    if _run(Path(), "check-ref-format", "--branch", branch).returncode:
        raise PipelineError(f"{branch!r} is not a valid branch name", "For example: --branch nightsight-history")


def _root() -> Path:
    found = _run(Path(), "rev-parse", "--show-toplevel")
    if found.returncode:
        raise PipelineError("this folder is not in a git repository", "Run it in a checkout of the program.")
    return Path(found.stdout.strip())


def _git(folder: Path, *arguments: str, given: str = "", environment: Mapping[str, str] | None = None) -> str:
    """Return what git prints; PipelineError if it fails."""
    done = _run(folder, *arguments, given=given, environment=environment)
    if done.returncode:
        raise _failed(f"git {arguments[0]} failed in {folder}", done.stderr, "")
    return done.stdout.strip()


def _run(
    folder: Path, *arguments: str, given: str = "", environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    # a name is needed to commit, and CI machines have none; nobody is there to be asked for a password
    own = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in _ME.items()}
    variables = {**own, **os.environ, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", **(environment or {})}
    try:
        return subprocess.run(
            ["git", *_NO_HOOKS, *arguments],
            cwd=folder,
            env=variables,
            input=given,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except FileNotFoundError:
        raise ToolError("git is not on PATH", "Install git.") from None


def _failed(what: str, said: str, hint: str) -> PipelineError:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    # what went wrong comes before git's advice
    errors = [line for line in lines if line.startswith(("fatal:", "error:", "!", "remote:", "CONFLICT"))]
    return PipelineError(f"{what}: {(errors or lines or ['no reason given'])[0]}", hint)
