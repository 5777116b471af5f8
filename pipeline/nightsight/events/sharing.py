"""Gives ranks that share a GPU separate GPU numbers, and records which numbers mean the same GPU."""

from dataclasses import replace
from uuid import uuid4

import numpy as np
import pandas as pd

from nightsight.events.kernel_names import communicates
from nightsight.intervals import Ints
from nightsight.model.report import Profile
from nightsight.tables import aggregate, are_named, conform, integers, used_devices


def with_own_gpus(profile: Profile) -> Profile:
    """Return a profile in which processes that communicate on one GPU have separate GPU numbers.

    The first rank on a GPU keeps its number, and so does data without a process, such as samples of counters.
    """
    kernels = profile.recorded("kernels")
    if kernels["process"].nunique() < 2:
        return profile
    later_ranks = _later_ranks(profile, kernels)
    if not len(later_ranks):
        return profile
    tables = dict(profile.tables)
    for name, table in profile.tables.items():
        if {"process", "device"} <= set(table):
            tables[name] = table.assign(device=_renumber(table, later_ranks))
    if "devices" in tables:
        devices = tables["devices"]
        # a GPU without an identifier is still unique in this capture
        identifiers = f"{uuid4()} " + devices["device"].astype("str")
        devices = devices.assign(uuid=devices["uuid"].astype("str").where(devices["uuid"] != "", identifiers))
        copies = later_ranks.merge(devices, on="device").assign(device=lambda merged: merged["number"])
        tables["devices"] = conform("devices", pd.concat([devices, copies[devices.columns]]))
    return replace(profile, tables=tables)


def _later_ranks(profile: Profile, kernels: pd.DataFrame) -> pd.DataFrame:
    """Return the processes that communicate on the GPU of an earlier rank: device, process, and the new number."""
    kernels_of_ranks = kernels[are_named(kernels["name"], communicates)]
    times = kernels_of_ranks.assign(process=integers(kernels_of_ranks["process"]))
    of_process = times.groupby(["device", "process"])
    users = aggregate(of_process, first=("start_ns", "min"), last=("end_ns", "max")).reset_index()
    # processes that run one after the other do not share the GPU
    pairs = users.merge(users, on="device", suffixes=("", "_other"))
    meets = (pairs["first"] < pairs["last_other"]) & (pairs["first_other"] < pairs["last"])
    users = pairs.loc[meets & (pairs["process"] != pairs["process_other"]), ["device", "process"]].drop_duplicates()
    ranks = profile.recorded("ranks")[["process", "rank"]]
    users = users.merge(ranks, on="process", how="left").sort_values(["rank", "process", "device"], ignore_index=True)
    later = users[users["device"].duplicated()]
    # captures also list GPUs on which nothing ran
    used_numbers = {*used_devices(profile.tables), *profile.recorded("devices")["device"]}
    return later.assign(number=max(used_numbers, default=0) + 1 + np.arange(len(later)))


def _renumber(table: pd.DataFrame, later_ranks: pd.DataFrame) -> Ints:
    """Return the GPU numbers of a table, replaced by the new ones for later ranks."""
    numbers, owner = table["device"].to_numpy(), integers(table["process"])
    new = numbers
    for device, process, number in later_ranks[["device", "process", "number"]].itertuples(index=False):
        new = np.where((numbers == device) & (owner == process), number, new)
    return new


def sharing(devices: pd.DataFrame, numbers: Ints) -> list[list[int]]:
    """Return the groups of GPU numbers that mean the same GPU.

    Slices of a GPU (MIG) always have separate numbers, although they may have its UUID.
    """
    identified = devices[(gpu_ids(devices) != "") & devices["device"].isin(numbers)].drop_duplicates("device")
    groups = identified.groupby(gpu_ids(identified))["device"].agg(sorted)
    return sorted(group for group in groups if len(group) > 1)


def gpu_ids(devices: pd.DataFrame) -> "pd.Series[str]":
    """Return the identifier of each GPU; "" if unknown, and for slices of a GPU."""
    is_slice = devices["name"].astype("str").str.contains(r"\bMIG\b")
    return devices["uuid"].astype("str").mask(is_slice, "")
