"""Formats numbers for display: the unit is the suffix of the column name, the scale depends on the value."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_MOST_RANKS: Final = 8
SUFFIXES: Final = (
    "bytes_per_s",
    "flop_per_s",
    "op_per_s",
    "flop_per_byte",
    "op_per_byte",
    "per_s",
    "bytes",
    "flop",
    "op",
    "pct",
    "ns",
    "hz",
)

SCALES: Final[dict[str, tuple[tuple[float, str], ...]]] = {
    "ns": ((1, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")),
    "bytes": ((1, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB")),
    "flop": ((1, "FLOP"), (1e3, "kFLOP"), (1e6, "MFLOP"), (1e9, "GFLOP"), (1e12, "TFLOP"), (1e15, "PFLOP")),
    "bytes_per_s": ((1, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s"), (1e12, "TB/s")),
    "flop_per_s": (
        (1, "FLOP/s"),
        (1e3, "kFLOP/s"),
        (1e6, "MFLOP/s"),
        (1e9, "GFLOP/s"),
        (1e12, "TFLOP/s"),
        (1e15, "PFLOP/s"),
    ),
    # also for integer arithmetic
    "op": ((1, "OP"), (1e3, "kOP"), (1e6, "MOP"), (1e9, "GOP"), (1e12, "TOP"), (1e15, "POP")),
    "op_per_byte": ((1, "OP/byte"),),
    "op_per_s": ((1, "OP/s"), (1e3, "kOP/s"), (1e6, "MOP/s"), (1e9, "GOP/s"), (1e12, "TOP/s"), (1e15, "POP/s")),
    "flop_per_byte": ((1, "FLOP/byte"),),
    "per_s": ((1, "/s"), (1e3, "k/s"), (1e6, "M/s")),
    "hz": ((1, "Hz"), (1e3, "kHz"), (1e6, "MHz"), (1e9, "GHz")),
    "pct": ((1, "%"),),
    "": ((1, ""),),
}
DIGITS: Final = 4
DIGITS_IN_TEXT: Final = 3
MOST_DECIMALS: Final = 3
ABSENT: Final = "–"
MINUS: Final = "\N{MINUS SIGN}"
_SLIVERS: Final = ("<", f">{MINUS}")
_ACRONYMS: Final = (
    "api",
    "cpu",
    "gpu",
    "sm",
    "dram",
    "l1",
    "l2",
    "fp64",
    "fp32",
    "fp16",
    "flop",
    "op",
    "mio",
    "imc",
    "lg",
    "kv",
)
_WORDS: Final = {
    **{word: word.upper() for word in _ACRONYMS},
    "med": "median",
    "stddev": "std dev",
    "pcie": "PCIe",
    "nvlink": "NVLink",
}


@dataclass(frozen=True)
class Scale:
    """How to display a value: what to divide it by, the unit symbol, and the number of decimals."""

    divisor: float
    symbol: str
    decimals: int

    def format(self, value: float | None) -> str:
        """Format `value` without its unit; a missing one as an en dash. Only zero reads as zero."""
        if value is None or not math.isfinite(value):
            return ABSENT
        if value == 0:
            return "0"
        scaled, least = value / self.divisor, 10.0**-self.decimals
        if 0 < abs(scaled) < least / 2:
            return f"{_SLIVERS[int(value < 0)]}{least:.{self.decimals}f}"
        return _with_minus(f"{scaled:,.{self.decimals}f}")

    def with_unit(self, value: float | None) -> str:
        """Format `value` with its unit."""
        text = self.format(value)
        return text if text == ABSENT else f"{text} {self.symbol}".rstrip()


@lru_cache(maxsize=1024)
def split(column: str) -> tuple[str, str]:
    """Split a column name into stem and unit: `api_total_ns` is (`api_total`, `ns`).

    The name of a rate may be all suffix: `flop_per_s` is (`flop_per_s`, `flop_per_s`).
    """
    for suffix in SUFFIXES:
        if column == suffix and "_per_" in suffix:
            return column, suffix
        if column.endswith("_" + suffix):
            return column[: -len(suffix) - 1], suffix
    return column, ""


def arithmetic(name: str, kinds: Iterable[str]) -> str:
    """Return a unit or column of floating-point operations, or that of operations if any type is an integer type.

    `flop_per_s` is `op_per_s` for INT8.
    """
    return of_operations(name) if any("INT" in kind for kind in kinds) else name


def of_operations(column: str) -> str:
    """Return the name of a column of floating-point operations if some operations are on integers."""
    unit = split(column)[1]
    return f"{column.removesuffix(unit)}{unit.replace('flop', 'op')}"


def heading(column: str) -> str:
    """Turn a column name into words: `api_med_ns` is `API median`."""
    words = " ".join(_WORDS.get(word, word) for word in split(column)[0].split("_"))
    return words[:1].upper() + words[1:]


def scale_for(unit: str, values: Iterable[float], digits: int = DIGITS) -> Scale:
    """Choose one scale for a whole column, by the median of its absolute values, so that rows are easy to compare."""
    sizes = sorted(abs(value) for value in values if value and math.isfinite(value))
    typical = sizes[len(sizes) // 2] if sizes else 0.0
    divisor, symbol = SCALES[unit][0]
    for candidate, name in SCALES[unit]:
        if (typical >= candidate or _suits(candidate, sizes)) and _spares_rates(unit, candidate, sizes):
            divisor, symbol = candidate, name
    return Scale(divisor, symbol, _decimals(unit, divisor, sizes, digits))


def format_value(value: float | None, column: str) -> str:
    """Format one number with its unit, at the scale that suits it best."""
    return ABSENT if value is None else scale_for(split(column)[1], [value]).with_unit(value)


def in_text(value: float | None, column: str) -> str:
    """Format one number with its unit and three digits, for sentences and pictures: tables have more."""
    if value is None:
        return ABSENT
    return scale_for(split(column)[1], [value], DIGITS_IN_TEXT).with_unit(value)


def signed(value: float, decimals: int = 1) -> str:
    """Format a change with its sign: `+4.1`."""
    return _with_minus(f"{value:+,.{decimals}f}")


def difference(value: float, column: str) -> str:
    """Format a difference with its sign and unit, at the scale that suits it best: `+3.420 µs`."""
    return f"{'+' if value > 0 else ''}{format_value(value, column)}"


def counted(number: float, noun: str, plural: str = "") -> str:
    """Format a count with its noun: `1 kernel`, `1,224 kernels`, `2 copies`, `3 launches`.

    plural: if it is not regular, as in "rank is" and "ranks are".
    """
    if number != 1:
        regular = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}{'es' if noun.endswith('ch') else 's'}"
        noun = plural or regular
    return f"{number:,.0f} {noun}"


def format_cell(value: float | None, column: str, *, scale: Scale) -> str:
    """Format a number at its column's scale without the unit, or at its own scale with unit instead of `<0.001`."""
    text = scale.format(value)
    if not text.startswith(_SLIVERS):
        return text
    own = format_value(value, column)
    return text if own.startswith(_SLIVERS) else own


def _with_minus(number: str) -> str:
    return number.replace("-", MINUS)


def _suits(divisor: float, sizes: list[float]) -> bool:
    """Whether a larger unit shortens the largest numbers of a column and still shows the smallest one.

    If the largest is at least 1000 of the larger unit, the smallest does not matter: it gets its own unit.
    """
    least = 10.0**-MOST_DECIMALS
    return bool(sizes) and (sizes[-1] >= 1000 * divisor or (sizes[-1] >= 10 * divisor and sizes[0] >= least * divisor))


def _spares_rates(unit: str, divisor: float, sizes: list[float]) -> bool:
    """Whether a unit preserves the digits of the smallest rate in a column, or is needed to shorten the largest.

    Rates are not parts of a sum: the small ones matter as much as the large ones.
    """
    return not _is_rate(unit) or not sizes or sizes[0] >= divisor / 10 or sizes[-1] >= 100 * divisor


def _decimals(unit: str, divisor: float, sizes: list[float], digits: int) -> int:
    """Return how many decimals give the typical value these digits and the smallest one (rates: three); at most 3.

    Numbers without a unit, such as means of counts, have three at most.
    """
    if unit == "pct":
        return 1
    if not sizes or (divisor == 1 and all(size == int(size) for size in sizes)):
        return 0
    typical, smallest = _magnitude(sizes[len(sizes) // 2] / divisor), _magnitude(sizes[0] / divisor)
    least = 2 if _is_rate(unit) else 0
    digits = digits if unit else min(digits, DIGITS_IN_TEXT)
    return min(max(digits - 1 - typical, least - smallest, 0), MOST_DECIMALS)


def _is_rate(unit: str) -> bool:
    return unit.endswith("per_s")


def _magnitude(value: float) -> int:
    """Return the decimal exponent: 0 for 1 to 9.99."""
    return math.floor(math.log10(value))


def format_ranks(ranks: Sequence[int], count: int = 0) -> str:
    """Name ranks, `count` in all: "Rank 3", "Ranks 0 and 1", "Ranks 0, 2, 5 and 7 more"."""
    names, more = [str(rank) for rank in ranks[:_MOST_RANKS]], max(count, len(ranks)) - min(len(ranks), _MOST_RANKS)
    if len(names) == 1 and not more:
        return f"Rank {names[0]}"
    last = f"{more:,} more" if more else names.pop()
    return f"Ranks {', '.join(names)} and {last}"
