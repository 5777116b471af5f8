"""The order of --help: commands by what one wants to do, and options of `profile` by what they concern."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import click

from nightsight.commands.console import put, width_of
from nightsight.commands.trials import ProgramCommand

COMMANDS: Final[Mapping[str, str]] = {
    "Daily": "profile report compare doctor",
    "Look closer": "show stats fleet history",
    "Decide": "prove ab bisect",
    "Share and keep": "sanitize schema ci prune",
    "Begin": "workloads init-workload completion skill mcp",
}
"""The commands of each section."""
MOST_USED: Final = "Most used options"
PROFILE_OPTIONS: Final[Mapping[str, str]] = {
    MOST_USED: "--collector --names --window --time-steps --repeat --no-ncu --attach --format --reports --python",
    "What nsys records": "--trace --capture-range --gpu-metrics --python-backtrace --memory-usage --page-faults "
    "--isolate --calibrate --nsys-arg --nsys",
    "Part of a run": "--delay --duration --ranks",
    "Servers": "--server --ready --client --ready-timeout --start-profile",
    "Kernels (ncu)": "--ncu-coverage --ncu-kernels --ncu-launches --ncu-kernel --ncu-range --ncu-all --ncu-set "
    "--ncu-sections --ncu-metrics --ncu-budget --clock-control --cache-control --replay-mode --graph-profiling --ncu",
    "torch.profiler": "--active --wait --warmup --cycles --step-range --skip-range --record --activities",
    "The program": "--workloads --keep-env --timeout --verbose",
    "Output": "--keep --stats --local-paths --quiet",
}
"""The options of each section of `profile`; those that people use most come first, and --help has no others."""
_WIDEST: Final = 80
_NARROW: Final = 70
_ALL: Final = "nightsight.help_all"


class _Formatter(click.HelpFormatter):
    """Writes help as wide as the terminal, of which Click assumes 50 cells; narrow ones get a narrow first column."""

    def __init__(self, indent_increment: int = 2, width: int | None = None, max_width: int | None = None) -> None:
        super().__init__(indent_increment, width or min(width_of(), max_width or _WIDEST) - 2)

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write names and their meanings."""
        super().write_dl(rows, col_max if self.width >= _NARROW else 2 * self.width // 5, col_spacing)


class _Context(click.Context):
    formatter_class = _Formatter


def fit_help(command: click.Command) -> None:
    """Let the help of a command, and of all commands in it, fit the terminal."""
    command.context_class = _Context
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        fit_help(inner)


class SectionedGroup(click.Group):
    """A group whose help lists commands by what one wants to do, before the options."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections of commands, then the options."""
        width = max(map(len, self.commands))
        for title, names in COMMANDS.items():
            with formatter.section(title):
                rows = [(name.ljust(width), self.commands[name].get_short_help_str(_WIDEST)) for name in names.split()]
                formatter.write_dl(rows)
        click.Command.format_options(self, ctx, formatter)


class ProfileCommand(ProgramCommand):
    """A command with many options: --help has the most used ones, --help-all has all, in sections."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:  # noqa: ANN401 (Click's)
        super().__init__(*arguments, **keywords)
        every = click.Option(
            ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_show_all, help=_SHOW_ALL
        )
        self.params.append(every)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options that are asked for."""
        by_name = {name: option for option in self.get_params(ctx) for name in option.opts}
        is_all = bool(ctx.meta.get(_ALL))
        for title, names in PROFILE_OPTIONS.items():
            shown = names.split() if is_all or title == MOST_USED else []
            records = [by_name[name].get_help_record(ctx) for name in shown]
            if records:
                with formatter.section(title):
                    formatter.write_dl([record for record in records if record])
        others = [title for title in PROFILE_OPTIONS if title != MOST_USED]
        with formatter.section("Help"):
            records = [by_name[name].get_help_record(ctx) for name in ("--help-all", "--help")]
            formatter.write_dl([record for record in records if record])
        if not is_all:
            formatter.write_paragraph()
            formatter.write_text(
                f"--help-all has {sum(len(PROFILE_OPTIONS[title].split()) for title in others)} more "
                f"options: {', '.join(others)}."
            )


_SHOW_ALL: Final = "Show all options and exit."


def _show_all(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        put(f"{ctx.get_help()}\n")
        ctx.exit()
