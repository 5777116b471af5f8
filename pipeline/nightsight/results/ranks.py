"""Ranks of a job, and what they exchange."""

from typing import Final

from nightsight.results.columns import DEVICE, GPU, PID
from nightsight.results.entry import NUMBER, TEXT, WHOLE, Column, Entry

RANKS: Final = Entry(
    "ranks",
    "Ranks",
    "The GPUs of a job that meet in collectives. None can go on before the last one has come: that one did not wait, "
    "and the others did.",
    ("kernels",),
    (
        Column("rank", WHOLE, "its number in the job", is_plain=True),
        Column(
            "host",
            WHOLE,
            "number of its machine, as launchers tell; left out unless known for all ranks",
            is_optional=True,
        ),
        DEVICE,
        PID,
        Column("steps", WHOLE, "repetitions in the window", is_plain=True),
        Column("step_ns", NUMBER, "length of a step on its GPU: median"),
        Column(
            "work_ns",
            NUMBER,
            "mean step without its waits for other ranks, known or possible: what it would take alone",
        ),
        Column("waited_ns", NUMBER, "how long, in a step, its GPU only waited for other ranks to come: mean"),
        Column("awaited_ns", NUMBER, "how long, in a step, all others only waited for this one to come: mean"),
        Column("last_pct", NUMBER, "at how many of the collectives it was the last to come"),
        Column("late_ns", WHOLE, "in the whole capture: the longest that all others only waited for it once"),
        Column("late_at_ns", WHOLE, "when it came then, since the first GPU operation"),
        Column("shift_ns", WHOLE, "by how much its times were moved to the clock of the first rank"),
        Column("spread_ns", WHOLE, "how far from that nine in ten collectives are at most"),
        Column("like_rank", WHOLE, "of a large job: the rank whose events are in the report for it", is_optional=True),
    ),
    rows="ranks",
    header="Rank",
    named_by="rank",
    group=GPU,
    short="ranks",
    is_folded=True,
    bars=("waited_ns", "awaited_ns"),
    minor=("late_ns", "late_at_ns"),
    constant=("host", "pid", "steps", "shift_ns", "spread_ns", "like_rank"),
)

RANK_STEPS: Final = Entry(
    "rank_steps",
    "Ranks, step by step",
    "The steps of each rank, and what of each it only waited for other ranks. Of more than 150 steps, a row holds "
    "several that follow one another: their means.",
    ("kernels",),
    (
        Column("rank", WHOLE, "its number in the job", is_plain=True),
        Column("number", WHOLE, "of the first step in the row, counted from 0 in the window"),
        Column("steps", WHOLE, "how many steps the row holds", is_plain=True),
        Column("start_ns", WHOLE, "when the first of them begins, since the start of the window"),
        Column("time_ns", NUMBER, "length of a step: mean"),
        Column("waited_ns", NUMBER, "how long its GPU only waited for other ranks to come"),
        Column("work_ns", NUMBER, "the rest, but for collectives of which not all ranks have a capture"),
    ),
    rows="steps of ranks",
    place="points",
)

COLLECTIVES: Final = Entry(
    "collectives",
    "Collectives",
    "What ranks call together, in the window. A kernel of a collective also waits for the other ranks: the shortest "
    "one of those that belong together has only transferred.",
    (),
    (
        Column("total_ns", WHOLE, "time of their kernels, added up over all ranks"),
        Column("calls", NUMBER, "how many there are in a step, else in the window, on one rank"),
        Column("avg_ns", NUMBER, "length of a kernel: mean, waiting included"),
        Column("exposed_ns", NUMBER, "the same of all in a step, else in the window, while nothing else ran"),
        Column("skew_ns", NUMBER, "how much later the last rank comes than the first: mean"),
        Column("transfer_ns", NUMBER, "how long the shortest kernel of those that belong together takes: median"),
        Column("last_rank", WHOLE, "the rank that comes last most often"),
        Column("last_pct", NUMBER, "how often it does"),
        Column("message_bytes", WHOLE, "what a rank gives in one call"),
        Column("algorithm_bytes_per_s", NUMBER, "the whole message over the transfer, as nccl-tests counts it"),
        Column("bus_bytes_per_s", NUMBER, "what that is on each link: bus bandwidth, as nccl-tests defines it"),
        Column("link_pct", NUMBER, "the same in percent of NVLink's published rate in one direction", is_optional=True),
        Column("group_size", WHOLE, "number of ranks in the communicator", is_plain=True),
        Column("group", TEXT, "the communicator"),
        Column("name", TEXT, "the collective", is_plain=True),
    ),
    one_of=("kernels", "collectives"),
    rows="collectives",
    header="Collective",
    group=GPU,
    short="collectives",
    bars=("exposed_ns",),
    minor=("algorithm_bytes_per_s",),
    constant=("group", "group_size", "last_pct"),
    names="code",
)

SENDS: Final = Entry(
    "sends",
    "Sends and receives",
    "What one rank sends to another, in the window. Kernels of both sides wait until the other one is there, but small "
    "messages are sent ahead.",
    ("kernels",),
    (
        Column("from_rank", WHOLE, "the rank that sends", is_plain=True),
        Column("to_rank", WHOLE, "the rank that receives", is_plain=True),
        Column("calls", NUMBER, "how many messages there are in a step, else in the window"),
        Column("message_bytes", NUMBER, "size of a message: mean"),
        Column("transfer_ns", NUMBER, "from when both are there until the receiver has it: median"),
        Column("bytes_per_s", NUMBER, "the message over the transfer"),
        Column("to_waited_ns", NUMBER, "how long, in a step, the receiver waits for the sender to begin: mean"),
        Column("from_waited_ns", NUMBER, "how long, in a step, the sender waits for the receiver to begin: mean"),
    ),
    rows="pairs of ranks",
    header="From rank",
    named_by="from_rank",
    group=GPU,
    short="sends",
    bars=("to_waited_ns", "from_waited_ns"),
)

PIPELINE_STAGES: Final = Entry(
    "pipeline_stages",
    "Stages of a pipeline",
    "Ranks that send and receive in a chain, in the order in which a step begins on them. The bubble is what of a step "
    "a stage only waits for its neighbours: to fill the pipeline, to drain it, and for slower stages.",
    ("kernels",),
    (
        Column("pipeline", WHOLE, "which of several pipelines, counted from 0", is_plain=True),
        Column("stage", WHOLE, "counted from 0", is_plain=True),
        Column("rank", WHOLE, "its number in the job", is_plain=True),
        Column("step_ns", NUMBER, "length of a step: mean"),
        Column("work_ns", NUMBER, "the rest of a step beside sends and receives that nothing hides: mean"),
        Column("waited_ns", NUMBER, "how long, in a step, it only waits for a neighbour to send or receive: mean"),
        Column("bubble_pct", NUMBER, "the same in percent of a step"),
        Column(
            "microbatches",
            WHOLE,
            "messages to the next stage in a step, of the size that moves most; missing if stages differ in it",
        ),
        Column(
            "even_pct",
            NUMBER,
            "the bubble of so many even stages with so many microbatches: (p - 1) / (m + p - 1); missing if nothing is "
            "sent back, since steps may then overlap",
        ),
    ),
    rows="stages",
    header="Stage",
    named_by="stage",
    group=GPU,
    short="pipeline",
    bars=("bubble_pct",),
    constant=("pipeline", "microbatches", "even_pct"),
)

ALL_TO_ALL: Final = Entry(
    "all_to_all",
    "All-to-alls",
    "What ranks give to and get from all others, as experts do with tokens, and how long each then computes until it "
    "calls the next all-to-all of that step: of the first until the second, of the third until the fourth.",
    ("kernels",),
    (
        Column("group", WHOLE, "number of the communicator"),
        Column("rank", WHOLE, "its number in the job", is_plain=True),
        Column("calls", NUMBER, "how many there are in a step, else in the window"),
        Column("given_bytes", NUMBER, "what it gives in one call: mean"),
        Column("received_bytes", NUMBER, "what it gets in one call: mean; missing if the capture does not tell"),
        Column("received_pct", NUMBER, "the same in percent of the mean of all ranks"),
        Column("between_ns", NUMBER, "how long, in a step, it takes from the end of one to the next: mean"),
        Column("between_pct", NUMBER, "the same in percent of the mean of all ranks"),
    ),
    rows="ranks with all-to-alls",
    header="Rank",
    named_by="rank",
    group=GPU,
    short="all-to-alls",
    bars=("between_ns",),
    constant=("group",),
)
