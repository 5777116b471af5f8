"""Keeps a folder, such as a history, on its own branch of the program's repository, to which many jobs push.

The branch shares no commits with the program. Its first commit is always the same, so two jobs that create the branch
at the same time agree on it; it tells git to keep the lines of both sides of a `.jsonl`. Network operations run in the
checkout itself, because CI systems tie their credentials to it, not to a worktree.
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
"""The commit of the branch when the folder was fetched; every worktree has its own such reference."""
_CONFLICT: Final = re.compile(
    r"\[rejected\]|cannot lock ref|reference already exists|failed to update ref|incorrect old"
)
_IDENTITY: Final = {"NAME": "nightsight", "EMAIL": "nightsight@localhost"}
_FIRST_COMMIT: Final = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (*_IDENTITY.items(), ("DATE", "2000-01-01T00:00:00Z"))
}
_NO_HOOKS: Final = ("-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false", "-c", "core.autocrlf=false")


def fetch_branch(folder: Path, branch: str, *, remote: str) -> None:
    """Make `folder` a worktree of the remote's branch, or an empty one if the remote has no such branch."""
    _check(branch)
    root = _root()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise PipelineError(
            f"{folder} is not empty", f"Remove it (git worktree remove --force {folder}), or name another folder."
        )
    tip = _tip(root, branch, remote) or _first_commit(root)
    # forget worktrees whose folders were deleted
    _git(root, "worktree", "prune")
    _git(root, "worktree", "add", "--quiet", "--force", "--detach", str(folder.absolute()), tip)
    _git(folder, "update-ref", _FETCHED, tip)


def push_branch(folder: Path, branch: str, *, remote: str, message: str) -> bool:
    """Commit the changes in the folder and push them on top of others' commits; False if there are none."""
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
        commit = _git(folder, "rev-parse", "HEAD")
        push = _run(root, "push", "--quiet", "--no-verify", remote, f"{commit}:refs/heads/{branch}")
        if push.returncode == 0:
            _git(folder, "update-ref", _FETCHED, commit)
            return True
        if not _CONFLICT.search(push.stderr):
            raise _failure(f"cannot push to the branch {branch}", push.stderr, _MAY_PUSH)
        _LOG.info("%s: somebody else has pushed meanwhile (%d)", branch, attempt + 1)
        # jobs that collided once would collide again
        time.sleep(random.uniform(0, min(10, 0.1 * 2**attempt)))  # noqa: S311 (no secret)
        base = _rebase(root, folder, branch, remote, base)
    raise PipelineError(
        f"cannot push to the branch {branch}: others pushed first in all {_ATTEMPTS} attempts",
        f"The commit is in {folder}: run nightsight ci push {folder} again.",
    )


_MAY_PUSH: Final = "The job needs write access: `permissions: contents: write`, and a branch without protection."


def _rebase(root: Path, folder: Path, branch: str, remote: str, base: str) -> str:
    """Rebase the commits since `base` onto the remote's branch, and return the commit of that branch."""
    tip = _tip(root, branch, remote) or base
    result = _run(folder, "rebase", "--quiet", "--no-verify", "--onto", tip, base)
    if result.returncode:
        _run(folder, "rebase", "--abort")
        raise _failure(
            f"new commits in {folder} conflict with commits that others pushed to {branch}",
            result.stdout + result.stderr,
            "Both changed the same lines of a file. Fetch the branch into another folder and add the runs again.",
        )
    _git(folder, "update-ref", _FETCHED, tip)
    return tip


def _tip(root: Path, branch: str, remote: str) -> str:
    """Fetch the branch and return its last commit, or "" if the remote has none."""
    result = _run(root, "ls-remote", "--exit-code", "--heads", remote, f"refs/heads/{branch}")
    if result.returncode == 2:  # documented for --exit-code
        return ""
    if result.returncode == 0:
        result = _run(root, "fetch", "--quiet", "--no-tags", remote, f"refs/heads/{branch}")
    if result.returncode:
        raise _failure(
            f"cannot fetch the branch {branch}", result.stderr, "Check the name of the remote: git remote -v"
        )
    return _git(root, "rev-parse", "FETCH_HEAD")


def _first_commit(root: Path) -> str:
    """Create a commit without parents that contains only the merge rule."""
    blob = _git(root, "hash-object", "-w", "--stdin", input_text=_ATTRIBUTES)
    tree = _git(root, "mktree", input_text=f"100644 blob {blob}\t.gitattributes\n")
    return _git(root, "commit-tree", tree, "-m", "A branch for results", environment=_FIRST_COMMIT)


def _check(branch: str) -> None:
    if _run(Path(), "check-ref-format", "--branch", branch).returncode:
        raise PipelineError(f"{branch!r} is not a valid branch name", "For example: --branch nightsight-history")


def _root() -> Path:
    result = _run(Path(), "rev-parse", "--show-toplevel")
    if result.returncode:
        raise PipelineError("this folder is not in a git repository", "Run it in a checkout of the program.")
    return Path(result.stdout.strip())


def _git(folder: Path, *arguments: str, input_text: str = "", environment: Mapping[str, str] | None = None) -> str:
    """Return the output of git; PipelineError if it fails."""
    result = _run(folder, *arguments, input_text=input_text, environment=environment)
    if result.returncode:
        raise _failure(f"git {arguments[0]} failed in {folder}", result.stderr, "")
    return result.stdout.strip()


def _run(
    folder: Path, *arguments: str, input_text: str = "", environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    # commits need an author, which CI machines lack, and nobody could answer a prompt for a password
    own = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in _IDENTITY.items()}
    variables = {**own, **os.environ, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", **(environment or {})}
    try:
        return subprocess.run(
            ["git", *_NO_HOOKS, *arguments],
            cwd=folder,
            env=variables,
            input=input_text,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except FileNotFoundError:
        raise ToolError("git is not on PATH", "Install git.") from None


def _failure(what: str, output: str, hint: str) -> PipelineError:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    # errors come before git's advice
    errors = [line for line in lines if line.startswith(("fatal:", "error:", "!", "remote:", "CONFLICT"))]
    return PipelineError(f"{what}: {(errors or lines or ['no reason given'])[0]}", hint)
