"""Results on the ranks of a job and their communication."""

from typing import Final

from nightsight.results.columns import DEVICE, GPU, PID
from nightsight.results.entry import NUMBER, TEXT, WHOLE, Column, Entry

RANKS: Final = Entry(
    "ranks",
    "Ranks",
    "The GPUs of a job that meet in collectives. None can continue before the last one arrives: the last one did not "
    "wait, the others did.",
    ("kernels",),
    (
        Column("rank", WHOLE, "its number in the job", is_plain=True),
        Column(
            "host",
            WHOLE,
            "number of its machine, as the launcher reports it; left out unless known for all ranks",
            is_optional=True,
        ),
        DEVICE,
        PID,
        Column("steps", WHOLE, "repetitions in the window", is_plain=True),
        Column("step_ns", NUMBER, "length of a step on its GPU: median"),
        Column(
            "work_ns",
            NUMBER,
            "mean step without its waits for other ranks, known or possible: the time it would take alone",
        ),
        Column("waited_ns", NUMBER, "time per step in which its GPU only waited for other ranks to arrive: mean"),
        Column("awaited_ns", NUMBER, "time per step in which all others only waited for this one to arrive: mean"),
        Column("last_pct", NUMBER, "share of collectives where it arrived last"),
        Column("late_ns", WHOLE, "in the whole capture: the longest single wait of all others for it"),
        Column("late_at_ns", WHOLE, "when it arrived then, since the first GPU operation"),
        Column("shift_ns", WHOLE, "shift of its times to the clock of the first rank"),
        Column("spread_ns", WHOLE, "clock error left: 90th percentile"),
        Column(
            "like_rank", WHOLE, "in a large job: the rank whose events represent it in the report", is_optional=True
        ),
    ),
    rows="ranks",
    header="Rank",
    named_by="rank",
    group=GPU,
    is_folded=True,
    bars=("waited_ns", "awaited_ns"),
    minor=("late_ns", "late_at_ns"),
    constant=("host", "pid", "steps", "shift_ns", "spread_ns", "like_rank"),
)

RANK_STEPS: Final = Entry(
    "rank_steps",
    "Ranks, step by step",
    "The steps of each rank, and how long it only waited for other ranks. With more than 150 steps, a row holds the "
    "means of several consecutive ones.",
    ("kernels",),
    (
        Column("rank", WHOLE, "its number in the job", is_plain=True),
        Column("number", WHOLE, "number of the first step in the row, counted from 0 in the window"),
        Column("steps", WHOLE, "number of steps in the row", is_plain=True),
        Column("start_ns", WHOLE, "when the first of them begins, since the start of the window"),
        Column("time_ns", NUMBER, "length of a step: mean"),
        Column("waited_ns", NUMBER, "time in which its GPU only waited for other ranks to arrive"),
        Column("work_ns", NUMBER, "the rest, except collectives without a capture of all ranks"),
    ),
    rows="steps of ranks",
    place="points",
)

COLLECTIVES: Final = Entry(
    "collectives",
    "Collectives",
    "Collectives in the window. A kernel of a collective also waits for the other ranks; of the kernels of one call, "
    "only the shortest spends all its time transferring.",
    (),
    (
        Column("total_ns", WHOLE, "time of their kernels, added up over all ranks"),
        Column("calls", NUMBER, "number per step, else in the window, on one rank"),
        Column("avg_ns", NUMBER, "kernel duration: mean, including waits"),
        Column("exposed_ns", NUMBER, "total per step, else in the window, while nothing else ran"),
        Column(
            "needed_ns",
            NUMBER,
            "the part of that in all-reduces whose result the next layer needs, as in tensor parallelism",
            is_optional=True,
        ),
        Column("skew_ns", NUMBER, "how much later the last rank arrives than the first: mean"),
        Column("transfer_ns", NUMBER, "duration of the shortest kernel of a call: median"),
        Column("last_rank", WHOLE, "the rank that most often arrives last"),
        Column("last_pct", NUMBER, "share of calls in which it does"),
        Column("message_bytes", WHOLE, "bytes that a rank contributes to one call"),
        Column("algorithm_bytes_per_s", NUMBER, "message size divided by transfer time, as nccl-tests counts it"),
        Column("bus_bytes_per_s", NUMBER, "the same per link: bus bandwidth, as nccl-tests defines it"),
        Column("link_pct", NUMBER, "the same in percent of NVLink's published rate in one direction", is_optional=True),
        Column("group_size", WHOLE, "number of ranks in the communicator", is_plain=True),
        Column("group", TEXT, "the communicator"),
        Column("name", TEXT, "the collective", is_plain=True),
    ),
    one_of=("kernels", "collectives"),
    rows="collectives",
    header="Collective",
    group=GPU,
    bars=("exposed_ns",),
    minor=("algorithm_bytes_per_s",),
    constant=("group", "group_size", "last_pct"),
    names="code",
)

SENDS: Final = Entry(
    "sends",
    "Sends and receives",
    "Messages from one rank to another, in the window. Kernels of both sides wait for each other, but small messages "
    "are sent ahead.",
    ("kernels",),
    (
        Column("from_rank", WHOLE, "the rank that sends", is_plain=True),
        Column("to_rank", WHOLE, "the rank that receives", is_plain=True),
        Column("calls", NUMBER, "number of messages per step, else in the window"),
        Column("message_bytes", NUMBER, "size of a message: mean"),
        Column("transfer_ns", NUMBER, "from the arrival of both until the receiver has the message: median"),
        Column("bytes_per_s", NUMBER, "message size divided by transfer time"),
        Column("to_waited_ns", NUMBER, "time per step in which the receiver waits for the sender to begin: mean"),
        Column("from_waited_ns", NUMBER, "time per step in which the sender waits for the receiver to begin: mean"),
    ),
    rows="pairs of ranks",
    header="From rank",
    named_by="from_rank",
    group=GPU,
    bars=("to_waited_ns", "from_waited_ns"),
)

PIPELINE_STAGES: Final = Entry(
    "pipeline_stages",
    "Pipeline stages",
    "Ranks that send and receive in a chain, in the order in which a step begins on them. The bubble is the part of a "
    "step in which a stage only waits for its neighbors: to fill the pipeline, to drain it, and for slower stages.",
    ("kernels",),
    (
        Column("pipeline", WHOLE, "number of the pipeline, counted from 0", is_plain=True),
        Column("stage", WHOLE, "counted from 0", is_plain=True),
        Column("rank", WHOLE, "its number in the job", is_plain=True),
        Column("step_ns", NUMBER, "length of a step: mean"),
        Column("work_ns", NUMBER, "the rest of a step, without exposed sends and receives: mean"),
        Column("waited_ns", NUMBER, "time per step in which it only waits for a neighbor to send or receive: mean"),
        Column("bubble_pct", NUMBER, "the same in percent of a step"),
        Column(
            "microbatches",
            WHOLE,
            "messages to the next stage per step, of the size that moves most bytes; missing if stages differ",
        ),
        Column(
            "even_pct",
            NUMBER,
            "the bubble of p balanced stages with m microbatches: (p - 1) / (m + p - 1); missing if nothing is sent "
            "back, since steps may then overlap",
        ),
    ),
    rows="stages",
    header="Stage",
    named_by="stage",
    group=GPU,
    bars=("bubble_pct",),
    constant=("pipeline", "microbatches", "even_pct"),
)

ALL_TO_ALL: Final = Entry(
    "all_to_all",
    "All-to-alls",
    "What ranks send to and receive from all others, such as tokens for experts, and how long each then computes until "
    "it calls the next all-to-all of that step: from the first to the second, from the third to the fourth.",
    ("kernels",),
    (
        Column("group", WHOLE, "number of the communicator"),
        Column("rank", WHOLE, "its number in the job", is_plain=True),
        Column("calls", NUMBER, "number per step, else in the window"),
        Column("given_bytes", NUMBER, "bytes that it sends in one call: mean"),
        Column("received_bytes", NUMBER, "bytes that it receives in one call: mean; missing if not recorded"),
        Column("received_pct", NUMBER, "the same in percent of the mean of all ranks"),
        Column("between_ns", NUMBER, "time per step from the end of one to the next: mean"),
        Column("between_pct", NUMBER, "the same in percent of the mean of all ranks"),
    ),
    rows="ranks with all-to-alls",
    header="Rank",
    named_by="rank",
    group=GPU,
    bars=("between_ns",),
    constant=("group",),
)
