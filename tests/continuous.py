"""What CI parts are tested with: GitHub as a fake `gh` answers for it, its runner, and repositories with a remote."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
BASH = "#!/usr/bin/env bash\nset -eo pipefail\n"
"""How CI systems run the lines of a step."""
FAKE_GH = Path(__file__).parent / "fake_tools" / "gh.py"
HEAD = "0123456789abcdef0123456789abcdef01234567"


class GitHub:
    """A fake `gh` in a folder for PATH, and what GitHub knows."""

    def __init__(self, folder: Path, **fields: Any) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        program = folder / "gh"
        program.write_text(f"#!{sys.executable}\n{FAKE_GH.read_text()}")
        program.chmod(0o755)
        state = {
            "repository": "owner/program",
            "login": "github-actions[bot]",
            "may": "write",
            "pulls": {"12": {"state": "open", "head": {"sha": HEAD}}},
            "comments": {},
            "artifacts": {},
            "issues": [],
            "labels": [],
            "calls": [],
        }
        self._file = folder / "gh.json"
        self._file.write_text(json.dumps({**state, **fields}))

    @property
    def state(self) -> Any:
        """What GitHub knows now."""
        return json.loads(self._file.read_text())

    def change(self, **fields: Any) -> None:
        """Change what GitHub knows."""
        self._file.write_text(json.dumps({**self.state, **fields}))

    def bodies(self, number: int = 12) -> list[str]:
        """Return the comments on a pull request."""
        return [entry["body"] for entry in self.state["comments"].get(str(number), [])]

    def written(self) -> list[str]:
        """Return the calls that changed something."""
        return [f"{method} {path}" for method, path, _ in self.state["calls"] if method != "GET"]


def git(folder: Path, *arguments: str) -> str:
    """Run git as somebody with a name, and return what it prints."""
    who = ("-c", "user.name=Tester", "-c", "user.email=tester@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def repository(folder: Path, **files: str) -> Path:
    """Make a checkout `program` with one commit, and a bare repository `remote.git` that it was pushed to."""
    program = folder / "program"
    program.mkdir()
    git(program, "init", "--quiet")
    (program / "train.py").write_text("print('done')\n")
    for name, text in files.items():
        (program / name).write_text(text)
    git(program, "add", "--all")
    git(program, "commit", "--quiet", "-m", "A program")
    git(folder, "clone", "--quiet", "--bare", str(program), str(folder / "remote.git"))
    git(program, "remote", "add", "origin", str(folder / "remote.git"))
    return program


def downloaded(artifacts: dict[str, list[Path]], folder: Path) -> Path:
    """Put artifacts where download-artifact puts those of a pattern: each in a folder, or one alone without one."""
    for artifact, files in artifacts.items():
        root = Path(os.path.commonpath([path.parent for path in files]))
        place = folder / artifact if len(artifacts) > 1 else folder
        for path in files:
            target = place / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    return folder


def clone(folder: Path, name: str) -> Path:
    """Clone the remote as CI systems do: without its history."""
    git(folder, "clone", "--quiet", "--depth", "1", f"file://{folder / 'remote.git'}", name)
    return folder / name


# expressions of GitHub: texts, numbers, names such as `steps.measure.outputs.page`, and signs
_TOKEN = re.compile(r"\s*('(?:[^']|'')*'|\d+|[A-Za-z_][\w.*-]*|&&|\|\||==|!=|!|[(),])")
_SIGNS = {"&&": "and", "||": "or", "!": "not"}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cancelled": lambda: False,
    "contains": lambda where, what: what in where,
    "fromJSON": json.loads,
}


def evaluated(expression: str, contexts: Mapping[str, Any]) -> Any:
    """Evaluate an expression of GitHub with what is known, by full names; others are empty, as there."""
    words = []
    rest = expression.strip()
    while rest:
        match = _TOKEN.match(rest)
        assert match, f"no expression: {expression}"
        word, rest = match[1], rest[match.end() :].strip()
        if word in _FUNCTIONS and rest.startswith("("):
            words.append(word)
        elif word[0] == "'":
            words.append(repr(word[1:-1].replace("''", "'")))
        elif word[0].isalpha():
            words.append(repr(contexts.get(word, "")))
        else:
            words.append(_SIGNS.get(word, word))
    return eval(" ".join(words), dict(_FUNCTIONS))


def filled(text: object, contexts: Mapping[str, Any]) -> str:
    """Put values in the place of the expressions of a text."""
    return re.sub(r"\$\{\{(.*?)\}\}", lambda match: _text(evaluated(match[1], contexts)), _text(text))


def _text(value: object) -> str:
    return {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)


class Job:
    """Runs the steps of a job as GitHub does: `run` with bash, our own action by its steps, and uploads of files."""

    def __init__(self, workspace: Path, contexts: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        self.workspace = workspace
        self.contexts = dict(contexts)
        self.temporary = Path(tempfile.mkdtemp(dir=workspace.parent, prefix="runner-"))
        self.uploaded: dict[str, list[Path]] = {}
        self.summary = ""
        self.output = ""
        self._environment = {**environment, "RUNNER_TEMP": str(self.temporary)}

    def run(self, steps: Sequence[Mapping[str, Any]]) -> int:
        """Run steps until one fails, and return its status."""
        for step in steps:
            condition = str(step.get("if", "true")).removeprefix("${{").removesuffix("}}")
            if not evaluated(condition, {**self.contexts, "true": True}):
                continue
            if "run" in step:
                status = self._bash(step)
            elif step["uses"] == "./" or step["uses"].startswith("your-org/nightsight@"):
                status = self._action(step.get("with", {}))
            else:
                status = self._other(step)
            if status:
                return status
        return 0

    def _bash(self, step: Mapping[str, Any]) -> int:
        files = {
            name: self.temporary / name.lower() for name in ("GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STEP_SUMMARY")
        }
        for file in files.values():
            file.write_text("")
        own = {name: filled(value, self.contexts) for name, value in step.get("env", {}).items()}
        shared = {
            name.removeprefix("env."): str(value) for name, value in self.contexts.items() if name.startswith("env.")
        }
        script = self.temporary / "step.sh"
        script.write_text(step["run"])
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self.workspace,
            env={**self._environment, **shared, **own, **{name: str(path) for name, path in files.items()}},
            capture_output=True,
            text=True,
            check=False,
        )
        self.output += done.stdout + done.stderr
        for line in files["GITHUB_OUTPUT"].read_text().splitlines():
            name, _, value = line.partition("=")
            self.contexts[f"steps.{step.get('id', '')}.outputs.{name}"] = value
        for line in files["GITHUB_PATH"].read_text().splitlines():
            self._environment["PATH"] = f"{line}{os.pathsep}{self._environment['PATH']}"
        self.summary += files["GITHUB_STEP_SUMMARY"].read_text()
        return done.returncode

    def _action(self, given: Mapping[str, Any]) -> int:
        action = load(ROOT / "action.yml")
        assert set(given) <= set(action["inputs"])
        inputs = {name: _text(entry["default"]) for name, entry in action["inputs"].items()}
        inputs |= {name: filled(value, self.contexts) for name, value in given.items()}
        inputs |= {
            name.removeprefix("test."): value for name, value in self.contexts.items() if name.startswith("test.")
        }
        outside = self.contexts
        # the steps of an action see its inputs, and not the steps around it
        self.contexts = {name: value for name, value in outside.items() if not name.startswith("steps.")}
        self.contexts |= {f"inputs.{name}": value for name, value in inputs.items()}
        self._environment["GITHUB_ACTION_PATH"] = str(ROOT)
        status = self.run(action["runs"]["steps"])
        self.contexts = outside
        return status

    def _other(self, step: Mapping[str, Any]) -> int:
        """Do what an action of GitHub's does with files."""
        name, given = (
            step["uses"].partition("@")[0],
            {k: filled(v, self.contexts) for k, v in step.get("with", {}).items()},
        )
        if name == "actions/upload-artifact":
            lines = given["path"].split()
            left_out = {path for line in lines if line[0] == "!" for path in Path("/").glob(line[2:])}
            wanted = [path for line in lines if line[0] != "!" for path in sorted(Path("/").glob(line[1:].rstrip("/")))]
            paths = [path for path in wanted if path not in left_out]
            files = [file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("*")))]
            assert files, f"nothing to upload: {given['path']}"
            artifact = given.get("name", "")
            if given.get("archive") == "false":
                (file,) = files
                artifact = file.name
            self.uploaded[artifact] = files
            self.contexts[f"steps.{step.get('id', '')}.outputs.artifact-url"] = f"https://example.org/{artifact}"
        elif name == "actions/upload-pages-artifact":
            self.uploaded["github-pages"] = sorted((self.workspace / given["path"]).iterdir())
        else:
            assert name in ("actions/checkout", "actions/download-artifact", "actions/deploy-pages"), name
        return 0


def load(path: Path) -> Any:
    """Read YAML as GitHub and GitLab do: `on` is a word."""
    return yaml.load(path.read_text(encoding="utf-8"), Loader=_Words)


def shell_of_jenkins() -> list[str]:
    """Return the scripts of the Jenkinsfile."""
    texts = re.findall(r"'''(.*?)'''", (ROOT / "templates" / "ci" / "Jenkinsfile").read_text(), re.DOTALL)
    return [f"#!/bin/sh\nset -e\n{text}" for text in texts]


class _Words(yaml.SafeLoader):
    """YAML in which only true and false are truth values."""


_Words.yaml_implicit_resolvers = {
    sign: [(tag, pattern) for tag, pattern in pairs if tag != "tag:yaml.org,2002:bool" or sign in "tTfF"]
    for sign, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
