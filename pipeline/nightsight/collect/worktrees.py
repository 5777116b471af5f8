"""Runs commits side by side: a git worktree for each, in which a program runs that commit's code.

An editable installation is imported from the user's checkout, wherever a program starts: both sides would measure the
same code. So folders of the checkout on Python's search path are replaced by those of the worktree, through PYTHONPATH,
which comes first. Worktrees contain only tracked files.
"""

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from nightsight.collect.process import Child, last_lines, run_logged
from nightsight.collect.tools import allowed_environment, ask_python, start_error
from nightsight.collect.workloads import Program, Request, child_environment, resolve
from nightsight.errors import NotMeasured, ToolError, UsageError
from nightsight.system.scratch import scratch

WORKING_TREE: Final = "."
"""The ref that means the checkout itself, including uncommitted changes."""
GIT: Final = ("git", "-c", "core.hooksPath=/dev/null")
"""git, without the hooks that a checkout would run."""
_GIT_S: Final = 600.0
# an editable installation adds a folder to the search path, or a finder with a folder for each package
_SEARCH_PATH: Final = """
import json, os, sys
finders = [getattr(module, "MAPPING", {}) for name, module in sys.modules.items() if name.startswith("__editable__")]
print(json.dumps([*sys.path, *(os.path.dirname(path) for mapping in finders for path in mapping.values())]))
"""
# caches of compiled kernels, which the sides share
CACHES: Final = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")


@dataclass(frozen=True)
class Checkout:
    """The user's checkout of a repository: its root, and the current folder relative to it."""

    root: Path
    here: Path

    def commit_of(self, ref: str) -> str:
        """Return the commit of a ref, "" for the working tree; raise NotMeasured if it does not exist."""
        if ref == WORKING_TREE:
            return ""
        try:
            return git(self.root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}").strip()
        except ToolError as error:
            hint = "Fetch it first. A CI job needs the history of both commits (actions/checkout: fetch-depth: 0)."
            raise NotMeasured(f"this repository has no commit {ref!r}", hint) from error

    @property
    def is_dirty(self) -> bool:
        """Whether tracked files differ from the checked-out commit."""
        return bool(git(self.root, "status", "--porcelain", "--untracked-files=no").strip())

    def tracks(self, path: str, commits: Sequence[str]) -> bool:
        """Whether a path of the checkout is in one of these commits."""
        for commit in filter(None, commits):
            with suppress(ToolError):
                git(self.root, "cat-file", "-e", f"{commit}:{path}")
                return True
        return False


@dataclass(frozen=True)
class ProgramRequest:
    """A program as requested on the command line: a workload, script or command (see `resolve`)."""

    target: str | None
    arguments: tuple[str, ...]
    python: str
    workloads: Path | None = None


@dataclass(frozen=True)
class Side:
    """One side of a comparison: its name, the user's ref, the commit, and the folder where it is checked out.

    `search_path`: the PYTHONPATH there; None: unchanged.
    """

    name: str
    ref: str
    commit: str
    root: Path
    search_path: str | None = None

    @property
    def label(self) -> str:
        """The name of this side in messages."""
        return f"{self.name} ({self.ref})"


def find_checkout() -> Checkout:
    """Return the checkout that contains the working directory; raise NotMeasured if there is none."""
    try:
        root = Path(git(Path.cwd(), "rev-parse", "--show-toplevel").rstrip("\n"))
    except ToolError as error:
        hint = "To compare commits, run this in a checkout of the program's repository."
        raise NotMeasured("this folder is not in a git repository", hint) from error
    return Checkout(root, Path.cwd().resolve().relative_to(root.resolve()))


@contextmanager
def worktrees(checkout: Checkout, refs: Mapping[str, str], *, python: str) -> Iterator[dict[str, Side]]:
    """Check out a commit for each side, as {name: ref}, and remove everything at the end, also after an interrupt.

    All sides share caches of compiled kernels, unless the user sets other ones. Raise NotMeasured if a ref does not
    exist.
    """
    commits = {name: checkout.commit_of(ref) for name, ref in refs.items()}
    folder = Path(tempfile.mkdtemp(prefix="nightsight-commits-")).resolve()
    folders: list[Path] = []
    try:
        folders_inside = _search_folders(checkout, python, tuple(commits.values()))
        sides = {}
        for number, (name, commit) in enumerate(commits.items()):
            # paths of equal length: programs start with the same amount of text in memory
            root = folder / f"side{number}" if commit else checkout.root
            if commit:
                folders.append(root)
                git(checkout.root, "worktree", "add", "--quiet", "--detach", str(root), commit)
            search_path = (
                os.pathsep.join([*(str(root / path) for path in folders_inside), *_outside_entries(checkout)])
                if commit
                else None
            )
            sides[name] = Side(name, refs[name], commit, root, search_path)
        with _variables({name: os.environ.get(name) or str(folder / name.lower()) for name in CACHES}):
            yield sides
    finally:
        with _ignoring_interrupts():
            for root in folders:
                with suppress(ToolError):
                    git(checkout.root, "worktree", "remove", "--force", "--force", str(root))
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def working_in(side: Side, checkout: Checkout) -> Iterator[None]:
    """Work in a side's folder that corresponds to the user's current folder, with its search path."""
    try:
        (side.root / checkout.here).stat()
    except OSError as error:
        raise NotMeasured(
            f"{side.label} has no folder {checkout.here}", "Start nightsight in a folder that both have."
        ) from error
    variables = {} if side.search_path is None else {"PYTHONPATH": side.search_path}
    with chdir(side.root / checkout.here), _variables(variables):
        yield


def build(side: Side, checkout: Checkout, command: str, request: Request) -> None:
    """Run the build command of a side; raise NotMeasured if it fails."""
    with working_in(side, checkout), scratch() as folder:
        log = folder / "build.log"
        request.progress(f"building {side.label}")
        child = Child(("/bin/sh", "-c", command), child_environment(request))
        outcome = run_logged(child, log=log, timeout_s=request.timeout_s, verbose=request.verbose)
        if outcome.interrupted:
            raise KeyboardInterrupt
        if not outcome.ok:
            raise NotMeasured(
                f"{side.label} does not build: the --build command {outcome.ending}",
                f"Its last lines:\n{last_lines(log) or 'nothing'}",
            )


def resolve_program(side: Side, checkout: Checkout, request: ProgramRequest) -> Program:
    """Return the program of a side; raise NotMeasured if it does not exist. Call this in the folder of the side."""
    target = _path_on_side(side, checkout, request.target) if request.target else None
    try:
        program = resolve(target, request.arguments, python=request.python, folder=request.workloads)
    except UsageError as error:
        is_here = target is not None and (checkout.root / checkout.here / target).is_file()
        hint = "It is in the checkout, but not in that commit. Commit it, or use the checkout as it is: --head ."
        raise NotMeasured(f"{side.label} cannot run: {error.message}", hint if is_here else error.hint) from error
    first, *further = program.command
    command = (first, *(_path_on_side(side, checkout, word) for word in further))
    if side.commit and program.kind == "script" and _is_in_checkout(Path(command[1]), side, checkout):
        name = Path(command[1]).relative_to(checkout.root)
        hint = "Commit it or move it out of the repository. Otherwise, both sides import modules of the checkout."
        raise NotMeasured(f"{name} is not in {side.label}", hint)
    return replace(program, command=command)


def git(folder: Path, *arguments: str) -> str:
    """Run git and return its output; raise ToolError if it fails."""
    try:
        result = subprocess.run(
            (*GIT, "-C", str(folder), *arguments),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_S,
            check=False,
            env=allowed_environment(),
            # Ctrl-C is for us: we remove what git created
            start_new_session=True,
        )
    except OSError as error:
        raise start_error("git", error) from error
    except subprocess.TimeoutExpired as error:
        raise ToolError(f"git {arguments[0]} did not finish within {error.timeout:g} s") from error
    if result.returncode:
        raise ToolError(f"git {arguments[0]} failed", result.stderr.decode(errors="replace").strip()[-2000:])
    return result.stdout.decode(errors="surrogateescape")


def _is_in_checkout(path: Path, side: Side, checkout: Checkout) -> bool:
    """Whether a file is in the user's checkout, and not in a worktree inside it."""
    return path.is_relative_to(checkout.root) and not path.is_relative_to(side.root)


def _path_on_side(side: Side, checkout: Checkout, word: str) -> str:
    """Return the path on this side of a tracked file of the checkout; any other word unchanged."""
    path = Path(word)
    if not side.commit or not path.is_absolute() or not path.is_relative_to(checkout.root):
        return word
    name = path.relative_to(checkout.root)
    return str(side.root / name) if (side.root / name).exists() or checkout.tracks(str(name), ("HEAD",)) else word


def _search_folders(checkout: Checkout, python: str, commits: Sequence[str]) -> list[str]:
    """Return the folders of the checkout on Python's search path that are in one of the commits."""
    try:
        paths = [Path(path) for path in json.loads(ask_python(python, _SEARCH_PATH))]
    except (ToolError, ValueError):
        # the program may not be a Python program
        return []
    names = [
        path.resolve().relative_to(checkout.root.resolve())
        for path in paths
        if path.resolve().is_relative_to(checkout.root)
    ]
    return [name for name in dict.fromkeys(map(str, names)) if name == "." or checkout.tracks(name, commits)]


def _outside_entries(checkout: Checkout) -> list[str]:
    """Return the entries of PYTHONPATH outside the checkout."""
    entries = allowed_environment().get("PYTHONPATH", "").split(os.pathsep)
    return [path for path in entries if path and not Path(path).resolve().is_relative_to(checkout.root.resolve())]


@contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, and restore them afterwards."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Ignore interrupts during cleanup."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
