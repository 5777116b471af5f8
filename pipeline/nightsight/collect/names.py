"""Annotates programs without NVTX ranges: the names that nsys and our own hook can give, and those that a run uses.

A hook inside the program (workloads/injected/naming.py) names `modules`; nsys names `operators` (and their `shapes`)
and `python` functions. By default, a Python program gets what costs less than 2 % of its time: samples of the Python
stack at a low rate, and as many levels of modules as the hook measures to stay below that. Operators cost some
microseconds each on the CPU, and 180 bytes each in the capture: on request only. The same hook has nsys save its
buffers before the program ends (workloads/injected/saving.py).
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Final

from nightsight.collect.tools import writable_folder
from nightsight.collect.workloads import PACKAGE, Program, Request, child_environment
from nightsight.model.report import Finding
from nightsight.units import counted

FORKED: Final = "forked_work_lost"
"""Name of the finding about forks."""
NAMES: Final = ("modules", "operators", "shapes", "python")
_VARIABLE: Final = "NIGHTSIGHT_NAMES"
_SAVES: Final = "NIGHTSIGHT_SAVES"
# a sample takes less than 100 µs, and nsys takes 1000 a second by default
_SAMPLES_PER_S: Final = 200
_OPERATORS: Final = "--pytorch"
_SAMPLING: Final = "--python-sampling"
_FREQUENCY: Final = "--python-sampling-frequency"
_NEEDED: Final = {"operators": _OPERATORS, "shapes": _OPERATORS, "python": _SAMPLING}
# nsys 2025.3 cannot import all of XLA's ranges ("Cannot find string for an exterior index"), and loses what it records
# with them: on an H100, all kernels of a jitted loop in eight of eleven runs; without this domain, none in three. Its
# help does not list the option; each nsys that samples Python has it
_EXCLUDE: Final = "--nvtx-domain-exclude"
_INCLUDE: Final = "--nvtx-domain-include"
_DOMAIN_OF_XLA: Final = "TSL"
_HEAD_BYTES: Final = 256


@dataclass(frozen=True)
class Annotation:
    """How to annotate a program: nsys options, variables for the program, the parts to name, and unsupported names."""

    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    description: str = ""
    findings: tuple[Finding, ...] = ()


def annotation_of(program: Program, request: Request, *, help_text: str) -> Annotation:
    """Return how to annotate a program; `help_text`: the help of `nsys profile`.

    Options that the user passes to nsys directly are left alone.
    """
    is_auto = request.names is None
    chosen = _default_names(program) if request.names is None else [name for name in NAMES if name in request.names]
    nsys_options = [argument.partition("=")[0] for argument in request.nsys_arguments]
    chosen = [name for name in chosen if _NEEDED.get(name) not in nsys_options]
    unsupported = [name for name in chosen if name in _NEEDED and not _knows(help_text, _NEEDED[name])]
    chosen = [name for name in chosen if name not in unsupported]
    options = []
    if "shapes" in chosen or "operators" in chosen:
        options.append(f"{_OPERATORS}=autograd-{'shapes-' if 'shapes' in chosen else ''}nvtx")
    if "python" in chosen:
        options.append(f"{_SAMPLING}=true")
        if is_auto and _knows(help_text, _FREQUENCY):
            options.append(f"{_FREQUENCY}={_SAMPLES_PER_S}")
    if _uses_jax(program) and _knows(help_text, _SAMPLING) and not {_EXCLUDE, _INCLUDE} & set(nsys_options):
        options.append(f"{_EXCLUDE}={_DOMAIN_OF_XLA}")
    takes_hook = "modules" in chosen or (request.names != () and _takes_hook(program))
    return Annotation(
        tuple(options),
        _hook_variables(chosen, request, is_cheap=is_auto) if takes_hook else {},
        ", ".join(chosen) + " (auto)" * bool(chosen and is_auto),
        (_UNKNOWN.filled(names=", ".join(unsupported)),) if unsupported and not is_auto else (),
    )


def _default_names(program: Program) -> list[str]:
    """Return what to annotate by default: nothing in built-in workloads, which have their own ranges.

    While nsys samples Python, it loses all kernels of a JAX program (nsys 2025.3 on an H100).
    """
    if not _takes_hook(program):
        return []
    return ["modules"] if _uses_jax(program) else ["modules", "python"]


def _uses_jax(program: Program) -> bool:
    """Whether a script among the arguments imports JAX or a library that is built on it."""
    scripts = [Path(word) for word in program.command if word.endswith(".py")]
    texts = (script.read_text(errors="replace") for script in scripts if script.is_file())
    return any(re.search(rf"^\s*(?:import|from)\s+(?:{_ON_JAX})\b", text, re.MULTILINE) for text in texts)


_ON_JAX: Final = "jax|flax|optax|haiku|equinox|numpyro|brax|orbax|chex|diffrax|keras_core"


def _takes_hook(program: Program) -> bool:
    """Whether a program loads our hooks: it is Python, and not a built-in workload, which needs none."""
    return program.kind != "workload" and is_python(program)


def is_python(program: Program) -> bool:
    """Whether a program is Python, or a script that Python runs, such as torchrun."""
    first = Path(program.command[0])
    if program.kind != "command" or re.fullmatch(r"python[\d.]*", first.name):
        return not program.is_native
    try:
        with first.open("rb") as file:
            return re.match(rb"#!.*\bpython", file.read(_HEAD_BYTES)) is not None
    except OSError:
        return False


def _knows(help_text: str, option: str) -> bool:
    return re.search(rf"{option}(?![\w-])", help_text) is not None


def _hook_variables(chosen: Sequence[str], request: Request, *, is_cheap: bool) -> dict[str, str]:
    """Return the variables that make Python load our hook; without commas, which nsys reads as separators."""
    environment, saves = child_environment(request), str(_forks(request))
    saves = "/nowhere" if "," in saves else saves
    path = [str(PACKAGE / "timed"), *filter(None, [environment.get("PYTHONPATH", "")])]
    variables = {_SAVES: saves, "PYTHONPATH": os.pathsep.join(path)}
    if "modules" in chosen:
        words = ["modules", *["sparing"] * is_cheap, *["annotated"] * any(name in chosen for name in _BY_TORCH)]
        variables[_VARIABLE] = " ".join(words)
    return variables


# with these, PyTorch also annotates steps of optimizers and data loaders
_BY_TORCH: Final = ("operators", "shapes")


@contextmanager
def watching_forks(request: Request) -> Iterator[list[Finding]]:
    """Fill a list with a finding if processes that the program forked used CUDA, which nsys does not record."""
    folder, findings = writable_folder(_forks(request)), list[Finding]()
    try:
        yield findings
        count = sum(1 for _ in folder.iterdir())
    finally:
        rmtree(folder, ignore_errors=True)
    is_traced = any(argument.startswith(_TRACES_FORKS) for argument in request.nsys_arguments)
    if count and not is_traced:
        findings.append(_FORKED.filled(processes=counted(count, "process", "processes")))


def _forks(request: Request) -> Path:
    return (request.logs / "forks").absolute()


_TRACES_FORKS: Final = "--trace-fork-before-exec=true"
# by default nsys does not: its help says that tracing after a fork is undefined behavior, and may crash the program
_FORKED: Final = Finding(
    FORKED,
    "warning",
    "GPU work of forked processes was not recorded",
    "The program forked {processes} that used CUDA. nsys does not record what a process does after a fork.",
    'Start processes with spawn: multiprocessing.set_start_method("spawn"). Or record them with '
    f"--nsys-arg={_TRACES_FORKS}, which can make a program hang or crash.",
)
_UNKNOWN: Final = Finding(
    "no_names",
    "warning",
    "Not annotated: {names}",
    "This version of nsys has no option for it.",
    "Install a newer nsys, or use --collector torch.",
)
