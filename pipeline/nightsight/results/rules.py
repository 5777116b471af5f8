"""What can be changed in a program, one declaration a rule: what is simulated, what is said, when it is worth it.

Everything else follows: the values of the result `what_if`, the words of advice and of the first screen, the table in
docs/advice.md. `nightsight.analyze.causes.remedies` proposes the changes and simulates them.
"""

from dataclasses import dataclass
from typing import Final

from nightsight.results.categories import ALLOCATION, COMMUNICATION, COMPUTE, COPIES, HOST, LAUNCH, MODULE, SYNC

WORTH_PCT: Final = 3.0
"""From which gain on, in percent of a step, a remedy is worth a word."""
AT_START: Final = "It happens once, and matters only if the program is brief or often started."
"""What is said of the start-up, of which nothing is worth what it is worth in a step."""


@dataclass(frozen=True, kw_only=True)
class Words:
    """What is said about a cause of lost time, and how it is found.

    looks_for, simulated: for docs/advice.md. action: what to do, in a few words. title: the cause. detail: why it costs
    time. remedy: what to do.
    """

    name: str
    looks_for: str
    simulated: str
    action: str
    title: str
    detail: str
    remedy: str


@dataclass(frozen=True, kw_only=True)
class Rule(Words):
    """A remedy that is simulated on the timeline. Its title may have {where}, {name}, {cases}, {each} and {most}.

    change: what is different, for readers of `what_if`. done: the same as what somebody does ("pinning memory").
    things: what its cases are, one and several. causes: categories of the critical path that are evidence.
    worth_pct: the least gain, in percent of a step, that is worth its work. counts: how a gain counts for the first
    place. once: the remedy where nothing repeats. at_start: the remedy of the start-up. of_rank: the title where a rank
    is known that the others wait for. saves: the time is what can be saved; otherwise it is what the cause costs.
    shares_time: other such remedies in the same place gain the same time, so only the best is said. of_kernels: it
    needs no CUDA calls, and names kernels.
    """

    change: str
    done: str
    things: tuple[str, str] = ("operation", "operations")
    causes: tuple[str, ...] = ()
    worth_pct: float = WORTH_PCT
    counts: float = 1.0
    once: str = ""
    at_start: str = AT_START
    of_rank: str = ""
    saves: bool = False
    shares_time: bool = False
    of_kernels: bool = False


RULES: Final = (
    Rule(
        name="host_code",
        change=(
            "this host code does not hold the GPU up: it runs ahead of time, or in another thread or process; "
            "`name`: of several GPUs the one whose process runs it"
        ),
        looks_for=(
            "host code before a CUDA call that takes more than 100 µs, by range; more than 500 µs in ranges with "
            "five or more launches of their own in a step: shorter code belongs to launching"
        ),
        simulated="without it",
        done="moving host code out of the way",
        action="do it ahead of time, or in another thread",
        title="The GPU waits for host code {where}",
        detail="Nothing is launched while this code runs, and the GPU has nothing left to do.",
        remedy=(
            "Do it ahead of time, in another process or thread (DataLoader workers, prefetching). Make faster "
            "what has to run here: no Python loop over elements, fewer and larger operations, torch.compile."
        ),
        at_start=(
            "It happens once: imports, data and weights that are read, setting up. If it matters, import and read "
            "less, or keep the process alive between runs."
        ),
        of_rank="{name} runs host code {where}, and the others wait for it",
        things=("piece of host code", "pieces of host code"),
        causes=(HOST,),
        shares_time=True,
    ),
    Rule(
        name="interpreter",
        change=(
            "Python code of threads that launch nothing runs in another process, so that no thread that launches "
            "waits for its turn (GIL); `name`: the function that runs most"
        ),
        looks_for=(
            "samples of Python's stack: 30 % or more are of threads that launch nothing, in more than one place "
            "of the program"
        ),
        simulated="the time of these samples in host code of threads that launch",
        done="moving Python code to another process",
        action="move it to another process",
        title="Python code of another thread keeps the interpreter: `{name}`",
        detail=(
            "Only one thread of a process runs Python at a time (GIL). While that thread does, the one that "
            "launches waits for its turn, again and again, 5 ms or more each time."
        ),
        remedy=(
            "Run that code in a process of its own (multiprocessing, a DataLoader worker), do less of it, or "
            "leave it to code that gives the interpreter back meanwhile (NumPy, C++)."
        ),
        things=("piece of host code", "pieces of host code"),
        causes=(HOST,),
    ),
    Rule(
        name="wait",
        change="no wait for the GPU here; the copy to the host that it waits for is made, but not waited for",
        looks_for="synchronizing calls, and copies to the host that are waited for, by range",
        simulated="the thread goes on at once",
        done="not waiting for the GPU",
        action="do not wait there",
        title="The CPU waits for the GPU {where} ({name})",
        detail="While it waits, its thread launches nothing, so the GPU runs dry until the next launches arrive.",
        remedy=(
            "Do not wait in each step: no .item(), .cpu(), print of a tensor or branch on one. Keep values on the "
            "GPU, and fetch them once in many steps, or one step late from pinned memory."
        ),
        things=("wait", "waits"),
        causes=(SYNC,),
        shares_time=True,
    ),
    Rule(
        name="wait_and_host_code",
        change="neither the wait nor the host code in this range",
        looks_for="both in one range",
        simulated="without both, if that gains 1.2 times as much as the better one alone",
        done="removing a wait and the host code after it",
        action="take the wait or the host code out",
        title="The GPU runs dry {where}, which waits for it and then runs host code",
        detail="The wait keeps the CPU from running ahead, so the GPU has nothing to do during the host code after it.",
        remedy=(
            "Take the wait (.item(), .cpu(), synchronize) or the host code out of the step, or do both once in "
            "many steps."
        ),
        things=("wait with host code", "waits with host code"),
        causes=(SYNC, HOST),
        shares_time=True,
    ),
    Rule(
        name="launch_bound",
        change=(
            "the launches of a step as one CUDA graph, or one between two waits; `name`: where most of them are, "
            "if in several places"
        ),
        looks_for="launches with no more host code than that between them",
        simulated=(
            "one graph a step, or one between two waits: 10 µs for its launch, nothing between kernels on the CPU"
        ),
        done="launching CUDA graphs",
        action="use a CUDA graph",
        title="The GPU waits for launches {where}, {cases} {each}{most}",
        detail="The CPU takes longer to launch this work than the GPU to do it.",
        remedy=(
            'Launch the work as a CUDA graph (torch.compile(mode="reduce-overhead"), torch.cuda.graph), or launch '
            "less: fused kernels, fused or foreach optimizers, larger batches. A graph cannot hold a wait for the "
            "GPU."
        ),
        things=("launch", "launches"),
        causes=(LAUNCH,),
        worth_pct=5.0,
        counts=0.4,
    ),
    Rule(
        name="allocation",
        change="nothing is allocated or freed",
        looks_for="calls that allocate or free memory",
        simulated="without them and their waits",
        done="allocating only once",
        action="allocate before the loop",
        title="Memory is allocated and freed {where}, {cases} calls {each}, most of their time in {name}",
        detail="cudaFree waits for the GPU, and cudaMalloc takes long.",
        remedy=(
            "Do not call torch.cuda.empty_cache() in a loop, keep PyTorch's caching allocator on, allocate "
            "buffers before the loop, or use cudaMallocAsync."
        ),
        things=("call", "calls"),
        causes=(ALLOCATION,),
    ),
    Rule(
        name="loading",
        change="no module is loaded, and no kernel for the first time",
        looks_for="calls that load modules, and first launches that take ten times as long as usual",
        simulated="without them",
        done="loading code only once",
        action="load once, before the work",
        title="Modules or kernels are loaded {where}, most of the time in {name}",
        detail="A thread that loads code launches nothing meanwhile.",
        remedy="Load each module once, before the loop; warm up every kernel and shape; CUDA_MODULE_LOADING=EAGER.",
        once=(
            "That happens once. If it matters, load fewer modules, or keep the process alive between runs. To see "
            "what follows, choose that part (--window)."
        ),
        at_start="It happens once. If it matters, load fewer modules, or keep the process alive between runs.",
        things=("call", "calls"),
        causes=(MODULE,),
    ),
    Rule(
        name="compilation",
        change="nothing is compiled: no module is loaded, and no host code runs just before",
        looks_for="the same, after 3 ms or more of host code",
        simulated="without them and that host code",
        done="compiling only once",
        action="compile once",
        title="Code is compiled {where}, then loaded with {name}",
        detail="Host code runs until a new module is loaded: a compiler (Triton, NVRTC, torch.compile).",
        remedy=(
            "Compile once: no argument that specialises the kernel (tl.constexpr, shapes) may change from step to "
            "step; torch.compile(dynamic=True); torch.backends.cudnn.benchmark = False, or padded lengths; warm "
            "up before the loop."
        ),
        once=(
            "That happens once. Keep what was compiled between runs (TRITON_CACHE_DIR, "
            "TORCHINDUCTOR_FX_GRAPH_CACHE=1). To see what follows, choose that part (--window)."
        ),
        at_start=(
            "It happens once. If it matters, keep what was compiled between runs (TRITON_CACHE_DIR, "
            "TORCHINDUCTOR_FX_GRAPH_CACHE=1)."
        ),
        things=("call", "calls"),
        causes=(MODULE, HOST),
        shares_time=True,
    ),
    Rule(
        name="pageable_copy",
        change="copies from pinned memory, on a stream of their own, ahead of time",
        looks_for="copies of 256 kB or more from pageable memory",
        simulated=(
            "at the rate of pinned copies in the capture, else 85 % of what is published for the link; on a "
            "stream of their own, nothing waits"
        ),
        done="pinning memory",
        action="pin the memory and copy ahead of time",
        title="Copies of pageable memory {where} ({name})",
        detail=(
            "Memory that is not pinned goes through a buffer of the driver: the copy is slow, and the call waits "
            "for it."
        ),
        remedy=(
            "Pin the host's side (DataLoader(pin_memory=True), tensor.pin_memory()), and copy ahead of time on a "
            "stream of its own with non_blocking=True."
        ),
        things=("copy", "copies"),
        causes=(COPIES,),
    ),
    Rule(
        name="exposed_copy",
        change="copies on a stream of their own, ahead of time",
        looks_for="the same from pinned memory",
        simulated="on a stream of their own",
        done="copying ahead of time",
        action="copy ahead of time, on a stream of its own",
        title="Copies {where} ({name}) run while nothing is computed",
        detail="Copies on the stream of the kernels come before or after them, not beside them.",
        remedy="Copy the next batch on a stream of its own while this one is computed.",
        things=("copy", "copies"),
        causes=(COPIES,),
    ),
    Rule(
        name="copies_to_host",
        change="copies to pinned memory, on a stream of their own, that nothing waits for",
        looks_for="copies of 256 kB or more to the host",
        simulated="on a stream of their own, and nothing waits",
        done="leaving results on the GPU",
        action="leave the results on the GPU",
        title="Copies to the host {where}",
        detail="Results leave the GPU in each step, and the thread waits for them.",
        remedy=(
            "Reduce them on the GPU and copy less, or copy to pinned memory on a stream of its own and read a "
            "step later."
        ),
        things=("copy", "copies"),
        causes=(COPIES,),
        shares_time=True,
    ),
    Rule(
        name="many_small_copies",
        change="the copies of a step as one",
        looks_for="eight or more smaller copies in a range in each step",
        simulated="one copy in each step",
        done="making one copy of many",
        action="copy once for many",
        title="{cases} small copies {each} {where} ({name})",
        detail="Each costs a call, and most a wait; the bytes cost next to nothing.",
        remedy="Put them into one buffer, and copy that once; or build the values on the GPU.",
        things=("copy", "copies"),
        causes=(LAUNCH, SYNC),
        shares_time=True,
    ),
    Rule(
        name="migration",
        change="pages of managed memory are moved ahead of time, at the rate of the link",
        looks_for="kernels and host code during which pages of managed memory are moved to where they run",
        simulated="pages are there already; moving them takes their bytes at the link's rate",
        done="moving pages ahead of time",
        action="move the pages ahead of time",
        title="Kernels or host code wait for pages of managed memory {where}",
        detail="What touches a page that is on the other side stops until the driver has moved it.",
        remedy=(
            "Move pages before they are needed: cudaMemPrefetchAsync to the GPU before the kernel, and to the "
            "host before the CPU reads. Or keep the data on the GPU (cudaMalloc), and copy between pinned memory "
            "and it."
        ),
        causes=(COMPUTE, HOST),
    ),
    Rule(
        name="exposed_communication",
        change=(
            "computation does not wait for half of the communication that it waits for now; over NVLink, for a seventh"
        ),
        looks_for="collectives that kernels wait for, and of which other ranks are in the capture",
        simulated=(
            "half of their time is hidden, and of those that are as fast as NVLink a seventh (80 GB/s and more; "
            "30 % where bytes are not known): the rest is taken from the kernels beside them, or has nothing "
            "beside it"
        ),
        done="hiding communication",
        action="overlap it with computation",
        title="The GPU waits for communication that nothing hides",
        detail=(
            "Kernels wait for a collective although other work could run beside it. Half of its time counts as "
            "hidden then, over NVLink a seventh: the rest is taken from kernels beside it, or has none."
        ),
        remedy=(
            "Start collectives as soon as their data is ready, on their own stream: DistributedDataParallel with "
            "buckets, FSDP prefetching, async_op=True."
        ),
        things=("collective", "collectives"),
        causes=(COMMUNICATION,),
        worth_pct=2.0,
        saves=True,
    ),
    Rule(
        name="repeated_reduction",
        change=(
            "gradients are reduced only in the last of the backward passes before an update; `name`: how many there are"
        ),
        looks_for=(
            "all-reduces of several backward passes between two runs of an optimizer's (foreach or fused) "
            "kernels: the same two or more sizes in the same order, and the next kernels do not wait for them"
        ),
        simulated="those of all passes but the last transfer nothing; ranks still meet where they did",
        done="reducing gradients once for each update",
        action="reduce gradients once for each update",
        title="Gradients are reduced in each of {name} between two updates",
        detail="The optimizer uses only their sum, so reducing them in the last one is enough.",
        remedy=(
            "Skip it in all others: `no_sync()` of DistributedDataParallel, `set_requires_gradient_sync(False)` "
            "of fully_shard."
        ),
        things=("collective", "collectives"),
        causes=(COMMUNICATION,),
        saves=True,
    ),
    Rule(
        name="straggler",
        change="all GPUs compute for as long as they do on average, those of a pipeline as others of their stage",
        looks_for=(
            "GPUs that compute longer than all do on average, by 5 % of all steps or more, where ranks wait for "
            "each other: always the same, or another one in each step. Ranks of a pipeline are compared with "
            "those of the same stage, and experts are left to `uneven_experts`"
        ),
        simulated="in each step, all compute for as long as the average",
        done="giving all ranks the same work",
        action="give all ranks the same work",
        title="{name} computes longer than the others, which wait for it in collectives",
        detail="A collective transfers nothing until its last rank has come.",
        remedy="Give all ranks the same work: batches of equal size, sequences sorted by length, layers spread evenly.",
        saves=True,
    ),
    Rule(
        name="uneven_experts",
        change="between two all-to-alls of experts, all GPUs compute for as long as they do on average",
        looks_for=(
            "GPUs that compute longer than the others between two all-to-alls, from the first to the second of a "
            "step, the third to the fourth"
        ),
        simulated="all compute for as long as the average, each time",
        done="giving all experts the same work",
        action="give all experts the same work",
        title="{name} has more work for its experts, and the others wait for it in all-to-alls",
        detail="What experts have calculated is given back when the last rank has come.",
        remedy=(
            "Balance the experts: an auxiliary loss or a bias of the router, a capacity for each expert, copies "
            "of those that are chosen often, other experts together on a rank."
        ),
        saves=True,
    ),
    Rule(
        name="uneven_stages",
        change="all stages of a pipeline compute for as long as they do on average",
        looks_for="a stage of a pipeline that computes longer than stages do on average, by 5 % or more",
        simulated="all stages compute for as long as the average",
        done="splitting layers evenly over the stages of the pipeline",
        action="split the layers evenly over the stages",
        title="{name} is the slowest stage of the pipeline, and the others wait for it",
        detail="Each microbatch passes through all stages, so the slowest one sets the pace.",
        remedy=(
            "Move layers from that stage to the others. The first and the last want fewer: they have the "
            "embedding and the loss, too."
        ),
        saves=True,
    ),
    Rule(
        name="tensor_cores",
        change="matrix products of FP32 on tensor cores (TF32)",
        looks_for=(
            "products of matrices and convolutions in FP32 on CUDA cores, by the names of cuBLAS, CUTLASS, cuDNN "
            "and MAGMA kernels; with ncu, also by instructions"
        ),
        simulated=(
            "85 % of the ratio of the GPU's published peaks (TF32, on Volta and Turing FP16); no kernel below 6 "
            "µs; with ncu no less than DRAM needs"
        ),
        done="using tensor cores",
        action="multiply in TF32, BF16 or FP16",
        title="FP32 work does not use tensor cores",
        detail=(
            "CUDA cores multiply in FP32 at a fraction of the rate at which tensor cores multiply TF32, FP16 or BF16."
        ),
        remedy=(
            'Where 10 bits of mantissa are enough: torch.set_float32_matmul_precision("high") for products, '
            "torch.backends.cudnn.allow_tf32 = True for convolutions, CUBLAS_TF32_TENSOR_OP_MATH in CUDA. Or "
            "train and infer in BF16 (torch.autocast). Before Ampere, tensor cores multiply FP16 only."
        ),
        things=("kernel", "kernels"),
        saves=True,
        of_kernels=True,
    ),
    Rule(
        name="fusion",
        change="chains of elementwise kernels as one kernel each",
        looks_for=(
            "three or more elementwise kernels in a row on one stream, launched by one thread in ranges of one "
            "path, in at least three places spread over the window; reductions and copies within the GPU may "
            "stand between them; of a sequence that follows itself, each turn is a chain"
        ),
        simulated=(
            "that of the shortest kernel on all elements; the mean of it and the longest where types are "
            "converted; no less than a gradient kernel in the chain takes"
        ),
        done="fusing kernels",
        action="fuse the elementwise kernels",
        title="Elementwise kernels in a row move the same data again and again",
        detail=(
            "Each kernel reads its inputs from memory and writes its output for the next one to read. One kernel "
            "would read and write once."
        ),
        remedy=(
            "Compile the function around it (torch.compile, jax.jit), or write the chain as one kernel (Triton, "
            "cupy.fuse); use the fused form where the library has one (gelu, softmax, layer_norm, "
            "scaled_dot_product)."
        ),
        things=("kernel", "kernels"),
        worth_pct=10.0,
        saves=True,
        of_kernels=True,
    ),
    Rule(
        name="attention",
        change="attention as one kernel: nothing between its two products",
        looks_for=(
            "a softmax between two products of matrices, with nothing but elementwise kernels beside it, in at "
            "least three places spread over the window"
        ),
        simulated="the products stay as they are, what is between them takes no time",
        done="fusing attention",
        action="use one kernel for all of attention",
        title="Attention is written out, and its scores go through memory",
        detail=(
            "The scores grow with the square of the sequence. Each kernel between the two products reads all of "
            "them from memory and writes them again. One kernel for all of attention keeps them on the chip; its "
            "products get faster too, which is not counted here."
        ),
        remedy=(
            "Call torch.nn.functional.scaled_dot_product_attention, with is_causal=True instead of a mask; "
            'attn_implementation="sdpa" or "flash_attention_2" in Hugging Face models; FlashAttention or cuDNN '
            "elsewhere."
        ),
        things=("kernel", "kernels"),
        worth_pct=5.0,
        saves=True,
        of_kernels=True,
    ),
    Rule(
        name="fused_optimizer",
        change="one fused kernel for the operations of an optimizer on its tensors",
        looks_for=(
            "Adam, one tensor and one operation at a time; three or more different foreach kernels in a row, in "
            "at least three places spread over the window"
        ),
        simulated=(
            "45 %, of 18 tensors read and written 7 are left; with fewer than five different kernels (momentum) 62 %"
        ),
        done="fusing the optimizer",
        action="use a fused optimizer",
        title="The optimizer does one operation at a time",
        detail="Every operation reads and writes the parameters' state again; a fused update does so once.",
        remedy=(
            "torch.optim.Adam(..., fused=True), or AdamW and SGD likewise; compile the step of others "
            "(torch.compile(optimizer.step)). If batches touch few rows of large embeddings: "
            "Embedding(sparse=True)."
        ),
        things=("kernel", "kernels"),
        worth_pct=5.0,
        saves=True,
        of_kernels=True,
    ),
    Rule(
        name="fp64",
        change="kernels that compute in FP64 take half of their time in FP32",
        looks_for="kernels with types of 64 bits, or products in FP64, by their names",
        simulated="half, but for 3 µs",
        done="computing in FP32",
        action="compute in FP32",
        title="Kernels compute in FP64",
        detail=(
            "FP64 moves twice the bytes of FP32, and does arithmetic at half of its rate or less: half of the "
            "time counts."
        ),
        remedy=(
            "NumPy's arrays become FP64 tensors, and a model that is cast to them, too: "
            "torch.from_numpy(x).float(), dtype=torch.float32. Keep FP64 where its digits are needed, such as in "
            "sums."
        ),
        things=("kernel", "kernels"),
        saves=True,
        of_kernels=True,
    ),
    Rule(
        name="layout",
        change="nothing turns tensors from NCHW to NHWC or back",
        looks_for="kernels that turn tensors from NCHW to NHWC or back",
        simulated="without them",
        done="keeping one layout",
        action="use channels_last",
        title="Convolutions turn their tensors from one layout to the other",
        detail=(
            "Tensor cores convolve in NHWC, so cuDNN turns tensors in NCHW over before a convolution, and back "
            "after it."
        ),
        remedy="model.to(memory_format=torch.channels_last), and the inputs likewise.",
        things=("kernel", "kernels"),
        saves=True,
        of_kernels=True,
    ),
    Rule(
        name="concatenation",
        change="nothing is concatenated: what comes is written in its place at once",
        looks_for="kernels of `torch.cat`",
        simulated="without them",
        done="writing in place instead of concatenating",
        action="write into a buffer that is allocated once",
        title="Tensors are concatenated again and again",
        detail=(
            "A concatenation reads all of its inputs and writes them again: a cache that grows by little is "
            "copied whole."
        ),
        remedy=(
            "Allocate the whole buffer once, and write what is new in its place (a static KV cache, index_copy_, "
            "a slice, out=). Or keep the parts in a list, and concatenate once at the end."
        ),
        things=("kernel", "kernels"),
        worth_pct=20.0,
        saves=True,
        of_kernels=True,
    ),
    Rule(
        name="small_grid",
        change="as many blocks as fill the GPU",
        looks_for=(
            "kernels of 20 µs or more that take at least 5 % of the kernel time alone on the GPU, with fewer "
            "blocks than half of its SMs"
        ),
        simulated="blocks divided by SMs; with ncu no less than the busiest unit needs",
        done="launching more blocks",
        action="launch more blocks",
        title="A long kernel uses few of the GPU's SMs",
        detail="Its grid has fewer blocks than the GPU has SMs, and nothing else runs meanwhile.",
        remedy=(
            "Divide the work into more blocks (a smaller tile, split-K, one more dimension in the grid), process "
            "a larger batch, or run independent kernels beside it on other streams."
        ),
        things=("kernel", "kernels"),
        worth_pct=5.0,
        saves=True,
        of_kernels=True,
    ),
)
"""What is looked for in the simulation, in the order of the documentation."""
RULE: Final = {rule.name: rule for rule in RULES}

AT_ROOF: Final = "at_roof"
"""It promises nothing: a statement about a kernel, not advice."""
KERNEL_WORDS: Final = {
    words.name: words
    for words in (
        *(rule for rule in RULES if rule.of_kernels),
        Words(
            name="tail",
            looks_for="ncu: the last wave of blocks wastes 10 % or more",
            simulated="whole waves, within what the busiest unit has left",
            action="divide the work into whole waves",
            title="The last wave of blocks leaves most of the GPU idle",
            detail="All blocks take about the same time, and those of the last wave run when the others have ended.",
            remedy=(
                "Choose a tile that divides the work into whole waves, or let a grid of as many blocks as fit loop "
                "over the tiles (a persistent kernel, stream-K)."
            ),
        ),
        Words(
            name="uncoalesced",
            looks_for="ncu: a cache is the limit, and 30 % of the sectors are needless",
            simulated="without these, as long as SMs and DRAM allow",
            action="let neighbouring threads access neighbouring elements",
            title="Neighbouring threads access memory that is far apart",
            detail=(
                "Each access fetches a sector of 32 bytes, of which it uses a part. The cache is busy with what "
                "nobody reads."
            ),
            remedy=(
                "Let neighbouring threads access neighbouring elements: change the order of the dimensions, go "
                "through shared memory, or keep the tensor in the layout that the kernel reads (contiguous, "
                "channels_last)."
            ),
        ),
        Words(
            name="registers",
            looks_for="ncu: fewer than half of the warps fit because of it, and no unit is busy for 60 % of the time",
            simulated="bounded by the busiest unit",
            action="use fewer registers",
            title="Registers leave room for few warps",
            detail="The kernel waits for latencies, and too few warps are there to fill the time.",
            remedy=(
                "Use fewer registers per thread: __launch_bounds__, -maxrregcount, num_warps in Triton, or smaller "
                "tiles."
            ),
        ),
        Words(
            name="shared_memory",
            looks_for="ncu: fewer than half of the warps fit because of it, and no unit is busy for 60 % of the time",
            simulated="bounded by the busiest unit",
            action="use less shared memory",
            title="Shared memory leaves room for few warps",
            detail="The kernel waits for latencies, and too few warps are there to fill the time.",
            remedy="Use less shared memory per block: smaller tiles, or fewer stages (num_stages in Triton).",
        ),
        Words(
            name="at_roof",
            looks_for=(
                "ncu: the busiest unit is at 80 % or more; said as a note if such kernels take a quarter of the window"
            ),
            simulated="none: only less work for that unit helps",
            action="do less of that work",
            title="Kernels at the peak of the GPU",
            detail="The unit that limits them is nearly always busy, so nothing helps that leaves the work as it is.",
            remedy=(
                "Do less of that work: fuse kernels with their neighbours or use a smaller type if it is traffic; if "
                "it is arithmetic, use a smaller type or fewer operations."
            ),
        ),
    )
}
"""What is said about single kernels: of rules above, and of those that only replays tell."""
