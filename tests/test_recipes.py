"""Command lines in the documents are ones that nightsight accepts: each is parsed as if it were typed, and not run."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.core import ParameterSource

from nightsight.cli import main
from nightsight.options import ProfileOptions

ROOT = Path(__file__).parents[1]
RECIPES = tuple(f"docs/{name}.md" for name in ("recording", "training", "inference", "cuda", "jax"))
DOCUMENTS = (*RECIPES, "README.md", "docs/install.md", "docs/workloads.md", "docs/page.md")


def commands(document: str) -> Iterator[str]:
    """Yield the command lines in the code blocks of a document, with lines joined that end with a backslash."""
    text = (ROOT / document).read_text(encoding="utf-8")
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for line in re.sub(r" *\\\n *", " ", block).splitlines():
            if language in {"", "sh"} and re.match(r"(\w+=\S+ )*nightsight ", line):
                yield line


COMMANDS = [(document, line) for document in DOCUMENTS for line in commands(document)]


def parsed(line: str) -> click.Context:
    words = shlex.split(line, comments=True)
    *_, command, name = words[: words.index("nightsight") + 2]
    assert command == "nightsight"
    arguments = words[words.index("nightsight") + 2 :]
    # a command keeps its --help from the first context, so this one is like that of a command line
    return main.commands[name].make_context(name, arguments, parent=click.Context(main, **main.context_settings))


def test_the_recipes_have_command_lines() -> None:
    lines = [line for document, line in COMMANDS if document in RECIPES]
    assert len(lines) > 15
    for word in (
        "vllm bench latency",
        "vllm bench throughput",
        "vllm bench serve",
        "trtllm-bench",
        "torchrun",
        "deepspeed",
    ):
        assert any(word in line for line in lines)
    # no line of a block was missed because it is broken in the wrong place
    texts = [(ROOT / document).read_text(encoding="utf-8") for document in RECIPES]
    starts = (re.findall(r"^(?:\w+=\S+ )*nightsight \w+ ", text, re.MULTILINE) for text in texts)
    assert sum(map(len, starts)) == len(lines)


@pytest.mark.parametrize(("document", "line"), COMMANDS)
def test_a_command_line_in_a_document_is_accepted(
    document: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # files to read must exist
    monkeypatch.chdir(tmp_path)
    for word in shlex.split(line, comments=True):
        if re.search(r"\.(sqlite|nsys-rep|json\.gz)$", word):
            (tmp_path / word).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / word).touch()
        elif "*" in word:
            (tmp_path / word).mkdir(parents=True, exist_ok=True)
    (tmp_path / "reports").mkdir()
    context = parsed(line)
    if context.info_name == "profile":
        values = {name: value for name, value in context.params.items() if name != "target"}
        given = [name for name in values if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
        ProfileOptions(**values).refuse_contradictions(given)
        assert context.params["target"] or context.meta["nightsight.rest"] or values["server"]


@pytest.mark.parametrize(
    "line",
    [
        "nightsight profile --no-such-option train.py",
        "nightsight profile --delay soon train.py",
        "nightsight profile --server 'x",
    ],
)
def test_a_line_that_is_wrong_is_noticed(line: str) -> None:
    with pytest.raises((click.UsageError, ValueError)):
        parsed(line)
