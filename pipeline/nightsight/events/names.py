"""NVIDIA's names of CUDA functions and GPU operations."""

from collections.abc import Iterable
from typing import Any, Final

import pandas as pd

GRAPH: Final = "[CUDA graph]"


def operation_names(operations: Iterable[str]) -> list[str]:
    """Return NVIDIA's names of copies and memsets: `[CUDA memcpy Host-to-Device]`, `[CUDA memset]`."""
    return ["[CUDA memset]" if text == "memset" else f"[CUDA memcpy {text}]" for text in operations]


def api_names(names: "pd.Index[Any]") -> "pd.Index[Any]":
    """Strip the CUDA version that CUPTI appends to entry points (`_v3020`, `_v11060`), not their ABI suffix (`_v2`).

    The tables of `nsys stats` strip exactly four characters (see nightsight.stats.summary).
    """
    return names.str.replace(r"_v\d{4,}$", "", regex=True)
