"""Results of Nsight Compute on replayed kernels."""

from typing import Final

from nightsight.results.columns import DEVICE, KERNEL_OF, LAUNCH_NUMBER, NCU, REPLAY_TABLES
from nightsight.results.entry import NUMBER, TEXT, WHOLE, Column, Entry

_STALLS: Final = (
    ("barrier", "waits for the other warps of its block at a barrier"),
    ("branch resolving", "waits for a branch target to be computed"),
    ("dispatch stall", "the dispatcher holds back the issue"),
    ("drain", "has exited, and its memory stores are still in progress"),
    ("imc miss", "waits for a miss in the immediate constant cache"),
    ("lg throttle", "the queue for local and global memory instructions is full"),
    ("long scoreboard", "waits for global, local, texture or surface memory (L1TEX)"),
    ("math pipe throttle", "the math pipe it needs is busy"),
    ("membar", "waits at a memory barrier"),
    ("mio throttle", "the MIO queue is full (shared memory, special functions, dynamic branches)"),
    ("misc", "any other reason"),
    ("no instruction", "waits for its next instruction to be fetched (instruction cache)"),
    ("not selected", "was ready to issue, but another warp was selected"),
    ("short scoreboard", "waits for shared memory or a special function (MIO)"),
    ("sleeping", "sleeps at the program's request"),
    ("tex throttle", "the queue for texture instructions is full"),
    ("wait", "a fixed latency between dependent instructions"),
    ("warpgroup arrive", "waits for a tensor core operation of its whole warpgroup"),
)

NCU_MATCH: Final = Entry(
    "ncu_match",
    "Replays matched to the timeline",
    "How many of the launches that ncu replayed match a kernel of the timeline: one with the same normalized name, "
    "grid and block that ran in the window. If a kernel was replayed several times, NVTX ranges distinguish "
    "its replays.",
    ("profiled_launches",),
    (
        Column("replayed", WHOLE, "launches that ncu replayed", is_plain=True),
        Column("matched", WHOLE, "those that match a kernel of the timeline"),
        Column("match_pct", NUMBER, "the same in percent"),
        Column(
            "coverage_pct",
            NUMBER,
            "time of the matched kernels, in percent of the time of all kernels in the window and of CUDA graphs "
            "traced as a whole",
        ),
    ),
    rows="captures",
    header="Launches replayed",
    named_by="replayed",
    place="method",
)

NCU_KERNELS: Final = Entry(
    "ncu_kernels",
    "Replayed kernels",
    "Launches that Nsight Compute (ncu) replayed. Each represents all kernels in the window with the same name, grid "
    "and block; their times come from the timeline. An empty cell: the metric was not collected, or is a ratio with a "
    "zero denominator.",
    REPLAY_TABLES,
    (
        LAUNCH_NUMBER,
        KERNEL_OF,
        Column("grid", TEXT, "blocks in x, y, z", is_plain=True),
        Column("block", TEXT, "threads per block in x, y, z", is_plain=True),
        Column(
            "path",
            TEXT,
            "the NVTX ranges around the launch; if its thread had none, those in which the kernel took the most time "
            "in the timeline",
        ),
        DEVICE,
        Column(
            "gpu_pct",
            NUMBER,
            "time of these kernels in percent of the time of all kernels in the window; if a kernel was replayed in "
            "several ranges, of those in its own range only",
        ),
        Column("launches", WHOLE, "number of these kernels in the timeline"),
        Column("timeline_med_ns", NUMBER, "their median duration in the timeline"),
        Column("gpu_total_ns", WHOLE, "their total time in the timeline"),
        Column("busiest_gpu_ns", WHOLE, "the same on the GPU where they took the most time"),
        Column(
            "replay_ns",
            NUMBER,
            "duration of the replay, under ncu's control of clocks and caches: do not compare it with other times",
        ),
        Column("sm_pct", NUMBER, "SM throughput, in percent of its sustained peak"),
        Column("memory_pct", NUMBER, "memory and cache throughput, in percent of their sustained peak"),
        Column("dram_pct", NUMBER, "DRAM throughput, in percent of its sustained peak"),
        Column("l2_pct", NUMBER, "L2 throughput, in percent of its sustained peak"),
        Column("l1_pct", NUMBER, "L1 throughput, in percent of its sustained peak"),
        Column("l2_hit_pct", NUMBER, "L2 hit rate", is_plain=True),
        Column("l1_hit_pct", NUMBER, "L1 hit rate", is_plain=True),
        Column("tensor_pct", NUMBER, "share of cycles in which the tensor pipe was active"),
        Column("occupancy_pct", NUMBER, "active warps, in percent of the maximum per SM"),
        Column("theoretical_pct", NUMBER, "the highest occupancy that the launch allows"),
        Column("limiter", TEXT, "what limits the theoretical occupancy"),
        Column("registers", WHOLE, "registers per thread", is_plain=True),
        Column("shared_bytes", WHOLE, "shared memory per block, including the driver's own"),
        Column("waves", NUMBER, "blocks of the grid divided by the blocks that fit on the GPU at once"),
        Column("tail_pct", NUMBER, "the last, partial wave as a share of all waves: the most that it can cost"),
        Column(
            "sectors_per_request",
            NUMBER,
            "32-byte sectors per global load of a warp; 4 are needed for 4 bytes per thread",
        ),
        Column("excessive_pct", NUMBER, "share of global sectors beyond those that the requested bytes would fill"),
    ),
    rows="replayed kernels",
    header="Kernel",
    group=NCU,
    bars=("gpu_pct", "sm_pct", "memory_pct", "occupancy_pct"),
    minor=(
        "block",
        "launches",
        "l2_pct",
        "l1_pct",
        "l2_hit_pct",
        "l1_hit_pct",
        "tensor_pct",
        "theoretical_occupancy_pct",
        "occupancy_limit",
        "registers",
        "shared_bytes",
        "waves",
        "tail_pct",
        "sectors_per_request",
        "excessive_pct",
        "path",
    ),
    numbered="name",
    jump="replay",
    names="replay",
    kernels=("name",),
)

NCU_LIMITS: Final = Entry(
    "ncu_limits",
    "Limits of kernels",
    "The unit of the GPU that each replayed launch keeps busiest, and how far from its peak that unit is. For the same "
    "work, a launch cannot be shorter than that unit needs, whatever else changes.",
    REPLAY_TABLES,
    (
        LAUNCH_NUMBER,
        KERNEL_OF,
        Column("gpu_pct", NUMBER, "time of these kernels in percent of the time of all kernels in the window"),
        Column("replay_ns", NUMBER, "duration of the replay", is_plain=True),
        Column("unit", TEXT, "the unit that is used most", is_plain=True),
        Column("used_pct", NUMBER, "throughput of that unit, in percent of its sustained peak"),
        Column("left_pct", NUMBER, "the rest: the most that a launch with the same work could be shortened"),
        Column(
            "rule",
            TEXT,
            "what could be changed",
            (
                ("tensor_cores", "multiply on tensor cores, not in FP32 on CUDA cores"),
                ("uncoalesced", "let neighboring threads access neighboring memory"),
                ("small_grid", "launch more blocks: some SMs have none"),
                ("tail", "divide the work so that the last blocks do not run alone"),
                ("registers", "use fewer registers, so that more warps run concurrently"),
                ("shared_memory", "use less shared memory, so that more warps run concurrently"),
                ("at_roof", "only the amount of work"),
                ("", "nothing that these metrics show"),
            ),
        ),
        Column("gain_pct", NUMBER, "how much shorter the launch could be with that"),
        Column("reason", TEXT, "the metrics behind it", is_plain=True),
    ),
    rows="kernels",
    header="Kernel",
    group=NCU,
    bars=("used_pct",),
    minor=("replay_ns",),
    numbered="name",
    jump="replay",
    names="replay",
    kernels=("name",),
)

NCU_RULES: Final = Entry(
    "ncu_rules",
    "Nsight Compute rules",
    "Results of ncu's rules for each replayed launch. Their estimates overlap: do not add them up, neither per kernel "
    "nor per rule.",
    ("profiled_launches", "kernel_rules"),
    (
        LAUNCH_NUMBER,
        KERNEL_OF,
        Column("rule", TEXT, "ncu's name for the rule", is_plain=True),
        Column("title", TEXT, "ncu's title", is_plain=True),
        Column("message", TEXT, "ncu's message", is_plain=True),
        Column(
            "kind",
            TEXT,
            "type of the result",
            (
                ("optimization", "advice"),
                ("warning", "a warning"),
                ("info", "a statement of fact, without an estimate"),
            ),
        ),
        Column(
            "speedup_kind",
            TEXT,
            "what ncu's estimate is about",
            (
                ("global", "how much shorter the launch could be"),
                ("local", "how much better a single unit could be used, which says nothing about the launch's time"),
            ),
        ),
        Column("speedup_pct", NUMBER, "ncu's estimate"),
        Column(
            "bound_pct", NUMBER, "a global estimate times the kernel's share of the time of all kernels in the window"
        ),
    ),
    rows="rules",
    header="Rule",
    named_by="title",
    group=NCU,
    full="message",
    bars=("bound_pct",),
    numbered="kernel",
    jump="replay",
    names="prose",
    kernels=("kernel",),
)

NCU_ROOFLINE: Final = Entry(
    "ncu_roofline",
    "Roofline",
    "Arithmetic of each replayed launch, by type: operations per second, and per byte that the whole launch moved. A "
    "fused multiply-add counts as two operations. Times and clocks are those of the replay. If ncu collected bytes "
    "but no rate, the rate is the bytes divided by that time.",
    REPLAY_TABLES,
    (
        LAUNCH_NUMBER,
        KERNEL_OF,
        DEVICE,
        Column(
            "kind",
            TEXT,
            "type of arithmetic. Tensor core work is by input type, from ncu's operation counters, else from the "
            "executed instructions. FP16 excludes instructions that only load a constant",
        ),
        Column("flop_per_s", NUMBER, "operations per second, of integers too"),
        Column("flop_per_byte", NUMBER, "operations per byte of DRAM traffic"),
        Column("l2_flop_per_byte", NUMBER, "operations per byte moved between L2 and the SMs"),
        Column(
            "peak_pct",
            NUMBER,
            "in percent of the roof for this type, which is drawn at the clock of the GPU's longest replay",
        ),
        Column(
            "clock_hz",
            NUMBER,
            "SM clock during the launch; a launch at a lower clock, for example at the power limit, cannot reach the "
            "roof",
        ),
    ),
    rows="types of arithmetic",
    header="Kernel",
    group=NCU,
    bars=("of_roof_pct",),
    numbered="name",
    jump="replay",
    names="replay",
    kernels=("name",),
)

NCU_ROOFS: Final = Entry(
    "ncu_roofs",
    "Roofs",
    "What each GPU can sustain according to its own reports: peak per cycle times the unit's clock in its longest "
    "replay. The SM clock is capped at the one that the driver reports.",
    REPLAY_TABLES,
    (
        DEVICE,
        Column("gpu", TEXT, "name of the GPU", is_plain=True),
        Column(
            "roof",
            TEXT,
            "DRAM: reads and writes together. L2: from the cache to the SMs. Tensor: the fastest instruction for the "
            "type, on dense matrices",
        ),
        Column("bytes_per_s", NUMBER, "bandwidth, if the roof is a memory", is_plain=True),
        Column("flop_per_s", NUMBER, "operations per second, if the roof is arithmetic", is_plain=True),
    ),
    rows="roofs",
    header="Roof",
    named_by="roof",
    place="method",
)

NCU_STALLS: Final = Entry(
    "ncu_stalls",
    "Warp stalls",
    "The five most common reasons why the warps of a replayed launch did not issue an instruction.",
    REPLAY_TABLES,
    (
        LAUNCH_NUMBER,
        KERNEL_OF,
        Column("reason", TEXT, "why they stalled", _STALLS),
        Column(
            "stall_pct",
            NUMBER,
            "in percent of all cycles in which warps were stalled (of samples, if cycles were not collected)",
        ),
    ),
    rows="kernels",
    header="Kernel",
    group=NCU,
    is_folded=True,
    numbered="name",
    jump="replay",
    names="replay",
    kernels=("name",),
)

NCU_INSTRUCTIONS: Final = Entry(
    "ncu_instructions",
    "Instruction mix",
    "Instructions that the warps of a replayed launch executed. Each counts once, however much work it does: one "
    "tensor core instruction does the work of thousands of others.",
    REPLAY_TABLES,
    (
        LAUNCH_NUMBER,
        KERNEL_OF,
        Column("instructions", NUMBER, "number of instructions", is_plain=True),
        Column("fp64_pct", NUMBER, "FP64 arithmetic", is_plain=True),
        Column("fp32_pct", NUMBER, "FP32 arithmetic", is_plain=True),
        Column("fp16_pct", NUMBER, "FP16 arithmetic; includes HFMA2, which compilers also use to load constants"),
        Column("integer_pct", NUMBER, "integer arithmetic, logic, shifts and the uniform datapath"),
        Column("tensor_pct", NUMBER, "tensor core instructions", is_plain=True),
        Column("load_store_pct", NUMBER, "loads and stores, of any memory", is_plain=True),
        Column("control_pct", NUMBER, "branches, barriers, waits"),
        Column("other_pct", NUMBER, "moves, conversions, shuffles, predicates"),
    ),
    rows="kernels",
    header="Kernel",
    group=NCU,
    is_folded=True,
    numbered="name",
    jump="replay",
    names="replay",
    kernels=("name",),
)

NCU_SOURCE: Final = Entry(
    "ncu_source",
    "Hottest lines",
    "The source lines of each replayed launch with the most warp samples, at most ten. They are instructions (SASS) "
    "if the program has no line information (nvcc -lineinfo; Triton has it).",
    ("profiled_launches", "kernel_lines"),
    (
        LAUNCH_NUMBER,
        KERNEL_OF,
        Column("file", TEXT, "name of the file, without folders", is_plain=True),
        Column("line", WHOLE, "in that file", is_plain=True),
        Column("pc", WHOLE, "address of the instruction within the kernel"),
        Column("source", TEXT, "text of the line, if ncu imported it (--import-source), or the instruction"),
        Column("samples", WHOLE, "samples on it", is_plain=True),
        Column("share_pct", NUMBER, "in percent of all samples of the launch"),
        Column("stall", TEXT, "the most common reason why they did not issue, as in *Warp stalls*"),
    ),
    rows="lines",
    header="Line or instruction",
    named_by="source",
    group=NCU,
    bars=("share_pct",),
    numbered="kernel",
    jump="replay",
    names="code",
    kernels=("kernel",),
)
