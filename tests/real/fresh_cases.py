"""What is wrong with each program of half D, decided before any of them ran on a GPU."""

from typing import Final

from tests.real.cases import RealCase

WAITS: Final = ("wait", "wait_and_host_code")

FRESH: Final = (
    RealCase(
        "vit_pretraining", "D", ("launch_bound",), (("", "foreach"), ("launch_bound", "graph")), 0.4, has_kineto=True
    ),
    RealCase("gpt2_finetune", "D", ("small_batch", "launch_bound"), (("", "whole"),), 0.4),
    RealCase("mixture_lm", "E", ("masks", *WAITS, "launch_bound"), (("", "capacity"),), 0.3, has_kineto=True),
    RealCase("segment_unet", "E", ("allocation",), (("", "kept"),), has_kineto=True),
    RealCase("dqn_frames", "D", ("host_code", "wait_and_host_code"), (("", "gpu"),), 0.3),
    RealCase(
        "citation_gnn",
        "D",
        ("pageable_copy", "exposed_copy"),
        (("", "resident"), ("pageable_copy", "pinned")),
    ),
    RealCase("jax_sentences", "D", ("compilation",), (("", "powers"),)),
    # two faults of about the same size
    RealCase(
        "cells_autoencoder",
        "E",
        ("tensor_cores", "pageable_copy", "exposed_copy"),
        (("", "pinned"), ("tensor_cores", "tf32"), ("both", "both")),
    ),
    RealCase(
        "nerf_rays",
        "E",
        ("tensor_cores", "fusion"),
        (("", "compile"), ("tensor_cores", "tf32"), ("both", "both")),
    ),
    RealCase(
        "dino_features",
        "E",
        ("copies_to_host", "pageable_copy", "exposed_copy"),
        (("", "first"), ("pageable_copy", "pinned"), ("exposed_copy", "pinned")),
        has_kineto=True,
    ),
    RealCase(
        "captions_beam",
        "E",
        ("many_small_copies", "copies_to_host", *WAITS),
        (("", "batched"), ("many_small_copies", "listed"), ("copies_to_host", "listed")),
        0.2,
    ),
    RealCase("embedder_batches", "E"),
    RealCase(
        "cupy_seismic",
        "D",
        ("round_trip", "host_code", "wait_and_host_code", "copies_to_host", "pageable_copy"),
        (("", "stays"),),
    ),
    RealCase("lattice_flow", "D", ("uncoalesced", "layout"), (("", "rows"),)),
    RealCase("mesh_skinning", "E", ("many_small_copies",), (("", "packed"),)),
    RealCase("nbody_tiles", "E"),
)
