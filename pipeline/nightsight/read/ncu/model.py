"""Functions that the readers of ncu reports and of CSV pages share: units, markup of rules, NVTX ranges, and tables."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from nightsight.model.report import Environment, Profile
from nightsight.read.vocabulary import list_gpus
from nightsight.tables import TABLES, Frame, conform, empty, nullable_integers

METRIC_COLUMNS: Final = list(TABLES["kernel_metrics"])
_PREFIXES: Final = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_NANOSECONDS: Final = {"n": 1.0, "u": 1e3, "m": 1e6, "": 1e9}
_TIME: Final = re.compile(r"([num]?)s(?:econds?)?")
_SCALED: Final = re.compile(r"([KMGTPE]?)(bytes?|hz)", re.IGNORECASE)
_BASES: Final = {"byte": "byte", "bytes": "byte", "hz": "hz"}

_LINK: Final = re.compile(r"@(?:section:[^:@]*|sass:[^:@]*|source:[^@]*:\d+):([^@]*)@")
_URL: Final = re.compile(r"@url:([^:@]*):([^@]*)@")
_PATH: Final = re.compile(r"(?<![\w:/.])(?:[A-Za-z]:)?[\\/](?:[^\s\\/:\"']+[\\/])+([^\s\\/:\"']+)")

_DEFAULT_DOMAIN: Final = "<default domain>"
_NO_TIMELINE: Final = "ncu replays kernels one by one, so it has no timeline; nsys and torch.profiler record one"
_ATTRIBUTE: Final = "device__attribute_"


def base_unit(unit: str) -> tuple[float, str]:
    """Return the factor that converts a value in a unit of ncu to its base unit, and that base unit.

    `Kbyte` is (1000, `byte`), `sector/ns` is (1e9, `sector/s`), `usecond` is (1000, `ns`). For `%/Kbyte` ncu
    multiplies by 1000 where one would divide; we do the same, to get what ncu itself prints as `%/byte`.
    """
    numerator, slash, denominator = unit.partition("/")
    factor, base = _base(numerator)
    if not slash:
        return factor, base
    time = _TIME.fullmatch(denominator)
    if time:
        factor, denominator = factor * 1e9 / _NANOSECONDS[time[1]], "s"
    else:
        scale, denominator = _base(denominator)
        factor *= scale
    return factor, "hz" if (base, denominator) == ("cycle", "s") else f"{base}/{denominator}"


def _base(unit: str) -> tuple[float, str]:
    if time := _TIME.fullmatch(unit):
        return _NANOSECONDS[time[1]], "ns"
    if scaled := _SCALED.fullmatch(unit):
        return _PREFIXES[scaled[1].upper()], _BASES[scaled[2].lower()]
    return 1.0, unit


def plain_message(markup: str) -> str:
    """Return a rule's message as ncu prints it: links as their text, URLs in parentheses, files without folders."""
    return file_names_only(_LINK.sub(r"\1", _URL.sub(r"\1 (\2)", markup)))


def file_names_only(text: str) -> str:
    """Remove the folders from all absolute paths in a text."""
    return _PATH.sub(r"\1", text)


def clean(text: str | None) -> str:
    """Replace invalid UTF-8, since ncu stores names as the bytes of the program; "" if the text is absent."""
    return (text or "").encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def range_path(ranges: Iterable[tuple[str, str]]) -> str:
    """Join the (domain, name) of the ranges around a launch, outermost first: `step / library:forward`."""
    return " / ".join(name if domain in ("", _DEFAULT_DOMAIN) else f"{domain}:{name}" for domain, name in ranges)


def in_base_units(metrics: Frame) -> Frame:
    """Convert `value` and `unit` of each row; drop rows with neither number nor text, which were not collected.

    Infinite values, which ncu writes for some ratios with denominator 0, count as missing.
    """
    units = metrics["unit"].astype("category")
    bases = [base_unit(unit) for unit in units.cat.categories]
    codes = units.cat.codes.to_numpy()
    factors, names = (pd.Series([base[place] for base in bases], dtype=object).to_numpy() for place in (0, 1))
    converted = metrics.assign(value=metrics["value"] * factors[codes].astype("float64"), unit=names[codes])
    converted = converted.assign(value=converted["value"].where(np.isfinite(converted["value"])))
    return converted[converted["value"].notna() | (converted["text"] != "")]


def ncu_profile(tables: Mapping[str, Frame], missing: Mapping[str, str], environment: Environment) -> Profile:
    """Build a profile from ncu's tables; devices come from the metrics, and all other tables are missing."""
    tables = {name: conform(name, frame) for name, frame in tables.items()}
    reasons = {name: missing.get(name, _NO_TIMELINE) for name in TABLES if name not in tables}
    devices = _device_attributes(tables["profiled_launches"], tables["kernel_metrics"])
    if devices.empty:
        reasons["devices"] = "the report names no GPU"
    else:
        del reasons["devices"]
        tables["devices"] = devices
    return Profile(tables, reasons, replace(environment, gpu=list_gpus(tables)))


def _device_attributes(launches: Frame, metrics: Frame) -> Frame:
    """Return one row per device that a launch ran on, from the device attributes that ncu stores with each launch."""
    names = metrics["metric"].astype("str")
    attributes = metrics[names.str.startswith(_ATTRIBUTE) & (metrics["instance"] == "")]
    if attributes.empty:
        return empty("devices")
    attributes = attributes.assign(
        attribute=attributes["metric"].astype("str").str.removeprefix(_ATTRIBUTE),
        device=launches.set_index("launch")["device"].reindex(attributes["launch"]).to_numpy(),
    )
    first = attributes.drop_duplicates(["device", "attribute"])
    numbers = first.pivot_table(index="device", columns="attribute", values="value", observed=True)
    numbers = numbers.reindex(pd.Index(first["device"].unique(), name="device"))
    texts = first[first["attribute"] == "display_name"].set_index("device")["text"].astype("str")
    capability = launches.drop_duplicates("device").set_index("device")["compute_capability"].astype("str")
    frame = empty("devices").reindex(range(len(numbers))).assign(device=numbers.index, uuid="")
    columns = {
        "multiprocessors": ("multiprocessor_count", 1),
        "memory_bytes": ("total_memory", 1),
        "l2_bytes": ("l2_cache_size", 1),
        "clock_hz": ("clock_rate", 1000),
    }
    if {"memory_clock_rate", "global_memory_bus_width"} <= set(numbers):
        # kHz and bits; DRAM moves data on both edges of its clock
        bandwidth = numbers["memory_clock_rate"] * 1000 * 2 * numbers["global_memory_bus_width"] / 8
        frame = frame.assign(memory_bandwidth_bytes_per_s=nullable_integers(bandwidth.to_numpy()))
    for column, (attribute, factor) in columns.items():
        if attribute in numbers:
            frame = frame.assign(**{column: nullable_integers((numbers[attribute] * factor).to_numpy())})
    frame = frame.assign(
        name=texts.reindex(numbers.index).fillna("").to_numpy(),
        compute_capability=capability.reindex(numbers.index).fillna("").to_numpy(),
    )
    return conform("devices", frame)
