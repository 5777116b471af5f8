"""What is wrong with each program of half C, decided before any of its captures was looked at; and all programs."""

from typing import Final

from tests.real.cases import REAL, RealCase
from tests.real.fresh_cases import FRESH
from tests.real.third_cases import THIRD

WAITS: Final = ("wait", "wait_and_host_code")

BLIND: Final = (
    RealCase(
        "trainer_norms", "C", (*WAITS, "many_small_copies", "copies_to_host"), (("", "rarely"),), 0.4, has_kineto=True
    ),
    RealCase("video_fp32", "C", ("tensor_cores",), (("", "bf16"), ("tensor_cores", "tf32"))),
    RealCase(
        "foreach_off", "C", ("fused_optimizer", "launch_bound"), (("fused_optimizer", "fused"),), 0.4, has_kineto=True
    ),
    RealCase("scan_loop", "C", ("launch_bound",), (("", "parallel"), ("launch_bound", "graph")), 0.4),
    RealCase("volumes_pageable", "C", ("pageable_copy", "exposed_copy"), (("", "pinned"),)),
    RealCase("graph_sampling", "C", ("host_code",), (("", "workers"),)),
    RealCase("recommender", "C", ("launch_bound",), (("", "merged"), ("launch_bound", "graph")), 0.3),
    RealCase("jax_metrics", "C", (*WAITS, "copies_to_host", "many_small_copies"), (("", "rarely"),), 0.4),
    RealCase("diffusion_unet", "C", ("launch_bound",), (("", "graph"),), 0.3, has_kineto=True),
    RealCase("seq2seq_cat", "C", ("concatenation",), (("", "static"),), 0.34),
    RealCase("particles_masks", "A", ("masks", *WAITS), (("", "where"),), 0.4),
    RealCase("pinn_fp64", "C", ("fp64",), (("", "fp32"),)),
    RealCase("heat_thrust", "C", ("allocation", *WAITS), (("allocation", "reused"), ("both", "rarely"))),
    RealCase("fft_plans", "C", ("allocation", "host_code", "loading"), (("", "once"),)),
    RealCase("resnet_healthy", "C"),
    RealCase("pipelined_healthy", "C"),
)

ALL: Final = {**REAL, **{case.name: case for case in (*BLIND, *FRESH, *THIRD)}}
