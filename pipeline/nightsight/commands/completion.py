"""The command `completion`, and the values that shells complete: workloads, causes, tables, switches.

The shell asks the command itself, through Click. Commands and options need no imports; values need some.
"""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from nightsight.commands.console import put
from nightsight.options import matching

_VARIABLE: Final = "_NIGHTSIGHT_COMPLETE"
# Click's script for fish would split values at commas, too
_WITHOUT_COMMAS: Final = ('string split ","', 'string split --max 1 ","')
_SHELLS: Final = ("bash", "zsh", "fish")


@click.command(short_help="Complete commands in your shell.")
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, /, shell: str) -> None:
    """Print the script with which a shell completes commands, options, workloads, tables and causes.

    \b
    Put it into your shell's file:
      eval "$(nightsight completion bash)"       # ~/.bashrc
      eval "$(nightsight completion zsh)"        # ~/.zshrc, after compinit
      nightsight completion fish | source        # ~/.config/fish/config.fish

    Example: nightsight completion bash
    """
    made = get_completion_class(shell)
    assert made
    script = made(ctx.find_root().command, {}, "nightsight", _VARIABLE).source()
    put(script.replace(*_WITHOUT_COMMAS) + "\n")


def _files(incomplete: str) -> CompletionItem:
    """Complete files, too: the first item, as bash forgets those before it, and not empty, as zsh drops empty lines."""
    return CompletionItem(incomplete or "./", type="file")


def programs(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the names of workloads and files."""
    from nightsight.collect.own import own_workloads
    from nightsight.collect.workloads import registered_workloads

    names: list[str] = []
    # a pyproject.toml may be broken
    with suppress(Exception):
        names += [workload.name for workload in own_workloads(ctx.params.get("workloads"))]
    names += [workload.name for workload in registered_workloads()]
    return [_files(incomplete), *matching(names, incomplete)]


def things(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the causes and tables of a kept report, or else the names of all tables."""
    path = Path(ctx.params.get("file") or "")
    kept = path / "report.json" if path.is_dir() else path
    with suppress(OSError, ValueError, LookupError, TypeError):
        return matching(_things_of(json.loads(kept.read_bytes())), incomplete)
    from nightsight.results import RESULTS

    return matching(("steps", *(entry.name for entry in RESULTS)), incomplete)


def _things_of(report: Any) -> list[str]:  # noqa: ANN401 (a document)
    from nightsight.model.report import ids_of

    causes = ids_of(finding["rule"] for finding in report["findings"] if finding["severity"] == "advice")
    return [*causes, "steps", *(result["name"] for result in report["results"] if result["table"])]


def causes(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the rules of causes."""
    from nightsight.results.rules import RULE

    return matching(RULE, incomplete)


def switches(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the switches of `prove`, and files."""
    from nightsight.results.switches import SWITCH

    return [_files(incomplete), *matching(SWITCH, incomplete)]


def statistics(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the tables of `nsys stats`."""
    from nightsight.stats import REPORTS

    return matching(REPORTS, incomplete, is_list=True)
