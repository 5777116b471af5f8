"""The planted causes, as data that needs no torch: the program, the advice it must get, and where that must point."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Final

Step = Callable[[int], None]
Form = str
FORMS: Final = ("bad", "fixed")


@dataclass(frozen=True)
class Case:
    """A program with a planted cause of slowness: `programs/MODULE.py` has a function NAME.

    Given whether to be bad, that function returns a function that runs one step, given its number.

    cause: the planted cause, or what a healthy program does.
    rules: the first advice must be one of these.
    place: the title of the first advice must contain one of these words; any title will do if there are none.
    steps: how many are timed. captured: how many are captured.
    parts: the number of repetitions that nightsight detects in a step without ranges.
    is_whole: the capture begins with the process, not with the measured steps.
    counts: kernels are replayed by ncu, because nsys does not show the cause.
    names: the annotations of nsys, as on the command line: with "shapes", operators and the shapes of their arguments.
    has_gain: the advice predicts a gain.
    source: the capture, if it is not of one of our programs: a path in the folder, without endings.
    window: the part of the capture that is judged, as on the command line.
    """

    module: str
    name: str
    cause: str = ""
    rules: tuple[str, ...] = ()
    place: tuple[str, ...] = ()
    gpus: int = 1
    steps: int = 30
    captured: int = 15
    parts: int = 1
    is_whole: bool = False
    counts: bool = False
    names: str = "auto"
    has_gain: bool = True
    source: str = ""
    window: str = "auto"

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is planted; such a program has one form, `bad`."""
        return not self.rules

    @property
    def file(self) -> str:
        """The name of its captures, without their endings."""
        return self.source or f"{self.name}.bad"

    @property
    def timed_forms(self) -> tuple[Form, ...]:
        """The forms whose step times are compared."""
        return FORMS[:1] if self.is_healthy else FORMS

    @cached_property
    def make(self) -> Callable[[bool], Step]:
        """The program; importing it needs torch, and for some programs Triton or nvtx."""
        factory: Callable[[bool], Step] = getattr(import_module(f"tests.planted.programs.{self.module}"), self.name)
        return factory


CASES: Final = {
    case.name: case
    for case in (
        Case(
            "copies",
            "pageable",
            "a 64 MB batch comes from pageable memory in each step",
            ("pageable_copy",),
            ("load",),
        ),
        Case(
            "copies",
            "pageable_images",
            "inference on images from pageable memory; no ranges, and the set-up is in the capture",
            ("pageable_copy",),
            ("ageable",),
            is_whole=True,
        ),
        Case(
            "copies",
            "small_copies",
            "300 copies of 4 kB to the GPU in each step instead of one",
            ("many_small_copies",),
            ("inputs",),
            captured=12,
        ),
        Case(
            "copies",
            "copies_to_host",
            "the activations of each step are copied to the host, although only their mean is used",
            ("copies_to_host",),
            ("collect",),
        ),
        Case(
            "waits",
            "wait_loss",
            "`.item()` at the end of each step: the GPU drains, and the next step begins with small kernels",
            ("wait",),
            ("log", "step", "cudaStreamSynchronize"),
            captured=12,
        ),
        Case(
            "waits",
            "wait_layers",
            "`torch.cuda.synchronize()` after each layer; no ranges",
            ("wait",),
            ("cudaDeviceSynchronize",),
            parts=24,
        ),
        Case(
            "waits",
            "wait_mask",
            "a tensor is indexed with a mask in each block, which copies the number of rows to the host",
            ("masks", "wait"),
            ("block", "cudaStreamSynchronize"),
        ),
        Case(
            "waits",
            "masked_loss",
            "each of eight heads of a detector takes its valid boxes by a mask; no ranges; fixed: `torch.where`",
            ("masks", "wait"),
        ),
        Case(
            "waits",
            "wait_clip",
            "`.item()` for the gradient norm of each parameter",
            ("wait",),
            ("clip", "cudaStreamSynchronize"),
        ),
        Case(
            "launches",
            "default_stream",
            "two threads launch small kernels on the default stream; fixed: each on its own stream",
            ("default_stream",),
            ("threads",),
        ),
        Case(
            "launches",
            "tiny_kernels",
            "300 tiny kernels in each step; fixed: one CUDA graph; no ranges",
            ("launch_bound",),
            captured=10,
            parts=150,
        ),
        Case(
            "launches",
            "decode",
            "a small model decodes one token at a time; fixed: a CUDA graph for each token",
            ("launch_bound",),
            ("decode", "token", "step"),
            captured=10,
        ),
        Case(
            "launches",
            "optimizer",
            "an optimizer with `foreach=False` on 100 small parameters; fixed: fused",
            ("launch_bound",),
            ("optimizer",),
            captured=10,
        ),
        Case(
            "host",
            "host_load",
            "NumPy prepares each batch in the range `load` while the GPU has nothing to do",
            ("host_code",),
            ("load",),
        ),
        Case(
            "host",
            "host_middle",
            "Python work between forward and backward, without a separate range",
            ("host_code",),
            ("step",),
        ),
        Case(
            "host",
            "host_queue",
            "a thread prepares batches more slowly than the GPU consumes them; fixed: six threads",
            ("host_code",),
            ("next batch", "prepare"),
        ),
        Case(
            "host",
            "host_lock",
            "another thread holds a lock that each step needs; no ranges",
            ("host_code",),
        ),
        Case(
            "host",
            "host_hooks",
            "Python work in hooks of autograd, in autograd's thread",
            ("host_code",),
            ("backward",),
        ),
        Case(
            "host",
            "periodic_idle",
            "the GPU waits for short pieces of host code between the phases of each step",
            ("wait_and_host_code", "host_code", "wait"),
            ("check",),
        ),
        Case(
            "memory",
            "empty_cache",
            "`torch.cuda.empty_cache()` in each step",
            ("allocation",),
            ("cudaFree", "cudaMalloc", "step"),
        ),
        Case(
            "memory",
            "plan_cache",
            "spectra of four lengths, with room for one plan of cuFFT in PyTorch's cache; fixed: the default size",
            ("loading", "allocation", "host_code"),
            ("step",),
        ),
        Case(
            "memory",
            "raw_allocation",
            "workspaces from cudaMalloc in each step, released with cudaFree",
            ("allocation",),
            ("cudaFree", "cudaMalloc", "workspace"),
        ),
        Case(
            "memory",
            "compilation",
            "a Triton kernel is compiled in each step because a constexpr changes",
            ("compilation",),
            ("scale",),
            steps=5,
            captured=6,
        ),
        Case(
            "memory",
            "loading",
            "a module is loaded in each step",
            ("loading", "compilation"),
            ("cuModuleLoad", "plugin"),
        ),
        Case(
            "kernels",
            "gelu",
            "GELU as nine elementwise kernels",
            ("fusion",),
            ("mul, add, tanh",),
        ),
        Case(
            "kernels",
            "layer_norm",
            "layer normalization by hand; no ranges",
            ("fusion",),
            ("mean", "rsqrt"),
        ),
        Case(
            "kernels",
            "matmul_fp32",
            "FP32 matrix products; fixed: TF32",
            ("tensor_cores",),
            ("gemm",),
            steps=20,
        ),
        Case(
            "kernels",
            "block_fp32",
            "a transformer block in FP32; fixed: BF16 autocast",
            ("tensor_cores",),
            ("gemm", "block"),
            steps=20,
            captured=10,
        ),
        Case(
            "kernels",
            "flash_attention",
            "attention in FlashAttention-2 on Hopper; fixed: cuDNN",
            ("flash_attention_2",),
            ("flash",),
            steps=20,
            captured=10,
        ),
        Case(
            "kernels",
            "one_stream",
            "two independent chains of kernels with small grids on one stream",
            ("one_stream", "small_grid"),
            ("chain", "iterate"),
        ),
        Case(
            "kernels",
            "small_grid",
            "16 blocks with long loops; no ranges",
            ("small_grid",),
            ("block_sums",),
            parts=3,
        ),
        Case(
            "kernels",
            "uncoalesced",
            "a kernel whose neighboring threads read from different rows; no ranges",
            ("uncoalesced",),
            ("double",),
            parts=4,
            counts=True,
        ),
        Case(
            "batches",
            "padding",
            "samples of 20 to 119 tokens are padded to 512; fixed: padded to the longest of the batch",
            ("padding",),
            ("mask",),
            steps=20,
            captured=6,
            names="shapes",
            has_gain=False,
        ),
        Case(
            "batches",
            "small_batch",
            "a policy acts in one environment at a time; fixed: in eight (times per environment)",
            ("small_batch", "launch_bound", "wait", "wait_and_host_code"),
            steps=160,
            captured=40,
            has_gain=False,
        ),
        Case(
            "compiled",
            "compiled_item",
            "`.item()` in each of 24 compiled layers, for a scale; fixed: a tensor",
            ("wait", "wait_and_host_code", "launch_bound"),
            ("`Tensor.item()`",),
        ),
        Case(
            "compiled",
            "compiled_print",
            "`print` between the parts of a compiled function with CUDA graphs",
            ("host_code", "launch_bound"),
            ("`print`",),
            steps=100,
            captured=60,
        ),
        Case(
            "compiled",
            "compiled_call",
            "a compiled function with CUDA graphs hashes names with a C library; fixed: hashed before",
            ("host_code", "launch_bound"),
            ("`zlib.crc32`",),
            steps=100,
            captured=60,
        ),
        Case(
            "compiled",
            "compiled_shape",
            "`dynamic=False`, and each batch has another length; fixed: `mark_dynamic`",
            ("compilation",),
            ("the size of `scores` in dimension 1",),
            steps=1,
            captured=6,
        ),
        Case(
            "compiled",
            "compiled_integer",
            "a module counts its calls in an integer; fixed: in a tensor",
            ("compilation",),
            ("`self.seen`",),
            steps=1,
            captured=6,
        ),
        Case(
            "compiled",
            "compiled_global",
            "a compiled function uses a global that changes; fixed: an argument",
            ("compilation",),
            ("the global `LEVEL`",),
            steps=1,
            captured=6,
        ),
        Case(
            "compiled",
            "compiled_addresses",
            "a parameter has another address in each step, so its CUDA graph is recorded again; fixed: copied into it",
            ("compilation",),
            ("records a CUDA graph again",),
            steps=10,
            captured=12,
        ),
        Case(
            "ranks",
            "exposed_communication",
            "all gradients are reduced after the backward pass; fixed: DistributedDataParallel",
            ("exposed_communication",),
            gpus=2,
            captured=10,
        ),
        Case(
            "ranks",
            "small_gradients",
            "the gradients of 200 small parameters are reduced one by one; fixed: reduced as one tensor",
            ("small_collectives",),
            ("gradients",),
            gpus=2,
            captured=10,
        ),
        Case(
            "ranks",
            "straggler",
            "rank 1 computes three quarters of the batch",
            ("straggler",),
            ("GPU 1",),
            gpus=2,
            captured=10,
        ),
        Case(
            "ranks",
            "straggler_host",
            "rank 1 prepares its batch on the CPU in the range `load`",
            ("host_code",),
            ("load",),
            gpus=2,
            captured=10,
        ),
        Case("healthy", "matmuls", "matrix products in BF16", steps=20, captured=10),
        Case("healthy", "fused_kernel", "GELU in one Triton kernel; no ranges", parts=2),
        Case("healthy", "graph_step", "each step is a CUDA graph"),
        Case("healthy", "prefetch", "batches are copied ahead of time; the set-up is in the capture", is_whole=True),
        Case("healthy", "transformer", "training in BF16", captured=10),
        Case("ranks", "overlapped", "DistributedDataParallel that hides communication", gpus=2, captured=10),
    )
}
"""Our programs."""

OTHERS: Final = {
    case.name: case
    for case in (
        Case("", "pageable", "a 134 MB batch comes from pageable memory", ("pageable_copy",), source="pageable"),
        Case("", "launch", "400 tiny kernels in each step; fixed: one CUDA graph", ("launch_bound",), source="launch"),
        Case("", "loader", "NumPy work in the range `load`", ("host_code",), ("load",), source="loader"),
        Case("", "alloc", "`torch.cuda.empty_cache()` in each step", ("allocation",), source="alloc"),
        Case("", "fp32", "FP32 matrix products", ("tensor_cores",), source="../../nsys/causes/fp32"),
        Case("", "unfused", "GELU as nine elementwise kernels", ("fusion",), source="../../nsys/causes/unfused"),
        Case("", "healthy", "matrix products at 94 % of the tensor cores", source="../../nsys/causes/healthy"),
        Case(
            "",
            "chat_decode",
            "a KV cache that torch.cat extends with each token; no ranges",
            ("concatenation",),
            ("cat",),
            parts=8,
            source="chat_decode",
        ),
        Case("", "molecule_md", "a model in FP64, because NumPy's arrays are in FP64", ("fp64",), source="molecule_md"),
        Case(
            "",
            "voice_serve",
            "cudnn.benchmark searches again for each new length",
            ("compilation",),
            source="voice_serve",
        ),
        Case(
            "",
            "ctr_recsys",
            "Adagrad updates all rows of large embeddings, although a batch uses few; fixed: sparse gradients",
            ("fused_optimizer",),
            source="ctr_recsys",
        ),
    )
}
"""Captures of programs that were not written for this check."""

PEOPLE: Final = {
    case.name: case
    for case in (
        Case("", "hf_trainer", "GPT-2 in FP32, HF Trainer", ("tensor_cores",), source="hf_trainer"),
        Case("", "epoch_workers", "workers start for each epoch", ("restarted_workers",), source="epoch_workers"),
        Case("", "attention", "a GPT with attention as in tutorials, AMP", ("attention",), source="attention"),
        Case("", "segmentation", "FCN-ResNet-50 in FP32", ("tensor_cores",), source="segmentation"),
        Case("", "windows", "windows that are permuted and copied", ("device_copy",), parts=8, source="windows"),
        Case("", "slow_items", "images made in the main process", ("host_code",), ("DataLoader",), source="slow_items"),
        Case("", "peft_lora", "GPT-2 with LoRA in FP32", ("tensor_cores",), source="peft_lora"),
    )
}
"""Programs as people write them: the libraries' own loops, no annotations (docs/causes.md)."""

RANKS: Final = {
    case.name: case
    for case in (
        Case(
            "",
            "exposed",
            "gradients are reduced after the backward pass, one by one",
            ("exposed_communication",),
            gpus=2,
        ),
        Case(
            "",
            "straggler_host",
            "rank 1 works on the CPU in the range `load`",
            ("host_code",),
            ("`load`", "Rank 1"),
            gpus=2,
        ),
        Case(
            "", "straggler_compute", "rank 1 computes three quarters of the batch", ("straggler",), ("Rank 1",), gpus=2
        ),
        Case(
            "",
            "kineto_straggler_compute",
            "the same, recorded by torch.profiler",
            ("straggler",),
            ("Rank 1",),
            gpus=2,
        ),
        Case(
            "",
            "unequal_batches",
            "in turn, one rank computes three quarters of the batch",
            ("straggler",),
            ("different rank",),
            gpus=2,
        ),
        Case(
            "",
            "checkpointed",
            "every fifth step, rank 0 saves a layer, and rank 1 waits for it in the next collective",
            ("host_code",),
            ("`checkpoint`", "Rank 0"),
            gpus=2,
        ),
        Case(
            "",
            "staged",
            "a pipeline of two stages: two layers on rank 0, six on rank 1",
            ("uneven_stages",),
            ("Rank 1",),
            gpus=2,
        ),
        Case(
            "",
            "experts",
            "the router sends three quarters of the tokens to rank 1",
            ("uneven_experts",),
            ("Rank 1",),
            gpus=2,
        ),
        Case(
            "",
            "late_joiner",
            "rank 1 reads a dataset for three seconds before its first collective (the whole run)",
            ("host_code",),
            ("`read the dataset`", "Rank 1"),
            gpus=2,
            window="whole",
        ),
        Case(
            "",
            "grid",
            "rank 3 of four (two tensor-parallel groups of two) works on the CPU in `load`",
            ("host_code",),
            ("`load`", "Rank 3"),
            gpus=4,
        ),
        Case("", "overlapped", "DistributedDataParallel that hides communication", gpus=2),
    )
}
"""Captures of each rank of `tests/gpu/ranks.py`: NAME.0, NAME.1, ..."""

JOBS: Final = {
    case.name: case
    for case in (
        Case("", "ddp", "DistributedDataParallel", gpus=4),
        Case("", "fsdp", "FSDP by layer", gpus=4),
        Case("", "one_rank_augments", "rank 3 prepares images on the CPU", ("host_code",), ("Rank 3",), gpus=4),
        Case("", "one_rank_has_more", "rank 2 has two thirds more rows", ("straggler",), ("Rank 2",), gpus=4),
        Case(
            "",
            "lengths_differ",
            "sequences of random lengths; fixed: the same length on all ranks",
            ("straggler",),
            ("different rank",),
            gpus=4,
        ),
        Case(
            "",
            "reduced_after_backward",
            "gradients are averaged after the backward pass",
            ("exposed_communication",),
            gpus=4,
        ),
        Case("", "accumulated", "gradients are reduced for each of four batches", ("repeated_reduction",), gpus=4),
        Case("", "fsdp_whole", "FSDP gathers all layers at once", ("exposed_communication",), gpus=4),
        Case("", "fsdp_logs", "FSDP, and the norm of each layer is logged", ("wait",), ("FSDP",), gpus=4),
        Case(
            "",
            "tensor_and_data",
            "two pairs of tensor-parallel ranks; ranks 2 and 3 have twice the rows",
            ("straggler",),
            ("ranks 2 and 3",),
            gpus=4,
        ),
        Case(
            "",
            "uneven_stages",
            "a pipeline whose third stage has three times the layers",
            ("uneven_stages",),
            ("Rank 2",),
            gpus=4,
        ),
        Case("", "uneven_experts", "the router prefers the expert of rank 3", ("uneven_experts",), ("Rank 3",), gpus=4),
    )
}
"""Programs of `tests/gpu/jobs.py`, all ranks in one capture; docs/ranks.md has all, the tests only small captures."""
