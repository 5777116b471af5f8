"""A history on a branch of its own: begun by anybody, pushed by several at once, never lost."""

import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from nightsight.publish import branch as module
from tests.continuous import git, repository

Run = Callable[..., Result]
BRANCH = "nightsight-history"


@pytest.fixture
def program(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a checkout with a remote, which is the current folder."""
    # a machine without a name to commit by
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "nobody"))
    checkout = repository(tmp_path)
    monkeypatch.chdir(checkout)
    return checkout


def lines(folder: Path, name: str = "mlp.jsonl") -> list[str]:
    return git(folder, "show", f"{BRANCH}:{name}").splitlines()


def append(folder: Path, line: str, name: str = "mlp.jsonl") -> None:
    with (folder / name).open("a") as file:
        file.write(f"{line}\n")


def test_a_history_is_begun_and_continued(run: Run, program: Path, tmp_path: Path) -> None:
    remote = tmp_path / "remote.git"
    for night in ("1", "2"):
        folder = tmp_path / f"night{night}"
        assert run("ci", "fetch", folder).output == f"history: {folder}\n"
        append(folder, night)
        assert run("ci", "push", folder, "-m", f"Night {night}").output == f"pushed: {BRANCH}\n"
    assert lines(remote) == ["1", "2"]
    assert git(remote, "log", "--format=%s", BRANCH).splitlines() == ["Night 2", "Night 1", "A branch for results"]
    assert git(remote, "show", f"{BRANCH}:.gitattributes") == "*.jsonl merge=union"
    # it shares nothing with the program, and left nothing in it
    assert subprocess.run(["git", "merge-base", "main", BRANCH], cwd=remote, check=False).returncode == 1
    assert git(program, "status", "--porcelain") == ""
    assert git(program, "branch", "--format=%(refname:short)") == "main"


def test_nothing_new_is_no_commit(run: Run, program: Path, tmp_path: Path) -> None:
    run("ci", "fetch", tmp_path / "a")
    # an empty branch is worth pushing once: it shows that one may push
    assert run("ci", "push", tmp_path / "a").output == f"pushed: {BRANCH}\n"
    assert run("ci", "push", tmp_path / "a").output == f"nothing new for {BRANCH}\n"


def test_what_others_pushed_meanwhile_is_kept(run: Run, program: Path, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        run("ci", "fetch", tmp_path / name)
    for name in ("a", "b", "c"):
        append(tmp_path / name, name)
        append(tmp_path / name, name, f"{name}.jsonl")
        run("ci", "push", tmp_path / name)
    remote = tmp_path / "remote.git"
    assert sorted(lines(remote)) == ["a", "b", "c"]
    assert [lines(remote, f"{name}.jsonl") for name in "abc"] == [["a"], ["b"], ["c"]]
    # a folder that has been pushed goes on from there
    append(tmp_path / "a", "again")
    run("ci", "push", tmp_path / "a")
    assert sorted(lines(remote)) == ["a", "again", "b", "c"]


def test_jobs_that_push_at_once_lose_nothing(run: Run, program: Path, tmp_path: Path, forked_nightsight: Path) -> None:
    clones = [tmp_path / f"clone{number}" for number in range(5)]
    for clone in clones:
        # as CI systems do: no history of the program
        git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{tmp_path / 'remote.git'}", str(clone))

    def job(clone: Path) -> None:
        for night in range(3):
            folder = clone.with_name(f"{clone.name}-{night}")
            _succeeds(clone, forked_nightsight, "ci", "fetch", folder)
            append(folder, f"{clone.name} {night}")
            _succeeds(clone, forked_nightsight, "ci", "push", folder)

    with ThreadPoolExecutor(len(clones)) as pool:
        list(pool.map(job, clones))
    assert sorted(lines(tmp_path / "remote.git")) == sorted(
        f"{clone.name} {night}" for clone in clones for night in range(3)
    )


def _succeeds(folder: Path, *command: object) -> None:
    done = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_commit_that_was_not_pushed_is_pushed_later(run: Run, program: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    run("ci", "fetch", folder)
    append(folder, "1")
    git(program, "remote", "set-url", "origin", str(tmp_path / "nowhere"))
    done = run("ci", "push", folder, expect=3)
    assert "Error: cannot push to the branch nightsight-history: fatal: " in done.output
    assert "permissions: contents: write" in done.output
    git(program, "remote", "set-url", "origin", str(tmp_path / "remote.git"))
    assert run("ci", "push", folder).output == f"pushed: {BRANCH}\n"
    assert lines(tmp_path / "remote.git") == ["1"]


def test_a_contradiction_is_reported_and_nothing_lost(run: Run, program: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        run("ci", "fetch", tmp_path / name)
        (tmp_path / name / "notes.txt").write_text(f"{name}\n")
    run("ci", "push", tmp_path / "a")
    done = run("ci", "push", tmp_path / "b", expect=3)
    assert (
        f"Error: new commits in {tmp_path / 'b'} conflict with commits that others pushed to {BRANCH}: CONFLICT"
        in done.output
    )
    assert "Traceback" not in done.output
    assert (tmp_path / "b" / "notes.txt").read_text() == "b\n"
    assert git(tmp_path / "b", "status", "--porcelain") == ""


def test_a_push_that_is_refused_for_good_is_not_tried_again(run: Run, program: Path, tmp_path: Path) -> None:
    hook = tmp_path / "remote.git" / "hooks" / "pre-receive"
    hook.write_text(
        f"#!/bin/sh\necho tried >> {tmp_path / 'tries'}\necho 'error: GH006: Protected branch' >&2\nexit 1\n"
    )
    hook.chmod(0o755)
    run("ci", "fetch", tmp_path / "a")
    append(tmp_path / "a", "1")
    done = run("ci", "push", tmp_path / "a", expect=3)
    assert "GH006: Protected branch" in done.output
    assert (tmp_path / "tries").read_text().splitlines() == ["tried"]


def test_who_is_always_too_late_gives_up_with_the_command_to_go_on(
    run: Run, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = module._run
    monkeypatch.setattr("time.sleep", lambda _: None)

    def too_late(folder: Path, *arguments: str, **others: Any) -> "subprocess.CompletedProcess[str]":
        if arguments[0] == "push":
            return subprocess.CompletedProcess([], 1, "", " ! [rejected] abc -> nightsight-history (fetch first)\n")
        return real(folder, *arguments, **others)

    monkeypatch.setattr(module, "_run", too_late)
    run("ci", "fetch", tmp_path / "a")
    append(tmp_path / "a", "1")
    done = run("ci", "push", tmp_path / "a", expect=3)
    assert "others pushed first in all 12 attempts" in done.output
    assert f"nightsight ci push {tmp_path / 'a'}" in done.output


def test_hooks_and_signatures_of_the_program_are_not_those_of_the_history(
    run: Run, program: Path, tmp_path: Path
) -> None:
    for name in ("pre-commit", "pre-push", "post-commit", "commit-msg"):
        hook = program / ".git" / "hooks" / name
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
    git(program, "config", "commit.gpgSign", "true")
    git(program, "config", "gpg.program", "/bin/false")
    run("ci", "fetch", tmp_path / "a")
    append(tmp_path / "a", "1")
    run("ci", "push", tmp_path / "a")
    assert lines(tmp_path / "remote.git") == ["1"]


def test_a_folder_that_a_clean_up_took_away_is_made_anew(run: Run, program: Path) -> None:
    run("ci", "fetch", "history")
    git(program, "clean", "-ffdxq")
    run("ci", "fetch", "history")
    assert (program / "history" / ".gitattributes").exists()


def test_a_folder_with_something_in_it_is_left_alone(run: Run, program: Path) -> None:
    run("ci", "fetch", "history")
    append(program / "history", "not pushed yet")
    assert "Error: history is not empty" in run("ci", "fetch", "history", expect=3).output
    assert (program / "history" / "mlp.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("push", "reports"), "Error: reports is not a worktree of a branch"),
        (("fetch", "history", "--branch", "a..b"), "Error: 'a..b' is not a valid branch name"),
        (("fetch", "history", "--branch=--force"), "Error: '--force' is not a valid branch name"),
        (("fetch", "history", "--remote", "upstream"), "Error: cannot fetch the branch nightsight-history: fatal: "),
    ],
)
def test_bad_input_is_reported_in_one_line(run: Run, program: Path, arguments: tuple[str, ...], says: str) -> None:
    output = run("ci", *arguments, expect=3).output
    assert says in output
    assert "Traceback" not in output


def test_outside_a_repository(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert "Error: this folder is not in a git repository" in run("ci", "fetch", "history", expect=3).output


def test_without_git(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "Error: git is not on PATH" in run("ci", "fetch", "history", expect=3).output
