"""Reads the arguments of NCCL's calls: the payloads of its ranges hold the communicator and the size of the message.

An export contains payloads as JSON if it was made with --include-json=true. The size of a communicator, and the rank of
the process in it, are only in the range of the call that created it, which the capture may lack.
"""

import json
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.read.nsys.export import NVTX, Export, payload_of
from nightsight.tables import NULLABLE, Frame, nullable_integers

NCCL: Final = "NCCL"
"""The domain of these ranges."""
# PyTorch's names of NCCL's calls; a broadcast in place has a separate function
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
_IN_PARTS: Final = ("reduce_scatter", "all_to_all")
_GROUP, _BYTES, _SIZE, _RANK = "NCCL communicator ID", "Message size [bytes]", "No. of ranks", "Rank"
_PEER: Final = "Peer rank"
_LARGEST: Final = 1 << 62


def nccl_tables(export: Export, ranges: Frame) -> dict[str, Frame]:
    """Return the collectives, sends and receives among these ranges, and the ranks; {} without payloads.

    bytes: what this rank contributes. Of a reduce-scatter, NCCL records the part that each rank receives, and of an
    all-to-all the part for each rank; of all other calls, what a rank contributes. The rank is that in the largest
    communicator. A capture is from one machine.
    """
    if not len(ranges):
        return {}
    payloads = _payloads(export, ranges)
    if payloads is None:
        return {}
    ranges = ranges.assign(**payloads)
    created = ranges.dropna(subset=["size", "rank"]).drop_duplicates(["process", "group"], keep="last")
    communicators = created.set_index(["process", "group"])[["size", "rank"]]
    name = ranges["name"].astype("str").map(_CALLS)
    calls = ranges[name.notna() & (ranges["group"] != "")].drop(columns=["size", "rank"])
    calls = calls.join(communicators, on=["process", "group"])
    calls = calls.assign(name=name[calls.index], type="", ranks="", is_whole=calls["size"].notna())
    is_part = calls["name"].isin(_IN_PARTS).to_numpy()
    # of floats: the product of damaged integers may exceed int64
    product = calls["bytes"].astype("float64") * calls["size"].astype("float64")
    sent = calls["bytes"].where(~is_part, nullable_integers(product.to_numpy()).array)
    # the received size is only known for receives
    received = calls["bytes"].where((calls["name"] == "recv").to_numpy())
    calls = calls.assign(bytes=sent.where(calls["name"] != "recv", 0), received_bytes=received)
    calls = calls.rename(columns={"size": "group_size"}).reset_index(drop=True)
    tables = {"collectives": calls}
    if len(created):
        ranks = created.sort_values("size", kind="stable").drop_duplicates("process", keep="last")
        tables["ranks"] = ranks.rename(columns={"size": "world_size"}).assign(source="NCCL", host=0)
    return tables


def _payloads(export: Export, ranges: Frame) -> dict[str, Any] | None:
    """Return group, bytes, size, rank and peer of each range; None if no range has a payload of NCCL."""
    payload = payload_of(export.database)
    if not payload:
        return None
    of_nccl = f"CASE WHEN {nccl_condition(payload)} THEN {payload} ELSE '' END"
    # few are distinct: a program repeats its calls
    payloads, payload_of_row = export.database.distinct(NVTX, f"CAST({of_nccl} AS BLOB)")
    facts = [facts_of_call(payload) for payload in payloads]
    row = payload_of_row[ranges.index]
    if not any(facts[number] for number in np.unique(row).tolist()):
        return None
    group = np.array([str(fact.get(_GROUP, "")) for fact in facts], dtype=object)[row]
    numbers = {
        name: pd.array([fact.get(key) for fact in facts], dtype=NULLABLE).take(row)
        for name, key in {"bytes": _BYTES, "size": _SIZE, "rank": _RANK, "peer": _PEER}.items()
    }
    return {"group": group, **numbers}


def nccl_condition(payload: str) -> str:
    """Return the SQL condition that a payload, given as an expression, is from NCCL."""
    return f"{payload} LIKE '%\"{_GROUP}\"%'"


def facts_of_call(payload: bytes | None) -> dict[str, int]:
    """Return the facts in the payload of a call: communicator, bytes, ranks, rank and peer; {} if it has none."""
    try:
        fields = json.loads(payload or b"{}")
    except (ValueError, RecursionError):
        return {}
    if not isinstance(fields, dict):
        return {}
    # the id of a communicator has 64 bits
    limits = {_GROUP: 1 << 64, **dict.fromkeys((_BYTES, _SIZE, _RANK, _PEER), _LARGEST)}
    return {
        key: fields[key] for key, limit in limits.items() if type(fields.get(key)) is int and 0 <= fields[key] < limit
    }
