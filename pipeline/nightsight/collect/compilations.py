"""What torch.compile compiled in a run, how long it took, and why: from PyTorch's structured log (TORCH_TRACE).

What its kernels compute is read from the same log (`collect/fused.py`). Why a compiled function got no CUDA graph may
only be known when it is called: then only the program's output has the reason.

The log contains source text, so only names, numbers and reasons are kept, and it is deleted. A reason is a guard of
PyTorch, such as `tensor 'x' size mismatch at index 0. expected 3, actual 6`, or the text of a graph break; both differ
between versions of PyTorch, and an unknown one is kept without its values.
"""

import json
import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path, PurePosixPath
from shutil import rmtree
from typing import Any, Final

import pandas as pd

from nightsight.collect.fused import CODE, GRAPH, PROGRAM, FusedKernels
from nightsight.collect.workloads import PROGRAM_OUTPUT, Request, child_environment
from nightsight.events.frames import is_of_library
from nightsight.results.program import (
    GRAPH_RECORDED,
    GRAPH_RECORDED_AGAIN,
    GRAPHS_SKIPPED,
    KERNELS_TUNED,
    SKIPS_FUNCTION,
)
from nightsight.tables import TABLES, conform
from nightsight.texts import without_private

_VARIABLE: Final = "TORCH_TRACE"
_LINE: Final = re.compile(r"V\d{4} \S+ (\d{1,12}) \S+\] (\{.*\})\s*$")
_METRICS, _BREAK, _EVENT = '"compilation_metrics"', '"dynamo_graph_break_reason"', '"chromium_event"'
# events of PyTorch outside of a compilation, and what they are: when one occurs first, and later
_RECORDS: Final = "CUDAGraphNode.record"
_TUNES: Final = "CachingAutotuner.benchmark_all_configs"
_AT_RUN_TIME: Final = {_RECORDS: (GRAPH_RECORDED, GRAPH_RECORDED_AGAIN), _TUNES: (KERNELS_TUNED, KERNELS_TUNED)}
_KEEPS_ADDRESSES: Final = (
    "keep inputs at the same addresses and sizes: copy into tensors that are allocated once, "
    "torch._dynamo.mark_static_address"
)
_KEEPS_IN_TENSOR: Final = (
    "keep it in a tensor (register_buffer), or torch._dynamo.config.allow_unspec_int_on_nn_module = True"
)
_DAMAGED: Final = (ValueError, OverflowError, KeyError, TypeError, AttributeError, RecursionError)
# the file next to a capture has to stay small; a program that compiles more often has its reasons by then
_MOST: Final = 5000
_LONGEST: Final = 120
_PLACE: Final = re.compile(r"Graph break in user code at (.+):(\d+)")
_FRAME: Final = re.compile(r'File "(.+)", line (\d+), in ')
_END_OF_STACK: Final = re.compile(r"Traceback \(most recent call last\)|NoneType: None")
# how many lines of which entries are read: graph breaks come with whole stacks
_LINES_OF_ENTRY: Final = {
    **dict.fromkeys((_METRICS, _BREAK, _EVENT), 100),
    **dict.fromkeys((PROGRAM, GRAPH, CODE), 1_000_000),
}
_LATEST_NS: Final = 1 << 62
_BEFORE_CAUSE: Final = "Graph Break Reason: "
# what comes before the cause of a graph break, or instead of it
_WORDS_AROUND: Final = re.compile(r"Graph break in user code|Graph Break Reason|Encountered graph break|Reason:\s*$")
# in texts that are not known: long numbers, and what follows an equals sign
_NUMBER_OR_VALUE: Final = re.compile(r"(?<==)[^\s,)]+|\d{4,}")
_SKIPS_FUNCTION: Final = "falling back to eager"
# patterns in the text of a graph break, what they say, and the code that avoids it. Those that wait for the GPU are
# named in WAITING_BREAK
_BREAKS: Final = (
    (
        r"Unsupported Tensor\.(\w+)|call_method TensorVariable\(\) (item|tolist|numpy)\b",
        "`Tensor.{0}()`",
        "keep the value in a tensor: no `.{0}()` in compiled code",
    ),
    (
        r"[Dd]ata-dependent|attempted to jump with TensorVariable",
        "an `if` on the value of a tensor",
        "torch.where or torch.cond instead of the `if`",
    ),
    (
        r"builtin print \[.*TensorVariable",
        "`print` of a tensor",
        "print outside of compiled code, or torch._dynamo.config.reorderable_logging_functions.add(print)",
    ),
    (
        r"builtin operator `(print)`",
        "`{0}`",
        "print outside of compiled code, or torch._dynamo.config.reorderable_logging_functions.add(print)",
    ),
    (
        r"Dynamic shape operator|capture_dynamic_output_shape_ops",
        "a tensor whose size depends on values",
        "a mask instead of indices, or torch._dynamo.config.capture_dynamic_output_shape_ops = True",
    ),
    (
        r"the builtin `([\w.]+?)\.?`|builtin operator `(\w+)`|function `([\w.]+)` should not be traced|"
        r"module: [\w.]+, qualname: (\w[\w.]*)|trace method `\w+` of class `(\w+)`",
        "`{0}`",
        "call `{0}` outside of compiled code, or wrap it as an operator: torch.library.custom_op",
    ),
    ("", "", "move it out of compiled code"),
)
# why CUDA graphs are skipped (torch/_inductor/cudagraph_utils.py): patterns, words and the code that avoids it
_SKIPS: Final = (
    (
        "mutated inputs|input storage mutation",
        "inputs are changed in place",
        "return new tensors, or torch._dynamo.mark_static_address for the inputs that are changed",
    ),
    (
        r"cpu device",
        "a part runs on the CPU",
        'create its tensors on the GPU (device="cuda"), and pass numbers instead of CPU tensors',
    ),
    (r"multiple devices", "it uses several devices", "compile one function for each device"),
    (
        r"incompatible ops?|disallowed|unsafe",
        "it has an operator that CUDA graphs cannot contain",
        "move this operator out of the compiled function",
    ),
    (r"dynamic|symbolic", "its shapes are dynamic", "pad inputs to a few sizes; torch.compile(dynamic=False)"),
    (
        r"re-recording limit",
        "its CUDA graph was recorded again too often",
        "copy inputs into tensors that are allocated once",
    ),
    ("", "", ""),
)
# W1128 11:57:58.071000 14564 torch/_inductor/cudagraph_utils.py:380] [__cudagraphs] skipping cudagraphs due to ...
_WARNS: Final = "cudagraph_utils.py:"
_WARNING: Final = re.compile(
    r"(?:\[rank\d{1,6}\]:)?W(?P<time>\d{4} [\d:.]+) (?P<pid>\d{1,12}) .*?cudagraph_utils\.py:\d+\] (?P<text>.*)"
)
_SKIPPED: Final = re.compile(r"(?:skipping|disabling) cudagraphs? (?:for \w+ )?due to ")
_SKIP_WORDS: Final = re.compile(rf".*{_SKIPPED.pattern}|\s*Found from.*", re.DOTALL)
_RESUMED: Final = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)")
_TENSOR: Final = re.compile(
    r"tensor '(?P<name>.+?)' (?:(?P<what>size|stride) mismatch at index (?P<axis>\d+)|(?P<other>[\w ]+) mismatch)"
    r"\. expected"
)
# a name with its attributes, but without the methods that guards call, such as `size()`
_NAME: Final = re.compile(
    r"(?:[LG]\['(?P<name>\w+)'\]|(?<![\w.'\"])(?P<bare>[A-Za-z_]\w*))(?P<attributes>(?:\.(?!_)\w+\b(?!\())*)"
)
_ATTRIBUTE: Final = "allow_unspec_int_on_nn_module"
# patterns of guards, what they say about a name, and the code that keeps them
_GUARDS: Final = (
    (
        r"GLOBAL_STATE",
        "a mode of PyTorch changes (gradients, autocast, deterministic algorithms)",
        "compile one function for each mode",
    ),
    (r"G\['", "the global `{name}` changes", "pass `{name}` as an argument, or keep its value"),
    (r"(?:size|stride)\(\)", "the shape of `{name}` changes", "torch._dynamo.maybe_mark_dynamic({name}, DIMENSION)"),
    (
        r"[=!]=|<|>|\bis\b",
        "the value of `{name}` changes",
        "pass `{name}` as a tensor, or keep its value; for an integer: torch.compile(dynamic=True)",
    ),
    ("", "a guard on `{name}` fails", ""),
)
_OTHER: Final = "another guard fails"
# what Dynamo calls values that a function has at a graph break
_OF_BREAK: Final = "___stack"
_AT_BREAK: Final = "a value at a graph break changes"
# of guards: not names of the program
_KNOWN_NAMES: Final = frozenset(("len", "type", "not", "is", "None", "True", "False", "hasattr", "str", "int", "self"))


def compile_log(request: Request) -> dict[str, str]:
    """Return the environment variable for the log; none if the program has one, or nothing may be loaded into it."""
    if request.names == () or _VARIABLE in child_environment(request):
        return {}
    return {_VARIABLE: str(_folder(request))}


def take_compile_log(request: Request) -> dict[str, pd.DataFrame]:
    """Return the tables `compilations`, with times since the epoch, and `fused_kernels` of the last run.

    Delete the log.
    """
    folder, fused = _folder(request), FusedKernels()
    files = sorted(folder.glob("*.log")) if folder.is_dir() else []
    rows = [row for file in files for row in _compilations_in(file, fused)]
    rmtree(folder, ignore_errors=True)
    if rows:
        logged = {(row["pid"], row["reason"]) for row in rows}
        warnings = _skips_in(request.logs / PROGRAM_OUTPUT)
        rows += [row for row in warnings if (row["pid"], row["reason"]) not in logged]
    rows.sort(key=lambda row: row["start_ns"])
    kernels = pd.DataFrame(list(fused.rows())[:_MOST], columns=list(TABLES["fused_kernels"]))
    return {"compilations": compilations_of(rows[:_MOST]), "fused_kernels": conform("fused_kernels", kernels)}


def compilations_of(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return these rows as the table `compilations`."""
    columns = ["start_ns", "end_ns", "pid", "function", "reason", "fix", "graph_break"]
    return conform("compilations", pd.DataFrame(rows, columns=columns))


def _folder(request: Request) -> Path:
    return (request.logs / "compilations").absolute()


def _compilations_in(file: Path, fused: FusedKernels) -> Iterator[dict[str, Any]]:
    """Yield the compilations that one process logged, and add its kernels; damaged entries are left out."""
    # by compiled frame: the graph break that its compilation met, with its fix; and its function
    breaks: dict[tuple[Any, Any], tuple[str, str]] = {}
    functions: dict[Any, str] = {}
    started: dict[str, int] = {}
    seen: set[tuple[str, str]] = set()
    for line, text in _entries(file):
        if not (match := _LINE.match(line)):
            continue
        if _EVENT in line:
            if event := _event(text, started):
                name, compiled, start_ns, end_ns = event
                first, again = _AT_RUN_TIME[name]
                is_again = (name, compiled) in seen
                seen.add((name, compiled))
                number = compiled.lstrip("!").partition("/")[0]
                yield {
                    "start_ns": start_ns,
                    "end_ns": end_ns,
                    "pid": int(match[1]),
                    "function": functions.get(int(number) if number.isdigit() else None, "(unknown)"),
                    "reason": again if is_again else first,
                    "fix": _KEEPS_ADDRESSES if is_again and name == _RECORDS else "",
                    "graph_break": "",
                }
            continue
        try:
            entry: Any = json.loads(match[2])
            frame = entry.get("frame_id"), entry.get("frame_compile_id")
            if _BREAK in line:
                breaks[frame] = _graph_break(text)
                continue
            if _METRICS not in line:
                # numbers of frames are unique in a process
                fused.add(line, (file.name, *frame), "".join(part[1:] for part in text))
                continue
            metrics = entry["compilation_metrics"]
            if metrics.get("co_name"):
                functions[frame[0]] = _function(metrics)
            start_ns = round(1e9 * float(metrics["start_time"]))
            seconds = float(metrics.get("duration_us") or 0) / 1e6 or float(metrics["entire_frame_compile_time_s"])
            end_ns = start_ns + round(1e9 * seconds)
            reason, fix = explain(str(metrics.get("recompile_reason") or ""))
        except _DAMAGED:
            continue
        if 0 <= start_ns <= end_ns < _LATEST_NS:
            graph_break, break_fix = breaks.pop(frame, ("", ""))
            row = {
                "start_ns": start_ns,
                "end_ns": end_ns,
                "pid": int(match[1]),
                "function": functions.get(frame[0], "(unknown)"),
                "reason": reason,
                "fix": fix if reason else break_fix,
                "graph_break": graph_break,
            }
            yield row
            if skipped := metrics.get("cudagraph_skip_reason"):
                reason, fix = explain_skip(str(skipped))
                # it takes no time
                yield {**row, "start_ns": end_ns, "reason": reason, "fix": fix, "graph_break": ""}


def _skips_in(output: Path) -> Iterator[dict[str, Any]]:
    """Yield the CUDA graphs that were skipped by the warnings in a program's output, with the function if known."""
    if not output.is_file():
        return
    written = datetime.fromtimestamp(output.stat().st_mtime).astimezone()
    row: dict[str, Any] | None = None
    with output.open(encoding="utf-8", errors="replace") as lines:
        warnings = (match for line in lines if _WARNS in line and (match := _WARNING.match(line)))
        for match in warnings:
            if _SKIPPED.search(match["text"]):
                if row:
                    yield row
                row = _skip(match, written)
            elif row and (frame := _FRAME.search(match["text"])) and not is_of_library(frame[1]):
                name = without_private(match["text"][frame.end() :].strip())
                row["function"] = f"{name} ({PurePosixPath(frame[1]).name}:{frame[2]})"
    if row:
        yield row


def _skip(match: re.Match[str], written: datetime) -> dict[str, Any] | None:
    """Return the row of a warning that CUDA graphs are skipped; its time lacks the year."""
    try:
        time = datetime.strptime(f"{written.year} {match['time']}", "%Y %m%d %H:%M:%S.%f").astimezone()
        if time > written + timedelta(days=1):
            time = time.replace(year=time.year - 1)
        time_ns = round(1e9 * time.timestamp())
    except (ValueError, OverflowError):
        return None
    reason, fix = explain_skip(match["text"])
    span = {"start_ns": time_ns, "end_ns": time_ns}
    return {**span, "pid": int(match["pid"]), "function": "(unknown)", "reason": reason, "fix": fix, "graph_break": ""}


def _event(lines: Iterable[str], started: dict[str, int]) -> tuple[str, str, int, int] | None:
    """Return name, number of the compilation, start and end of an event that ends here; started: those that began."""
    text = "".join(lines)
    if not any(f'"{name}"' in text for name in _AT_RUN_TIME):
        return None
    try:
        event: Any = json.loads(text)
        name, time_ns = str(event["name"]), round(1e3 * float(event["ts"]))
        if event["ph"] == "B":
            started[name] = time_ns
            return None
        start_ns = started.pop(name)
        compiled = str(event["args"]["compile_id"])
    except _DAMAGED:
        return None
    return (name, compiled, start_ns, time_ns) if 0 <= start_ns <= time_ns < _LATEST_NS else None


def _entries(file: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the first line of each entry of interest, and the first of its other lines."""
    # the logs of large models have hundreds of megabytes
    with file.open(encoding="utf-8", errors="replace") as lines:
        head, text, most = "", list[str](), 0
        for line in lines:
            if line.startswith("\t"):
                if head and len(text) < most:
                    text.append(line)
                continue
            if head:
                yield head, text
            most = next((most for mark, most in _LINES_OF_ENTRY.items() if mark in line), 0)
            head, text = (line, []) if most else ("", [])
        if head:
            yield head, text


def _function(metrics: Any) -> str:  # noqa: ANN401 (JSON)
    name, file, line = str(metrics["co_name"]), str(metrics["co_filename"]), int(metrics["co_firstlineno"])
    if resumed := _RESUMED.fullmatch(name):
        name, line = f"{resumed[1]}, after a graph break", int(resumed[2])
    return f"{name} ({PurePosixPath(file).name}:{line})"


def _graph_break(lines: Iterable[str]) -> tuple[str, str]:
    """Return cause and place of a graph break, and the code that avoids it, from the lines of its entry."""
    place, cause, texts, is_skipped = "", "", list[str](), False
    for line in lines:
        text = line.strip()
        if _END_OF_STACK.match(text):
            break
        is_skipped |= _SKIPS_FUNCTION in text
        if located := _PLACE.match(text) or _FRAME.match(text):
            # a place in a library is the program's call into it
            if not is_of_library(located[1]):
                place = f" ({PurePosixPath(located[1]).name}:{located[2]})"
            continue
        texts.append(text)
        inline = text.removeprefix(_BEFORE_CAUSE) if text.startswith(_BEFORE_CAUSE) else text
        if inline and not cause and not _WORDS_AROUND.match(inline) and not is_skipped:
            cause = inline
        elif text and not cause and is_skipped and _SKIPS_FUNCTION not in text:
            cause = text
    words, fix = _first_match(_BREAKS, "\n".join(texts))
    words = words or without_private(_without_values(_NUMBER_OR_VALUE.sub("...", cause))) or "graph break"
    return f"{words}{place}{SKIPS_FUNCTION if is_skipped else ''}", fix


def explain_skip(reason: str) -> tuple[str, str]:
    """Return in words why CUDA graphs are skipped, and the code that avoids it."""
    words, fix = _first_match(_SKIPS, reason)
    return f"{GRAPHS_SKIPPED}{words or without_private(_without_values(_SKIP_WORDS.sub('', reason)))}", fix


def _first_match(patterns: Iterable[tuple[str, str, str]], text: str) -> tuple[str, str]:
    """Return words and fix of the first pattern that is in a text; {0} in them is what a group of it matched."""
    for pattern, words, fix in patterns:
        if match := re.search(pattern, text):
            name = next(filter(None, match.groups()), "")[:_LONGEST]
            return words.format(name), fix.format(name)
    return "", ""


def explain(reason: str) -> tuple[str, str]:
    """Return in words why something was compiled again, and the code that avoids it; empty for the first time.

    Of several guards, the first counts: it is that of the latest compiled version.
    """
    guard = reason.partition("\n")[0].partition("#")[0].strip()
    guard = re.sub(r"^\d+/\d+: ", "", guard).strip()
    if not guard:
        return "", ""
    if tensor := _TENSOR.match(guard):
        return _explain_tensor(tensor)
    matches = _NAME.finditer(_without_values(guard, is_guard=True))
    names = [(match["name"] or match["bare"]) + match["attributes"] for match in matches]
    names = [name for name in names if not (name in _KNOWN_NAMES or name.startswith("_"))]
    if not names:
        return (_AT_BREAK if _OF_BREAK in guard else _OTHER), ""
    if _ATTRIBUTE in reason.partition("\n")[0]:
        return f"the attribute `{names[0]}` changes", _KEEPS_IN_TENSOR
    words, fix = next(words for pattern, *words in _GUARDS if re.search(pattern, guard))
    return words.format(name=names[0]), fix.format(name=names[0])


def _explain_tensor(guard: re.Match[str]) -> tuple[str, str]:
    name, axis = _short(guard["name"]), guard["axis"]
    if guard["what"] == "size":
        return f"the size of `{name}` in dimension {axis} changes", f"torch._dynamo.mark_dynamic({name}, {axis})"
    if guard["what"]:
        return f"the stride of `{name}` in dimension {axis} changes", f"{name}.contiguous()"
    return f"the {guard['other']} of `{name}` changes", f"pass `{name}` with the same {guard['other']} in all calls"


def _without_values(text: str, *, is_guard: bool = False) -> str:
    """Return a text without literals, which can be data of the program; names in guards stay."""
    subscript = r"\[(['\"])\w+\2\]" if is_guard else "(?!)()"
    return re.sub(rf"({subscript})|(['\"]).*?\3", lambda match: match[1] or "...", text)[:_LONGEST]


def _short(name: str) -> str:
    """Return a name in a guard as the program has it: `L['batch'][0]` is `batch[0]`."""
    return re.sub(r"^[LG]\['(\w+)'\]", r"\1", name)[:_LONGEST]
