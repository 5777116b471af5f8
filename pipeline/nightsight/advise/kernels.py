"""What to do about kernels: the words for each rule of `nightsight.analyze.causes.kernels` and of ncu's limits."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Words(NamedTuple):
    """What was found, what to do in a few words, why it costs time, and what to do."""

    title: str
    short: str
    detail: str
    remedy: str


KERNEL_RULES: Final[Mapping[str, Words]] = {
    "tensor_cores": Words(
        "FP32 work does not use tensor cores",
        "multiply in TF32, BF16 or FP16",
        "CUDA cores multiply in FP32 at a fraction of the rate at which tensor cores multiply TF32, FP16 or BF16.",
        'Where 10 bits of mantissa are enough: torch.set_float32_matmul_precision("high") for products, '
        "torch.backends.cudnn.allow_tf32 = True for convolutions, CUBLAS_TF32_TENSOR_OP_MATH in CUDA. Or train and "
        "infer in BF16 (torch.autocast). Before Ampere, tensor cores multiply FP16 only.",
    ),
    "fusion": Words(
        "Elementwise kernels in a row move the same data again and again",
        "fuse the elementwise kernels",
        "Each kernel reads its inputs from memory and writes its output for the next one to read. One kernel would "
        "read and write once.",
        "Compile the function around it (torch.compile, jax.jit), or write the chain as one kernel (Triton, "
        "cupy.fuse); use the fused form where the library has one (gelu, softmax, layer_norm, scaled_dot_product).",
    ),
    "attention": Words(
        "Attention is written out, and its scores go through memory",
        "use one kernel for all of attention",
        "The scores grow with the square of the sequence. Each kernel between the two products reads all of them from "
        "memory and writes them again. One kernel for all of attention keeps them on the chip; its products get "
        "faster too, which is not counted here.",
        "Call torch.nn.functional.scaled_dot_product_attention, with is_causal=True instead of a mask; "
        'attn_implementation="sdpa" or "flash_attention_2" in Hugging Face models; FlashAttention or cuDNN elsewhere.',
    ),
    "fused_optimizer": Words(
        "The optimizer does one operation at a time",
        "use a fused optimizer",
        "Every operation reads and writes the parameters' state again; a fused update does so once.",
        "torch.optim.Adam(..., fused=True), or AdamW and SGD likewise; compile the step of others "
        "(torch.compile(optimizer.step)). If batches touch few rows of large embeddings: Embedding(sparse=True).",
    ),
    "fp64": Words(
        "Kernels compute in FP64",
        "compute in FP32",
        "FP64 moves twice the bytes of FP32, and does arithmetic at half of its rate or less: half of the time counts.",
        "NumPy's arrays become FP64 tensors, and a model that is cast to them, too: torch.from_numpy(x).float(), "
        "dtype=torch.float32. Keep FP64 where its digits are needed, such as in sums.",
    ),
    "layout": Words(
        "Convolutions turn their tensors from one layout to the other",
        "use channels_last",
        "Tensor cores convolve in NHWC, so cuDNN turns tensors in NCHW over before a convolution, and back after it.",
        "model.to(memory_format=torch.channels_last), and the inputs likewise.",
    ),
    "concatenation": Words(
        "Tensors are concatenated again and again",
        "write into a buffer that is allocated once",
        "A concatenation reads all of its inputs and writes them again: a cache that grows by little is copied whole.",
        "Allocate the whole buffer once, and write what is new in its place (a static KV cache, index_copy_, a slice, "
        "out=). Or keep the parts in a list, and concatenate once at the end.",
    ),
    "small_grid": Words(
        "A long kernel uses few of the GPU's SMs",
        "launch more blocks",
        "Its grid has fewer blocks than the GPU has SMs, and nothing else runs meanwhile.",
        "Divide the work into more blocks (a smaller tile, split-K, one more dimension in the grid), process a larger "
        "batch, or run independent kernels beside it on other streams.",
    ),
    "tail": Words(
        "The last wave of blocks leaves most of the GPU idle",
        "divide the work into whole waves",
        "All blocks take about the same time, and those of the last wave run when the others have ended.",
        "Choose a tile that divides the work into whole waves, or let a grid of as many blocks as fit loop over the "
        "tiles (a persistent kernel, stream-K).",
    ),
    "uncoalesced": Words(
        "Neighbouring threads access memory that is far apart",
        "let neighbouring threads access neighbouring elements",
        "Each access fetches a sector of 32 bytes, of which it uses a part. The cache is busy with what nobody reads.",
        "Let neighbouring threads access neighbouring elements: change the order of the dimensions, go through shared "
        "memory, or keep the tensor in the layout that the kernel reads (contiguous, channels_last).",
    ),
    "registers": Words(
        "Registers leave room for few warps",
        "use fewer registers",
        "The kernel waits for latencies, and too few warps are there to fill the time.",
        "Use fewer registers per thread: __launch_bounds__, -maxrregcount, num_warps in Triton, or smaller tiles.",
    ),
    "shared_memory": Words(
        "Shared memory leaves room for few warps",
        "use less shared memory",
        "The kernel waits for latencies, and too few warps are there to fill the time.",
        "Use less shared memory per block: smaller tiles, or fewer stages (num_stages in Triton).",
    ),
    "at_roof": Words(
        "Kernels at the peak of the GPU",
        "do less of that work",
        "The unit that limits them is nearly always busy, so nothing helps that leaves the work as it is.",
        "Do less of that work: fuse kernels with their neighbours or use a smaller type if it is traffic; if it is "
        "arithmetic, use a smaller type or fewer operations.",
    ),
}
"""For each rule what to say. `at_roof` promises nothing: it is a statement about a kernel, not advice."""
