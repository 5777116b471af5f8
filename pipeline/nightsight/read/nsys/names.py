"""What the names of NVTX ranges say that PyTorch or nsys made, not the program.

torch.autograd.profiler.emit_nvtx (`nsys --pytorch=autograd-nvtx` turns it on) opens a range for each operator, with all
that it knows in its name: `aten::mm, seq = 7, op_id = 12, sizes = [[8, 4], [4, 2]], input_op_ids = [(9,0), (3,0)]`. So
each name is unique: a capture has as many texts as operators, and they must not all become strings of Python. nsys's
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
from nightsight.tables import FUNCTION, MODULE, NULLABLE, categorical, innermost_of, renamed
from nightsight.units import format_value

# each part is optional; until torch 1.7 there is no op_id, and with shapes but without a number there is no name
_FACTS: Final = (
    r"(?:, seq = (?P<sequence>[0-9]{1,18}))?(?:, op_id = (?P<id>[0-9]+))?"
    r"(?:, sizes = (?P<sizes>\[[\[\], 0-9-]*\]))?(?:, input_op_ids = \[[(), 0-9-]*\])?$"
)
# a name without commas is the rule, and three times as fast: the C++ node CppNode<A, B> is the exception
_RULE: Final = f"^(?P<name>[^,]*){_FACTS}"
_EXCEPTION: Final = f"(?s)^(?P<name>.*?){_FACTS}"
# what has an op_id and nothing else is an annotation (torch.profiler.record_function), unless it is called like this
_OPERATOR: Final = re.compile(r".*::.*|.*Backward\d*|detach_?|record_param_comms", re.DOTALL)
_OPERATOR_ALONE: Final = re.compile(
    r"(?:aten|prim|torch::autograd)::\S.*|autograd::engine::evaluate_function: .*", re.DOTALL
)
_BACKWARD: Final = r"Backward\d*$"

OF_HOOK: Final = "nightsight: "
"""Begins what the hook in a program (workloads/injected/naming.py) notes for us."""
_HOOK: Final = re.compile(
    rf"{OF_HOOK}modules, (?P<levels>[0-9]+) of (?P<of_levels>[0-9]+) levels, (?P<calls>[0-9]+) of "
    r"(?P<of_calls>[0-9]+) calls, (?P<cost>[0-9]+) ns each in (?P<took>[0-9]+) ns"
)

OF_NSYS: Final = "PyTorch"
"""The domain of the functions that nsys traces."""
# domain and name of a range; what it is called, its style, and what says so
_MEANINGS: Final = tuple(
    (domain, re.compile(pattern, re.DOTALL), called, style, source)
    for domain, pattern, called, style, source in (
        ("", f"{OF_MODULE}(.+)", r"\1", MODULE, "path"),
        ("", r"Optimizer\.(?:step|zero_grad)#.*", r"\g<0>", FUNCTION, "step"),
        ("", r"torch\.autograd\.backward|enumerate\(DataLoader\)#.*", r"\g<0>", FUNCTION, ""),
        # our own hook measures what a range costs
        ("", f"{OF_HOOK}.*", "", FUNCTION, "repeats"),
        (OF_NSYS, r"torch\.optim\.(?:\w+\.)*(\w+\.step)", r"Optimizer.step#\1", FUNCTION, "traced step"),
        (OF_NSYS, r"torch\.nn\.modules\.(?:\w+\.)*(\w+)\.forward", r"\1", MODULE, "class"),
        # the forward function inside says which module is called, and operators say what functions do
        (OF_NSYS, r"torch\.nn\.modules\.(?:\w+\.)*Module\.__call__", "", FUNCTION, "repeats"),
        (OF_NSYS, r"torch\.(?:nn\.functional|Tensor)\..*", "", FUNCTION, "repeats"),
        (OF_NSYS, r"torch\.utils\.data\.(?:\w+\.)*?_?(\w+\.__next__)", r"\1", FUNCTION, ""),
        (OF_NSYS, ".*", r"\g<0>", FUNCTION, ""),
        ("", ".*", r"\g<0>", "", ""),
    )
)


class Names(NamedTuple):
    """Names of events without what is unique to each, and whether they are operators; of these, what else is known.

    shapes: compact JSON, "" if not recorded. sequence: missing if not recorded.
    """

    name: "pd.Categorical[Any]"
    is_operator: Flags
    shapes: "pd.Categorical[Any]"
    sequence: "pd.arrays.ArrowExtensionArray"


def understood(texts: pa.Array, of_torch: Flags) -> Names:
    """Take apart the names, given as bytes, that can be of torch; all others stay as they are."""
    found = pc.extract_regex(texts, _RULE)
    parts = {part: pc.struct_field(found, part) for part in ("name", "sequence", "id", "sizes")}
    if found.null_count:
        again = pc.extract_regex(texts.filter(pc.is_null(found)), _EXCEPTION)
        parts = {
            part: pc.replace_with_mask(column, pc.is_null(found), pc.struct_field(again, part))
            for part, column in parts.items()
        }
    name = _decoded(parts["name"])
    is_known, is_alone = (
        np.array([bool(pattern.fullmatch(text)) for text in name.categories], dtype=bool)[name.codes]
        for pattern in (_OPERATOR, _OPERATOR_ALONE)
    )
    numbered, counted, shaped = (
        np.asarray(pc.greater(pc.binary_length(parts[part]), 0), dtype=bool) for part in ("sequence", "id", "sizes")
    )
    is_operator = of_torch & (numbered | shaped | (counted & is_known) | is_alone)
    if not of_torch.all():
        name = _decoded(pc.if_else(pa.array(of_torch), parts["name"], texts))
    shapes = _decoded(pc.if_else(pa.array(is_operator), parts["sizes"], b""))
    sequence = pc.if_else(pa.array(is_operator & numbered), parts["sequence"], None)
    return Names(
        name,
        is_operator,
        renamed(pd.Series(shapes), lambda sizes: pd.Index([_compact(text) for text in sizes], dtype="str")),
        pd.arrays.ArrowExtensionArray(pc.cast(pc.cast(sequence, pa.string()), pa.int64())),
    )


def placed(operators: pd.DataFrame, modules: pd.DataFrame) -> pd.DataFrame:
    """Add the module that each operator was called in, and to those of a backward pass the thread of the forward pass.

    An operator of the forward pass has the same sequence number. Of several threads it is the last one that used it.
    """
    modules = modules.reset_index(drop=True)
    row = innermost_of(modules, *(operators[name].to_numpy() for name in ("thread", "start_ns")))
    values = np.append(modules["name"].cat.categories.to_numpy(dtype=object), "")
    codes = np.append(modules["name"].cat.codes.to_numpy(dtype=np.int64), len(values) - 1)[row]
    names, keys = operators["name"].cat, ["process", "sequence"]
    is_backward = np.asarray(names.categories.str.contains(_BACKWARD), dtype=bool)[names.codes]
    numbered = operators["sequence"].notna().to_numpy()
    forward = operators[~is_backward & numbered].sort_values("start_ns").drop_duplicates(keys, keep="last")
    backward = operators.loc[is_backward & numbered, keys].reset_index()
    found = backward.merge(forward[[*keys, "thread"]], on=keys).set_index("index")["thread"]
    thread = found.reindex(operators.index).astype(NULLABLE)
    return operators.assign(module=categorical(values, codes), forward_thread=thread)


def folded(ranges: pd.DataFrame) -> pd.DataFrame:
    """Name the ranges of modules and functions for what they are, and leave out those that repeat others.

    A module is called by its path in the model; where no range of the process tells paths, by its class.
    """
    # the domain is a column of texts, of which there are few
    domains, names = ranges["domain"].astype("category").cat, ranges["name"].cat
    codes, distinct = pd.factorize(domains.codes.to_numpy(dtype=np.int64) * (len(names.categories) + 1) + names.codes)
    domain, name = np.divmod(distinct, len(names.categories) + 1)
    texts = zip(domains.categories[domain], names.categories[name], strict=True)
    meant = pd.DataFrame([_meaning(*text) for text in texts], columns=["domain", "name", "style", "source"])
    source, process = meant["source"].to_numpy(dtype=object)[codes], ranges["process"].to_numpy()
    repeats = source == "repeats"
    for better, other in (("path", "class"), ("step", "traced step")):
        repeats |= (source == other) & np.isin(process, process[source == better])
    style = meant["style"].to_numpy(dtype=object)[codes]
    found: pd.DataFrame = ranges.assign(
        name=categorical(meant["name"].to_numpy(dtype=object), codes),
        domain=categorical(meant["domain"].to_numpy(dtype=object), codes),
        style=np.where(style == "", ranges["style"], style),
    )[~repeats]
    return found


def _meaning(domain: str, name: str) -> tuple[str, str, str, str]:
    """Return the domain of a range, what it is called, its style ("" for its own), and what says so."""
    for of, pattern, called, style, source in _MEANINGS:
        if domain == of and (found := pattern.fullmatch(name)):
            return "", found.expand(called), style, source
    return domain, name, "", ""


def cost_of_names(marks: pd.DataFrame) -> Finding | None:
    """Return what the hook in the program says of the ranges of modules that it made; None if it made none.

    Of several processes, the one in which they cost most.
    """
    told = [found for name in marks["name"].cat.categories if (found := _HOOK.fullmatch(name))]
    costs = [(int(found["calls"]) * int(found["cost"]) / max(int(found["took"]), 1), found) for found in told]
    if not costs:
        return None
    share, found = max(costs, key=lambda cost: cost[0])
    some, most = int(found["levels"]), int(found["of_levels"])
    what = "all modules" if some == most else f"modules down to level {some} of {most}" if some else "no module"
    every = 100 * int(found["of_calls"]) * int(found["cost"]) / max(int(found["took"]), 1)
    each = format_value(int(found["cost"]), "cost_ns")
    return Finding(
        "names",
        "info",
        f"Names of {what}, which cost {100 * share:.2g} % of the program's time" if some else f"Names of {what}",
        f"A range around the call of a module takes {each} here, measured while the program ran. With those of inner "
        f"modules it would be {every:.2g} %: more than the 2 % that --names auto allows."
        if some < most
        else f"A range around the call of a module takes {each} here, measured while the program ran.",
        "To name all of them: --names modules. To name none: --names off.",
    )


def _decoded(texts: pa.Array) -> "pd.Categorical[Any]":
    encoded = texts.dictionary_encode()
    values = np.array([decoded(text) for text in encoded.dictionary.to_pylist()], dtype=object)
    return categorical(values, np.asarray(encoded.indices, dtype=np.int64))


def _compact(sizes: str) -> str:
    """Return shapes as compact JSON; "" if these are none."""
    try:
        shapes = json.loads(sizes or "null")
    except (ValueError, RecursionError):
        return ""
    is_good = isinstance(shapes, list) and all(
        isinstance(shape, list) and all(isinstance(size, int) for size in shape) for shape in shapes
    )
    return sizes.replace(" ", "") if is_good else ""
