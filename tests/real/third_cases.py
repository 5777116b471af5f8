"""What is wrong with each program of halves F and G, decided before any of them ran on a GPU."""

from typing import Final

from tests.real.cases import RealCase

WAITS: Final = ("wait", "wait_and_host_code")

THIRD: Final = (
    RealCase(
        "dcgan_faces", "F", (*WAITS, "launch_bound"), (("", "rarely"), ("launch_bound", "graph")), 0.4, has_kineto=True
    ),
    RealCase("tabular_rows", "F", ("host_code",), (("", "tensors"),)),
    RealCase("speech_errors", "F", ("host_code", "wait_and_host_code"), (("", "rarely"),), 0.4),
    RealCase("jax_neighbors", "F", ("round_trip", "host_code", "wait_and_host_code"), (("", "pairs"),)),
    RealCase("frames_managed", "F", ("migration",), (("", "explicit"),)),
    RealCase("flax_mixer", "F"),
    # each box needs some small kernels, and then the host asks for their result
    RealCase(
        "detection_service",
        "G",
        ("masks", *WAITS, "many_small_copies", "launch_bound"),
        (("", "table"),),
        0.2,
    ),
    RealCase("ppo_pendulums", "G", ("launch_bound", "small_batch"), (("launch_bound", "graph"),), 0.3),
    RealCase("numba_bilateral", "G", ("small_grid", "uncoalesced"), (("", "pixels"),)),
    RealCase("multigrid_checks", "G", (*WAITS, "launch_bound"), (("", "ahead"), ("launch_bound", "graph"))),
    RealCase("series_bias", "G", ("host_code", "pageable_copy", "exposed_copy"), (("", "buffer"),), has_kineto=True),
    RealCase("opt_pretraining", "G"),
)
