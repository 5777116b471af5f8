"""The real programs as data: what is wrong with each, the advice it must get, and the form in which that is mended.

Causes are developed on the programs of half `A` and only reported for those of `B`. Nobody who develops causes reads
halves `C` to `G`: they are in `blind_cases.py`, `fresh_cases.py` and `third_cases.py`. Of `D`, captures and reports may
be read.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class RealCase:
    """A program. rules: the first advice must be one of these; none for a healthy program.

    fixes: the form that mends it, by rule; "" represents all other rules, "both" a form that does more than one finding
    asks for. share: of the steps when it is captured. has_kineto: whether torch.profiler records it, too.
    """

    name: str
    half: str
    rules: tuple[str, ...] = ()
    fixes: tuple[tuple[str, str], ...] = ()
    share: float = 0.5
    has_kineto: bool = False

    @property
    def forms(self) -> tuple[str, ...]:
        """All forms that are timed."""
        return ("base", *dict.fromkeys(form for _, form in self.fixes))


REAL: Final = {
    case.name: case
    for case in (
        RealCase("accelerate_bert", "A", ("tensor_cores",), (("", "bf16"), ("tensor_cores", "tf32")), has_kineto=True),
        RealCase("bert_padding", "B", ("padding",), (("", "longest"),)),
        RealCase(
            "llama_checkpointing",
            "A",
            ("recomputation", "fusion"),
            (("", "stored"), ("fusion", "compile"), ("launch_bound", "compile")),
        ),
        RealCase("gpt2_vocabulary", "B", ("misaligned",), (("", "padded"),)),
        RealCase("gpt2_generate", "A", ("launch_bound",), (("", "static"),), 0.4, has_kineto=True),
        RealCase("llama_decode", "B", ("launch_bound",), (("", "static"), ("memory_bound_decode", "batch")), 0.2),
        RealCase(
            "sentence_embeddings",
            "A",
            ("small_batch", "tensor_cores", "launch_bound"),
            (("", "large"), ("launch_bound", "graph"), ("tensor_cores", "bf16")),
        ),
        RealCase("vit_attention", "B", ("attention",), (("", "fused"),), has_kineto=True),
        RealCase(
            "convnext_nchw",
            "A",
            ("launch_bound", "fusion"),
            (("", "channels_last"), ("fusion", "compile"), ("launch_bound", "graph")),
        ),
        RealCase("lightning_images", "B", ("host_code",), (("", "workers"),)),
        RealCase("audio_features", "A", ("host_code",), (("", "gpu"),)),
        RealCase("image_folder", "B", ("restarted_workers",), (("", "persistent"),), 0.6),
        # FP32 was slower (50.5 against 39.5 ms): the factorization consists of small launches
        RealCase("exact_gp", "A", ("launch_bound",)),
        RealCase("e3nn_molecules", "B", ("launch_bound", "fusion"), (("", "compile"), ("launch_bound", "graph"))),
        RealCase("pyg_molecules", "A", ("host_code",), (("", "workers"),), has_kineto=True),
        RealCase("neural_ode", "B", ("wait", "launch_bound"), (("", "fixed"),), 0.4, has_kineto=True),
        RealCase(
            "policy_gradient",
            "A",
            ("small_batch", "wait", "launch_bound"),
            (("", "vectorized"), ("launch_bound", "graph")),
            0.2,
        ),
        RealCase("saved_often", "B", ("host_code", "copies_to_host"), (("", "rarely"),)),
        RealCase("flax_batches", "A", ("host_code",), (("", "thread"), ("exposed_copy", "ahead"))),
        RealCase("jax_loop", "B", ("launch_bound", "not_jitted"), (("", "fused"),), 0.3),
        RealCase("cupy_options", "A", ("fusion",), (("", "kernel"),)),
        RealCase("cupy_converges", "B", ("wait",), (("", "rarely"),), 0.3),
        RealCase("numba_arrays", "A", ("pageable_copy", "copies_to_host", "many_small_copies"), (("both", "device"),)),
        # each product is followed by a copy that waits for it
        RealCase(
            "cublas_batches",
            "B",
            ("copies_to_host", "many_small_copies", "launch_bound", "wait"),
            (("", "together"), ("launch_bound", "batched")),
        ),
        RealCase("jacobi_waits", "A", ("wait", "many_small_copies", "copies_to_host"), (("", "rarely"),)),
        RealCase("spectra_plans", "A", ("loading", "allocation", "host_code"), (("", "kept"),)),
        RealCase("sorted_particles", "A", ("allocation",), (("", "pooled"),)),
        RealCase("llama_healthy", "A"),
        RealCase("jax_healthy", "B"),
        RealCase("native_healthy", "A"),
    )
}
