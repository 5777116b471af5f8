"""Name what a GPU does or waits for, for all results."""

from typing import Final

# categories of a device's time; where several apply, the first one gets the time
COMPUTE: Final = "compute"
COMMUNICATION: Final = "communication"
COPIES: Final = "copies and sets"
GRAPHS: Final = "CUDA graphs"
UNSEEN: Final = "not recorded"
MODULE: Final = "module load and JIT"
ALLOCATION: Final = "allocation and free"
CAPTURE: Final = "graph capture"
BLOCKING_COPY: Final = "blocking copy"
LAUNCH: Final = "launch"
DEPENDENCY: Final = "dependency"
SYNC: Final = "synchronizing call"
OTHER_CALL: Final = "other CUDA call"
UNKNOWN: Final = "unknown"
HOST: Final = "host code"
BUSY: Final = (COMPUTE, COMMUNICATION, COPIES, GRAPHS)
COMMUNICATES_PCT: Final = 5.0
"""From this share of a window on, texts do not count communication, which is mostly waiting, as being busy."""
IDLE: Final = (
    UNSEEN,
    MODULE,
    ALLOCATION,
    CAPTURE,
    BLOCKING_COPY,
    LAUNCH,
    DEPENDENCY,
    SYNC,
    OTHER_CALL,
    UNKNOWN,
    HOST,
)
"""What a GPU without a recorded operation waits for; with UNSEEN it may not even wait."""


def group_of(category: str) -> str:
    """Return `busy`, `idle`, or `unknown`: the capture does not show whether anything ran."""
    return "busy" if category in BUSY else "unknown" if category == UNSEEN else "idle"


CATEGORY_MEANINGS: Final = (
    (COMPUTE, "kernels"),
    (COMMUNICATION, "NCCL and NVSHMEM kernels, and copies between devices"),
    (COPIES, "all other copies, and memsets"),
    (GRAPHS, "CUDA graphs traced as a whole"),
    (
        UNSEEN,
        "nothing was recorded, but the GPU may have worked: on work from before the recording, on work that no "
        "profiler records, or in a pause of the recording",
    ),
    (MODULE, "a call that loads a module or compiles code"),
    (ALLOCATION, "a call that allocates or frees memory"),
    (CAPTURE, "a CUDA graph was captured: launches between begin and end of a capture run nothing"),
    (BLOCKING_COPY, "a blocking copy: a call without Async, or a copy from or to pageable memory"),
    (
        LAUNCH,
        "the call that launched the operation after the gap was running, or had returned less than 10 µs before (a "
        "note names GPUs whose clocks need another limit)",
    ),
    (DEPENDENCY, "that call had returned earlier: the operation waited on the GPU, for an event or for its turn"),
    (SYNC, "a call that waits for the GPU"),
    (OTHER_CALL, "any other CUDA call"),
    (UNKNOWN, "the launching call was not recorded"),
    (HOST, "no CUDA call was running"),
)
