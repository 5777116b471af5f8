"""NVIDIA's reports of calls on the CPU: CUDA runtime and driver, and operating system."""

import pandas as pd

from nightsight.stats.events import StatsEvents
from nightsight.stats.summary import api_names, time_table
from nightsight.tables import Frame, duration


def cuda_api_sum(events: StatsEvents) -> Frame:
    """CPU time of CUDA runtime and driver calls; a driver call inside a runtime call counts in both."""
    calls = events.table("api_calls")
    table = time_table(duration(calls), {"Name": calls["name"]}, count="Num Calls")
    return table.assign(Name=api_names(table["Name"].astype("category")))


def cuda_api_trace(events: StatsEvents) -> Frame:
    """Every CUDA call, in order of start time."""
    calls, threads = events.table("api_calls"), events.table("threads")
    table = pd.DataFrame(
        {
            "Start_ns": calls["start_ns"],
            "Duration_ns": duration(calls),
            "Name": api_names(calls["name"]),
            "Result": calls["status"],
            "CorrID": calls["correlation"],
            "Pid": calls["pid"],
            "Tid": calls["tid"],
            "thread": calls["thread"],
        }
    )
    # in NVIDIA's table, the calls of a thread that was named twice occur twice
    table = table.merge(threads.rename(columns={"priority": "T-Pri", "name": "Thread Name"}), on="thread", how="left")
    columns = [*table.columns.drop(["thread", "T-Pri", "Thread Name"]), "T-Pri", "Thread Name"]
    return table[columns].sort_values("Start_ns", kind="stable", ignore_index=True)


def osrt_sum(events: StatsEvents) -> Frame:
    """CPU time of calls to operating system libraries."""
    calls = events.table("os_calls")
    return time_table(duration(calls), {"Name": calls["name"]}, count="Num Calls")
