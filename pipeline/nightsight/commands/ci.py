"""The commands `nightsight ci`: steps of a CI job other than measuring that would be long in YAML."""

import json
import os
from pathlib import Path
from typing import Any, Final

import click

from nightsight.commands.console import put, say
from nightsight.errors import UsageError

_FOLDER: Final = click.Path(file_okay=False, path_type=Path)
_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_branch_option = click.option("--branch", default="nightsight-history", show_default=True, metavar="NAME")
_remote_option = click.option("--remote", default="origin", show_default=True, metavar="NAME")
_repository_option = click.option(
    "--repository", envvar="GITHUB_REPOSITORY", required=True, metavar="OWNER/NAME", help="Default: $GITHUB_REPOSITORY."
)
_author_option = click.option(
    "--author",
    default="github-actions[bot]",
    show_default=True,
    metavar="LOGIN",
    help="Owner of the token. Only comments and issues by this user are edited.",
)


@click.group(short_help="Keep a history on a branch, comment on pull requests, open issues.")
def ci() -> None:
    """Keep a history on a branch, comment on pull requests, open issues. docs/ci.md has the workflows.

    Example: nightsight ci fetch history
    """


@ci.command(short_help="Fetch the history branch into a folder.")
@click.argument("folder", type=_FOLDER)
@_branch_option
@_remote_option
def fetch(*, folder: Path, branch: str, remote: str) -> None:
    """Fetch the history branch into FOLDER as a worktree. If there is no such branch, start one there.

    The branch shares no commits with the program's branches.

    \b
    Example:
      nightsight ci fetch history
      nightsight history add --history history reports/mlp/latest
      nightsight ci push history
    """
    from nightsight.publish.branch import fetch_branch

    fetch_branch(folder, branch, remote=remote)
    say(f"history: {folder}")


@ci.command(short_help="Commit the history and push it.")
@click.argument("folder", type=_FOLDER)
@_branch_option
@_remote_option
@click.option("-m", "--message", default="Add runs", show_default=True, help="Commit message.")
def push(*, folder: Path, branch: str, remote: str, message: str) -> None:
    """Commit the changes in FOLDER, and push them to the branch from which it was fetched.

    If somebody else has pushed in the meantime, the commit is rebased and pushed again.

    Example: nightsight ci push history
    """
    from nightsight.publish.branch import push_branch

    is_new = push_branch(folder, branch, remote=remote, message=message)
    say(f"pushed: {branch}" if is_new else f"nothing new for {branch}")


@ci.command(short_help="Write or update a comment on a pull request.")
@click.argument("files", nargs=-1, type=_FILE, metavar="[COMPARISON.md...]")
@click.option("--number", type=click.IntRange(min=1), metavar="N", help="The pull request.")
@click.option(
    "--downloaded",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Instead of files and --number: a folder from another workflow run, with a file `number` and comparisons as "
    ".md. It is not trusted: needs --commit.",
)
@click.option("--commit", default="", metavar="SHA", help="Write only if this commit is the head of the pull request.")
@click.option("--run", type=click.IntRange(min=1), metavar="ID", help="Workflow run to link artifacts of.")
@_repository_option
@_author_option
@click.option("--dry-run", is_flag=True, help="Only print the comment. For files, this needs no token.")
def comment(*, files: tuple[Path, ...], repository: str, author: str, **values: Any) -> None:  # noqa: ANN401 (Click's)
    """Write comparisons as one comment on a pull request, or update that comment. Needs gh.

    \b
    Examples:
      nightsight ci comment --number 12 out/comparison.md
      nightsight ci comment --downloaded data --commit "$HEAD_SHA" --run "$RUN_ID"
    """
    from nightsight.publish import github

    number, folder, commit, run = (values[name] for name in ("number", "downloaded", "commit", "run"))
    if (folder is None) == (not files) or (folder is None and number is None):
        raise UsageError("give files and --number, or --downloaded", "See nightsight ci comment --help.")
    if folder is not None and not (commit and number is None):
        raise UsageError("--downloaded needs --commit, without --number", "The downloaded files name the pull request.")
    target = github.Repository(repository)
    if folder is not None:
        if (download := github.read_download(folder)) is None:
            say(f"no comment: the other run left no files in {folder}")
            return
        number, sections = download
    else:
        sections = [github.CommentSection(path.stem, path.read_text(encoding="utf-8")) for path in files]
    if commit:
        github.require_head(target, number, commit)
    if run is not None:
        sections = github.with_links(target, sections, run)
    if values["dry_run"]:
        put(github.comment_text(sections))
        return
    say(f"comment: {github.comment(target, number, sections, author=author)}")


@ci.command(short_help="Keep one issue for each confirmed regression.")
@click.argument("events", type=click.File(encoding="utf-8"), metavar="EVENTS.json")
@click.option("--link", default="", metavar="URL", help="Address of the trend page.")
@_repository_option
@_author_option
@click.option("--dry-run", is_flag=True, help="Only print the issues that would be open.")
def issues(*, events: Any, link: str, repository: str, author: str, dry_run: bool) -> None:  # noqa: ANN401 (Click's file)
    """Open an issue for each confirmed regression of `nightsight history show --format json`. Needs gh.

    A regression never gets two issues. When it has recovered, is accepted, or can no longer be judged, its issue is
    closed with the reason, and stays closed. Changes that the canary attributes to the environment open no issue.

    \b
    Example:
      nightsight history show --format json > events.json
      nightsight ci issues events.json
    """
    from nightsight.publish import github
    from nightsight.publish.regressions import Regressions

    try:
        document = json.load(events)
    except ValueError as error:
        raise UsageError(
            f"{events.name} is not JSON: {error}", "nightsight history show --format json > FILE"
        ) from None
    server = os.environ.get("GITHUB_SERVER_URL", "https://github.com")
    regressions = Regressions(document, link=link, commits=f"{server}/{repository}/commit/")
    if dry_run:
        for issue in regressions.issues:
            if issue.state == "open":
                say(f"open: {issue.title}", "")
                put(f"{issue.text}\n")
        return
    for line in github.publish_issues(
        github.Repository(repository), regressions.issues, ended=regressions.ended, author=author
    ):
        say(line)
