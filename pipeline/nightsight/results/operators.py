"""Results on PyTorch operators."""

from typing import Final

from nightsight.results.columns import CALLS, INSTANCES, PROGRAM
from nightsight.results.entry import NUMBER, TEXT, WHOLE, Column, Entry

_OF_OPERATORS: Final = (
    Column("own_pct", NUMBER, "own time in percent of the own time of all operators"),
    Column("own_ns", WHOLE, "time on the CPU without the operators, ranges and CUDA calls inside"),
    Column("total_ns", WHOLE, "time on the CPU including them", is_plain=True),
    CALLS,
    Column("max_ns", WHOLE, "longest", is_plain=True),
    Column(
        "own_device_ns",
        WHOLE,
        "time of the GPU work that it launched itself, added up; left out if operators launched none",
        is_optional=True,
    ),
    Column("device_ns", WHOLE, "the same, including the operators inside", is_optional=True),
    Column(
        "own_memory_bytes",
        WHOLE,
        "CPU memory allocated less freed while it ran, without the operators inside; left out if not recorded",
        is_optional=True,
    ),
    Column("memory_bytes", WHOLE, "the same, including the operators inside", is_optional=True),
    Column("own_device_memory_bytes", WHOLE, "as `own_memory_bytes`, of GPUs", is_optional=True),
    Column("device_memory_bytes", WHOLE, "as `memory_bytes`, of GPUs", is_optional=True),
    Column(
        "flops",
        NUMBER,
        "floating-point operations, by torch's formulas for mm, addmm, bmm, baddbmm, conv2d, mul and add; 0 for other "
        "operators; left out if shapes were not recorded",
        is_optional=True,
    ),
    Column("name", TEXT, "the operator", is_plain=True),
)
_MEMORY_OF_OPERATORS: Final = (
    "max_ns",
    "own_memory_bytes",
    "memory_bytes",
    "own_device_memory_bytes",
    "device_memory_bytes",
)

CPU_OPS: Final = Entry(
    "cpu_ops",
    "Operators",
    "PyTorch operators, as torch's key_averages counts them. An operator that only calls itself again, with other "
    "arguments, is one call.",
    ("cpu_ops",),
    _OF_OPERATORS,
    rows="operators",
    header="Operator",
    group=PROGRAM,
    bars=("own_pct",),
    minor=_MEMORY_OF_OPERATORS,
    jump="operator",
    names="code",
)

CPU_OP_SHAPES: Final = Entry(
    "cpu_op_shapes",
    "Operators by shape",
    "The same by the shapes of the inputs, as key_averages(group_by_input_shape=True). Operators without recorded "
    "shapes are left out.",
    ("cpu_ops",),
    (
        *_OF_OPERATORS,
        Column("shapes", TEXT, "shape of each input as JSON; `[]` for inputs that are not tensors or have one value"),
    ),
    rows="operators and shapes",
    header="Operator",
    group=PROGRAM,
    bars=("own_pct",),
    minor=_MEMORY_OF_OPERATORS,
    jump="operator",
    names="code",
)

KERNEL_OPERATORS: Final = Entry(
    "kernel_operators",
    "Kernels by operator",
    "Execution time of kernels on the GPU, by the PyTorch operator that launched them: the innermost one around the "
    "launching call.",
    ("kernels", "api_calls", "cpu_ops"),
    (
        Column("time_pct", NUMBER, "share of the total time of all kernels, not of wall time"),
        Column("total_ns", WHOLE, "sum", is_plain=True),
        INSTANCES,
        Column("avg_ns", NUMBER, "mean", is_plain=True),
        Column("operator", TEXT, "the operator; empty for kernels that no operator launched"),
        Column(
            "forward",
            TEXT,
            "for kernels of the backward pass, the operator of the forward pass with the same sequence number",
        ),
        Column(
            "module",
            TEXT,
            "the module in which the operator was called, in the backward pass that of the forward operator: its path "
            "in the model, or its class; empty if not recorded",
        ),
        Column(
            "function",
            TEXT,
            "the Python function, not of a library, that called the operator, in the backward pass the forward one; "
            "left out if functions were not recorded",
            is_optional=True,
        ),
        Column("name", TEXT, "the kernel", is_plain=True),
    ),
    rows="kernels by operator",
    header="Kernel",
    group=PROGRAM,
    bars=("time_pct",),
    constant=("forward", "module", "function"),
    jump="kernel",
    names="kernel",
    kernels=("name",),
)
