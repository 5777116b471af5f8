"""The documents say what the program does: parts are written from it, others must at least name all there is.

`make docs` (NIGHTSIGHT_DOCS=write) writes the parts.
"""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from nightsight.cli import main
from nightsight.collect import COLLECTORS
from nightsight.collect.workloads import registered_workloads
from nightsight.model.fleet import FILES, TABLES
from nightsight.model.report import Environment, Report
from nightsight.render import FORMATS
from nightsight.results import RESULTS
from nightsight.results.entry import Column, Entry
from nightsight.results.rules import KERNEL_WORDS, RULE, RULES, UNSIMULATED
from nightsight.stats import REPORTS
from tests.documents import check
from tests.gallery import contents

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TYPES = {"text": "text", "whole": "whole number", "number": "number"}


def cells(column: Column) -> str:
    """Write a column as a row of a Markdown table."""
    values = "".join(f"<br>*{value}*: {meaning}" for value, meaning in column.values)
    optional = "; *optional*" if column.is_optional else ""
    return f"| `{column.name}` | {TYPES[column.type]} | {column.meaning}{values}{optional} |"


def described(entry: Entry) -> Iterator[str]:
    """Write an entry of the register as Markdown."""
    yield f"### {entry.title}: `{entry.name}`\n"
    needs = f" Needs: {', '.join(f'`{need}`' for need in entry.needs)}." if entry.needs else ""
    needs += f" Needs one of: {', '.join(f'`{name}`' for name in entry.one_of)}." if entry.one_of else ""
    yield f"{entry.help}{needs}\n"
    yield "| column | type | meaning |\n|---|---|---|"
    yield from map(cells, entry.columns)
    yield ""


def all_commands(group: click.Group = main, before: str = "") -> dict[str, click.Command]:
    """Return all commands by their names, those of groups too: `history add`."""
    named = {f"{before}{name}": command for name, command in sorted(group.commands.items())}
    inner = (all_commands(command, f"{name} ") for name, command in named.items() if isinstance(command, click.Group))
    return dict(sorted({**named, **{name: command for each in inner for name, command in each.items()}}.items()))


def commands() -> Iterator[str]:
    """Write what every command says of itself."""
    for name in ("", *all_commands()):
        words = [*name.split(), "--help-all" if name == "profile" else "--help"]
        result = CliRunner().invoke(main, words, prog_name="nightsight", terminal_width=110)
        yield f"## nightsight {name}".rstrip() + f"\n\n```\n{result.output.rstrip()}\n```\n"


def workload_table() -> Iterator[str]:
    """Write the registry of the workloads as a table."""
    tables = tomllib.loads((ROOT / "workloads" / "registry.toml").read_text(encoding="utf-8"))
    yield "| workload | what it does | options | ranges in a step |\n|---|---|---|---|"
    for name, table in tables.items():
        options, ranges = (
            " ".join(f"`{text}`" for text in texts) for texts in (table["options"].split(), table["ranges"])
        )
        yield f"| [`{name}`](#{name}) | {table['summary']} | {options} | {ranges} |"


def test_what_is_written_from_the_registry_is_current() -> None:
    check(DOCS / "workloads.md", "\n".join(workload_table()))


def test_each_workload_has_a_section_that_says_what_to_look_for() -> None:
    sections = re.split(r"^## ", (DOCS / "workloads.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    described = {section.partition("\n")[0]: section for section in sections}
    for workload in registered_workloads():
        assert "**Look for**" in described[workload.name]
        assert [option for option in workload.options.split() if f"`{option}" not in described[workload.name]] == []


def test_what_is_written_from_the_register_is_current() -> None:
    check(DOCS / "report-json.md", "\n".join(text for entry in RESULTS for text in described(entry)))


def summaries() -> Iterator[str]:
    """Write the tables of summaries as Markdown."""
    for name, columns in {**TABLES, "files": FILES}.items():
        yield f"### {name}\n\n| column | type | meaning |\n|---|---|---|"
        yield from map(cells, columns)
        yield ""


def test_what_is_written_of_summaries_is_current() -> None:
    check(DOCS / "fleet.md", "\n".join(summaries()))


def rules() -> Iterator[str]:
    """Write what advice looks for as a table."""
    yield "| rule | looks for | what is simulated | from |\n|---|---|---|---|"
    worth = {rule.name: f"{rule.worth_pct:g} %" for rule in RULES}
    for name, words in (RULE | KERNEL_WORDS).items():
        yield f"| `{name}` | {words.looks_for} | {words.simulated} | {worth.get(name, '')} |"


def test_what_is_written_of_rules_is_current() -> None:
    check(DOCS / "advice.md", "\n".join(rules()))


def test_what_is_written_of_rules_without_a_simulation_is_current() -> None:
    rows = (f"| `{rule.name}` | {rule.looks_for} | {rule.gain} |" for rule in UNSIMULATED)
    written = "\n".join(["| rule | looks for | predicted gain |\n|---|---|---|", *rows])
    check(DOCS / "advice.md", written, source="UNSIMULATED in nightsight.results.rules")


def test_what_is_written_from_help_is_current() -> None:
    check(DOCS / "command-line.md", "\n".join(commands()))


@pytest.mark.parametrize(
    ("document", "names"),
    [
        ("docs/stats.md", list(REPORTS)),
        ("docs/command-line.md", [*FORMATS, *COLLECTORS, *all_commands()]),
        ("docs/page.md", list(FORMATS)),
    ],
)
def test_a_document_names_all_there_is(document: str, names: list[str]) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    assert [name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)] == []


@pytest.mark.parametrize("name", all_commands())
def test_the_help_of_a_command_ends_with_an_example(name: str) -> None:
    command = all_commands()[name]
    text = command.get_help(click.Context(command, click.Context(main, **main.context_settings), info_name=name))
    assert f"nightsight {name}" in text.partition("Options:")[0]


def test_the_gallery_lists_its_reports() -> None:
    check(DOCS / "gallery.md", "\n".join(contents()))


def test_documents_link_to_what_is_there() -> None:
    paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.glob("*.md")]
    links = [
        (path, target)
        for path in paths
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
    ]
    assert links
    assert [f"{path.name}: {target}" for path, target in links if not (path.parent / target).exists()] == []


def test_what_a_report_tells_is_in_the_table_of_privacy_field_by_field() -> None:
    text = (DOCS / "privacy.md").read_text(encoding="utf-8")
    table = text[text.index("### What a report contains") : text.index("## nightsight sanitize")]
    fields = {*re.findall(r"`(\w+)`", table)}
    document = json.loads(Report("x", Environment(), ()).to_json())
    assert {*document, *document["environment"]} <= fields


def test_figures_are_the_same_in_all_documents() -> None:
    """The README and the changelog quote the first table of docs/causes.md; others quote the job of 64 ranks."""
    causes, benchmarks = (DOCS.joinpath(name).read_text(encoding="utf-8") for name in ("causes.md", "benchmarks.md"))
    named = re.findall(r"^- Named first: (\d+ of \d+)", causes, flags=re.MULTILINE)[0]
    near, predicted = re.findall(r"within a factor of 1\.5: (\d+) of (\d+)", causes)[0]
    ((seconds, megabytes),) = re.findall(r"64 ranks of 100,000 kernels \| ([\d.]+) s \| ([\d,]+) MB", benchmarks)
    job = f"{round(float(seconds))} s and {float(megabytes.replace(',', '')) / 1000:.1f} GB"
    changes = ROOT / "CHANGELOG.md"
    for path in (changes, DOCS / "differences.md", DOCS / "ranks.md"):
        assert job in " ".join(path.read_text(encoding="utf-8").split()), path.name
    for path in (changes, ROOT / "README.md"):
        text = " ".join(path.read_text(encoding="utf-8").split())
        assert f"{named} programs with a planted cause" in text, path.name
        assert re.search(rf"[Oo]f {predicted} predicted gains, {near} ", text), path.name


def test_the_readme_is_one_screen() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 45


def test_the_readme_gives_no_more_rules_than_there_are() -> None:
    (count,) = re.findall(
        r"\[(\d+) rules\]\(docs/advice\.md\) and more", (ROOT / "README.md").read_text(encoding="utf-8")
    )
    assert int(count) < len(RULE | KERNEL_WORDS) + len(UNSIMULATED)


def all_pages() -> Iterator[str]:
    """Write the navigation of the site as lists of links, for those who read docs/ without it."""
    _, _, nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")
    elsewhere = {"index.md": "../README.md", "sample/report.html": "../reports/sample/report.html"}
    elsewhere |= {f"{path.stem.lower()}.md": f"../{path.name}" for path in ROOT.glob("*.md")}
    for group in yaml.safe_load(nav):
        ((title, entries),) = group.items()
        yield f"## {title}\n"
        for name, page in (item for entry in entries for item in entry.items()):
            yield f"- [{name}]({elsewhere.get(page, page)})"
        yield ""


def test_the_list_of_all_pages_is_that_of_the_site() -> None:
    check(DOCS / "README.md", "\n".join(all_pages()))
