"""Results on the capture itself: devices, diagnostics, events that are not shown."""

from typing import Final

from nightsight.results.columns import DEVICE
from nightsight.results.entry import TEXT, WHOLE, Column, Entry

DEVICES: Final = Entry(
    "devices",
    "Devices",
    "The GPUs of the machine, as the driver describes them.",
    ("devices",),
    (
        DEVICE,
        Column("name", TEXT, "name of the GPU", is_plain=True),
        Column("used", TEXT, "whether anything in the capture ran on it", is_plain=True),
        Column("compute_capability", TEXT, "compute capability", is_plain=True),
        Column("multiprocessors", WHOLE, "number of SMs", is_plain=True),
        Column("memory_bytes", WHOLE, "size of device memory", is_plain=True),
        Column("l2_bytes", WHOLE, "size of the L2 cache", is_plain=True),
        Column("memory_bandwidth_bytes_per_s", WHOLE, "bandwidth of device memory", is_plain=True),
        Column("clock_hz", WHOLE, "highest SM clock", is_plain=True),
    ),
    rows="devices",
    header="Device",
    named_by="device",
    place="method",
)

DIAGNOSTICS: Final = Entry(
    "diagnostics",
    "Diagnostics",
    "Warnings and errors that the profiler recorded about its own work. File paths are left out.",
    ("diagnostics",),
    (
        Column("severity", TEXT, "`warning` or `error`", is_plain=True),
        Column("times", WHOLE, "how many times", is_plain=True),
        Column("text", TEXT, "the profiler's words", is_plain=True),
    ),
    rows="warnings and errors",
    header="Text",
    named_by="text",
    place="method",
)

PROFILER_OVERHEAD: Final = Entry(
    "profiler_overhead",
    "Profiler overhead",
    "Time that the profiler itself took inside the program, by activity. It is part of the times above.",
    ("overheads",),
    (
        Column("total_ns", WHOLE, "sum", is_plain=True),
        Column("count", WHOLE, "how many times", is_plain=True),
        Column("max_ns", WHOLE, "longest", is_plain=True),
        Column("name", TEXT, "the activity", is_plain=True),
    ),
    rows="kinds of overhead",
    header="Activity",
    place="method",
    bars=("total_ns",),
)

NOT_SHOWN: Final = Entry(
    "not_shown",
    "Recorded but not shown",
    "Events that the profiler recorded and that this report does not use.",
    ("unread",),
    (
        Column("kind", TEXT, "kind of event", is_plain=True),
        Column("events", WHOLE, "number of events", is_plain=True),
        Column("source", TEXT, "the table or event category, as the file names it"),
    ),
    rows="events that are not shown",
    header="Events",
    named_by="kind",
    place="method",
)
