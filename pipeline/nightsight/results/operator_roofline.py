"""Results on the rooflines of operators."""

from typing import Final

from nightsight.results.columns import DEVICE, PROGRAM
from nightsight.results.entry import NUMBER, TEXT, WHOLE, Column, Entry

OPERATOR_ROOFLINE: Final = Entry(
    "operator_roofline",
    "Roofline of operators",
    "Computation and data of each PyTorch operator, from the shapes of its arguments, divided by the time of the GPU "
    "work that it launched itself. Operations (a multiply-add is two) are counted only of matrix products, "
    "convolutions and attention. Bytes assume that each input is read once and each output written once. No counters "
    "are needed. Copies from and to the host, and communication, are left out.",
    ("kernels", "api_calls", "cpu_ops"),
    (
        Column("name", TEXT, "the operator", is_plain=True),
        Column("shapes", TEXT, "shapes of the tensors among its arguments", is_plain=True),
        Column("types", TEXT, "their types, each once"),
        Column("time_pct", NUMBER, "share of the time of all kernels, memsets and copies within a device"),
        Column("total_ns", WHOLE, "time of the work on the GPU that these calls launched"),
        Column("calls", WHOLE, "number of calls", is_plain=True),
        Column("avg_ns", NUMBER, "time on the GPU of a call", is_plain=True),
        Column("work_flop", NUMBER, "operations of a call; missing if not counted, or unknown"),
        Column("data_bytes", NUMBER, "least bytes that a call has to read and write; missing if unknown"),
        Column("work_flop_per_byte", NUMBER, "operations per such byte"),
        Column("work_flop_per_s", NUMBER, "operations per second", is_plain=True),
        Column("data_bytes_per_s", NUMBER, "such bytes per second", is_plain=True),
        Column(
            "kind",
            TEXT,
            "the arithmetic whose peak it is compared with, if its operations are counted: on CUDA cores (FP32), or on "
            "tensor cores by type of the inputs. The kernel name shows whether FP32 matrix multiplications use TF32",
        ),
        Column("compute_pct", NUMBER, "operations per second, in percent of the published peak of that arithmetic"),
        Column("memory_pct", NUMBER, "bytes per second, in percent of the memory's peak"),
        Column(
            "bound",
            TEXT,
            "what limits it",
            (
                ("compute", "at least 60 % of the arithmetic's peak, and more than of the memory's"),
                ("memory", "at least 60 % of the memory's peak"),
                ("latency", "neither: too little work for the GPU, or a kernel that waits"),
                ("", "unknown"),
            ),
        ),
        Column("shortest_ns", NUMBER, "the shortest time of a call that these peaks allow"),
        Column("measured_flop", NUMBER, "operations of a call that ncu counted", is_optional=True),
        Column("flop_difference_pct", NUMBER, "how much more (or less) than computed", is_optional=True),
        Column("measured_bytes", NUMBER, "DRAM traffic of a call that ncu measured", is_optional=True),
        Column("bytes_difference_pct", NUMBER, "how much more (or less) than computed", is_optional=True),
        Column("measured_ns", NUMBER, "duration of the replays of the kernels of a call", is_optional=True),
        Column("measured_flop_per_s", NUMBER, "counted operations per second of that", is_optional=True),
        Column("measured_bytes_per_s", NUMBER, "DRAM bytes per second of that", is_optional=True),
        DEVICE,
        Column("gpu", TEXT, "name of the GPU", is_plain=True),
    ),
    rows="operators",
    header="Operator",
    group=PROGRAM,
    bars=("compute_pct", "memory_pct"),
    minor=(
        *("types", "total_ns", "work_flop", "data_bytes", "work_flop_per_byte", "kind", "shortest_ns"),
        *("measured_flop", "measured_bytes", "measured_ns", "measured_flop_per_s", "measured_bytes_per_s"),
    ),
    constant=("device", "gpu"),
    jump="operator",
    names="code",
)

OPERATOR_ROOFS: Final = Entry(
    "operator_roofs",
    "Peaks of operators",
    "The peaks with which operators are compared: of memory as the driver reports it, else as published; of arithmetic "
    "as published, for dense matrices.",
    ("kernels", "api_calls", "cpu_ops"),
    (
        DEVICE,
        Column("gpu", TEXT, "name of the GPU", is_plain=True),
        Column("roof", TEXT, "DRAM, or the arithmetic", is_plain=True),
        Column("bytes_per_s", NUMBER, "bandwidth, if the roof is a memory", is_plain=True),
        Column("flop_per_s", NUMBER, "operations per second, if the roof is arithmetic", is_plain=True),
    ),
    rows="peaks",
    header="Peak",
    named_by="roof",
    place="method",
)
