"""The commands `mcp` and `skill`, for coding agents."""

import gc
import os
import sys
from pathlib import Path

import click

from nightsight.commands.console import put, say
from nightsight.errors import ToolError


@click.command(short_help="Answer coding agents (MCP).")
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    metavar="DIR",
    help="Folder of your program: commands run there, and relative paths start there (default: the current one).",
)
def mcp(*, folder: Path) -> None:
    """Serve the tools diagnose, show, compare, profile and prove to an MCP client on standard input and output.

    Register this command with your agent or editor (docs/agents.md). Programs are measured in the background, and
    stopped when the client ends the server. Nothing is sent anywhere.

    \b
    Examples:
      nightsight mcp
      nightsight mcp --folder ~/project
    """
    from nightsight.system.installing import EXTRAS, for_nightsight

    try:
        from nightsight.agents.server import serve
    except ModuleNotFoundError as error:
        raise ToolError("the MCP server needs the package mcp", for_nightsight(*EXTRAS["mcp"])) from error
    os.chdir(folder)
    if sys.stdin.isatty():
        say(
            "Waiting for an MCP client on standard input. Agents start this command themselves: docs/agents.md",
            err=True,
        )
    # it lives long, unlike other commands
    gc.enable()
    serve()


@click.command(short_help="Print the skill file of agents.")
@click.option("--print", "is_text", is_flag=True, help="Print its text instead of its path.")
def skill(*, is_text: bool) -> None:
    """Print the path of SKILL.md, which tells a coding agent how to use nightsight.

    \b
    Examples:
      cp "$(nightsight skill)" .agents/skills/nightsight/SKILL.md
      nightsight skill --print
    """
    import nightsight.agents

    path = Path(nightsight.agents.__file__).with_name("SKILL.md")
    if is_text:
        put(path.read_text("utf-8"))
    else:
        say(str(path))
