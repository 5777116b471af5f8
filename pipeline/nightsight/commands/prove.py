"""The command `prove`, which measures fixes that can be applied from outside."""

import sys
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

import click

from nightsight.commands.completion import causes, switches
from nightsight.commands.console import put, say, show_progress, width_of
from nightsight.commands.shared import target_argument
from nightsight.commands.trials import AFTER_DASHES, ProgramCommand, program_options
from nightsight.errors import ToolError, UsageError
from nightsight.options import Number

if TYPE_CHECKING:
    from nightsight.collect.workloads import Program, Request
    from nightsight.model.prove import ProofReport
    from nightsight.model.report import Report
    from nightsight.progress import Reporter
    from nightsight.workflows.patch import Patch

_MINUTE_S: Final = 60.0
_PATCH: Final = "proof.patch"


@click.command(cls=ProgramCommand, options_metavar="[OPTIONS]", short_help="Measure the gains of fixes.")
@target_argument
@click.option(
    "--report",
    type=click.Path(exists=True, path_type=Path),
    metavar="PATH",
    help="The report whose causes are proven: a run folder or its report.json (default: the latest run of this program "
    "in --reports; without one, the program is profiled first, unless --switch or --all says what to measure).",
)
@click.option(
    "--cause",
    multiple=True,
    metavar="RULE",
    shell_complete=causes,
    help="Only fixes of this cause, such as tensor_cores.",
)
@click.option(
    "--switch",
    "switches",
    multiple=True,
    metavar="NAME",
    shell_complete=switches,
    help="Measure this switch, whatever the causes are. NAME.py is your own switch; jit=MODULE.FUNCTION compiles a "
    "function of a JAX program with jax.jit (docs/prove.md).",
)
@click.option("--all", "is_all", is_flag=True, help="Measure all switches, whatever the causes are.")
@click.option("--list", "is_list", is_flag=True, help="List the switches and exit.")
@click.option("--calibration", is_flag=True, help="Compare predicted with measured steps of all proofs, and exit.")
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    metavar="N",
    help="Runs with each switch that shortens the step; twice as many if they vary too much.",
)
@click.option(
    "--budget",
    type=Number(min=0, min_open=True),
    default=10,
    metavar="MINUTES",
    help="Time limit for all runs. Results up to then are reported.  [default: 10]",
)
@click.option(
    "--steps",
    type=click.IntRange(min=2),
    metavar="N",
    help="End each run after this many steps (default: as many as the budget allows).",
)
@click.option(
    "--check",
    default="",
    metavar="COMMAND",
    help="A command that exits with status 0 if the results of a run are correct.",
)
@click.option("--patch", is_flag=True, help="Write a diff that applies the proven fixes.")
@program_options
@click.option(
    "--format",
    "style",
    type=click.Choice(["text", "json", "brief", "brief.json"]),
    default="text",
    show_default=True,
    help="What to print. brief: at most 3,000 bytes, for coding agents and people in a hurry; the path of proof.json "
    "then goes to standard error.",
)
@click.pass_context
def prove(ctx: click.Context, /, target: str | None, **values: Any) -> None:  # noqa: ANN401 (Click's)
    """Apply fixes from outside, without editing the program, and measure their gains.

    Takes the causes of a report and turns on the switches that fix them (TF32, a fused optimizer, DataLoader workers,
    torch.compile, ...). Runs the program with and without each switch, in turns and without a profiler, and compares
    step times and results: the losses, or the outputs of models. Then the effective switches are combined. `proven`
    means faster with the same results. Causes that need an edit are listed with their fix. The result is in proof.json.

    \b
    Examples:
      nightsight prove train.py -- --steps 50
      nightsight prove --cause tensor_cores --rounds 5 train.py
      nightsight prove --switch compile --switch tf32 train.py
      nightsight prove --all --budget 30 --check "python evaluate.py" train.py
      nightsight prove --steps 40 --patch train.py
      nightsight prove --format brief train.py
    """
    from nightsight.collect.prove import switch_of_file
    from nightsight.render.lines import align
    from nightsight.results.rules import RULE
    from nightsight.results.switches import JIT, SWITCH, SWITCHES, jitted
    from nightsight.runs.layout import PROOF, write_file
    from nightsight.workflows.patch import patch_of
    from nightsight.workflows.prove import ProofPlan, calibration
    from nightsight.workflows.prove import prove as measure

    if values["is_list"]:
        for switch in (*SWITCHES, JIT):
            rules = (*switch.rules, *switch.tries)
            causes = f" ({', '.join(rules)})" if rules else ""
            say(f"{switch.name}: {switch.done}{causes}")
        return
    if values["calibration"]:
        header = ("Cause", "Proofs", "Predicted / measured, median", "Within 1.5")
        steps = calibration(values["reports"])
        rows = [(rule, f"{count}", f"{middle:.2f}", f"{near} of {count}") for rule, count, middle, near in steps]
        none = f"{values['reports']} has no proof of a predicted gain yet."
        say(*(align([header, *rows], right=(1, 2)) if rows else [none]))
        return
    names = list(dict.fromkeys(values["switches"]))
    files = {name: switch_of_file(Path(name)) for name in names if name.endswith(".py")}
    allowed_switches = SWITCH | files | {name: named for name in names if (named := jitted(name))}
    for file in files.values():
        if [each.name for each in allowed_switches.values()].count(file.name) > 1:
            raise UsageError(f"two switches have the name {file.name}", "Rename your file.")
    for name, allowed in (("switches", allowed_switches), ("cause", RULE)):
        if unknown := [each for each in values[name] if each not in allowed]:
            raise click.UsageError(f"{unknown[0]} is not one of: {', '.join(allowed)}.")
    with show_progress(is_quiet=values["style"] == "json") as progress:
        program = _program(ctx, target, values, progress)
        reports = values["reports"].resolve()
        report = _report(program, values, progress)
        request = _request(values, progress)
        plan = ProofPlan(
            program,
            reports / program.name / PROOF.parent,
            report,
            values["cause"],
            tuple(allowed_switches[name] for name in names),
            values["is_all"],
            values["rounds"],
            values["budget"] * _MINUTE_S,
            values["steps"] or 0,
            values["check"],
        )
        result = measure(plan, request)
    patch = patch_of(result, Path.cwd()) if values["patch"] else None
    if patch:
        # an earlier proof may have left one
        write_file(plan.folder / _PATCH, patch.diff.encode())
    if values["style"] == "json":
        say(*result.to_json().rstrip("\n").split("\n"))
        return
    _print(result, patch, values)


def _print(result: "ProofReport", patch: "Patch | None", values: dict[str, Any]) -> None:
    """Print proofs as text or as a brief; paths go to standard error if standard output is a brief."""
    from nightsight.render.prove import proof_brief, proof_brief_json, proof_lines
    from nightsight.runs.layout import PROOF

    briefs = {"brief": proof_brief, "brief.json": proof_brief_json}
    is_brief = values["style"] in briefs
    if is_brief:
        put(briefs[values["style"]](result).decode())
    else:
        say(*proof_lines(result, width=width_of()))
    tell = partial(say, err=is_brief)
    file = values["reports"] / result.program / PROOF
    tell(f"proof: {file}")
    if patch is None:
        return
    for name, reason in patch.left_out.items():
        tell(f"Not in the patch: {name}, because {reason}.")
    diff = file.with_name(_PATCH)
    tell(
        f"patch: {diff}. To apply it: git apply {quote(str(diff))}"
        if patch.diff
        else "Nothing was proven that can be patched."
    )


def _program(ctx: click.Context, target: str | None, values: dict[str, Any], progress: "Reporter") -> "Program":
    """Return the program to run."""
    from nightsight.collect import needs_of
    from nightsight.collect.interpreter import interpreter
    from nightsight.collect.workloads import resolve

    if sys.platform != "linux":
        raise ToolError("running programs needs Linux")
    rest: tuple[str, ...] = ctx.meta[AFTER_DASHES]
    if target is None and not rest:
        raise click.UsageError("Name a workload or script, or give a command after `--`.")
    python = interpreter(values["python"], partial(needs_of, "torch", target, values["workloads"], None))
    if target and python.remark:
        with progress.paused():
            say(python.remark, err=True)
    return resolve(target, rest, python=python.path, folder=values["workloads"])


def _request(values: dict[str, Any], progress: "Reporter") -> "Request":
    from nightsight.collect.workloads import Request

    return Request(
        timeout_s=values["timeout"], keep_env=values["keep_env"], progress=progress, verbose=values["verbose"]
    )


def _report(program: "Program", values: dict[str, Any], progress: "Reporter") -> "Report | None":
    """Return the report whose causes are proven; None if there is none, and switches are named.

    UsageError if it is of another program.
    """
    from nightsight.model.report import Report
    from nightsight.workflows.profile import Plan, profile_program
    from nightsight.workflows.prove import refuse_other

    path: Path | None = values["report"]
    latest = values["reports"] / program.name / "latest" / "report.json"
    if path is None and latest.is_file():
        path = latest
    if path is None and (values["switches"] or values["is_all"]):
        return None
    if path is None:
        plan = Plan(program, "auto", values["reports"])
        return profile_program(plan, _request(values, progress)).report
    file = path / "report.json" if path.is_dir() else path
    try:
        report = Report.from_json(file.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error
    refuse_other(report, program)
    return report
