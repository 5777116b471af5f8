"""What CONTRIBUTING.md says of adding an analysis and a rule of advice is done in a copy of the tree, word for word."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nightsight.model.report import Report

ROOT = Path(__file__).parents[1]
LARGE = ("tests/data", "reports", "docs/img")
NOT_OURS = shutil.ignore_patterns(
    "__pycache__", "node_modules", "build", "shared", "*.egg-info", ".[!cg]*", ".git", ".gpu"
)
PLACE = re.compile(r"(?:# |<!-- )(?P<file>[\w/.]+)(?:, (?P<where>after|before|in) `?(?P<name>\w+)`?)?(?: -->)?\n")
ANALYSIS, RULE = "How to add an analysis", "How to add a rule of advice"
WRITTEN = {"docs/report-json.md", "tests/gold/mlp.json", "tests/gold/train.json"}


def blocks(section: str) -> list[str]:
    """The code of a section of the document."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (body,) = re.findall(rf"^## {section}\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    return re.findall(r"^```\w+\n(.*?)^```$", body, re.MULTILINE | re.DOTALL)


def put(tree: Path, block: str) -> str:
    """Put a block of code where its first line says, and return the name of that file."""
    place = PLACE.match(block)
    assert place, block
    path, code = tree / place["file"], block[place.end() :]
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if place["where"] == "in":
        inside = re.sub("^(?=.)", "    ", f"{code.rstrip()},\n", flags=re.MULTILINE)
        text = re.sub(rf"(^{place['name']}: .*?)^\)$", lambda match: f"{match[1]}{inside})", text, flags=_ALL)
    elif place["where"] == "after" and path.suffix == ".md":
        text = re.sub(rf"^\| `{place['name']}` .*\n", lambda match: match[0] + code, text, flags=re.MULTILINE)
    elif place["where"] == "before":
        text = re.sub(rf"^(?={place['name']}: )", lambda _: f"{code}\n\n", text, count=1, flags=re.MULTILINE)
    elif place["where"] == "after":
        text = re.sub(rf"^{place['name']}: .*?^\)\n", lambda match: match[0] + code, text, flags=_ALL)
    elif text:
        imports, body = re.match(r"((?:from [^\n]*\n)*)(.*)", code, re.DOTALL).groups()  # type: ignore[union-attr]
        text = re.sub("^(?=from nightsight)", imports, text, count=1, flags=re.MULTILINE) + body
    else:
        text = code
    path.write_text(text, encoding="utf-8")
    return place["file"]


_ALL = re.MULTILINE | re.DOTALL


def python(tree: Path, *arguments: str, **variables: str) -> str:
    """Run the Python of the tests in the copy; return what it prints."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **variables}
    # it shares nothing with the workers of this run
    environment.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(
        [sys.executable, *arguments], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def passing(tree: Path, *tests: str, **variables: str) -> None:
    python(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests, **variables)


def formatted(tree: Path, changed: set[str]) -> None:
    """Sort the imports as `ruff check --fix` does, and then check the style of what was written."""
    files = sorted(name for name in changed if name.endswith(".py"))
    python(tree, "-m", "ruff", "check", "-q", "--no-cache", "--select", "I", "--fix", *files)
    python(tree, "-m", "ruff", "check", "-q", "--no-cache", *files)
    python(tree, "-m", "ruff", "format", "-q", "--no-cache", "--check", *files)


def differing(tree: Path) -> set[str]:
    """Name the files of the copy that are not as in the tree."""
    files = {path for path in tree.rglob("*") if path.is_file() and not {"__pycache__", ".hypothesis"} & {*path.parts}}
    return {
        str(path.relative_to(tree))
        for path in files
        if not (original := ROOT / path.relative_to(tree)).exists() or path.read_bytes() != original.read_bytes()
    }


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the tree; what is large in it is linked."""

    def ignored(folder: str, names: list[str]) -> set[str]:
        linked = {name for name in names if str((Path(folder) / name).relative_to(ROOT)) in LARGE}
        return linked | NOT_OURS(folder, names)

    copy = tmp_path / "copy"
    shutil.copytree(ROOT, copy, ignore=ignored, symlinks=True)
    for name in LARGE:
        (copy / name).symlink_to(ROOT / name)
    return copy


def test_an_analysis_is_two_files_and_its_test(tree: Path, capture_file: Callable[[str], Path]) -> None:
    named = {put(tree, block) for block in blocks(ANALYSIS)}
    assert named == {
        "pipeline/nightsight/results/gpu.py",
        "pipeline/nightsight/analyze/gpu_kernels.py",
        "tests/test_analyze_gpu_kernels.py",
    }
    formatted(tree, named)
    # `make docs`, and the gold files
    passing(tree, "tests/test_docs.py", "tests/test_render_gold.py", NIGHTSIGHT_DOCS="write", NIGHTSIGHT_GOLD="write")
    assert differing(tree) == named | WRITTEN
    documented = (tree / "docs/report-json.md").read_text(encoding="utf-8")
    assert "### Kernels by GPU: `gpu_kernels`" in documented
    assert "| `device` | whole number | number of the GPU in the machine |" in documented
    of_register = (
        *("register", "empty_results", "missing_table", "differs_from_its_entry", "leads_to_the_timeline"),
        "large_capture",
    )
    tests = ("tests/test_analyze_gpu_kernels.py", "tests/test_analyze.py", "tests/test_render_view.py")
    passing(tree, *tests, "-k", " or ".join(("gpu_kernels", *of_register)))
    shows_it_everywhere(tree, capture_file("train"))


def shows_it_everywhere(tree: Path, capture: Path) -> None:
    """Check the page, its navigation, the JSON and the CSV."""
    forms = [["report", str(capture), "-o", f"out{ending}"] for ending in (".html", ".json")]
    forms.append(["report", str(capture), "--format", "csv", "-o", "out"])
    program = f"from nightsight.cli import main\nfor form in {forms!r}: main(form, standalone_mode=False)"
    python(tree, "-c", f"import sys; sys.path.insert(0, 'pipeline')\n{program}")
    page = (tree / "out.html").read_text(encoding="utf-8")
    (navigation,) = re.findall(r"<nav.*?</nav>", page, re.DOTALL)
    (group,) = (part for part in re.split("(?=<h\\d|<dt|<summary|<strong)", navigation) if "#gpu_kernels" in part)
    assert navigation.count('href="#gpu_kernels"') == 1
    assert 'href="#cuda_gpu_kern_sum"' in group
    # results are closed but for a few, and each ends before the next
    (section,) = re.findall(
        r'<details class="closed" id="gpu_kernels">.*?(?=<details class="closed" id=)', page, re.DOTALL
    )
    for text in (
        "Kernels by GPU",
        "Execution time of each kernel on each GPU",
        "share of the total time of all kernels",
    ):
        assert text in section
    report = Report.from_json((tree / "out.json").read_text(encoding="utf-8"))
    (entry,) = (result for result in json.loads(report.to_json())["results"] if result["name"] == "gpu_kernels")
    assert entry["title"] == "Kernels by GPU"
    assert entry["table"]["columns"][-2:] == ["device", "name"]
    assert len(entry["table"]["rows"]) > 5
    header, *rows = csv.reader((tree / "out/gpu_kernels.csv").read_text(encoding="utf-8").splitlines())
    assert (header, len(rows)) == (entry["table"]["columns"], len(entry["table"]["rows"]))


def test_a_rule_of_advice_is_two_files_and_its_test(tree: Path) -> None:
    named = {put(tree, block) for block in blocks(RULE)}
    assert named == {
        "pipeline/nightsight/analyze/causes/remedies.py",
        "pipeline/nightsight/results/rules.py",
        "tests/test_advise.py",
    }
    formatted(tree, named)
    passing(tree, "tests/test_docs.py", NIGHTSIGHT_DOCS="write")
    passing(tree, "tests/test_docs.py", "tests/test_advise.py", "-k", "memsets or document or rule")
    assert differing(tree) == {*named, "docs/advice.md", "docs/report-json.md"}
