"""Parses the names of NVTX ranges that PyTorch, nsys or our own hook made, not the program.

torch.autograd.profiler.emit_nvtx (enabled by `nsys --pytorch=autograd-nvtx`) opens a range for each operator, with all
facts in its name: `aten::mm, seq = 7, op_id = 12, sizes = [[8, 4], [4, 2]], input_op_ids = [(9,0), (3,0)]`. So each
name is unique: a capture has as many texts as operators, which must not all become strings of Python. nsys's
`--pytorch=functions-trace` names calls of modules by their class, our own ranges by their path in the model.
"""

import json
import re
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from nightsight.intervals import Flags
from nightsight.model.report import Finding
from nightsight.read.kineto_events import OF_MODULE
from nightsight.read.sqlite import decoded
from nightsight.tables import FUNCTION, MODULE, NULLABLE, are_named, categorical, innermost_of, renamed
from nightsight.units import format_value

# each part is optional: torch 1.7 and older write no op_id, and no name if there are shapes but no number
_FACTS: Final = (
    r"(?:, seq = (?P<sequence>[0-9]{1,18}))?(?:, op_id = (?P<id>[0-9]+))?"
    r"(?:, sizes = (?P<sizes>\[[\[\], 0-9-]*\]))?(?:, input_op_ids = \[[(), 0-9-]*\])?$"
)
# most names have no commas, and this pattern is three times as fast; an exception is the C++ node CppNode<A, B>
_WITHOUT_COMMAS: Final = f"^(?P<name>[^,]*){_FACTS}"
_WITH_COMMAS: Final = f"(?s)^(?P<name>.*?){_FACTS}"
# a range with only an op_id is an annotation (torch.profiler.record_function), unless its name is that of an operator
_OPERATOR: Final = re.compile(r".*::.*|.*Backward\d*|detach_?|record_param_comms", re.DOTALL)
_OPERATOR_ALONE: Final = re.compile(
    r"(?:aten|prim|torch::autograd)::\S.*|autograd::engine::evaluate_function: .*", re.DOTALL
)
_BACKWARD: Final = r"Backward\d*$"

OF_HOOK: Final = "nightsight: "
"""The prefix of marks and ranges of the hook in the program (workloads/injected/naming.py)."""
_HOOK: Final = re.compile(
    rf"{OF_HOOK}modules, (?P<levels>[0-9]+) of (?P<of_levels>[0-9]+) levels, (?P<calls>[0-9]+) of "
    r"(?P<of_calls>[0-9]+) calls, (?P<cost>[0-9]+) ns each in (?P<took>[0-9]+) ns"
)

OF_NSYS: Final = "PyTorch"
"""The domain of the functions that nsys traces."""
# domain and name of a range; its new name, its style, and the source of the name
_MEANINGS: Final = tuple(
    (domain, re.compile(pattern, re.DOTALL), name, style, source)
    for domain, pattern, name, style, source in (
        ("", f"{OF_MODULE}(.+)", r"\1", MODULE, "path"),
        ("", r"Optimizer\.(?:step|zero_grad)#.*", r"\g<0>", FUNCTION, "step"),
        ("", r"torch\.autograd\.backward|enumerate\(DataLoader\)#.*", r"\g<0>", FUNCTION, ""),
        # our own hook measures the cost of a range
        ("", f"{OF_HOOK}.*", "", FUNCTION, "repeats"),
        (OF_NSYS, r"torch\.optim\.(?:\w+\.)*(\w+\.step)", r"Optimizer.step#\1", FUNCTION, "traced step"),
        (OF_NSYS, r"torch\.nn\.modules\.(?:\w+\.)*(\w+)\.forward", r"\1", MODULE, "class"),
        # the forward function inside names the module, and operators show the work of functions
        (OF_NSYS, r"torch\.nn\.modules\.(?:\w+\.)*Module\.__call__", "", FUNCTION, "repeats"),
        (OF_NSYS, r"torch\.(?:nn\.functional|Tensor)\..*", "", FUNCTION, "repeats"),
        (OF_NSYS, r"torch\.utils\.data\.(?:\w+\.)*?_?(\w+\.__next__)", r"\1", FUNCTION, ""),
        (OF_NSYS, ".*", r"\g<0>", FUNCTION, ""),
        ("", ".*", r"\g<0>", "", ""),
    )
)


class ParsedNames(NamedTuple):
    """Names of events without their unique parts; whether they are operators, and if so, their other facts.

    shapes: compact JSON, "" if not recorded. sequence: missing if not recorded.
    """

    name: "pd.Categorical[Any]"
    is_operator: Flags
    shapes: "pd.Categorical[Any]"
    sequence: "pd.arrays.ArrowExtensionArray"


def parse_names(texts: pa.Array, is_of_torch: Flags) -> ParsedNames:
    """Parse the names, given as bytes, that may come from torch; leave all others unchanged."""
    matches = pc.extract_regex(texts, _WITHOUT_COMMAS)
    parts = {part: pc.struct_field(matches, part) for part in ("name", "sequence", "id", "sizes")}
    if matches.null_count:
        has_no_match = pc.is_null(matches)
        exceptions = pc.extract_regex(texts.filter(has_no_match), _WITH_COMMAS)
        parts = {
            part: pc.replace_with_mask(column, has_no_match, pc.struct_field(exceptions, part))
            for part, column in parts.items()
        }
    name = _decoded(parts["name"])
    is_operator_name, is_operator_alone = (
        np.array([bool(pattern.fullmatch(text)) for text in name.categories], dtype=bool)[name.codes]
        for pattern in (_OPERATOR, _OPERATOR_ALONE)
    )
    has_sequence, has_id, has_sizes = (
        np.asarray(pc.greater(pc.binary_length(parts[part]), 0), dtype=bool) for part in ("sequence", "id", "sizes")
    )
    is_operator = is_of_torch & (has_sequence | has_sizes | (has_id & is_operator_name) | is_operator_alone)
    if not is_of_torch.all():
        name = _decoded(pc.if_else(pa.array(is_of_torch), parts["name"], texts))
    shapes = _decoded(pc.if_else(pa.array(is_operator), parts["sizes"], b""))
    sequence = pc.if_else(pa.array(is_operator & has_sequence), parts["sequence"], None)
    return ParsedNames(
        name,
        is_operator,
        renamed(pd.Series(shapes), lambda sizes: pd.Index([_compact(text) for text in sizes], dtype="str")),
        pd.arrays.ArrowExtensionArray(pc.cast(pc.cast(sequence, pa.string()), pa.int64())),
    )


def place_operators(operators: pd.DataFrame, modules: pd.DataFrame) -> pd.DataFrame:
    """Add the module that called each operator, and to operators of a backward pass the thread of the forward pass.

    The operator of the forward pass has the same sequence number; if several threads used it, the last one counts.
    """
    modules = modules.reset_index(drop=True)
    row = innermost_of(modules, *(operators[name].to_numpy() for name in ("thread", "start_ns")))
    paths = np.append(modules["name"].cat.categories.to_numpy(dtype=object), "")
    codes = np.append(modules["name"].cat.codes.to_numpy(dtype=np.int64), len(paths) - 1)[row]
    is_backward, keys = are_named(operators["name"], _BACKWARD), ["process", "sequence"]
    has_sequence = operators["sequence"].notna().to_numpy()
    forward = operators[~is_backward & has_sequence].sort_values("start_ns").drop_duplicates(keys, keep="last")
    backward = operators.loc[is_backward & has_sequence, keys].reset_index()
    threads = backward.merge(forward[[*keys, "thread"]], on=keys).set_index("index")["thread"]
    forward_thread = threads.reindex(operators.index).astype(NULLABLE)
    return operators.assign(module=categorical(paths, codes), forward_thread=forward_thread)


def fold_ranges(ranges: pd.DataFrame) -> pd.DataFrame:
    """Give ranges of modules and functions their names and styles, and drop those that repeat others.

    The name of a module is its path in the model, or its class if no range of the process has paths.
    """
    # the domain is a column of texts, of which few are distinct
    domains, names = ranges["domain"].astype("category").cat, ranges["name"].cat
    codes, distinct = pd.factorize(domains.codes.to_numpy(dtype=np.int64) * (len(names.categories) + 1) + names.codes)
    domain, name = np.divmod(distinct, len(names.categories) + 1)
    texts = zip(domains.categories[domain], names.categories[name], strict=True)
    meanings = pd.DataFrame([_meaning(*text) for text in texts], columns=["domain", "name", "style", "source"])
    source, process = meanings["source"].to_numpy(dtype=object)[codes], ranges["process"].to_numpy()
    is_repeated = source == "repeats"
    for better, worse in (("path", "class"), ("step", "traced step")):
        is_repeated |= (source == worse) & np.isin(process, process[source == better])
    style = meanings["style"].to_numpy(dtype=object)[codes]
    folded: pd.DataFrame = ranges.assign(
        name=categorical(meanings["name"].to_numpy(dtype=object), codes),
        domain=categorical(meanings["domain"].to_numpy(dtype=object), codes),
        style=np.where(style == "", ranges["style"], style),
    )[~is_repeated]
    return folded


def _meaning(domain: str, name: str) -> tuple[str, str, str, str]:
    """Return the domain of a range, its name, its style ("" to keep it), and the source of the name."""
    for of_domain, pattern, new_name, style, source in _MEANINGS:
        if domain == of_domain and (match := pattern.fullmatch(name)):
            return "", match.expand(new_name), style, source
    return domain, name, "", ""


def cost_of_names(marks: pd.DataFrame) -> Finding | None:
    """Return the cost of module ranges as measured by the hook in the program; None if there is no hook.

    Of several processes, the one with the highest cost counts.
    """
    matches = [match for name in marks["name"].cat.categories if (match := _HOOK.fullmatch(name))]
    shares = [int(match["calls"]) * int(match["cost"]) / max(int(match["took"]), 1) for match in matches]
    if not shares:
        return None
    share, match = max(zip(shares, matches, strict=True), key=lambda pair: pair[0])
    level, levels = int(match["levels"]), int(match["of_levels"])
    outer = f"modules down to level {level} of {levels}"
    modules = "all modules" if level == levels else outer
    cost = format_value(int(match["cost"]), "cost_ns")
    detail = f"A range around a call of a module took {cost}, measured while the program ran."
    if level < levels:
        pct = 100 * int(match["of_calls"]) * int(match["cost"]) / max(int(match["took"]), 1)
        detail += f" With those of inner modules it would be {pct:.2g} %: more than the 2 % that --names auto allows."
    return Finding(
        "names",
        "info",
        f"Naming {modules} took {100 * share:.2g} % of the program's time" if level else "No module was named",
        detail,
        "To name none: --names off." if level == levels else "To name all: --names modules. To name none: --names off.",
    )


def _decoded(texts: pa.Array) -> "pd.Categorical[Any]":
    encoded = texts.dictionary_encode()
    values = np.array([decoded(text) for text in encoded.dictionary.to_pylist()], dtype=object)
    return categorical(values, np.asarray(encoded.indices, dtype=np.int64))


def _compact(sizes: str) -> str:
    """Return shapes as compact JSON; "" if the text is not a list of shapes."""
    try:
        shapes = json.loads(sizes or "null")
    except (ValueError, RecursionError):
        return ""
    are_valid = isinstance(shapes, list) and all(
        isinstance(shape, list) and all(isinstance(size, int) for size in shape) for shape in shapes
    )
    return sizes.replace(" ", "") if are_valid else ""
