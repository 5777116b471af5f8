"""What the Triton kernels of torch.compile compute: operators, lines of the program, bytes and FLOP.

PyTorch's structured log has, for each compiled graph, the graph that Inductor receives (`inductor_post_grad_graph`:
each operator with its shape, below the line of the program that it comes from) and the code that Inductor writes from
it (`inductor_output_code`: the kernels, each with the nodes of the graph that it computes, and the calls of kernels
with their buffers). Both are logged by default, also when a graph comes from a cache.

Source text stays here: operators and functions are kept by name, files by their name without folders.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from math import prod
from pathlib import PureWindowsPath
from typing import Any, Final, NamedTuple

PROGRAM: Final = '"dynamo_output_graph"'
GRAPH: Final = '"inductor_post_grad_graph"'
CODE: Final = '"inductor_output_code"'
"""The entries that this reads, as the log names them."""

_GRAPH: Final = re.compile(
    r"^[ ]+\#[^\n]*?\bFile:[ ](?P<file>[^\n]+?):(?P<line>\d{1,9})[ ]in[ ](?P<function>[\w.<>]+),[ ]code:"
    r"|^[ ]+\#[ ](?P<nowhere>No[ ]stacktrace)"
    r'|^[ ]+(?P<node>\w+)(?::[ ]"(?P<type>\w+)\[(?P<shape>[^\]\n]*)\][^"\n]*")?[ ]=[ ]'
    r"(?:torch\.ops\.(?P<operator>[\w.]+)\((?P<arguments>[^\n]*))?"
    r'|\b(?P<input>\w+):[ ]"(?P<input_type>\w+)\[(?P<input_shape>[^\]\n]*)\]',
    re.MULTILINE | re.VERBOSE,
)
_CODE: Final = re.compile(
    r"^(?P<variable>\w+)[ ]=[ ]async_compile\.triton\('(?P<kernel>\w+)',[ ]'''(?P<body>.*?)^''',"
    r"|^[ ]*\#[ ][\w ]+[ ]Source[ ]Nodes:[ ]\[(?P<sources>[^\]\n]*)\],[ ]Original[ ]ATen:[ ]\[(?P<operators>[^\]\n]*)\]"
    r"|^\#[ ]{3}%(?P<node>\w+)[ ]:[^\n]*?=[ ]call_function\["
    r"|^\#[ ]AOT[ ]ID:[ ]\['\w*_(?P<backward>backward)'\]"
    r"|^[ ]+(?P<buffer>\w+)[ ]=[ ]empty_strided_\w+\((?P<shape>\([^)\n]*\))"
    r"|^[ ]+assert_size_stride\((?P<asserted>\w+),[ ](?P<asserted_shape>\([^)\n]*\))"
    r"|^[ ]+(?P<alias>\w+)[ ]=[ ](?P<value>\w+|reinterpret_tensor\([^\n]*?\));[ ]del"
    r"|^[ ]+(?P<called>\w+)\.run\((?P<arguments>[^\n]*)\)[ ]*$"
    r"|^[ ]+(?:\w+[ ]=[ ])?(?:extern_kernels|torch\.ops)\.",
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)
# calls with example values, as a text
_TUNING: Final = re.compile(r'^r?"""\s*Compile-time auto-tuning block.*?^"""', re.MULTILINE | re.DOTALL)
_VIEW: Final = re.compile(r"reinterpret_tensor\(\w+, (\([^)]*\))")
_SIZE: Final = re.compile(r" *\d{1,15} *")
_OPERATOR: Final = re.compile(r"[\w.]{1,80}")
_SIGNATURE: Final = re.compile(r"'signature': \{([^}]*)\}")
_POINTER: Final = re.compile(r"'(\w+)': '\*(?:fp|bf|i|u)(\d{1,3})")
_LENGTH: Final = re.compile(r"^ *([a-z]\d*_?)numel = (\d{1,18})$", re.MULTILINE)
_LOOP: Final = re.compile(r"'([a-z]\d*_?)numel'")
_LOADS, _STORES = "load", r"store|atomic_\w+"
# more elements, bytes or operations than a kernel has
_MOST: Final = 1 << 60
_MOST_DIMENSIONS: Final = 64
_LONGEST_CALL: Final = 1 << 16
# names in a text: a page shows fewer, and the file next to a capture has to stay small
_MOST_NAMED: Final = 15


def _each(names: str, operations: int) -> dict[str, int]:
    return dict.fromkeys(names.split(), operations)


# operations for each element of the result. None: views, copies, casts, choices, and random numbers, which are integers
_ELEMENTWISE: Final = {
    **_each(
        "_to_copy _unsafe_view alias arange as_strided cat clone constant_pad_nd convert_element_type copy copy_ "
        "detach device_put embedding empty empty_strided expand flip full full_like gather index index_put index_put_ "
        "index_select inductor_lookup_seed inductor_randint inductor_random inductor_seed inductor_seeds iota "
        "lift_fresh_copy masked_fill new_empty new_full new_zeros ones permute repeat reshape roll scalar_tensor "
        "scatter select select_scatter slice slice_scatter split split_with_sizes squeeze t transpose unbind unsqueeze "
        "view view_as_complex view_as_real where zeros",
        0,
    ),
    **_each(
        "abs acos acosh add asin asinh atan atan2 atanh ceil clamp clamp_max clamp_min cos cosh cumsum div erf erfc "
        "erfinv exp exp2 expm1 floor fma fmax fmin fmod hypot lgamma log log10 log1p log2 logaddexp maximum minimum "
        "mul neg pow reciprocal relu remainder round rsqrt rsub sigmoid sign sin sinh sqrt sub tan tanh trunc",
        1,
    ),
}
# for each element of the first input; a variance needs the mean, a difference, its square, and their sum
_REDUCTIONS: Final = {**_each("amax amin argmax argmin max mean min prod sum", 1), **_each("var var_mean", 4)}
# which argument is the first matrix
_PRODUCTS: Final = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}


class _GraphNode(NamedTuple):
    """An operator of a graph, or an input without one. place: `forward (model.py:42)`, "" if unknown.

    shape: None if it is not a tensor, or has a dynamic size.
    """

    place: str
    operator: str
    arguments: str
    type: str
    shape: tuple[int, ...] | None


class _Pointer(NamedTuple):
    """A tensor that a kernel gets: bytes of an element, and how many places in its code read and write it."""

    size: int
    loads: int
    stores: int


@dataclass
class _TritonKernel:
    """A kernel of one graph, and what its calls are for.

    nodes: what its first call computes. elements: the size of its loops, None if unknown. multiplies: whether it
    multiplies matrices; another one can have a product among its nodes whose bias it adds, or whose input it copies.
    traffic: the bytes read and written, of each different call.
    """

    name: str
    nodes: tuple[str, ...]
    pointers: tuple[_Pointer, ...]
    elements: int | None
    multiplies: bool
    calls: int = 0
    operators: dict[str, None] = field(default_factory=dict)
    places: dict[str, None] = field(default_factory=dict)
    traffic: set[tuple[int, int] | None] = field(default_factory=set)


_Graph = Mapping[str, _GraphNode]
_Row = tuple[str, str, str, int | None, int | None, int | None]


class FusedKernels:
    """The kernels of one process, from the entries of its log in their order."""

    def __init__(self) -> None:
        """Begin without kernels."""
        self._programs: dict[Any, _Graph] = {}
        self._graphs: dict[Any, _Graph] = {}
        self._rows: Counter[_Row] = Counter()

    def add(self, head: str, frame: object, text: str) -> None:
        """Add an entry: the line that says what it is, the number of the compiled frame, and its text."""
        if CODE in head:
            self._rows.update(_kernels_of(text, self._graphs.get(frame, {}), self._programs.get(frame, {})))
        elif GRAPH in head:
            self._graphs[frame] = _nodes_of(text)
        else:
            self._programs[frame] = _nodes_of(text)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of the table `fused_kernels`."""
        columns = ("name", "operators", "places", "read_bytes", "written_bytes", "flop")
        for row, graphs in self._rows.items():
            yield {**dict(zip(columns, row, strict=True)), "graphs": graphs}


# -- graphs ------------------------------------------------------------------------------------------------------------


def _nodes_of(text: str) -> _Graph:
    """Return the nodes of a graph as PyTorch prints it, by name."""
    nodes: dict[str, _GraphNode] = {}
    place = ""
    for match in _GRAPH.finditer(text):
        if match["file"]:
            place = f"{match['function']} ({PureWindowsPath(match['file']).name}:{match['line']})"
        elif match["nowhere"]:
            place = ""
        elif match["input"]:
            nodes.setdefault(match["input"], _GraphNode("", "", "", match["input_type"], _shape(match["input_shape"])))
        else:
            operator, arguments, kind = (match[name] or "" for name in ("operator", "arguments", "type"))
            shape = None if match["shape"] is None else _shape(match["shape"])
            # graphs inside a graph come later, and use names again
            nodes.setdefault(match["node"], _GraphNode(place, operator, arguments, kind, shape))
    return nodes


def _shape(text: str) -> tuple[int, ...] | None:
    """Return a shape, None if a size is not a number: `2, 16` or `(16, )`."""
    sizes = [size for size in text.strip("() ").split(",") if size.strip()]
    if len(sizes) > _MOST_DIMENSIONS or not all(_SIZE.fullmatch(size) for size in sizes):
        return None
    shape = tuple(int(size) for size in sizes)
    return shape if prod(shape) <= _MOST else None


# -- code --------------------------------------------------------------------------------------------------------------


def _kernels_of(text: str, graph: _Graph, program: _Graph) -> Iterator[_Row]:
    """Yield the kernels that the code of a graph calls. program: the graph of the Python code, before autograd."""
    kernels: dict[str, _TritonKernel] = {}
    sizes = {name: prod(node.shape) for name, node in graph.items() if node.shape is not None}
    is_backward, sources, operators, nodes = False, "", "", list[str]()
    for match in _CODE.finditer(_TUNING.sub("", text)):
        if match["backward"]:
            is_backward = True
        elif match["operators"] is not None:
            sources, operators, nodes = match["sources"], match["operators"], []
        elif match["node"]:
            nodes.append(match["node"])
        elif buffer := match["buffer"] or match["asserted"] or match["alias"]:
            value = match["shape"] or match["asserted_shape"] or match["value"]
            _set_size(sizes, buffer, _elements(value, sizes))
        else:
            # a definition, or a call: the comment before it is about it
            if match["variable"]:
                kernels[match["variable"]] = _kernel(match["kernel"], match["body"], nodes)
            elif match["called"] in kernels:
                kernel = kernels[match["called"]]
                names = sources.split(", ")
                exact = [graph[name].place for name in kernel.nodes if name in graph] if not kernel.calls else []
                if not any(exact):
                    exact = [_place_of(name, graph, program, is_backward=is_backward) for name in names]
                kernel.calls += 1
                kernel.places.update(dict.fromkeys(filter(None, exact)))
                kernel.operators.update(dict.fromkeys(filter(None, map(_short, operators.split(", ")))))
                kernel.traffic.add(_traffic(kernel, match["arguments"], sizes))
            sources, operators, nodes = "", "", []
    return (_row(kernel, graph) for kernel in kernels.values() if kernel.calls)


def _row(kernel: _TritonKernel, graph: _Graph) -> _Row:
    # a capture does not show which of these calls had which buffers, if their sizes differ
    traffic = kernel.traffic.pop() if len(kernel.traffic) == 1 else None
    read, written = traffic or (None, None)
    return kernel.name, _listed(kernel.operators), _listed(kernel.places), read, written, _flop(kernel, graph)


def _kernel(name: str, body: str, nodes: Iterable[str]) -> _TritonKernel:
    match = _SIGNATURE.search(body)
    signature = match[1] if match else ""
    pointers = []
    for argument, bits in _POINTER.findall(signature):
        accesses = (rf"\btl\.(?:{calls})\((?:tl\.make_block_ptr\()?{argument}\b" for calls in (_LOADS, _STORES))
        loads, stores = (len(re.findall(access, body)) for access in accesses)
        if not (loads or stores):
            # Inductor names arguments in_ptr0, out_ptr0 and in_out_ptr0
            loads, stores = int("out" not in argument or "in_out" in argument), int("out" in argument)
        pointers.append(_Pointer(max(int(bits) // 8, 1), loads, stores))
    lengths = _LENGTH.findall(body)
    # several kernels in one have one such length each; a dynamic one is not a number
    is_known = {name for name, _ in lengths} >= set(_LOOP.findall(signature)) and len(dict(lengths)) == len(lengths) > 0
    elements = prod(int(length) for _, length in lengths) if is_known else None
    return _TritonKernel(name, tuple(nodes), tuple(pointers), elements, "tl.dot" in body)


def _place_of(source: str, graph: _Graph, program: _Graph, *, is_backward: bool) -> str:
    """Return the place of a node in a comment: it has the name of its origin in the program.

    Nodes of the backward pass have none, so that their own name is used: one that means both things is unknown.
    """
    places = [nodes[source].place for nodes in (program, graph) if source in nodes and nodes[source].place]
    return places[0] if places and (len(set(places)) == 1 or not is_backward) else ""


def _short(operator: str) -> str:
    """Return the name of an operator: `gelu` for `aten.gelu`, but `prims.iota`."""
    return operator.removeprefix("aten.") if _OPERATOR.fullmatch(operator) else ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(islice(names, _MOST_NAMED))


# -- bytes -------------------------------------------------------------------------------------------------------------


def _set_size(sizes: dict[str, int], buffer: str, elements: int | None) -> None:
    if elements is None:
        sizes.pop(buffer, None)
    else:
        sizes[buffer] = elements


def _elements(value: str, sizes: Mapping[str, int]) -> int | None:
    """Return the number of elements of a shape, of a buffer, or of a view of one; None if unknown."""
    if view := _VIEW.search(value):
        value = view[1]
    if not value.startswith("("):
        return sizes.get(value)
    shape = _shape(value)
    return None if shape is None else prod(shape)


def _traffic(kernel: _TritonKernel, arguments: str, sizes: Mapping[str, int]) -> tuple[int, int] | None:
    """Return the least bytes that a call reads and writes: each element of its arguments once; None if unknown."""
    read, written, values = 0, 0, _split(arguments)
    if not kernel.pointers or len(values) < len(kernel.pointers):
        return None
    for pointer, value in zip(kernel.pointers, values, strict=False):
        elements = _elements(value, sizes)
        if elements is None:
            return None
        # a kernel that needs a part of a buffer accesses at most as many elements as its loops have
        loads, stores = (
            elements if kernel.elements is None else min(elements, places * kernel.elements)
            for places in (pointer.loads, pointer.stores)
        )
        read += pointer.size * loads * bool(pointer.loads)
        written += pointer.size * stores * bool(pointer.stores)
    return (read, written) if read + written <= _MOST else None


def _split(arguments: str) -> list[str]:
    """Return the arguments of a call."""
    depth, parts = 0, [""]
    for character in arguments[:_LONGEST_CALL]:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


# -- FLOP --------------------------------------------------------------------------------------------------------------


def _flop(kernel: _TritonKernel, graph: _Graph) -> int | None:
    """Return the floating-point operations of a call; None if an operator is not known."""
    if not kernel.nodes:
        return None
    total = 0
    for name in kernel.nodes:
        flop = _flop_of(graph[name], graph, kernel) if name in graph else None
        if flop is None:
            return None
        total += flop
    return total if total <= _MOST else None


def _flop_of(node: _GraphNode, graph: _Graph, kernel: _TritonKernel) -> int | None:
    """Return the operations for one node, of which the loops of the kernel may compute only a part."""
    operator = node.operator.removeprefix("aten.").removeprefix("prims.").partition(".")[0]
    if not operator or _ELEMENTWISE.get(operator) == 0:
        return 0
    inputs = [graph.get(name) for name in _split(node.arguments.partition(")")[0])]
    if operator in _PRODUCTS:
        left = inputs[_PRODUCTS[operator]] if len(inputs) > _PRODUCTS[operator] else None
        inner = left.shape[-1] if left and left.shape else None
        return None if inner is None or node.shape is None or not kernel.multiplies else 2 * prod(node.shape) * inner
    of = inputs[0] if operator in _REDUCTIONS else node
    each = _REDUCTIONS.get(operator, _ELEMENTWISE.get(operator))
    if of is None or of.shape is None or each is None:
        return None
    # comparisons and integers are not floating-point
    is_floating = of.type.startswith(("f", "bf"))
    elements = prod(of.shape) if kernel.elements is None else min(prod(of.shape), kernel.elements)
    return each * elements * is_floating
