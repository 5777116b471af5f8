"""Comments and issues: one of each, by nobody but us, and nothing that a stranger's run could misuse."""

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hypothesis import example, given
from hypothesis import strategies as st

from nightsight.history import trends
from nightsight.publish.github import (
    BOT,
    MOST_BYTES,
    CommentSection,
    Repository,
    comment_text,
    publish_issues,
    read_download,
)
from nightsight.publish.regressions import Regressions
from nightsight.render.compare import comparison_markdown
from nightsight.workflows.history import as_json
from tests.comparisons import hostile_comparison
from tests.continuous import HEAD, GitHub
from tests.fake_tools.gh import answered
from tests.nights import nights, of, step_at
from tests.properties import examples
from tests.reports import HOSTILE

Run = Callable[..., Result]
_NUMBERS = itertools.count()
OWN = "mlp:H200:step_ns:2026-11-20"
MACHINE = "NVIDIA H200 MIG 1g"
MLP = "<!-- nightsight:mlp -->\n**mlp: step time +4.1 %**\n\n| table |\n"


def left_behind(folder: Path, number: str = "12\n", **texts: str) -> Path:
    """Write what another workflow run left."""
    folder.mkdir()
    (folder / "number").write_text(number)
    for name, text in (texts or {"mlp": MLP}).items():
        (folder / f"{name}.md").write_text(text)
    return folder


def test_a_comment_is_written_once_and_then_edited(run: Run, tmp_path: Path, fake_gh: Callable[..., GitHub]) -> None:
    others = [{"id": 90 + n, "body": "me too", "user": {"login": "someone"}, "html_url": ""} for n in range(4)]
    github = fake_gh(comments={"12": others})
    for text in (MLP, "<!-- nightsight:mlp -->\nmlp: unchanged\n"):
        (tmp_path / "mlp.md").write_text(text)
        output = run("ci", "comment", "--number", 12, "mlp.md").output
        assert output == "comment: https://github.com/owner/program/pull/12#issuecomment\n"
    assert github.bodies()[4:] == ["<!-- nightsight -->\n\nmlp: unchanged\n"]
    assert github.written() == [
        "POST repos/owner/program/issues/12/comments",
        "PATCH repos/owner/program/issues/comments/5",
    ]


def test_a_marker_of_somebody_else_is_not_ours(run: Run, tmp_path: Path, fake_gh: Callable[..., GitHub]) -> None:
    stranger = {"id": 1, "body": "<!-- nightsight -->\nmine", "user": {"login": "someone"}, "html_url": ""}
    github = fake_gh(comments={"12": [stranger]})
    (tmp_path / "mlp.md").write_text(MLP)
    run("ci", "comment", "--number", 12, "mlp.md")
    assert github.bodies()[0] == "<!-- nightsight -->\nmine"
    assert len(github.bodies()) == 2


def test_several_workloads_are_one_comment(run: Run, tmp_path: Path, fake_gh: Callable[..., GitHub]) -> None:
    fake_gh()
    (tmp_path / "a.md").write_text(MLP)
    (tmp_path / "b.md").write_text("<!-- nightsight:gelu -->\ngelu: unchanged\n")
    output = run("ci", "comment", "--number", 12, "a.md", "b.md", "--dry-run").output
    assert output == "<!-- nightsight -->\n\n**mlp: step time +4.1 %**\n\n| table |\n\ngelu: unchanged\n"


@given(st.lists(st.text(min_size=1, max_size=200).map(lambda text: text * 400), min_size=1, max_size=6))
def test_a_comment_always_fits(texts: list[str]) -> None:
    body = comment_text(
        [CommentSection(f"w{index}", f"Verdict {index}.\n\n{text}") for index, text in enumerate(texts)]
    )
    assert len(body.encode()) <= MOST_BYTES + 1
    assert body.startswith("<!-- nightsight -->\n")
    assert [f"Verdict {index}." in body for index in range(len(texts))] == [True] * len(texts)


def test_what_fits_is_shown_whole() -> None:
    short, long = CommentSection("a", "Short.\n\n| a | table |"), CommentSection("b", f"Long.\n\n{'| row |' * 10_000}")
    assert comment_text([short, long]) == (
        "<!-- nightsight -->\n\nShort.\n\n| a | table |\n\nLong.\n\nThe rest is in the report.\n"
    )


def test_another_run_is_commented_on_its_pull_request(run: Run, tmp_path: Path, fake_gh: Callable[..., GitHub]) -> None:
    github = fake_gh(artifacts={"77": ["nightsight-mlp.html", "comment-mlp", "nightsight-other.html"]})
    left_behind(tmp_path / "data", mlp=MLP, gelu="<!-- nightsight:gelu -->\ngelu: could not be measured\n")
    run("ci", "comment", "--downloaded", "data", "--commit", HEAD, "--run", 77)
    (body,) = github.bodies()
    place = "https://github.com/owner/program/actions/runs/77"
    assert f"gelu: could not be measured\n\n[Log]({place})" in body
    assert f"| table |\n\n[Report]({place}/artifacts/100)" in body


@pytest.mark.parametrize(
    ("number", "says"),
    [
        ("12; touch harm", "name no pull request"),
        ("$(touch harm)", "name no pull request"),
        ("012", "name no pull request"),
        ("-1", "name no pull request"),
        ("١٢", "name no pull request"),
        ("12\n13", "name no pull request"),
        ("12/../13", "name no pull request"),
        ("", "name no pull request"),
        ("9" * 11, "name no pull request"),
        ("13", "is not the head of an open pull request 13"),
        ("14", "is not the head of an open pull request 14"),
        ("99", "GitHub refused to GET pulls/99: gh: Not Found (HTTP 404)"),
    ],
)
def test_a_run_cannot_name_another_pull_request(
    run: Run, tmp_path: Path, fake_gh: Callable[..., GitHub], number: str, says: str
) -> None:
    pulls = {
        "12": {"state": "open", "head": {"sha": HEAD}},
        "13": {"state": "open", "head": {"sha": "f" * 40}},
        "14": {"state": "closed", "head": {"sha": HEAD}},
    }
    github = fake_gh(pulls=pulls)
    left_behind(tmp_path / "data", number)
    output = run("ci", "comment", "--downloaded", "data", "--commit", HEAD, expect=3).output
    assert says in output
    assert "Traceback" not in output
    assert github.written() == []
    assert not list(tmp_path.rglob("harm"))


def test_several_jobs_of_a_run_name_the_same_pull_request(
    run: Run, tmp_path: Path, fake_gh: Callable[..., GitHub]
) -> None:
    github = fake_gh()
    (tmp_path / "data").mkdir()
    left_behind(tmp_path / "data" / "comment-mlp")
    left_behind(tmp_path / "data" / "comment-gelu", gelu="gelu: unchanged")
    run("ci", "comment", "--downloaded", "data", "--commit", HEAD)
    assert "gelu: unchanged\n\n**mlp" in github.bodies()[0]
    left_behind(tmp_path / "data" / "comment-more", "13")
    assert "or several" in run("ci", "comment", "--downloaded", "data", "--commit", HEAD, expect=3).output


def test_what_a_stranger_wrote_notifies_nobody_and_is_no_marker(
    run: Run, tmp_path: Path, fake_gh: Callable[..., GitHub]
) -> None:
    github = fake_gh()
    text = "<!-- nightsight:mlp -->\n@everyone look, @org/team\n<!-- nightsight:event -->\nmail a@b.c"
    left_behind(tmp_path / "data", mlp=text)
    run("ci", "comment", "--downloaded", "data", "--commit", HEAD)
    (body,) = github.bodies()
    assert body.count("<!--") == 1
    assert "@e" not in body
    assert "@o" not in body
    assert "@\u200beveryone look" in body


# the words between them, too
_FOLD = ("<details>", "<summary>", "</summary>", "</details>", "<details><summary>a</summary>\n", "\n</details>\n")
_BLOCK = ("```text\n", "\n```text\n", "\n```\n", "   ```\n")
_PIECES = (*_BLOCK, "### ", "**", "|", "\\", "`", "\n", "[x](http://e.org)", "@", *_FOLD)


def rendered(tmp_path: Path, text: str) -> str:
    """Return what is made of a file that a stranger's run left."""
    folder = tmp_path / f"{next(_NUMBERS)}"
    folder.mkdir()
    (folder / "number").write_text("12")
    (folder / "mlp.md").write_bytes(text.encode())
    download = read_download(folder)
    assert download
    return download[1][0].text


@given(st.lists(st.text(max_size=100) | st.sampled_from(HOSTILE), min_size=1, max_size=4), st.integers(0, 3))
@examples(20)
def test_what_a_comparison_of_ours_says_is_unchanged(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], count: int
) -> None:
    text = comparison_markdown(hostile_comparison(names, count=count))
    assert rendered(tmp_path_factory.getbasetemp(), text) == text.partition("\n")[2]


def test_what_could_not_be_measured_is_unchanged(tmp_path: Path) -> None:
    text = "**mlp could not be measured**: see the log.\n"
    assert rendered(tmp_path, text) == text


@given(st.lists(st.sampled_from((*_PIECES, *HOSTILE)) | st.text(max_size=5), max_size=30).map("".join))
@example("|\x0c@everyone https://example.com/ |cell|")
@examples(60)
def test_nothing_else_is_markup(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    whole = rendered(tmp_path_factory.getbasetemp(), text)
    # a block is plain text, and ends with the line that ends it
    body = re.sub(r"^```text\n(?:[^`\n]*\n|```text\n)*```$", "", whole, flags=re.MULTILINE)
    assert not re.search(r"@(?!\u200b)|www\.|://", body, re.IGNORECASE)
    short = re.sub(r"^<details><summary>(.*)</summary>$", r"<details>\1", body, flags=re.MULTILINE)
    folds = re.findall(r"<.*?>", short)
    # parts that fold follow one another, and end
    assert folds == ["<details>", "</details>"] * (len(folds) // 2)
    # bold, and nothing else that means anything
    bare = re.sub(r"\\(?:[^\w\s]|_)|\*\*|&(?:amp|lt|gt);|^### |<[^>]*>", "", body, flags=re.MULTILINE)
    assert not re.search(r"[\\`*_{}\[\]~$#!&<>]", bare)
    # in Markdown, a form feed ends no line
    assert all(line.startswith("|") for line in bare.split("\n") if "|" in line)
    # and once more is no more
    assert rendered(tmp_path_factory.getbasetemp(), whole) == whole


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("&#64;everyone &commat;everyone", "&amp;\\#\u200b64;everyone &amp;commat;everyone"),
        ('<img src="https://e.org/x.png">', '&lt;img src="https:\u200b//e.org/x.png"&gt;'),
        ("![x](https://e.org/x.png)", "\\!\\[x\\](https:\u200b//e.org/x.png)"),
        ("[Report](https://e.org)", "\\[Report\\](https:\u200b//e.org)"),
        ("<https://e.org> www.e.org a@e.org", "&lt;https:\u200b//e.org&gt; www\u200b.e.org a@\u200be.org"),
        ("# Merge this", "\\# Merge this"),
        ("<details><summary>a", "&lt;details&gt;&lt;summary&gt;a"),
        ("<details><summary>a</summary>", "<details><summary>a</summary>\n\n</details>\n"),
        ("</details>", "&lt;/details&gt;"),
        ("a | b", "a \\| b"),
        ("```text\n<b> ``` @all\n```\n<b>", "```text\n<b> ''' @all\n```\n&lt;b&gt;"),
        ("```text\na", "```text\na\n```"),
        ("a\r<b>\r\n<c>", "a\n&lt;b&gt;\n&lt;c&gt;"),
    ],
)
def test_what_a_stranger_wrote_is_read_as_it_stands(tmp_path: Path, text: str, shown: str) -> None:
    assert rendered(tmp_path, text) == shown


def test_links_out_of_the_folder_are_not_followed(run: Run, tmp_path: Path, fake_gh: Callable[..., GitHub]) -> None:
    github = fake_gh()
    secret = tmp_path / "secret.md"
    secret.write_text("a secret")
    left_behind(tmp_path / "data").joinpath("also.md").symlink_to(secret)
    run("ci", "comment", "--downloaded", "data", "--commit", HEAD)
    assert "secret" not in github.bodies()[0]


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ({"mlp": "x" * 60_001}, "mlp.md of the other run has more than 60000 bytes"),
        ({f"w{index}": "x" for index in range(51)}, "left 51 comparisons"),
    ],
)
def test_too_much_of_another_run_is_refused(
    run: Run, tmp_path: Path, fake_gh: Callable[..., GitHub], texts: dict[str, str], says: str
) -> None:
    fake_gh()
    left_behind(tmp_path / "data", **texts)
    assert says in run("ci", "comment", "--downloaded", "data", "--commit", HEAD, expect=3).output


def test_another_run_that_left_nothing(run: Run, tmp_path: Path, fake_gh: Callable[..., GitHub]) -> None:
    fake_gh()
    left_behind(tmp_path / "data").joinpath("mlp.md").unlink()
    output = run("ci", "comment", "--downloaded", "data", "--commit", HEAD, expect=3).output
    assert "the other run left no comparisons" in output


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("mlp.md",), 2, "give files and --number, or --downloaded"),
        (("--number", "12"), 2, "give files and --number, or --downloaded"),
        (("--downloaded", "data"), 2, "--downloaded needs --commit, without --number"),
        (("--downloaded", "data", "--commit", HEAD, "--number", "12"), 2, "--downloaded needs --commit"),
        (("--downloaded", "data", "--commit", "main"), 3, "'main' is not a commit"),
        (("--number", "12", "mlp.md", "--repository", "owner/a/../b"), 3, "'owner/a/../b' is not a repository"),
        (("--number", "99", "mlp.md"), 3, "GitHub refused to GET issues/99/comments"),
    ],
)
def test_bad_input_of_a_comment_is_reported(
    run: Run, tmp_path: Path, fake_gh: Callable[..., GitHub], *, arguments: tuple[str, ...], status: int, says: str
) -> None:
    fake_gh()
    (tmp_path / "mlp.md").write_text(MLP)
    left_behind(tmp_path / "data")
    output = run("ci", "comment", *arguments, expect=status).output
    assert says in output
    assert "Traceback" not in output


def test_without_the_right_to_write(run: Run, tmp_path: Path, fake_gh: Callable[..., GitHub]) -> None:
    fake_gh(may="read")
    (tmp_path / "mlp.md").write_text(MLP)
    output = run("ci", "comment", "--number", 12, "mlp.md", expect=3).output
    assert "GitHub refused to POST issues/12/comments: gh: Resource not accessible by integration (HTTP 403)" in output
    assert "`permissions:` in the workflow" in output


def test_without_gh_or_its_token(
    run: Run, tmp_path: Path, fake_gh: Callable[..., GitHub], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_gh()
    (tmp_path / "mlp.md").write_text(MLP)
    monkeypatch.delenv("GH_TOKEN")
    assert "set the GH_TOKEN" in run("ci", "comment", "--number", 12, "mlp.md", expect=3).output
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "Error: gh is not on PATH" in run("ci", "comment", "--number", 12, "mlp.md", expect=3).output


def event(**others: Any) -> dict[str, Any]:
    """Write an event as `nightsight history show --format json` does."""
    change = {
        "workload": "mlp",
        "kind": "kernel",
        "name": "gemm<float, 4> | `x` @all",
        "baseline": 100.0,
        "candidate": 110.0,
        "change_pct": 10.0,
        "state": "confirmed",
    }
    return {
        "id": OWN,
        "state": "confirmed",
        "direction": "slower",
        "time": "2026-11-20T02:00:00Z",
        "before": "2026-11-19T02:00:00Z",
        "workloads": ["mlp"],
        "machine": MACHINE,
        "cause": "code",
        "sentence": "mlp: step time +4.1 % since 2026-11-20",
        "first_commit": "a" * 12,
        "last_commit": "b" * 12,
        "changes": [{**change, "name": "step_ns", "change_pct": 4.1}, change],
        **others,
        "ids": others.get("ids", [others.get("id", OWN)]),
    }


def events(path: Path, *changes: dict[str, Any]) -> Path:
    path.write_text(json.dumps(document(*changes)))
    return path


def document(*changes: dict[str, Any], **others: Any) -> dict[str, Any]:
    track = {"machine": MACHINE, "workload": "mlp", "tested_since": "2026-09-01T02:00:00Z"}
    tracks = [{**track, "last": "2026-11-30T02:00:00Z"}]
    return {"format": 1, "complete": True, "events": list(changes), "tracks": tracks, **others}


def test_a_regression_is_one_issue_from_its_beginning_to_its_end(
    run: Run, tmp_path: Path, fake_gh: Callable[..., GitHub]
) -> None:
    github, file = fake_gh(), tmp_path / "events.json"
    assert run("ci", "issues", events(file, event(state="suspect"))).output == ""
    opened = run("ci", "issues", events(file, event()), "--link", "https://example.org/history.html").output
    assert opened == "opened: https://github.com/owner/program/issues/1\n"
    (issue,) = github.state["issues"]
    assert issue["title"] == "Slower: mlp: step time +4.1 % since 2026-11-20"
    assert "[`aaaaaaaaaaaa`](https://github.com/owner/program/commit/aaaaaaaaaaaa)" in issue["body"]
    assert "[History](https://example.org/history.html)" in issue["body"]
    # the largest change first, and nothing that is markup
    rows = [line for line in issue["body"].splitlines() if line.startswith("| mlp")]
    assert rows[0].endswith("| +10.0 % |")
    assert "@all" not in issue["body"]
    assert r"\| \`x\`" in rows[0]
    # the next night says the same
    assert run("ci", "issues", events(file, event()), "--link", "https://example.org/history.html").output == ""
    assert "updated: " in run("ci", "issues", events(file, event(sentence="mlp: +4.5 %"))).output
    assert "closed: " in run("ci", "issues", events(file, event(state="recovered"))).output
    assert "**Closed**: it has recovered" in github.state["issues"][0]["body"]
    assert run("ci", "issues", events(file, event(state="recovered"))).output == ""
    assert len(github.state["issues"]) == 1


def test_what_was_nothing_before_comes_first() -> None:
    one, other = event()["changes"]
    change = event(changes=[one, {**other, "name": "copy_ns", "change_pct": None}])
    (issue,) = Regressions(document(change)).issues
    rows = [line for line in issue.text.splitlines() if line.startswith("| mlp")]
    assert rows == [r"| mlp | copy\_ns | new |", r"| mlp | step\_ns | +4.1 % |"]


def test_an_issue_that_a_person_closed_stays_closed(run: Run, tmp_path: Path, fake_gh: Callable[..., GitHub]) -> None:
    github, file = fake_gh(), events(tmp_path / "events.json", event())
    run("ci", "issues", file)
    github.change(issues=[{**github.state["issues"][0], "state": "closed"}])
    assert run("ci", "issues", file).output == ""
    assert github.state["issues"][0]["state"] == "closed"


def test_a_change_that_turns_out_to_be_a_night_earlier_is_the_same_issue(
    run: Run, tmp_path: Path, fake_gh: Callable[..., GitHub]
) -> None:
    github, file = fake_gh(), tmp_path / "events.json"
    run("ci", "issues", events(file, event(id="b", ids=["b", "a", "c"])))
    assert "updated" in run("ci", "issues", events(file, event(id="a", ids=["a", "b"], sentence="earlier"))).output
    assert run("ci", "issues", events(file, event(id="a", ids=["a", "b"], sentence="earlier"))).output == ""
    assert len(github.state["issues"]) == 1


def test_several_regressions_are_several_issues_however_many_there_are(
    run: Run, tmp_path: Path, fake_gh: Callable[..., GitHub]
) -> None:
    github = fake_gh(labels=["nightsight"])
    file = events(tmp_path / "events.json", *(event(id=f"event {number}") for number in range(5)))
    assert run("ci", "issues", file).output.count("opened: ") == 5
    assert run("ci", "issues", file).output == ""
    assert len(github.state["issues"]) == 5


@pytest.mark.parametrize("others", [{"cause": "environment"}, {"direction": "faster"}, {"state": "recovered"}])
def test_what_is_no_regression_of_the_code_opens_no_issue(
    run: Run, tmp_path: Path, fake_gh: Callable[..., GitHub], others: dict[str, str]
) -> None:
    github = fake_gh()
    assert run("ci", "issues", events(tmp_path / "events.json", event(**others))).output == ""
    assert github.written() == []


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"state": "ended"}, "further nights cannot show whether it recovers"),
        ({"state": "accepted"}, "it was accepted in the settings"),
        ({"state": "recovered"}, "it has recovered"),
        ({"direction": "faster"}, "it is no longer slower"),
        ({"cause": "environment"}, "it was not the code"),
    ],
)
def test_an_issue_says_why_it_was_closed(
    run: Run, tmp_path: Path, fake_gh: Callable[..., GitHub], fields: dict[str, str], says: str
) -> None:
    github, file = fake_gh(), tmp_path / "events.json"
    run("ci", "issues", events(file, event()))
    assert run("ci", "issues", events(file, event(**fields))).output.startswith("closed: ")
    assert f"**Closed**: {says}" in github.state["issues"][0]["body"]
    # it comes again: no second one, and it is not opened again
    assert run("ci", "issues", events(file, event())).output == ""
    assert [issue["state"] for issue in github.state["issues"]] == ["closed"]


LATER = {"machine": MACHINE, "workload": "mlp", "tested_since": "2026-11-21T02:00:00Z", "last": "2027-02-20T02:00:00Z"}


@pytest.mark.parametrize(
    ("changes", "others", "says"),
    [
        ([], {"tracks": [LATER]}, "it is older than the nights that are tested"),
        ([event(id="b", ids=["b", OWN])], {}, "it is part of another change now. mlp: step time"),
        # nothing is known: of other machines and workloads, in part of a history, or in one that was lost
        ([], {"tracks": [{**LATER, "workload": "gelu"}]}, ""),
        ([], {"tracks": [{**LATER, "machine": "NVIDIA H100"}]}, ""),
        ([], {"tracks": [LATER], "complete": False}, ""),
        ([], {"tracks": []}, ""),
        # a night on which noise hides a young change
        ([], {}, ""),
        ([event(state="suspect")], {}, ""),
        # another workload changed in the nights around
        ([event(id="b", ids=["b", OWN], workloads=["gelu"])], {}, ""),
    ],
)
def test_an_issue_of_which_no_event_is_left_is_closed_with_the_reason(
    run: Run, tmp_path: Path, fake_gh: Callable[..., GitHub], *, changes: list[Any], others: dict[str, Any], says: str
) -> None:
    github, file = fake_gh(), tmp_path / "events.json"
    # the other change is known already
    run("ci", "issues", events(file, event(), event(id="b")))
    github.change(issues=[issue for issue in github.state["issues"] if len(changes) or issue["number"] == 1])
    file.write_text(json.dumps(document(*changes, **others)))
    output = run("ci", "issues", file).output
    issue = github.state["issues"][0]
    assert (issue["state"], "closed: " in output) == (("closed", True) if says else ("open", False))
    assert f"**Closed**: {says}" in issue["body"] if says else "**Closed**" not in issue["body"]
    assert "closed: " not in run("ci", "issues", file).output


def test_an_issue_is_closed_when_its_change_is_missing_for_a_week(
    run: Run, tmp_path: Path, fake_gh: Callable[..., GitHub]
) -> None:
    github, file = fake_gh(), tmp_path / "events.json"
    run("ci", "issues", events(file, event()))

    def night(day: int, *changes: dict[str, Any]) -> str:
        track = {"machine": MACHINE, "workload": "mlp", "tested_since": "", "last": f"2026-12-{day:02}T02:00:00Z"}
        file.write_text(json.dumps(document(*changes, tracks=[track])))
        return str(run("ci", "issues", file).output)

    assert [night(day) for day in (1, 2, 7)] == [""] * 3
    # once more there, it has to be missing for another week
    assert night(8, event()).startswith("updated: ")
    assert [night(day) for day in (9, 15)] == [""] * 2
    assert night(16).startswith("closed: ")
    assert github.state["issues"][0]["body"].endswith("**Closed**: no night since 2026-12-09 shows it.\n")


def test_noise_that_moves_a_change_far_opens_no_second_issue(
    run: Run, tmp_path: Path, fake_gh: Callable[..., GitHub]
) -> None:
    github, file = fake_gh(), tmp_path / "events.json"
    run("ci", "issues", events(file, event()))
    assert run("ci", "issues", events(file, event(id="far", sentence="moved"))).output.startswith("updated: ")
    elsewhere = event(id="other", machine="NVIDIA H100")
    assert run("ci", "issues", events(file, event(id="far", sentence="moved"), elsewhere)).output.startswith("opened: ")
    assert len(github.state["issues"]) == 2


def test_an_issue_that_somebody_edited_is_left_open(run: Run, tmp_path: Path, fake_gh: Callable[..., GitHub]) -> None:
    github, file = fake_gh(), tmp_path / "events.json"
    run("ci", "issues", events(file, event()))
    file.write_text(json.dumps(document(tracks=[LATER])))
    (issue,) = github.state["issues"]
    first, _, rest = issue["body"].split("\n", 2)
    bad = f'<!-- {{"machine": "{MACHINE}", "workloads": ["mlp"], "time": "2027-01-01", "missing": "?"}} -->'
    for second in (bad, "", "<!-- {} -->", "<!-- [] -->", '<!-- {"machine": 1, "workloads": 2, "time": 3} -->'):
        github.change(issues=[{**issue, "body": f"{first}\r\n{second}\r\n{rest}"}])
        assert run("ci", "issues", file).output == ""
    assert github.state["issues"][0]["state"] == "open"


def test_a_change_beside_takes_no_issue_away(run: Run, tmp_path: Path, fake_gh: Callable[..., GitHub]) -> None:
    github, file = fake_gh(), tmp_path / "events.json"
    run("ci", "issues", events(file, event(id="b", ids=["b", "a", "c"])))
    # the change turns out to be of the night before; in the night between, another workload changed, and one improved
    moved = event(id="a", ids=["a", "b"], sentence="mlp: moved")
    elsewhere = event(id="c", ids=["c", "b", "a"], workloads=["gelu"], sentence="gelu: slower")
    better = event(id="d", ids=["d", "b", "a"], direction="faster")
    output = run("ci", "issues", events(file, better, elsewhere, moved)).output
    assert [line.partition(":")[0] for line in output.splitlines()] == ["opened", "updated"]
    assert [issue["body"].count("mlp: moved") for issue in github.state["issues"]] == [1, 0]


class Memory(Repository):
    """A repository on GitHub, as the fake gh answers for it."""

    def __init__(self) -> None:
        super().__init__("owner/program")
        self.state: dict[str, Any] = {"repository": self.name, "login": BOT, "may": "write", "issues": [], "labels": []}

    def ask(self, path: str, *, method: str = "GET", fields: Any = None) -> Any:
        _, answer = answered(self.state, method, path, json.loads(json.dumps(fields or {})))
        return json.loads(json.dumps(answer))


@pytest.mark.parametrize(
    ("factor", "facts", "steps"),
    [
        (lambda _: 1.0, {}, []),
        (step_at(30, 1.05), {}, [(32, "opened", 1), (116, "closed", 1)]),
        (lambda night: 1.06 if 30 <= night < 45 else 1.0, {}, [(32, "opened", 1), (47, "closed", 1)]),
        (
            lambda night: 1.0 if night < 30 else 1.06 if night < 50 else 1.12,
            {},
            [(32, "opened", 1), (52, "opened", 2), (116, "closed", 1), (136, "closed", 2)],
        ),
        # another driver begins an epoch
        (
            step_at(30, 1.05),
            {"driver": lambda night: "590.1" if night >= 40 else "580.1"},
            [(32, "opened", 1), (42, "closed", 1)],
        ),
    ],
)
def test_issues_are_calm_over_many_nights(
    factor: Callable[[int], float], facts: dict[str, Any], steps: list[tuple[int, str, int]]
) -> None:
    github = Memory()
    mlp, gelu = nights(140, factor, **facts), nights(140, workload="gelu", seed=5, **facts)
    happened = []
    for night in range(20, 140):
        events_file = json.loads(as_json(trends(of(mlp[: night + 1], gelu[: night + 1]))))
        regressions = Regressions(events_file)
        for line in publish_issues(github, regressions.issues, ended=regressions.ended):
            word, _, address = line.partition(": ")
            happened += [(night, word, int(address.rpartition("/")[2]))] * (word != "updated")
    assert [(word, number) for _, word, number in happened] == [(word, number) for _, word, number in steps]
    assert all(abs(night - expected) <= 1 for (night, *_), (expected, *_) in zip(happened, steps, strict=True))


def test_issues_can_be_looked_at_first(run: Run, tmp_path: Path, fake_gh: Callable[..., GitHub]) -> None:
    github = fake_gh()
    output = run("ci", "issues", events(tmp_path / "events.json", event()), "--dry-run").output
    assert output.startswith("open: Slower: mlp: step time +4.1 % since 2026-11-20\n")
    assert github.state["calls"] == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "events.json is not JSON"),
        ("[]", "not an event list of this version"),
        ('{"format": 2, "events": []}', "not an event list of this version"),
        ('{"format": 1}', "the list of events lacks 'complete'"),
        (
            '{"format": 1, "complete": true, "tracks": [], "events": [{"id": "a"}]}',
            "the list of events lacks 'direction'",
        ),
        ('{"format": 1, "complete": true, "tracks": [], "events": [1]}', "the list of events lacks "),
        ('{"format": 1, "complete": true, "tracks": [{"last": "yesterday"}], "events": []}', "lacks 'machine'"),
    ],
)
def test_bad_events_are_reported(
    run: Run, tmp_path: Path, fake_gh: Callable[..., GitHub], text: str, says: str
) -> None:
    fake_gh()
    (tmp_path / "events.json").write_text(text)
    output = run("ci", "issues", "events.json", expect=2).output
    assert says in output
    assert "Traceback" not in output


@given(st.text(), st.text(), st.text())
def test_nothing_in_an_event_is_markup(sentence: str, name: str, identity: str) -> None:
    change = {**event()["changes"][0], "name": f"{name}@all<b>|"}
    regression = event(sentence=f"{sentence}@all<b>", id=identity, changes=[change])
    (issue,) = Regressions(document(regression)).issues
    assert "@all" not in issue.text
    assert "<b>" not in issue.text
    assert "-->" not in issue.keys[0]
    assert "\n" not in issue.title
    assert len([line for line in issue.text.splitlines() if line.startswith("|")]) == 3


def test_the_bot_is_who_writes_with_the_token_of_a_workflow() -> None:
    assert BOT == "github-actions[bot]"
