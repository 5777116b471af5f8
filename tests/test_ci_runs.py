"""The parts for CI, run: each line of shell in them, by bash, in a repository with a remote and fake profilers."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import written_nsys
from tests.continuous import BASH, ROOT, GitHub, Job, clone, downloaded, filled, git, load, repository, shell_of_jenkins
from tests.gpu import ci
from tests.test_cli import FakeNsys

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
GITHUB = ROOT / "templates" / "ci" / "github"
BRANCH = "nightsight-history"
WORKLOADS = '[tool.nightsight.workloads]\nmlp = "train.py"\nmatmul = "train.py"\n'
PROGRAM = "import json, sys; json.dump(sys.argv[1:], open('arguments.json', 'w'))\n"
FILES = {"train.py": PROGRAM, "pyproject.toml": WORKLOADS}
WORDS = """--name 'a b' "c d" e\\ f $HOME `touch harm` ; touch harm ''"""
# makes environments and installs into them as python3 does, but what it installs is there already
FAKE_PYTHON = """#!/bin/sh
if [ "$2" = venv ]; then
    mkdir -p "$3/bin" && cp "$0" "$3/bin/python"
elif [ "$2" = pip ]; then
    echo "$*" >> "$FAKE_INSTALLED"
    ln -sf "$FAKE_NIGHTSIGHT" "${0%/*}/nightsight"
else
    exit 9
fi
"""


def python_of(folder: Path) -> Path:
    """Write a python3 that installs nightsight."""
    python = folder / "bin" / "python"
    python.parent.mkdir()
    python.write_text(FAKE_PYTHON)
    python.chmod(0o755)
    return python


@dataclass(frozen=True)
class Measured:
    """What the action did with the fake profiler: it profiled, and it compared two commits."""

    checkout: Path
    profiled: Job
    compared: Job
    recorded: Path


@pytest.fixture(scope="module")
def measured(forked_nightsight: Path, tmp_path_factory: pytest.TempPathFactory, path_without_tools: str) -> Measured:
    """Run the action as it is; other tests get what nightsight left then (RECORDED)."""
    folder = tmp_path_factory.mktemp("measured")
    environment = {
        **{name: text for name, text in os.environ.items() if name not in ("CONDA_PREFIX", "NSYS", "NCU")},
        "PATH": path_without_tools,
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "VIRTUAL_ENV": sys.prefix,
        "XDG_CACHE_HOME": str(folder / "cache"),
        "FAKE_NIGHTSIGHT": str(forked_nightsight),
        "FAKE_INSTALLED": str(folder / "installed"),
    }
    nsys = written_nsys(folder / "fake")
    checkout = repository(folder, **FILES)
    contexts = {"test.python": str(python_of(folder)), "test.options": f"--collector nsys --nsys '{nsys}'"}
    profiled = Job(checkout, {**contexts, "test.repeat": "2"}, environment)
    assert profiled.run([step_of("mlp", arguments=WORDS)]) == 0, profiled.output
    changed(checkout)
    (compare,) = load(GITHUB / "pull-request.yml")["jobs"].values()
    (entry,) = compare["strategy"]["matrix"]["include"]
    matrix = {f"matrix.{name}": value for name, value in entry.items()}
    others = {"github.event.pull_request.number": 12, "test.pairs": "1"}
    compared = Job(checkout, {**contexts, **others, **matrix}, environment)
    # one pair can show nothing, and that is no failure
    assert compared.run(compare["steps"]) == 0, compared.output
    recorded = folder / "recorded"
    shutil.copytree(compared.temporary / "nightsight-mlp" / "out", recorded / "out")
    shutil.copytree(profiled.temporary / "nightsight-mlp" / "reports", recorded / "reports", symlinks=True)
    (recorded / "reports" / "series").unlink()
    return Measured(checkout, profiled, compared, recorded)


@pytest.fixture
def checkout(tmp_path: Path, forked_nightsight: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a checkout of a program, with a remote, a python3 that installs nightsight, and nobody's settings."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("FAKE_INSTALLED", str(tmp_path / "installed"))
    monkeypatch.setenv("FAKE_NIGHTSIGHT", str(forked_nightsight))
    python_of(tmp_path)
    return repository(tmp_path, **FILES)


@pytest.fixture
def job(checkout: Path, tmp_path: Path, fake_nsys: FakeNsys) -> Callable[..., Job]:
    """Make jobs on a runner that has the fake profiler."""
    nsys = fake_nsys()

    def make(contexts: dict[str, Any] | None = None, workspace: Path = checkout) -> Job:
        given = {"test.python": str(tmp_path / "bin" / "python"), "test.repeat": "1", **(contexts or {})}
        given.setdefault("test.options", f"--collector nsys --nsys '{nsys}'")
        return Job(workspace, given, os.environ)

    return make


@pytest.fixture
def recorded(measured: Measured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[list[str]]]:
    """Let nightsight answer `profile` and `ab` with what it left before; return what says how it was called."""
    folder = tmp_path / "recorded"
    shutil.copytree(measured.recorded, folder, symlinks=True)
    monkeypatch.setenv("RECORDED", str(folder))
    return lambda: [json.loads(line) for line in (folder / "asked").read_text().splitlines()]


def step_of(workload: str, **others: Any) -> dict[str, Any]:
    return {"uses": "./", "with": {"workload": workload, **others}}


def changed(checkout: Path) -> str:
    """Commit a change of the program."""
    (checkout / "train.py").write_text(f"{PROGRAM}# better\n")
    git(checkout, "commit", "--quiet", "--all", "-m", "Better")
    return git(checkout, "rev-parse", "HEAD")


def test_the_action_installs_nightsight_and_leaves_python_alone(
    job: Callable[..., Job], checkout: Path, tmp_path: Path
) -> None:
    done = job()
    tell = "command -v python3; nightsight --version"
    assert done.run([{"uses": "./"}, {"run": tell}]) == 0, done.output
    needed, itself = (tmp_path / "installed").read_text().splitlines()
    assert needed.endswith(f" --require-hashes --only-binary :all: -r {ROOT}/templates/ci/requirements.txt")
    assert itself.endswith(f" --no-index --no-deps --no-build-isolation {ROOT}/templates/ci/../..")
    assert f"{shutil.which('python3')}\nnightsight, version" in done.output
    assert done.uploaded == {}


def test_the_action_profiles_and_keeps_page_and_runs(measured: Measured) -> None:
    done = measured.profiled
    (page,) = done.uploaded["nightsight-mlp.html"]
    assert "</html>" in page.read_text()
    series, *runs = sorted(done.uploaded["nightsight-runs-mlp"], key=lambda path: len(path.parts))
    assert (series.name, series.read_text()) == ("series", "mlp\n")
    assert sorted({path.name for path in runs}) == ["report.json", "run.json"]
    assert len({path.parent for path in runs}) == 2
    assert not [path for path in runs if "latest" in path.parts]
    given = json.loads((measured.checkout / "arguments.json").read_text())
    assert given == ["--name", "a b", "c d", "e f", "$HOME", "`touch", "harm`", ";", "touch", "harm", ""]
    assert not list(measured.checkout.rglob("harm"))


@pytest.mark.parametrize(
    ("workload", "name", "called"),
    [
        ("./train.py", "", "train"),
        ("train.py", 'large: 4"k/é', "large--4-k---"),
        ("train.py", "one\nstatus=0\n", "one-status-0-"),
        ("train.py", "..", ".."),
        pytest.param("train.py", "x" * 300, "x" * 100, id="long"),
    ],
)
def test_the_name_of_a_report_is_one_of_a_file(
    job: Callable[..., Job], recorded: Any, workload: str, name: str, called: str
) -> None:
    done = job()
    assert done.run([step_of(workload, name=name)]) == 0, done.output
    assert set(done.uploaded) == {f"nightsight-{called}.html", f"nightsight-runs-{called}"}
    (series,) = (path for path in done.uploaded[f"nightsight-runs-{called}"] if path.name == "series")
    assert series.read_text() == f"{called}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("  ", []),
        ("''", [""]),
        ("a '' ", ["a", ""]),
        ("""'a b' "c\\d" e\\ f $HOME *""", ["a b", "c\\d", "e f", "$HOME", "*"]),
        ("one\ntwo", ["one", "two"]),
    ],
)
def test_words_are_split_as_xargs_does(job: Callable[..., Job], recorded: Any, text: str, words: list[str]) -> None:
    done = job()
    assert done.run([step_of("mlp", arguments=text)]) == 0, done.output
    (asked,) = recorded()
    assert asked[asked.index("--") + 1 :] == words


def test_a_night_can_prove_what_was_promised(job: Callable[..., Job], recorded: Any) -> None:
    done = job()
    assert done.run([step_of("mlp", arguments="--steps 6 --dim 16", prove="2")]) == 0, done.output
    (asked,) = recorded()
    assert asked[0] == "profile"
    assert "Nothing was proven" not in done.output
    assert "The page lacks" not in done.output
    assert [*(done.temporary / "nightsight-mlp" / "reports").glob("*/proof/proof.json")], done.output
    (page,) = done.uploaded["nightsight-mlp.html"]
    assert "</html>" in page.read_text()


def test_a_program_that_fails_is_red_and_still_has_a_page(job: Callable[..., Job], checkout: Path) -> None:
    (checkout / "train.py").write_text("raise SystemExit(7)")
    done = job()
    assert done.run([step_of("mlp")]) == 1
    assert set(done.uploaded) == {"nightsight-mlp.html"}


def test_a_workload_that_is_not_there_is_red(job: Callable[..., Job]) -> None:
    done = job()
    assert done.run([step_of("nothing")]) == 2
    assert done.uploaded == {}


def test_a_quote_that_is_left_open_is_reported(job: Callable[..., Job]) -> None:
    done = job()
    assert done.run([step_of("mlp", arguments="--name 'a b")]) != 0
    assert "unmatched single quote" in done.output
    assert done.uploaded == {}


def test_what_could_not_be_measured_has_a_comment_and_not_the_report_of_before(
    job: Callable[..., Job], tmp_path: Path
) -> None:
    done = job({"github.event.pull_request.number": 12, "test.noise": str(tmp_path)})
    before = done.temporary / "nightsight-mlp" / "out"
    before.mkdir(parents=True)
    for name in ("comparison.md", "comparison.html"):
        (before / name).write_text("of before")
    assert done.run([step_of("mlp", base="no-such-commit")]) == 3
    assert set(done.uploaded) == {"nightsight-comment-mlp"}
    assert done.summary == "**mlp could not be measured**: see the log.\n"
    assert "has no noise of a comparison of unchanged code" in done.output


def test_the_noise_of_the_machine_is_at_hand(job: Callable[..., Job], recorded: Any, tmp_path: Path) -> None:
    noise = tmp_path / "noise of this machine" / "train"
    noise.mkdir(parents=True)
    (noise / "noise.jsonl").write_text("{}\n")
    (noise / "more").touch()
    done = job()
    assert done.run([step_of("mlp", base="HEAD^1", noise=str(noise.parent))]) == 0, done.output
    assert "has no noise of a comparison" not in done.output
    (asked,) = recorded()
    reports = Path(asked[asked.index("--reports") + 1])
    assert [path.relative_to(reports).as_posix() for path in reports.rglob("*.*")] == ["train/noise.jsonl"]


@pytest.mark.parametrize(
    ("status", "strict", "ends"),
    [("0", "true", 0), ("1", "false", 1), ("2", "false", 2), ("3", "false", 3), ("4", "false", 0), ("4", "true", 4)]
    + [(status, "false", int(status)) for status in ("70", "130", "143")],
)
def test_how_the_job_ends(job: Callable[..., Job], status: str, strict: str, ends: int) -> None:
    (decide,) = (step for step in load(ROOT / "action.yml")["runs"]["steps"] if step["name"] == "Decide")
    line = "inconclusive: step time +1.0 %; shown: counts equal"
    measured = {"status": status, "decision": line}
    outputs = {f"steps.measure.outputs.{name}": value for name, value in measured.items()}
    done = job({**outputs, "inputs.strict": strict, "inputs.workload": "mlp"})
    assert done.run([decide]) == ends
    annotation = f"::warning title=nightsight did not decide::{line.replace('%', '%25')}"
    assert (annotation in done.output) == (status == "4")
    assert ("Nothing is known of the commit" in done.output.replace("nothing", "Nothing")) == (int(status) > 4)


NIGHT = {
    "env.CANARY": "matmul",
    "github.server_url": "https://github.com",
    "github.repository": "owner/program",
    "github.run_id": "77",
    "github.token": "a token",
}


@pytest.mark.parametrize("count", [1, 2])
def test_a_night_from_the_measurement_to_the_page(
    job: Callable[..., Job], recorded: Any, tmp_path: Path, fake_gh: Callable[..., GitHub], count: int
) -> None:
    github = fake_gh()
    jobs = load(GITHUB / "nightly.yml")["jobs"]
    artifacts: dict[str, list[Path]] = {}
    for entry in jobs["measure"]["strategy"]["matrix"]["include"][:count]:
        measuring = job({f"matrix.{name}": value for name, value in entry.items()})
        assert measuring.run(jobs["measure"]["steps"]) == 0, measuring.output
        artifacts |= {name: files for name, files in measuring.uploaded.items() if name.startswith("nightsight-runs-")}
    names = ["matmul", "mlp"][:count]
    assert set(artifacts) == {f"nightsight-runs-{name}" for name in names}
    for night in ("first", "again"):
        workspace = clone(tmp_path, night)
        downloaded(artifacts, workspace / "runs")
        recording = job(NIGHT, workspace)
        assert recording.run(jobs["record"]["steps"]) == 0, recording.output
        (page,) = recording.uploaded["github-pages"]
        assert page.name == "index.html"
        assert "matmul" in page.read_text()
    # the same runs once more are no second night
    remote = tmp_path / "remote.git"
    files = git(remote, "ls-tree", "-r", "--name-only", BRANCH).splitlines()
    rows = [git(remote, "show", f"{BRANCH}:{file}").splitlines() for file in files if file.endswith(".jsonl")]
    assert [len(row) for row in rows] == [1] * count
    assert [json.loads(row[0])["workload"] for row in rows] == names
    assert '"https://github.com/owner/program/actions/runs/77"' in rows[0][0]
    assert github.written() == []


def test_a_night_on_which_nothing_was_measured_is_red(
    job: Callable[..., Job], checkout: Path, tmp_path: Path, fake_gh: Callable[..., GitHub]
) -> None:
    fake_gh()
    recording = job(NIGHT, clone(tmp_path, "clone"))
    assert recording.run(load(GITHUB / "nightly.yml")["jobs"]["record"]["steps"]) == 3
    assert "::error::No workload was measured." in recording.output


def test_a_pull_request_from_the_comparison_to_the_comment(
    job: Callable[..., Job], measured: Measured, tmp_path: Path, fake_gh: Callable[..., GitHub]
) -> None:
    comparing = measured.compared
    assert "::warning title=nightsight did not decide::inconclusive: " in comparing.output
    assert set(comparing.uploaded) == {"nightsight-mlp.html", "nightsight-comment-mlp"}
    assert "</html>" in comparing.uploaded["nightsight-mlp.html"][0].read_text()
    written = {path.name: path.read_text() for path in comparing.uploaded["nightsight-comment-mlp"]}
    assert written["number"] == "12\n"
    assert written["mlp.md"].startswith("<!-- nightsight:mlp_file -->\n")
    assert comparing.summary == written["mlp.md"]
    left = {name: files for name, files in comparing.uploaded.items() if name.startswith("nightsight-comment-")}
    head = git(measured.checkout, "rev-parse", "HEAD")
    github = fake_gh(
        pulls={"12": {"state": "open", "head": {"sha": head}}},
        artifacts={"77": ["nightsight-comment-mlp", "nightsight-mlp.html"]},
    )
    contexts = {
        "github.token": "a token",
        "github.event.workflow_run.head_sha": head,
        "github.event.workflow_run.id": 77,
    }
    (comment,) = load(GITHUB / "pull-request-comment.yml")["jobs"].values()
    workspace = tmp_path / "elsewhere"
    workspace.mkdir()
    # the other run may have left nothing
    commenting = job(contexts, workspace)
    assert commenting.run(comment["steps"]) == 0, commenting.output
    assert "no comment: the other run left no files in comment" in commenting.output
    downloaded(left, workspace / "comment")
    for _ in range(2):
        commenting = job(contexts, workspace)
        assert commenting.run(comment["steps"]) == 0, commenting.output
    (body,) = github.bodies()
    assert body.startswith("<!-- nightsight -->\n")
    assert written["mlp.md"].partition("\n")[2].strip() in body
    assert "[Report](https://github.com/owner/program/actions/runs/77/artifacts/101)" in body


@pytest.mark.parametrize(
    ("event", "runs"),
    [
        ({"action": "opened", "pull_request.head.repo.full_name": "owner/program"}, True),
        ({"action": "labeled", "pull_request.head.repo.full_name": "owner/program", "label.name": "bug"}, False),
        ({"action": "opened", "pull_request.head.repo.full_name": "stranger/program"}, False),
        ({"action": "synchronize", "pull_request.head.repo.full_name": "stranger/program"}, False),
        (
            {"action": "labeled", "pull_request.head.repo.full_name": "stranger/program", "label.name": "performance"},
            True,
        ),
    ],
)
def test_the_code_of_a_fork_waits_for_a_label(event: dict[str, str], *, runs: bool) -> None:
    (compare,) = load(GITHUB / "pull-request.yml")["jobs"].values()
    contexts = {
        "github.repository": "owner/program",
        **{f"github.event.{name}": value for name, value in event.items()},
    }
    assert filled(compare["if"], contexts) == str(runs).lower()


@pytest.mark.parametrize(
    ("event", "conclusion", "runs"),
    [
        ("pull_request", "success", True),
        ("pull_request", "failure", True),
        ("pull_request", "skipped", False),
        ("pull_request", "cancelled", False),
        ("push", "success", False),
    ],
)
def test_what_is_commented(event: str, conclusion: str, *, runs: bool) -> None:
    (comment,) = load(GITHUB / "pull-request-comment.yml")["jobs"].values()
    contexts = {"github.event.workflow_run.event": event, "github.event.workflow_run.conclusion": conclusion}
    assert filled(comment["if"], contexts) == str(runs).lower()


@pytest.fixture
def shell(
    checkout: Path, forked_nightsight: Path, recorded: Any, tmp_path: Path
) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Run a script with nightsight on PATH."""
    (tmp_path / "bin" / "nightsight").symlink_to(forked_nightsight)

    def run(script: str, folder: Path = checkout, **environment: str) -> "subprocess.CompletedProcess[str]":
        path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            ["bash", "-c", script],
            cwd=folder,
            env={**os.environ, "PATH": path, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def in_gitlab(name: str, checkout: Path, *, without: int = 0) -> tuple[str, dict[str, str]]:
    """Return a job of the template as one script, and its variables."""
    document = load(ROOT / "templates" / "ci" / "gitlab-ci.yml")
    base, own = document[".nightsight"], document[name]
    lines = [*base["before_script"][without:], *own["script"]] if "extends" in own else own["script"]
    variables = {**base["variables"], **own.get("variables", {}), "CI_PROJECT_DIR": str(checkout)}
    return BASH + "\n".join(lines), {key: str(value) for key, value in variables.items()}


def test_gitlab_installs_nightsight(shell: Any, checkout: Path, tmp_path: Path) -> None:
    document = load(ROOT / "templates" / "ci" / "gitlab-ci.yml")[".nightsight"]
    (tmp_path / "bin" / "python3").write_text(FAKE_PYTHON)
    (tmp_path / "bin" / "python3").chmod(0o755)
    (tmp_path / "bin" / "nightsight").unlink()
    (tmp_path / "theirs").mkdir()
    source = repository(tmp_path / "theirs")
    shutil.copytree(ROOT / "templates" / "ci", source / "templates" / "ci")
    git(source, "add", "--all")
    git(source, "commit", "--quiet", "-m", "nightsight")
    version = document["variables"]["NIGHTSIGHT_VERSION"]
    git(source, "tag", version)
    script = BASH + "\n".join([*document["before_script"], "nightsight --version", "command -v nightsight"])
    variables = {"CI_PROJECT_DIR": str(checkout), "NIGHTSIGHT": f"file://{source}", "NIGHTSIGHT_VERSION": version}
    for _ in range(2):
        # a shell executor may find what the job before left
        done = shell(script, **variables)
        assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{checkout}/.nightsight/command/nightsight"
    assert f"-r {checkout}/.nightsight/source/templates/ci/requirements.txt" in (tmp_path / "installed").read_text()


def test_gitlab_compares_a_merge_request(shell: Any, checkout: Path) -> None:
    changed(checkout)
    script, variables = in_gitlab("nightsight-merge-request", checkout, without=6)
    commits = [git(checkout, "rev-parse", name) for name in ("HEAD~1", "HEAD")]
    done = shell(script, **variables, CI_MERGE_REQUEST_DIFF_BASE_SHA=commits[0], CI_COMMIT_SHA=commits[1])
    job = load(ROOT / "templates" / "ci" / "gitlab-ci.yml")["nightsight-merge-request"]
    assert done.returncode in job["allow_failure"]["exit_codes"], done.stderr
    artifacts = job["artifacts"]
    for path in (*artifacts["paths"], *artifacts["reports"].values()):
        assert (checkout / path).stat().st_size > 0
    assert "<testsuite " in (checkout / artifacts["reports"]["junit"]).read_text()
    assert (checkout / artifacts["reports"]["metrics"]).read_text().endswith("# EOF\n")


def test_gitlab_keeps_a_night(shell: Any, checkout: Path, tmp_path: Path) -> None:
    script, variables = in_gitlab("nightsight-nightly", checkout, without=6)
    urls = {"CI_JOB_URL": "https://example.org/job/1", "CI_PROJECT_URL": "https://example.org/project"}
    done = shell(script, **variables, **urls)
    assert done.returncode == 0, done.stderr
    pages, variables = in_gitlab("pages", checkout)
    assert shell(pages, **variables).stdout.split() == ["index.html", "report.html"]
    assert ".jsonl" in git(tmp_path / "remote.git", "ls-tree", "-r", "--name-only", BRANCH)


@pytest.mark.parametrize("may", [True, False])
def test_slurm_keeps_a_night_and_leaves_nothing_unless_it_is_all_there_is(
    shell: Any, recorded: Any, checkout: Path, tmp_path: Path, *, may: bool
) -> None:
    (tmp_path / "tmp").mkdir()
    remote = tmp_path / "remote.git"
    if not may:
        hook = remote / "hooks" / "pre-receive"
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
    script = str(ROOT / "templates" / "ci" / "slurm.sh")
    environment = {"SLURM_SUBMIT_DIR": str(checkout), "TMPDIR": str(tmp_path / "tmp")}
    done = shell(f"{script} --steps 2", tmp_path, **environment)
    assert (done.returncode == 0) == may, done.stderr
    (asked,) = recorded()
    assert asked[-3:] == ["--", "--steps", "2"]
    left = list((tmp_path / "tmp").iterdir())
    if may:
        assert "</html>" in (checkout / "nightsight.html").read_text()
        assert left == []
        assert git(checkout, "worktree", "list").count("\n") == 0
        assert ".jsonl" in git(remote, "ls-tree", "-r", "--name-only", BRANCH)
        return
    (work,) = left
    assert f"What was measured is in {work} on " in done.stderr
    assert list(work.glob("reports/*/2*/report.json"))
    # it can be pushed later
    hook.unlink()
    assert shell(f"nightsight ci push {work}/history").returncode == 0
    assert ".jsonl" in git(remote, "ls-tree", "-r", "--name-only", BRANCH)


def test_jenkins_compares_and_keeps_a_night(shell: Any, recorded: Any, checkout: Path, tmp_path: Path) -> None:
    compare, measure, *record = shell_of_jenkins()
    environment = {"WORKLOAD": "mlp", "CHANGE_TARGET": "main", "BUILD_URL": "https://example.org/build/1"}
    (checkout / "nightsight").mkdir()
    (checkout / "nightsight" / "of-before").touch()
    assert shell(compare, **environment).returncode == 4
    assert (checkout / "nightsight" / "comparison.xml").exists()
    assert not (checkout / "nightsight" / "of-before").exists()
    assert git(checkout, "rev-parse", "origin/main") == git(checkout, "rev-parse", "HEAD")
    done = shell(measure, **environment)
    assert done.returncode == 0, done.stderr
    assert [asked[0] for asked in recorded()] == ["ab", "profile"]
    # another machine, which gets the runs alone
    other = clone(tmp_path, "other")
    for path in checkout.glob("reports/*/2*/*.json"):
        target = other / path.relative_to(checkout)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    for script in record:
        done = shell(script, other, **environment)
        assert done.returncode == 0, done.stderr
    assert (other / "nightsight.html").exists()
    assert ".jsonl" in git(tmp_path / "remote.git", "ls-tree", "-r", "--name-only", BRANCH)


def test_what_runs_the_parts_on_a_gpu_host_runs(
    forked_nightsight: Path, recorded: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    assert ci.main(["--trace", "cuda"], nightsight=forked_nightsight, may_differ=False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" status ")[0].strip() for line in lines] == [
        *("nothing changed", "steps are slower", "it does not run"),
        *("first night", "its history", "second night", "its history"),
    ]
    assert not [line for line in lines if "WRONG" in line]
    words = ["--trace", "cuda", "train.py", "--"]
    assert [asked[-4:] for asked in recorded() if asked[0] == "ab"] == [words] * 3
    assert [asked[-5:] for asked in recorded() if asked[0] == "profile"] == [[*words[:2], "--no-ncu", *words[2:]]] * 2
