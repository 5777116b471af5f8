"""Normalizes kernel names: nsys, ncu, torch.profiler and c++filt spell the name of one kernel differently.

They differ in casts (`(int)4`, `4`), booleans (`(bool)0`, `false`), suffixes (`3ul`), unnamed namespaces, lambdas,
spaces, the place of `const`, return types, and whether template parameters are written `T1` or in full. For a column
of names: `renamed(frame["name"], lambda names: names.map(normalized))` of nightsight.tables.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

_PEERS: Final = (
    "nccl|nvshmem|mscclpp|deep_ep|pplx|mori::|userbuffers|multimem|mnnvl|cross_device_reduce|all_?reduce|all_?gather|"
    "reduce_?scatter|all_?to_?all|all2all|moe_?a2a"
)
_ANY_CASE: Final = re.sub("[a-z]", lambda letter: f"[{letter[0]}{letter[0].upper()}]", _PEERS)
# torch.compile names its Triton kernels after the fused operators, even communicating ones, but these kernels do not
# communicate
NO_PEERS: Final = f"(?!(?!triton_[a-z]+_fused).*(?:{_ANY_CASE}))"
"""The start of an expression that excludes communicating kernels by name; valid in Python and in ECMAScript."""


def normalized(name: str) -> str:
    """Return the normalized spelling of a kernel's name: equal for one kernel, different for different kernels.

    Keeps namespaces, template arguments, lambda numbers, and the parameters of functions that are not templates, which
    distinguish overloads. Drops return types, parameters of templates, versions of inline namespaces (`std::__4`,
    `cub::CUB_200800_SM_900_NS`) and the random token that numba adds in each process. Idempotent; names that are not
    C++ keep their spelling, except for white space.
    """
    return _settle(name, qualified=True)


def unqualified(name: str) -> str:
    """Return `normalized(name)` without namespaces: the only spelling that ncu's CSV and nsys have in common.

    By default, ncu prints only as much of each namespace as is needed to distinguish the kernels of a report
    (`at::native::copy` is `native::copy` in one file and `at::copy` in another; `--rename-kernels no` prints all).
    Kernels that differ only in the namespace collide here.
    """
    return _settle(name, qualified=False)


def communicates(name: str) -> bool:
    """Whether a kernel's name shows that it communicates, and so waits for peers on other GPUs."""
    return re.match(NO_PEERS, name) is None


@lru_cache(maxsize=16_384)
def base_name(name: str) -> str:
    """Return the name of the function without namespaces, template arguments and parameters."""
    base = _BASE.match(unqualified(name))
    return (base[0] if base else "") or name


_BASE: Final = re.compile(r"[^<(]*")
# numba: cudapy::module::function[abi:v1][abi:<token>](...), mangled or not, before 0.57 function$241
_NUMBA: Final = re.compile(r"^(_ZN6cudapy.*?)B2v\d+B(\d+)")
_NUMBA_NUMBER: Final = re.compile(r"^(cudapy::[\w:]+)\$\d+(?=\(|$)")
_SPELLINGS: Final = (
    (re.compile(r"\(anonymous namespace\)|\{anonymous\}|<unnamed>|(?<![<\w])unnamed>\s*(?=::)"), "<unnamed>"),
    (re.compile(r"\b_GLOBAL__N__?\w*\s*(?=::)"), "<unnamed>"),
    (re.compile(r"\boperator\s*\(\s*\)"), "operator()"),
    # a trailing return type
    (re.compile(r"^((?:\w+ )*auto .*\)) *-> .*$", re.DOTALL), r"\1"),
)
_WORD: Final = re.compile(r"<unnamed>|operator\(\)|[\w$.~@?]+|::|\s+|.", re.DOTALL)
_NUMBER: Final = re.compile(r"(\d+)(?:[uU]?[lL]{0,2}|[lL]{1,2}[uU])")
_VERSION: Final = re.compile(r"__\d+|__cxx11|(?:CUB|THRUST)_\d\w*")
# ends and beginnings of names that need a space between them
_ENDS: Final = re.compile(r"[\w$.~@?>)\]}]$")
_BEGINS: Final = re.compile(r"[\w$.~@?<{]")
_CLOSING: Final = {"(": ")", "<": ">", "[": "]", "{": "}"}
_WORDS: Final = {"true": "1", "false": "0"}


@dataclass
class _Token:
    """A word or symbol, or a bracket with its content, split at commas."""

    text: str
    items: "list[list[_Token]] | None" = None

    @property
    def is_word(self) -> bool:
        return self.items is None and (self.text == "<unnamed>" or self.text[0] in "_$~" or self.text[0].isalnum())


@dataclass
class _Name:
    """A qualified name: its components, each with the brackets after it (`a::f<int>(T1)` has two components)."""

    components: list[list[_Token]] = field(default_factory=lambda: [[]])

    def is_scope_of_function(self) -> bool:
        return any(part.text == "(" for component in self.components[:-1] for part in component)

    def is_function(self) -> bool:
        """Whether it has parameters, or at least template arguments; `[clone .cold]` may follow."""
        own = [part for part in self.components[-1] if part.text != "["]
        return len(own) > 1 and own[-1].text in "(<"


_CONST: Final = [[_Token("const")]]
# the text that may follow the parameters of a function
_AFTER: Final = [[[_Token(word)]] for word in ("const", "volatile", "noexcept", "&")]


class _NotCpp(ValueError):
    """Brackets do not match, so this is not a C++ name."""


@lru_cache(maxsize=16_384)
def _settle(name: str, *, qualified: bool) -> str:
    """Normalize repeatedly until nothing changes: one step may reveal another (`(int)(bool)1`)."""
    try:
        # terminates: each round either makes the name shorter or moves `const` to the front
        while (settled := _settle_step(name, qualified=qualified)) != name:
            name = settled
    except (_NotCpp, RecursionError):
        return " ".join(name.split())
    return settled


def _without_token(name: str) -> str:
    """Remove numba's random token from a name."""
    mangled = _NUMBA.match(name)
    if mangled:
        return mangled[1] + name[mangled.end() + int(mangled[2]) :]
    return _NUMBA_NUMBER.sub(r"\1", name)


def _settle_step(name: str, *, qualified: bool) -> str:
    name = _without_token(name.lstrip(": "))
    for pattern, spelling in _SPELLINGS:
        name = pattern.sub(spelling, name)
    items = _parse(iter(_WORD.findall(name)), "")
    return ",".join(_write(item, qualified=qualified, whole=True) for item in items)


def _parse(words: Iterator[str], closing: str) -> list[list[_Token]]:
    """Parse up to `closing`; _NotCpp if another bracket closes first, or it is missing."""
    items: list[list[_Token]] = [[]]
    for word in words:
        if word == closing:
            return items
        if word in ")>]}":
            raise _NotCpp
        if word in _CLOSING:
            items[-1].append(_Token(word, _parse(words, _CLOSING[word])))
        elif word == ",":
            items.append([])
        elif not word.isspace():
            items[-1].append(_Token(word))
    if closing:
        raise _NotCpp
    return items


def _write(parts: list[_Token], *, qualified: bool, whole: bool = False) -> str:
    """Format one item of a list: a type, a value, or (`whole`) the name of the kernel itself."""
    names = _without_return_type(_group(_uncast(parts)), whole=whole)
    texts = [_write_name(name, qualified=qualified, whole=whole) for name in names]
    written = ""
    for text in _const_first(texts):
        written += f" {text}" if _ENDS.search(written) and _BEGINS.match(text) else text
    return written


def _uncast(parts: list[_Token]) -> list[_Token]:
    """Drop the type of a cast: `(int)4` becomes `4`."""
    if len(parts) > 1 and parts[0].text == "(" and (parts[1].text in "-(" or parts[1].is_word):
        return parts[1:]
    return parts


def _group(parts: list[_Token]) -> list[_Name]:
    """Join the parts of each qualified name; a symbol (`*`, `&`, `...`) is a separate name."""
    names: list[_Name] = []
    is_open = False
    for position, part in enumerate(parts):
        following = parts[position + 1].text if position + 1 < len(parts) else ""
        if part.text == "::":
            # `::a` is the same as `a`
            if names and names[-1].components[-1] and names[-1].components != _CONST:
                names[-1].components.append([])
            else:
                names.append(_Name())
            is_open = True
        elif is_open or _continues(part, names, following):
            names[-1].components[-1].append(part)
            is_open = False
        else:
            names.append(_Name([[part]]))
    return names


def _continues(part: _Token, names: list[_Name], following: str) -> bool:
    """Whether a part belongs to the name before it: a bracket, or the `const` of a method that is a scope."""
    last = names[-1].components[-1][-1] if names and names[-1].components[-1] else None
    if last is None:
        return False
    if part.text == "const":
        return last.text == "(" and following == "::"
    return part.items is not None and part.text != "{" and (last.is_word or last.items is not None)


def _without_return_type(names: list[_Name], *, whole: bool) -> list[_Name]:
    while whole and len(names) > 1 and names[-1].components in _AFTER:
        names = names[:-1]
    last = names[-1] if names else _Name()
    if last.is_scope_of_function() or (whole and last.is_function()):
        return [last]
    is_void = whole and len(names) > 1 and names[0].components == [[_Token("void")]]
    return names[1:] if is_void else names


def _const_first(texts: list[str]) -> list[str]:
    """Move `const` to the front: `float const*` becomes `const float*`."""
    pointee = next((place for place, text in enumerate(texts) if text in ("*", "&")), len(texts))
    if "const" in texts[1:pointee]:
        others = [text for text in texts[:pointee] if text != "const"]
        return ["const", *others, *texts[pointee:]]
    return texts


def _write_name(name: _Name, *, qualified: bool, whole: bool) -> str:
    if not all(parts and (parts[0].is_word or parts[0].items is not None) for parts in name.components[1:]):
        raise _NotCpp
    components = [part for part in name.components[:-1] if not _is_version(part)] + name.components[-1:]
    if not qualified:
        first = next((place for place, parts in enumerate(components) if len(parts) > 1), len(components) - 1)
        components = components[first:]
    last = len(components) - 1
    return "::".join(
        _write_component(parts, qualified=qualified, is_function=place < last or whole)
        for place, parts in enumerate(components)
    )


def _is_version(parts: list[_Token]) -> bool:
    return len(parts) == 1 and parts[0].items is None and bool(_VERSION.fullmatch(parts[0].text))


def _write_component(parts: list[_Token], *, qualified: bool, is_function: bool) -> str:
    """Format a component without ABI tags, and for template functions without parameters."""
    texts: list[str] = []
    for place, part in enumerate(parts):
        is_tag = part.text == "[" and place > 0
        if not is_tag and not (is_function and part.text == "(" and place > 0 and parts[place - 1].text == "<"):
            texts.append(_write_part(part, qualified=qualified))
    return "".join(texts)


def _write_part(part: _Token, *, qualified: bool) -> str:
    if part.items is None:
        number = _NUMBER.fullmatch(part.text)
        return number[1] if number else _WORDS.get(part.text, part.text)
    instance = _instance(part)
    items = [item[:-1] for item in part.items] if instance else part.items
    inside = ",".join(_write(item, qualified=qualified) for item in items)
    return f"{{{inside}#{instance}}}" if instance else f"{part.text}{inside}{_CLOSING[part.text]}"


def _instance(part: _Token) -> str:
    """Return N in `[lambda(int) (instance N)]`, which nvcc writes; other tools write `{lambda(int)#N}`."""
    if part.text != "[" or not part.items or len(part.items) != 1 or not part.items[0]:
        return ""
    last = part.items[0][-1]
    words = [inner.text for inner in last.items[0]] if last.items else []
    return words[1] if len(words) == 2 and words[0] == "instance" else ""
