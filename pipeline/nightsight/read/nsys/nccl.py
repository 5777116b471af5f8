"""Reads what NCCL is called with: its ranges have the communicator and the size of the message as a payload.

An export holds payloads as JSON if it was made with --include-json=true. How long a communicator has existed does not
matter for its calls, but its size and this process's rank in it are told only by the range of the call that makes it.
"""

import json
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.read.nsys.export import Export
from nightsight.tables import NULLABLE, conform, nullable_integers

NCCL: Final = "NCCL"
"""The domain of these ranges."""
# how PyTorch calls what NCCL calls ...; a broadcast in place has its own name
_CALLS: Final = {
    "ncclAllReduce": "allreduce",
    "ncclAllGather": "allgather",
    "ncclReduceScatter": "reduce_scatter",
    "ncclBroadcast": "broadcast",
    "ncclBcast": "broadcast",
    "ncclReduce": "reduce",
    "ncclAlltoAll": "all_to_all",
    "ncclGather": "gather",
    "ncclScatter": "scatter",
    "ncclSend": "send",
    "ncclRecv": "recv",
}
_GROUP, _BYTES, _SIZE, _RANK = "NCCL communicator ID", "Message size [bytes]", "No. of ranks", "Rank"
_PEER: Final = "Peer rank"
_LARGEST: Final = 1 << 62

Frame = pd.DataFrame


def nccl_tables(export: Export, source: str, ranges: Frame) -> dict[str, Frame]:
    """Return the collectives, sends and receives among these ranges of `source`, and the ranks; {} without payloads.

    bytes: what this rank gives. NCCL tells the part that each rank ends up with of a reduce-scatter, and what a rank
    gives in all else. A rank is that in the largest communicator. A capture is of one machine.
    """
    if not len(ranges):
        return {}
    payloads = _payloads(export, source, ranges)
    if payloads is None:
        return {}
    told = ranges.assign(**payloads)
    made = told.dropna(subset=["size", "rank"]).drop_duplicates(["process", "group"], keep="last")
    of_group = made.set_index(["process", "group"])[["size", "rank"]]
    name = told["name"].astype("str").map(_CALLS)
    calls = told[name.notna() & (told["group"] != "")].drop(columns=["size", "rank"])
    calls = calls.join(of_group, on=["process", "group"])
    calls = calls.assign(name=name[calls.index], type="", ranks="", is_whole=calls["size"].notna())
    is_part = (calls["name"] == "reduce_scatter").to_numpy()
    # of floats: the product of damaged integers may exceed int64
    product = calls["bytes"].astype("float64") * calls["size"].astype("float64")
    given = calls["bytes"].where(~is_part, nullable_integers(product.to_numpy()).array)
    # what a rank gets is told only of what pairs do
    got = calls["bytes"].where((calls["name"] == "recv").to_numpy())
    calls = calls.assign(bytes=given.where(calls["name"] != "recv", 0), received_bytes=got)
    calls = calls.rename(columns={"size": "group_size"}).reset_index(drop=True)
    tables = {"collectives": conform("collectives", calls)}
    if len(made):
        ranks = made.sort_values("size", kind="stable").drop_duplicates("process", keep="last")
        tables["ranks"] = ranks.rename(columns={"size": "world_size"}).assign(source="NCCL", host=0)
    return tables


def _payloads(export: Export, source: str, ranges: Frame) -> dict[str, Any] | None:
    """Return group, bytes, size, rank and peer of each range; None if no range has a payload of NCCL."""
    text = export.payload(source)
    if not text:
        return None
    found = f"CASE WHEN {of_nccl(text)} THEN {text} ELSE '' END"
    column = export.database.fetch(source, {"payload": f"CAST({found} AS BLOB)"})["payload"]
    # few are distinct: a program calls the same again and again
    encoded = column.combine_chunks().dictionary_encode()
    facts = [facts_of(payload) for payload in encoded.dictionary.to_pylist()]
    row = encoded.indices.to_numpy()[ranges.index]
    if not any(facts[number] for number in np.unique(row).tolist()):
        return None
    group = np.array([str(fact.get(_GROUP, "")) for fact in facts], dtype=object)[row]
    numbers = {
        name: pd.array([fact.get(key) for fact in facts], dtype=NULLABLE).take(row)
        for name, key in {"bytes": _BYTES, "size": _SIZE, "rank": _RANK, "peer": _PEER}.items()
    }
    return {"group": group, **numbers}


def of_nccl(text: str) -> str:
    """Return the condition of a query that a payload, given by its expression, is of NCCL."""
    return f"{text} LIKE '%\"{_GROUP}\"%'"


def facts_of(payload: bytes | None) -> dict[str, int]:
    """Return what the payload of a call of NCCL says: communicator, bytes, ranks, rank and peer; {} if none."""
    try:
        found = json.loads(payload or b"{}")
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    # a communicator is called by a number of 64 bits
    limits = {_GROUP: 1 << 64, **dict.fromkeys((_BYTES, _SIZE, _RANK, _PEER), _LARGEST)}
    return {key: found[key] for key, limit in limits.items() if type(found.get(key)) is int and 0 <= found[key] < limit}
