"""Ranks that share a GPU: each gets its own GPU number; which of these numbers mean one GPU stays known."""

from dataclasses import replace
from uuid import uuid4

import numpy as np
import pandas as pd

from nightsight.events.kernel_names import communicates
from nightsight.intervals import Ints
from nightsight.model.report import Profile
from nightsight.tables import conform, empty, integers, used_devices


def with_own_gpus(profile: Profile) -> Profile:
    """Return a profile in which processes that communicate on one GPU have separate GPU numbers.

    The first rank on a GPU keeps its number, and all that is of no process, such as samples of counters.
    """
    kernels = profile.tables.get("kernels", empty("kernels"))
    if kernels["process"].nunique() < 2:
        return profile
    others = _others(profile, kernels)
    if not len(others):
        return profile
    tables = dict(profile.tables)
    for name, table in profile.tables.items():
        if {"process", "device"} <= set(table):
            tables[name] = table.assign(device=_renumbered(table, others))
    if "devices" in tables:
        devices = tables["devices"]
        # where nothing identifies a GPU, it is still one of this capture
        own = f"{uuid4()} " + devices["device"].astype("str")
        devices = devices.assign(uuid=devices["uuid"].astype("str").where(devices["uuid"] != "", own))
        copies = others.merge(devices, on="device").assign(device=lambda both: both["number"])
        tables["devices"] = conform("devices", pd.concat([devices, copies[devices.columns]]))
    return replace(profile, tables=tables)


def _others(profile: Profile, kernels: pd.DataFrame) -> pd.DataFrame:
    """Return who communicates on the GPU of a rank before it: device, process, and the number that it gets."""
    talks = np.array([communicates(name) for name in kernels["name"].cat.categories], dtype=bool)
    mine = kernels.loc[talks[kernels["name"].cat.codes], ["process", "device", "start_ns", "end_ns"]]
    times = mine.assign(process=integers(mine["process"]))
    users = times.groupby(["device", "process"], as_index=False).agg(first=("start_ns", "min"), last=("end_ns", "max"))
    # one after the other, they do not share it
    pairs = users.merge(users, on="device", suffixes=("", "_other"))
    meets = (pairs["first"] < pairs["last_other"]) & (pairs["first_other"] < pairs["last"])
    users = pairs.loc[meets & (pairs["process"] != pairs["process_other"]), ["device", "process"]].drop_duplicates()
    told = profile.tables.get("ranks", empty("ranks"))[["process", "rank"]]
    users = users.merge(told, on="process", how="left").sort_values(["rank", "process", "device"], ignore_index=True)
    others = users[users["device"].duplicated()]
    # captures list GPUs that nothing ran on, too
    known = {*used_devices(profile.tables), *profile.tables.get("devices", empty("devices"))["device"]}
    return others.assign(number=max(known, default=0) + 1 + np.arange(len(others)))


def _renumbered(table: pd.DataFrame, others: pd.DataFrame) -> Ints:
    """Return the GPUs of a table with the numbers that other processes get."""
    known, owner = table["device"].to_numpy(), integers(table["process"])
    new = known
    for device, process, number in others[["device", "process", "number"]].itertuples(index=False):
        new = np.where((known == device) & (owner == process), number, new)
    return new


def sharing(devices: pd.DataFrame, numbers: Ints) -> list[list[int]]:
    """Return which of these numbers of GPUs are of one, for each GPU that has several.

    Slices of a GPU (MIG) always have separate numbers, although they may have its UUID.
    """
    known = devices[(cards(devices) != "") & devices["device"].isin(numbers)].drop_duplicates("device")
    groups = known.groupby(cards(known))["device"].agg(sorted)
    return sorted(group for group in groups if len(group) > 1)


def cards(devices: pd.DataFrame) -> "pd.Series[str]":
    """Return what identifies each GPU, "" if unknown, and for slices of one."""
    is_slice = devices["name"].astype("str").str.contains(r"\bMIG\b")
    return devices["uuid"].astype("str").mask(is_slice, "")
