"""Declare the rules of advice: the simulated fix, the texts of the advice, and the least gain.

Everything else is generated from these declarations: the values of the result `what_if`, the words of advice and of the
first screen, the table in docs/advice.md. `nightsight.analyze.causes.remedies` proposes and simulates the fixes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from nightsight.results.categories import ALLOCATION, COMMUNICATION, COMPUTE, COPIES, HOST, LAUNCH, MODULE, SYNC

WORTH_PCT: Final = 3.0
"""The least gain, in percent of a step, for which a cause is reported."""
AT_START: Final = "One-time cost; matters only for short or frequently restarted programs."
"""The fix for causes in the start-up, where the fix for a step does not apply."""


@dataclass(frozen=True, kw_only=True)
class CauseTexts:
    """The texts about a cause of lost time.

    looks_for: for docs/advice.md. action: the fix in a few words. title: the cause. detail: why it costs time. remedy:
    the fix.
    """

    name: str
    looks_for: str
    action: str
    title: str
    detail: str
    remedy: str


@dataclass(frozen=True, kw_only=True)
class UnsimulatedRule(CauseTexts):
    """A cause that the results show without a simulation (nightsight.advise.unsimulated).

    title, rest, detail, remedy: may have {names}, which that module fills in. rest: what follows the cause in the title
    of a finding, with its separator; "" if the title itself has the numbers of the capture. gain: what is predicted,
    for docs/advice.md.
    """

    gain: str
    rest: str = ""


@dataclass(frozen=True, kw_only=True)
class SimulatedTexts(CauseTexts):
    """The texts about a cause whose gain is simulated, or computed from ncu's replays; simulated: how, for the docs."""

    simulated: str


@dataclass(frozen=True, kw_only=True)
class Rule(SimulatedTexts):
    """A cause whose fix is simulated on the timeline.

    title: may have {where}, {name}, {cases}, {things}, {each} and {most}. change: the difference, for readers of
    `what_if`. things: the noun for its cases, singular and plural.
    causes: categories of the critical path that are evidence. worth_pct: the least gain, in percent of a step, that
    justifies the work. counts: weight of a gain when the first cause is chosen. one_time: the fix if nothing repeats.
    at_start: the fix in the start-up. of_rank: the title if the rank that the others wait for is known. saves: the
    title gives the time that can be saved, not the time that the cause takes. shares_time: other such fixes in the same
    place save the same time, so only the best is reported. of_kernels: it needs no CUDA calls and names kernels.
    compiles: torch.compile can say why the cause occurs. in_places: action and fix in ranges with these names.
    in_engine: likewise, if the steps are those of an inference engine; "" is anywhere. of_kernel: likewise, if the
    first of the affected kernels has such a name.
    remedies, actions: those for frameworks other than PyTorch (nightsight.events.frameworks).

    is_host: it removes host code of a range. is_wait: it removes waits of the CPU for the GPU. A rule with both joins
    two others. is_graph: a CUDA graph that the program captures, which waits would cut into pieces. after: the rule
    whose fix comes first: if that is advised in the same place, this fix follows it.
    """

    change: str
    things: tuple[str, str] = ("operation", "operations")
    causes: tuple[str, ...] = ()
    worth_pct: float = WORTH_PCT
    counts: float = 1.0
    one_time: str = ""
    at_start: str = AT_START
    of_rank: str = ""
    saves: bool = False
    shares_time: bool = False
    of_kernels: bool = False
    compiles: bool = False
    in_places: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    in_engine: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    of_kernel: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    is_host: bool = False
    is_wait: bool = False
    is_graph: bool = False
    after: str = ""
    remedies: Mapping[str, str] = field(default_factory=dict)
    actions: Mapping[str, str] = field(default_factory=dict)

    def action_in(self, framework: str) -> str:
        """Return the action in the terms of a framework."""
        return self.actions.get(framework, self.action)


@dataclass(frozen=True, kw_only=True)
class KernelRule(Rule):
    """A fix of kernels, by their names; it needs no CUDA calls. Most titles give the time that can be saved."""

    things: tuple[str, str] = ("kernel", "kernels")
    saves: bool = True
    of_kernels: bool = True


# of an inference engine, in a range for sampling
_AT_ONCE: Final = (
    "sample all requests at once",
    "Sample all requests of a step with the same few kernels, without a loop over requests, and read their tokens with "
    "one copy, while the GPU runs the next step.",
)
RULES: Final = (
    Rule(
        name="host_code",
        change=(
            "this host code no longer delays the GPU: it runs ahead of time, or in another thread or process; "
            "`name`: with several GPUs, the one whose process runs it"
        ),
        looks_for=(
            "host code of more than 100 µs before a CUDA call, by range; more than 500 µs in ranges that directly "
            "contain five or more launches per step, because shorter code counts as launching"
        ),
        simulated="without it; but at least an eighth of its time is left, as if eight workers did it side by side",
        action="move host code off the critical path",
        title="The GPU waits for host code {where}",
        detail="This code launches nothing while it runs, and the GPU has no work left.",
        remedy=(
            "Run it ahead of time, in another process or thread (DataLoader workers, prefetching). Speed up what "
            "must stay: no Python loops over elements, fewer and larger operations, torch.compile."
        ),
        at_start=(
            "One-time cost: imports, reading data and weights, setup. If it matters, import and read less, or keep "
            "the process alive between runs."
        ),
        of_rank="{name} runs host code {where}, and the others wait for it",
        things=("piece of host code", "pieces of host code"),
        causes=(HOST,),
        shares_time=True,
        is_host=True,
        in_places={
            # 0.4 to 0.9 ms per tensor (PyTorch 2.13, two busy CPU cores, batches of 1 to 16 tensors)
            "_SingleProcessDataLoaderIter": (
                "start DataLoader workers (num_workers)",
                "Worker processes prepare batches ahead of time; without them, the main process prepares each batch. "
                "Many small tensors per batch cost up to 0.5 ms each to receive from a worker.",
            ),
            "_MultiProcessingDataLoaderIter": (
                "use more DataLoader workers",
                "The workers are slower than the GPU, or have not started yet: use a larger num_workers and "
                "persistent_workers=True, and do less for each sample in the workers (smaller images, decoding on the "
                "GPU, batched operations).",
            ),
        },
        in_engine={
            "tokeniz": (
                "tokenize in another process",
                "Tokenize and detokenize outside of the engine's thread, with a fast tokenizer. vLLM and SGLang do so "
                "in other processes; more of them: vLLM `--api-server-count`, SGLang `--tokenizer-worker-num`.",
            ),
            "": (
                "schedule the next step while the GPU works",
                "Let the CPU schedule a step while the GPU runs the one before: vLLM `--async-scheduling`; SGLang and "
                "TensorRT-LLM do so unless it is turned off (`--disable-overlap-schedule`, "
                "`disable_overlap_scheduler`). Do less between two steps.",
            ),
        },
        remedies={
            "JAX": (
                "Run it ahead of time in another thread: load the next batch and put it on the GPU "
                "(jax.device_put) while the current step runs. Move computations into the jitted "
                "function, and do the rest every N steps."
            ),
            "CuPy": (
                "Run it ahead of time in another thread or process. Speed up what must stay: no Python "
                "loops over elements, CuPy instead of NumPy."
            ),
            "Numba": (
                "Run it ahead of time in another thread or process. Speed up what must stay: numba.njit, "
                "no Python loops over elements."
            ),
            "CUDA": (
                "Launch the next work before it, so that the GPU has work meanwhile (launches are "
                "asynchronous), or run it on another thread. Move the computation into a kernel if it can"
                " run there."
            ),
        },
    ),
    Rule(
        name="interpreter",
        change=(
            "Python code of threads that launch nothing runs in another process, so launching threads never wait "
            "for the GIL; `name`: the function that runs most"
        ),
        looks_for=(
            "samples of Python stacks: 30 % or more are in threads that launch nothing, in more than one place of "
            "the program"
        ),
        simulated="host code of launching threads without the time of these samples",
        action="move that Python code to another process",
        title="Another Python thread holds the GIL: `{name}`",
        detail=(
            "Only one thread of a process runs Python at a time (GIL). While that thread runs, the launching thread "
            "waits for its turn, repeatedly, 5 ms or more each time."
        ),
        remedy=(
            "Run that code in a separate process (multiprocessing, a DataLoader worker), do less of it, or use "
            "code that releases the GIL (NumPy, C++)."
        ),
        things=("piece of host code", "pieces of host code"),
        causes=(HOST,),
    ),
    Rule(
        name="wait",
        change="no wait for the GPU here; a copy to the host that it waits for still happens, without waiting",
        looks_for="synchronizing calls, and copies to the host that block, by range",
        simulated="the thread continues immediately",
        action="remove the sync",
        title="The CPU waits for the GPU {where} ({name})",
        detail="While it waits, its thread launches nothing, so the GPU idles until the next launches arrive.",
        remedy=(
            "Don't sync every step: avoid .item(), .cpu(), printing tensors, branching on their values. Keep values "
            "on the GPU, and read them back every N steps, or one step late from pinned memory."
        ),
        things=("wait", "waits"),
        causes=(SYNC,),
        shares_time=True,
        is_wait=True,
        in_engine={
            "sampl": _AT_ONCE,
            "": (
                "schedule the next step while the GPU works",
                "Read the tokens of a step while the GPU runs the next one: vLLM `--async-scheduling`; SGLang and "
                "TensorRT-LLM do so unless it is turned off (`--disable-overlap-schedule`, "
                "`disable_overlap_scheduler`).",
            ),
        },
        remedies={
            "JAX": (
                "Don't read values in every step: float(x), np.asarray(x), print and block_until_ready "
                "wait for the GPU. Decide on the GPU (jax.lax.cond, jax.lax.while_loop), or read every N "
                "steps."
            ),
            "CuPy": (
                "Don't read values in every step: float(x), .get(), cupy.asnumpy and comparisons in an if"
                " wait for the GPU. Test for convergence every N steps, or one step late from pinned "
                "memory."
            ),
            "Numba": (
                "Don't call copy_to_host or cuda.synchronize in every step. Copy every N steps, or to "
                "pinned memory (cuda.pinned_array) on a separate stream."
            ),
            "CUDA": (
                "Don't call cudaDeviceSynchronize, cudaStreamSynchronize or a blocking cudaMemcpy in "
                "every step. Copy with cudaMemcpyAsync to pinned memory (cudaMallocHost) and read a step "
                "later; test for convergence every N steps, or on the GPU."
            ),
        },
    ),
    Rule(
        name="round_trip",
        change="what this host code computes is computed on the GPU, without the copies before and after it",
        looks_for=(
            "host code as for `host_code`, in Python, between copies of 1 MB or more to the host and back, of the same "
            "size; not if most samples of Python's stack read, write, decode or send data"
        ),
        simulated="without the host code and the copies; the time of the same work on the GPU is not known",
        action="compute on the GPU",
        title="Data makes a round trip to the host {where}",
        detail="The GPU's results are copied to the host, Python computes there, and as many bytes are copied back.",
        remedy=(
            "Compute there with tensors on the GPU: PyTorch has most functions of NumPy. If the copies are of "
            "different data, write and read them in other threads."
        ),
        things=("piece of host code", "pieces of host code"),
        causes=(HOST, COPIES),
        shares_time=True,
        is_host=True,
        remedies={
            "JAX": "Compute there with jax.numpy and jax.scipy, in the jitted function.",
            "CuPy": "Compute there with CuPy: cupy and cupyx.scipy have most functions of NumPy and SciPy.",
            "Numba": "Compute there in a kernel (cuda.jit), on arrays that stay on the GPU.",
        },
    ),
    Rule(
        name="wait_and_host_code",
        change="neither the wait nor the host code in this range",
        looks_for="a wait and host code in one range",
        simulated="without both, if that gains 1.2 times as much as the better of the two alone",
        action="remove the sync, or move the host code",
        title="The GPU idles {where}: the CPU waits for it, then runs host code",
        detail="The sync keeps the CPU from running ahead, so the GPU has no work during the host code after it.",
        remedy=(
            "Move the sync (.item(), .cpu(), synchronize) or the host code out of the step, or do both only every N "
            "steps."
        ),
        things=("wait with host code", "waits with host code"),
        causes=(SYNC, HOST),
        shares_time=True,
        is_host=True,
        is_wait=True,
    ),
    Rule(
        name="launch_bound",
        change=(
            "the launches of a step form one CUDA graph, or one between two waits; `name`: where most of them are, "
            "if in several places"
        ),
        looks_for=(
            "launches with at most 100 µs of host code between them (500 µs in ranges that contain five or more)"
        ),
        simulated="one graph per step, or one between two waits: 10 µs to launch it, no CPU time between its kernels",
        action="use CUDA graphs",
        title="The GPU waits for launches {where} ({cases} {each}{most})",
        detail="The program is launch-bound: the CPU takes longer to launch this work than the GPU takes to run it.",
        remedy=(
            "Capture the work in a CUDA graph (torch.compile, torch.cuda.graph), or launch less: fused kernels, fused "
            "or foreach optimizers, larger batches. A graph cannot contain a sync."
        ),
        things=("launch", "launches"),
        causes=(LAUNCH,),
        is_graph=True,
        actions={"JAX": "put the loop into the compiled program", "Numba": "do more per kernel"},
        worth_pct=5.0,
        counts=0.4,
        in_engine={
            "sampl": _AT_ONCE,
            "": (
                "record CUDA graphs for these batches",
                "Steps whose batch is larger than those of the recorded graphs are launched kernel by kernel. vLLM: no "
                "`--enforce-eager`, a larger `--max-cudagraph-capture-size`. SGLang: no `--disable-cuda-graph`, a "
                "larger `--cuda-graph-max-bs`. TensorRT-LLM: `cuda_graph_config` with a larger `max_batch_size`.",
            ),
        },
        remedies={
            "JAX": (
                "Put the loop into the compiled program: jax.lax.scan or jax.lax.fori_loop over steps, "
                "larger jitted functions, larger batches."
            ),
            "CuPy": (
                "Merge operations into one kernel (cupy.ElementwiseKernel, cupy.fuse, cupyx.jit), capture"
                " the work in a CUDA graph (stream.begin_capture), or compute more per call. A graph "
                "cannot contain a sync."
            ),
            "Numba": "Do more per kernel: merge kernels, loop inside them, and use larger grids.",
            "CUDA": (
                "Capture the work in a CUDA graph (cudaStreamBeginCapture, cudaGraphLaunch), or launch "
                "less: merged kernels, batched library calls (cublasGemmStridedBatchedEx), larger grids. "
                "A graph cannot contain a sync."
            ),
        },
    ),
    Rule(
        name="not_jitted",
        change="the launches of a step are one program of XLA, launched as one",
        looks_for=(
            "the launches of a JAX program whose XLA programs (ranges of XLA) launch fewer than five operations each, "
            "with up to 10 ms of host code between them"
        ),
        simulated="as one CUDA graph per step, or one between two waits",
        action="jit the whole step (jax.jit)",
        title="JAX dispatches operations one by one {where} ({cases} {things} {each}{most})",
        detail="Outside of jax.jit, each operation is a program that Python finds, prepares and launches.",
        remedy=(
            "Compile the whole step, with donated arguments (donate_argnums) for what it updates. Loops over steps or "
            "time: jax.lax.scan."
        ),
        things=("launch", "launches"),
        causes=(LAUNCH, HOST),
        worth_pct=5.0,
    ),
    Rule(
        name="allocation",
        change="nothing is allocated or freed",
        looks_for="calls that allocate or free memory",
        simulated="without them and their waits",
        action="allocate before the loop",
        title="GPU memory is allocated and freed {where} ({cases} {things} {each}, most time in {name})",
        detail="cudaFree waits for the GPU, and cudaMalloc is slow.",
        remedy=(
            "Don't call torch.cuda.empty_cache() in a loop, keep PyTorch's caching allocator on, allocate buffers "
            "before the loop, or use cudaMallocAsync."
        ),
        things=("call", "calls"),
        causes=(ALLOCATION,),
        remedies={
            "JAX": (
                "Keep preallocation on (XLA_PYTHON_CLIENT_PREALLOCATE), and donate what a step updates "
                "(donate_argnums)."
            ),
            "CuPy": (
                "Don't call free_all_blocks in a loop, keep CuPy's memory pool on, and write into "
                "existing arrays (out=)."
            ),
            "Numba": "Allocate arrays before the loop (cuda.device_array), and reuse them.",
            "CUDA": "Allocate buffers before the loop, or from a memory pool that keeps its memory.",
        },
    ),
    Rule(
        name="loading",
        change="no module is loaded, and no kernel is launched for the first time",
        looks_for="calls that load modules, and first launches that take ten times as long as usual",
        simulated=(
            "without them; if modules are also unloaded, without the calls, small copies and host code (up to 100 µs "
            "each) between the same two launches, too, as for plans of cuFFT"
        ),
        action="load each module once, before the loop",
        title="Modules and kernels are loaded while the program runs {where} (mostly {name})",
        detail="A thread launches nothing while it loads code.",
        remedy=(
            "Load each module once, before the loop: load it at the start, or run every kernel and shape once. Create "
            "plans and handles of libraries once and keep them (cufftPlan, cublasCreate; in PyTorch, "
            "torch.backends.cuda.cufft_plan_cache.max_size)."
        ),
        one_time=(
            "One-time cost. If it matters, load fewer modules, or keep the process alive between runs. To analyze "
            "what follows, select it with --window."
        ),
        at_start="One-time cost. If it matters, load fewer modules, or keep the process alive between runs.",
        things=("call", "calls"),
        causes=(MODULE,),
    ),
    Rule(
        name="compilation",
        change="nothing is compiled: no module is loaded, and no host code runs just before",
        looks_for=(
            "module loads and first launches as for `loading`, after 3 ms or more of host code; the kernels that XLA "
            "times while it compiles; or as much host code in which most samples of Python's stack are in a compiler "
            "(torch.compile, Triton, CuPy, Numba, JAX); or the time in which torch.compile compiles or records CUDA "
            "graphs again, by PyTorch's log. Loads that become rarer do not count: they end once every shape has been "
            "seen"
        ),
        simulated="without them and that host code",
        action="compile once",
        title="Code is compiled while the program runs {where}",
        detail="The GPU waits while the CPU compiles (Triton, NVRTC, torch.compile, XLA) and loads the result.",
        remedy=(
            "Compile once: keep arguments that specialize a kernel (tl.constexpr, shapes) the same in all steps, or "
            "pad lengths; compile for all shapes; turn off the benchmark mode of cuDNN; warm up before the loop."
        ),
        one_time=(
            "One-time cost. Cache compiled code between runs (TRITON_CACHE_DIR, TORCHINDUCTOR_FX_GRAPH_CACHE=1). To "
            "analyze what follows, select it with --window."
        ),
        at_start=(
            "One-time cost. If it matters, cache compiled code between runs (TRITON_CACHE_DIR, "
            "TORCHINDUCTOR_FX_GRAPH_CACHE=1)."
        ),
        things=("call", "calls"),
        causes=(MODULE, HOST),
        actions={"JAX": "pad inputs to a few fixed shapes"},
        remedies={
            "JAX": (
                "jax.jit compiles again for each new shape, type and static argument. Pad batches to a few lengths, "
                "such as powers of two. Pass numbers that change as arrays. Call jax.jit once, not in the loop."
            ),
        },
        shares_time=True,
        compiles=True,
        of_kernel={
            "cudnn_generated": (
                "take another attention than cuDNN's, or pad the lengths",
                "cuDNN compiles its attention for each new shape. Without it, PyTorch takes FlashAttention and others. "
                "Or pad lengths, so that there are few.",
            ),
        },
    ),
    Rule(
        name="restarted_workers",
        change="worker processes of a DataLoader start only once, and their first batch is ready",
        looks_for=(
            "3 ms or more of host code in which most samples of Python's stack are in torch.utils.data.dataloader, "
            "some where workers start or end, at least twice"
        ),
        simulated="without that host code",
        action="keep the data loader's workers",
        title="The data loader starts new workers for each epoch",
        detail="Each epoch starts new processes, waits for their first batch, and ends them.",
        remedy=(
            "Keep the workers from epoch to epoch. Without num_workers, no process starts: for a dataset in memory, "
            "this can be faster."
        ),
        things=("start", "starts"),
        causes=(HOST,),
        shares_time=True,
    ),
    Rule(
        name="pageable_copy",
        change="copies from pinned memory, for which no call waits",
        looks_for="copies of 256 kB or more from pageable memory",
        simulated=(
            "at the rate of pinned copies in the capture, else 85 % of the link's published rate, and no call waits; "
            "with JAX, at this rate on a separate stream"
        ),
        action="pin the memory",
        title="Copies use pageable memory {where} ({name})",
        detail=(
            "The driver stages pageable memory through its own buffer: the copy is slow, and the call waits for it."
        ),
        remedy=(
            "Pin the host memory (pin_memory), and copy with non_blocking=True. Copy data that stays the same only "
            "once. Copied ahead of time on a separate stream, the rest of the time is hidden, too."
        ),
        things=("copy", "copies"),
        causes=(COPIES,),
        actions={"JAX": "copy ahead of time"},
        remedies={
            "JAX": (
                "Put the next batch on the GPU while the current step runs, in a separate thread, or keep the data on "
                "the GPU."
            ),
            "CuPy": "Use pinned memory and copy ahead of time on a separate stream, or keep the arrays on the GPU.",
            "Numba": (
                "Pass arrays on the GPU (cuda.to_device, cuda.device_array): a kernel that gets NumPy "
                "arrays copies them there and back in each call. For what must be copied: "
                "cuda.pinned_array and a separate stream."
            ),
            "CUDA": (
                "Allocate the host buffer in pinned memory (or register it with cudaHostRegister), and copy ahead of "
                "time on a separate stream."
            ),
        },
    ),
    Rule(
        name="exposed_copy",
        change="copies on a separate stream, ahead of time",
        looks_for="copies of 256 kB or more from pinned memory, or what `pageable_copy` leaves of others",
        simulated="on a separate stream",
        action="copy ahead of time, on a separate stream",
        after="pageable_copy",
        title="Copies {where} ({name}) do not overlap with computation",
        detail="Copies on the stream of the kernels run before or after them, never at the same time.",
        remedy="Copy the next batch on a separate stream while this one is computed.",
        things=("copy", "copies"),
        causes=(COPIES,),
        remedies={
            "JAX": "Put the next batch on the GPU while the current step runs, in a separate thread.",
            "CUDA": "Copy the next block on a separate stream while this one is computed, with two buffers.",
        },
    ),
    Rule(
        name="peer_copy",
        change="copies between GPUs on a separate stream",
        looks_for="copies of 256 kB or more from GPU to GPU",
        simulated="on a separate stream; work that waits for them by an event or a call still does",
        action="copy between GPUs on a separate stream",
        title="Copies between GPUs {where} do not overlap with computation",
        detail="The next kernels of the stream wait for these copies, whether they need the data or not.",
        remedy=(
            "Copy on a separate stream, in parts, as soon as each part is computed, and let only the work that needs "
            "it wait (torch.cuda.Stream, wait_stream). Halos: compute the border first, then copy it while the "
            "interior is computed."
        ),
        things=("copy", "copies"),
        causes=(COMMUNICATION,),
        worth_pct=5.0,
        remedies={
            "CUDA": (
                "Copy on a separate stream, in parts, and let only the work that needs the data wait. Halos: compute "
                "the border first, then copy it while the interior is computed."
            ),
        },
    ),
    Rule(
        name="shared_gpu",
        change="each process has its own GPU; `name`: the number of processes",
        looks_for="kernels of different processes that overlap on one GPU, other than those of ranks that communicate",
        simulated="with half of the time in which kernels overlap",
        action="give each process its own GPU",
        title="{name} share the GPU, and their kernels slow each other down",
        detail="Kernels of several processes take turns, or divide the GPU between them.",
        remedy=(
            "Run one of them elsewhere or later. If one process cannot fill the GPU, share it with MPS, or combine the "
            "work in one process with larger batches."
        ),
        things=("kernel", "kernels"),
        causes=(COMPUTE,),
        worth_pct=5.0,
    ),
    Rule(
        name="masks",
        change="all rows are computed instead of those that a boolean mask selects",
        looks_for="PyTorch's kernels that count the selected rows and write their positions, with the wait in between",
        simulated="only the kernels that take or put the values remain; for values that are written back, one of both",
        action="use torch.where instead of indexing with a mask",
        title="Tensors are indexed with boolean masks {where}",
        detail=(
            "For each mask, PyTorch counts the selected rows, copies their number to the host, waits for it, and then "
            "writes their positions."
        ),
        remedy=(
            "Compute all rows and ignore the others: torch.where, or a product with the mask before a sum. If few rows "
            "are selected, call mask.nonzero() once and use it for all tensors."
        ),
        things=("mask", "masks"),
        causes=(SYNC,),
        shares_time=True,
    ),
    Rule(
        name="default_stream",
        change="each thread that launches kernels has its own stream; `name`: the number of threads",
        looks_for=(
            "two or more threads of a process that launch kernels on its legacy default stream (7) at the same time"
        ),
        simulated=(
            "each on its own stream: work of other threads delays a kernel only by the share of the SMs that it fills "
            "(its blocks, of 256 threads, per SM)"
        ),
        action="give each thread its own stream",
        title="{name} share the default stream {where}, so their work waits for each other",
        detail="Operations of one stream run one after the other, although threads launched them at the same time.",
        remedy=(
            "Let each thread launch on its own stream: `with torch.cuda.stream(torch.cuda.Stream()):` around its work. "
            "Where a thread uses results of another, wait for an event of that stream."
        ),
        causes=(COMPUTE, SYNC),
        worth_pct=5.0,
        remedies={
            "CuPy": (
                "Let each thread launch on its own stream: `with cupy.cuda.Stream(non_blocking=True):` around its "
                "work; or set CUPY_CUDA_PER_THREAD_DEFAULT_STREAM=1."
            ),
            "Numba": (
                "Let each thread launch on its own stream (cuda.stream(), kernel[blocks, threads, stream]), or set "
                "NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM=1."
            ),
            "CUDA": (
                "Compile with `nvcc --default-stream per-thread`, or let each thread create a stream "
                "(cudaStreamCreateWithFlags with cudaStreamNonBlocking), launch on it, and wait for it "
                "(cudaStreamSynchronize)."
            ),
        },
    ),
    Rule(
        name="copies_to_host",
        change="copies to pinned memory, on a separate stream, that nothing waits for",
        looks_for="copies of 256 kB or more to the host",
        simulated="on a separate stream, and nothing waits",
        action="leave the results on the GPU",
        title="Results are copied to the host {where}",
        detail="Results leave the GPU in each step, and the thread waits for them.",
        remedy=(
            "Reduce them on the GPU and copy less, or copy to pinned memory on a separate stream and read them a "
            "step later."
        ),
        things=("copy", "copies"),
        causes=(COPIES,),
        shares_time=True,
        remedies={
            "JAX": "Return less from the jitted function: reduce results inside of it, and read them every N steps.",
            "CuPy": "Keep results as CuPy arrays and reduce them there; read them every N steps.",
            "Numba": (
                "Keep results in device arrays: a kernel that gets NumPy arrays copies them back in each "
                "call. Reduce them on the GPU."
            ),
            "CUDA": (
                "Reduce the results on the GPU and copy less, or copy to pinned memory on a separate stream and read "
                "them a step later."
            ),
        },
    ),
    Rule(
        name="many_small_copies",
        change="one copy per step instead of many",
        looks_for="eight or more copies of less than 256 kB in a range in each step",
        simulated=(
            "one copy per step; between copies to the host, launches of up to 10 µs that compute with elements remain "
            "once, too, if as many as half of the copies select elements, as in a loop over them on the host"
        ),
        action="merge the copies into one",
        title="{cases} small copies {each} {where} ({name})",
        detail="Each costs a call and usually a wait; the bytes cost next to nothing.",
        remedy=(
            "Pack them into one buffer and copy it once, or create the values on the GPU. If a loop reads a value for "
            "each element, and no iteration needs the one before it: compute all of them at once, copy the results "
            "once, and loop over those."
        ),
        things=("copy", "copies"),
        causes=(LAUNCH, SYNC),
        shares_time=True,
    ),
    Rule(
        name="migration",
        change="the bytes of these pages are copied at the rate of the link, and nothing waits for pages",
        looks_for="kernels and host code during which pages of managed memory migrate to them",
        simulated=(
            "without waiting for pages: 70 µs before a move to the GPU, or the recorded faults; 50 µs before a move to "
            "the host, and 0.25 ns per byte after it, until they are mapped. The same bytes are copied at the link's "
            "rate"
        ),
        action="copy explicitly instead",
        title="Kernels or host code wait for pages of managed memory {where}",
        detail="Code that touches a page on the other side stops until the driver has moved and mapped it.",
        remedy=(
            "Keep the data on the GPU (cudaMalloc), and copy it from and to pinned memory. Or prefetch managed memory, "
            "to the GPU before the kernel and to the host before the CPU reads: that helps less, as pages are still "
            "mapped."
        ),
        causes=(COMPUTE, HOST),
    ),
    Rule(
        name="exposed_communication",
        change="half of the communication that computation waits for is hidden; over NVLink, a seventh",
        looks_for=(
            "collectives that kernels wait for, with other ranks in the capture; `needed_collectives` has those of "
            "tensor parallelism"
        ),
        simulated=(
            "half of their time is hidden; a seventh for those as fast as NVLink (80 GB/s and more; 30 % where bytes "
            "are unknown): the rest slows down concurrent kernels, or has none to overlap with"
        ),
        action="overlap communication with computation",
        title="The GPU waits for exposed communication",
        detail=(
            "Kernels wait for a collective although other work could overlap with it. The prediction hides half of "
            "its time, over NVLink a seventh: the rest slows down concurrent kernels, or has none to overlap with."
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
        change="gradients are reduced only in the last backward pass before an update; `name`: the number of passes",
        looks_for=(
            "all-reduces of several backward passes between two runs of an optimizer's (foreach or fused) "
            "kernels: the same two or more sizes in the same order, and the next kernels do not wait for them"
        ),
        simulated="only the last pass transfers data; ranks still meet where they did",
        action="reduce gradients once per update",
        title="Gradients are reduced in each of {name} between two updates",
        detail="The optimizer uses only their sum, so one reduction in the last pass is enough.",
        remedy=(
            "Skip the others: `no_sync` of DistributedDataParallel, `set_requires_gradient_sync(False)` of fully_shard."
        ),
        things=("collective", "collectives"),
        causes=(COMMUNICATION,),
        saves=True,
    ),
    Rule(
        name="small_collectives",
        change="one collective instead of many small ones in a row",
        looks_for=(
            "eight or more collectives in a row of one kind in one communicator, of 1 MiB or less each (30 µs or less "
            "if bytes are unknown), before anything but elementwise kernels needs their results"
        ),
        simulated=(
            "one collective for all: the time of a message once (8 µs, or that of the smallest collective), and the "
            "time that each takes beyond that; without the launches of the others"
        ),
        action="join the small collectives into one",
        title="{cases} small collectives {each} {where} ({name})",
        detail="Each waits for a message between all ranks, and costs a launch; the bytes cost next to nothing.",
        remedy=(
            "Send one flat tensor. DistributedDataParallel does so in buckets: raise bucket_cap_mb if they are small; "
            "with fully_shard, shard larger units. Metrics: reduce them once (torch.stack)."
        ),
        things=("collective", "collectives"),
        causes=(COMMUNICATION, LAUNCH),
        remedies={
            "JAX": "Let XLA combine them, or reduce one array (jax.flatten_util.ravel_pytree).",
            "CUDA": (
                "Group the calls, which merges them into one launch, or copy into one buffer and call ncclAllReduce "
                "once."
            ),
        },
    ),
    Rule(
        name="straggler",
        change="all GPUs compute for the same time, their average; in a pipeline, the average of their stage",
        looks_for=(
            "GPUs that compute longer than the average, by 5 % of all steps or more, where ranks wait for each "
            "other: always the same GPU, or a different one in each step. Ranks of a pipeline are compared within "
            "their stage; experts are left to `uneven_experts`"
        ),
        simulated="in each step, all compute for the average time",
        action="balance work across ranks",
        title="{name} computes longer than the others, which wait for it in collectives",
        detail="A collective transfers nothing until its last rank arrives.",
        remedy="Balance work across ranks: batches of equal size, sequences sorted by length, layers spread evenly.",
        saves=True,
    ),
    Rule(
        name="uneven_experts",
        change="between two all-to-alls of experts, all GPUs compute for the same time, their average",
        looks_for=(
            "GPUs that compute longer than the others between two all-to-alls: from the first to the second of a "
            "step, the third to the fourth"
        ),
        simulated="all compute for the average time, in each such interval",
        action="balance the experts",
        title="{name} has more expert work, and the others wait for it in all-to-alls",
        detail="Results of experts are returned only after the slowest rank arrives.",
        remedy=(
            "Balance the experts: an auxiliary loss or a router bias, a capacity per expert, copies of popular "
            "experts, another placement of experts on ranks."
        ),
        saves=True,
    ),
    Rule(
        name="uneven_stages",
        change="all stages of a pipeline compute for the same time, their average",
        looks_for="a pipeline stage that computes longer than the average stage, by 5 % or more",
        simulated="all stages compute for the average time",
        action="split layers evenly across stages",
        title="{name} is the slowest stage of the pipeline, and the others wait for it",
        detail="Each microbatch passes through all stages, so the slowest one sets the pace.",
        remedy=(
            "Move layers from that stage to the others. Give the first and last fewer: they also hold the embedding "
            "and the loss."
        ),
        saves=True,
    ),
    KernelRule(
        name="tensor_cores",
        change="FP32 matrix multiplications run on tensor cores (TF32)",
        looks_for=(
            "matrix multiplications and convolutions in FP32 on CUDA cores, by the names of cuBLAS, CUTLASS, cuDNN "
            "and MAGMA kernels; with ncu, also by instructions"
        ),
        simulated=(
            "85 % of the ratio of the GPU's published peaks (TF32; FP16 on Volta and Turing); no kernel below 6 µs; "
            "with ncu, no less than DRAM needs"
        ),
        action="multiply in TF32, BF16 or FP16",
        title="FP32 math runs without tensor cores",
        detail="CUDA cores multiply FP32 at a fraction of the rate of tensor cores in TF32, FP16 or BF16.",
        remedy=(
            "Allow TF32 for matrix multiplications and convolutions if 10 bits of mantissa are enough. Or train and "
            "infer in BF16 (torch.autocast). Before Ampere, tensor cores multiply FP16 only."
        ),
        remedies={
            "JAX": "Allow TF32 if 10 bits of mantissa are enough, or compute in BF16.",
            "CuPy": "Allow TF32 if 10 bits of mantissa are enough, or compute in FP16.",
            "CUDA": (
                "Allow TF32 if 10 bits of mantissa are enough (in cuDNN with cudnnSetConvolutionMathType), or compute "
                "in FP16 or BF16 (cublasGemmEx)."
            ),
        },
    ),
    KernelRule(
        name="fusion",
        change="each chain of elementwise kernels is one kernel",
        looks_for=(
            "three or more elementwise kernels in a row on one stream, launched by one thread in ranges of one "
            "path, in at least three places spread over the window; reductions and copies within the GPU may occur "
            "between them; in a sequence that repeats itself, each repetition is a chain"
        ),
        simulated=(
            "as long as the shortest kernel on all elements; the mean of it and the longest where types are "
            "converted; no less than a gradient kernel in the chain takes; if that alone is "
            "worthwhile in PyTorch, half of the host code before the other launches of the model goes, too, since "
            "torch.compile replaces it (this counts less in the choice of the first finding)"
        ),
        action="fuse the elementwise kernels",
        title="Elementwise operations run as separate kernels",
        detail=(
            "Each kernel is launched, reads its inputs from memory, and writes its output for the next one to read. A "
            "fused kernel is launched once, and reads and writes once."
        ),
        remedy=(
            "Compile the model or the function around them, which also launches the other kernels with less host code. "
            "Or write the chain as one kernel (Triton). Use the library's fused form if it has one (gelu, softmax, "
            "layer_norm, scaled_dot_product)."
        ),
        # torch.compile of healthy training steps gained 10 to 12 % (planted: healthy, matmuls, prefetch)
        worth_pct=13.0,
        remedies={
            "JAX": "Compile the function around them: XLA fuses what it compiles together.",
            "CuPy": "Write the chain as one kernel: cupy.fuse, cupy.ElementwiseKernel or cupyx.jit.",
            "CUDA": (
                "Write the chain as one kernel that reads its inputs once and keeps intermediate values in registers."
            ),
        },
    ),
    KernelRule(
        name="attention",
        change="attention is one kernel: nothing runs between its two matrix multiplications",
        looks_for=(
            "a softmax between two matrix multiplications, with only elementwise kernels around it, in at least "
            "three places spread over the window"
        ),
        simulated="the matrix multiplications are unchanged; the kernels between them take no time",
        action="use a fused attention kernel",
        title="Attention is not fused, and its scores go through memory",
        detail=(
            "The scores grow with the square of the sequence length. Each kernel between the two matrix "
            "multiplications reads all of them from memory and writes them back. A fused kernel keeps them on the "
            "chip; its multiplications also become faster, which is not counted here."
        ),
        remedy="Call PyTorch's fused attention, with is_causal=True instead of a causal mask, or FlashAttention.",
        worth_pct=5.0,
        remedies={
            "JAX": "Call JAX's fused attention, with is_causal=True instead of a causal mask.",
        },
    ),
    KernelRule(
        name="flash_attention_2",
        change="attention runs in kernels for Hopper (FlashAttention-3, cuDNN)",
        looks_for=(
            "kernels of FlashAttention-2 on GPUs of compute capability 9.0 (H100, H200), by their names, of 20 µs or "
            "more and with more than one block of queries; not those for decoding (splitkv)"
        ),
        simulated=(
            "by the size of heads, 55 % of the time for 128, 62 % for 64, 64 to 72 % for others (93 % for 32), but not "
            "less than 20 µs"
        ),
        action="use FlashAttention-3 or cuDNN attention",
        title="Attention runs in FlashAttention-2, which does not use Hopper's own instructions",
        detail=(
            "FlashAttention-2 was written for Ampere. On Hopper, FlashAttention-3 and cuDNN's attention are 1.5 to 2 "
            "times as fast, most for heads of 128; the prediction uses times measured with cuDNN."
        ),
        remedy=(
            "Let scaled_dot_product_attention choose cuDNN's attention (FP16 or BF16). Hugging Face: "
            '`attn_implementation="flash_attention_3"`. flash-attn: `from flash_attn_interface import flash_attn_func` '
            "(built from its folder hopper/; no dropout)."
        ),
        worth_pct=5.0,
    ),
    KernelRule(
        name="recomputation",
        change="no kernel of the forward pass runs again in the backward pass",
        looks_for=(
            "six or more kernels in a row, a matrix multiplication among them, that the thread of the backward pass "
            "launches with the same grids as the forward pass of the same step"
        ),
        simulated="without these kernels, their launches and the host code between them",
        action="keep activations in memory where they fit (no checkpointing)",
        title="Activation checkpointing computes the forward pass again",
        detail="The backward pass first repeats the forward pass of each block, because its results were not kept.",
        remedy=(
            "Turn checkpointing off if memory allows (in your own model: no torch.utils.checkpoint), or checkpoint "
            "fewer blocks. Selective checkpointing keeps what is costly to compute again "
            "(torch.utils.checkpoint.create_selective_checkpoint_contexts)."
        ),
        worth_pct=5.0,
    ),
    KernelRule(
        name="misaligned",
        change="operands of matrix multiplications start at multiples of 16 bytes",
        looks_for="kernels of CUTLASS on tensor cores that load one or two elements at a time, by their names",
        simulated="35 % of the time for one element, 60 % for two",
        action="pad the dimension to a multiple of 8 (FP16, BF16)",
        title="Matrix multiplications are misaligned for tensor cores",
        detail=(
            "A dimension is not a multiple of 16 bytes (8 elements of FP16 or BF16), so loads are narrow, and the "
            "fastest kernels cannot be used."
        ),
        remedy=(
            "Pad the odd dimension to a multiple of 8, better 64: the vocabulary (model.resize_token_embeddings(n, "
            "pad_to_multiple_of=64)), the number of classes, hidden sizes, sequence lengths."
        ),
        worth_pct=5.0,
    ),
    KernelRule(
        name="fused_optimizer",
        change="one fused kernel replaces an optimizer's operations on its tensors",
        looks_for=(
            "Adam, one tensor and one operation at a time; three or more different foreach kernels in a row, in "
            "at least three places spread over the window"
        ),
        simulated=(
            "one kernel per step, without the host code and calls of the other launches; 45 % of the time: 7 of 18 "
            "reads and writes of tensors remain; with fewer than five kernels (momentum), 62 %"
        ),
        action="use a fused optimizer",
        title="The optimizer is not fused",
        detail="Each operation reads and writes the parameters' state again; a fused update does so once.",
        remedy=(
            "Adam, AdamW, SGD and Adagrad have a fused form; compile the step of other optimizers "
            "(`torch.compile(optimizer.step)`). If batches touch few rows of large embeddings: Embedding(sparse=True)."
        ),
        worth_pct=5.0,
    ),
    KernelRule(
        name="fp64",
        change="kernels that compute in FP64 take half of their time in FP32",
        looks_for="kernels with 64-bit types, or FP64 matrix multiplications, by their names",
        simulated="half, except for 3 µs",
        action="compute in FP32",
        title="Kernels compute in FP64",
        detail=(
            "FP64 moves twice the bytes of FP32 and computes at half its rate or less, so the prediction saves half "
            "of the time."
        ),
        remedy=(
            "NumPy arrays become FP64 tensors, and so do models cast to match: torch.from_numpy(x).float(), "
            "dtype=torch.float32. Keep FP64 where its precision is needed, such as in sums."
        ),
    ),
    KernelRule(
        name="device_copy",
        change="no copies within the GPU's memory",
        looks_for=(
            "Device-to-Device copies, and PyTorch's kernels that copy a tensor in another order of its dimensions, of "
            "3 µs or more, if they take a tenth of the time of all GPU work or more"
        ),
        simulated="without them and their launches; the host code before these stays",
        action="avoid the copies",
        title="Tensors are copied within the GPU's memory",
        detail="A copy reads and writes all bytes of a tensor and computes nothing.",
        remedy=(
            "Let the next operation read the tensor as it is: find the .contiguous(), .clone(), permute() and "
            "reshape() calls that copy, and keep one order of dimensions. Write results where they are needed (out=, "
            "a slice of a buffer). In CUDA, swap pointers instead of calling cudaMemcpyDeviceToDevice."
        ),
        things=("copy", "copies"),
    ),
    KernelRule(
        name="layout",
        change="no conversions between NCHW and NHWC",
        looks_for="kernels that convert tensors from NCHW to NHWC or back",
        simulated="without them",
        action="use channels_last",
        title="Convolutions convert the layout of their tensors",
        detail=(
            "Tensor cores convolve in NHWC, so cuDNN converts NCHW tensors before a convolution, and back after it."
        ),
        remedy="Keep the weights of the model and its inputs in NHWC.",
    ),
    KernelRule(
        name="concatenation",
        change="nothing is concatenated: new data is written directly to its place",
        looks_for="kernels of `torch.cat`",
        simulated="without them",
        action="write into a preallocated buffer",
        title="Tensors are concatenated repeatedly",
        detail="A concatenation reads and rewrites all of its inputs: a cache that grows by little is copied whole.",
        remedy=(
            "Allocate the whole buffer once, and write new data in place (a static KV cache, index_copy_, a slice, "
            "out=). Or keep the parts in a list, and concatenate once at the end."
        ),
        worth_pct=20.0,
    ),
    KernelRule(
        name="small_grid",
        change="enough blocks to fill the GPU",
        looks_for=(
            "kernels of 20 µs or more that take at least 5 % of the kernel time alone on the GPU, with fewer "
            "blocks than half of its SMs"
        ),
        simulated="blocks divided by SMs; with ncu, no less than the busiest unit needs",
        action="launch more blocks",
        title="A long kernel uses few of the GPU's SMs",
        detail="Its grid has fewer blocks than the GPU has SMs, and nothing else runs meanwhile.",
        remedy=(
            "Divide the work into more blocks (a smaller tile, split-K, one more grid dimension), process a larger "
            "batch, or run independent kernels concurrently on other streams."
        ),
        worth_pct=5.0,
    ),
)
"""The causes that the simulation looks for, in the order of the documentation."""
RULE: Final = {rule.name: rule for rule in RULES}

AT_ROOF: Final = "at_roof"
"""A statement about a kernel, not advice: it has no predicted gain."""
KERNEL_WORDS: Final = {
    words.name: words
    for words in (
        *(rule for rule in RULES if rule.of_kernels),
        SimulatedTexts(
            name="tail",
            looks_for="ncu: the last wave of blocks wastes 10 % or more",
            simulated="whole waves, within what the busiest unit has left",
            action="divide the work into whole waves",
            title="The last wave of blocks leaves most of the GPU idle",
            detail="All blocks take about the same time, and those of the last wave run after the others have ended.",
            remedy=(
                "Choose a tile that divides the work into whole waves, or launch as many blocks as fit and loop over "
                "the tiles (a persistent kernel, stream-K)."
            ),
        ),
        SimulatedTexts(
            name="uncoalesced",
            looks_for="ncu: a cache is the limit, and 30 % of the sectors are unnecessary",
            simulated="without these, as far as SMs and DRAM allow",
            action="let neighboring threads access neighboring elements",
            title="Neighboring threads access distant memory",
            detail="Each access fetches a sector of 32 bytes and uses part of it. The cache moves data nobody reads.",
            remedy=(
                "Let neighboring threads access neighboring elements: reorder the dimensions, go through shared "
                "memory, or keep the tensor in the layout that the kernel reads (contiguous, channels_last)."
            ),
        ),
        SimulatedTexts(
            name="registers",
            looks_for="ncu: registers limit occupancy to less than half of the warps, and no unit is 60 % busy",
            simulated="bounded by the busiest unit",
            action="use fewer registers",
            title="Registers limit occupancy",
            detail="The kernel waits on latencies, and too few warps are resident to hide them.",
            remedy=(
                "Use fewer registers per thread: __launch_bounds__, -maxrregcount, num_warps in Triton, or smaller "
                "tiles."
            ),
        ),
        SimulatedTexts(
            name="shared_memory",
            looks_for="ncu: shared memory limits occupancy to less than half of the warps, and no unit is 60 % busy",
            simulated="bounded by the busiest unit",
            action="use less shared memory",
            title="Shared memory limits occupancy",
            detail="The kernel waits on latencies, and too few warps are resident to hide them.",
            remedy="Use less shared memory per block: smaller tiles, or fewer stages (num_stages in Triton).",
        ),
        SimulatedTexts(
            name="at_roof",
            looks_for="ncu: the busiest unit is at 80 % or more; a note if such kernels take a quarter of the window",
            simulated="none: only less work for that unit helps",
            action="fuse kernels, or use smaller types",
            title="Kernels run at the hardware limit",
            detail="The unit that limits them is nearly always busy, so only doing less work helps.",
            remedy=(
                "For traffic: fuse kernels with their neighbors or use a smaller type. For "
                "arithmetic: use a smaller type or fewer operations."
            ),
        ),
    )
}
"""The texts about single kernels: the rules above, and rules that need replays."""

LATE_RANK: Final = UnsimulatedRule(
    name="late_rank",
    looks_for="a rank for which all others waited once, anywhere in the capture, for at least 1 s and 20 steps",
    gain="none: it happened only once",
    action="start it with the others",
    title="Rank {rank} arrived late once, and all others waited",
    rest=": {late}",
    detail="It arrived {at} after the first GPU operation. The whole job waited for it.",
    remedy=(
        "Check what that rank did before: loading, compiling, a slow disk, a checkpoint that only it writes. Do it on "
        "all ranks at the same time, or before the others start."
    ),
)
LONE_RANK: Final = UnsimulatedRule(
    name="lone_rank",
    looks_for="collectives of ranks that are not in the capture, while nothing else runs: 10 % of the window or more",
    gain=(
        "none: the rank waits for the others or for the link. It is listed first, unless another gain exceeds this "
        "share"
    ),
    action="record all ranks and report them together (`nightsight report rank*`)",
    title=(
        "{who} {share} of the window in communication{others}: only captures of all ranks show whether {waits} for "
        "others or for the link"
    ),
    detail="Communication ends when all ranks have arrived and the data is there; this capture lacks the others.",
    remedy=(
        "Record all ranks and report them together: nightsight report rank* makes one report of the job, which names "
        "the rank that the others wait for (docs/ranks.md)."
    ),
)
NEEDED_COLLECTIVES: Final = UnsimulatedRule(
    name="needed_collectives",
    looks_for=(
        "all-reduces between layers (four or more per step, most of one size) whose result the next kernel waits for, "
        "spread over the whole step, as in tensor parallelism: 5 % of the window or more, with all ranks in the capture"
    ),
    gain=(
        "none: it depends on the link, the size of messages and the model. In the choice of the first finding, a third "
        "of their share of the window counts"
    ),
    action="make all-reduces between layers faster",
    title="Each layer waits for its all-reduces",
    rest=": {share} of the window ({cases} {per}, {each} each{size})",
    detail=(
        "The next kernel needs the result, as in tensor parallelism, so no other work can overlap. How much faster "
        "they become depends on the link and the size of messages, so no gain is predicted."
    ),
    remedy=(
        "For small messages: one-shot all-reduces through symmetric memory (PyTorch: "
        "`torch.ops.symm_mem.one_shot_all_reduce`; NCCL: buffers registered with `ncclCommWindowRegister`; vLLM and "
        "SGLang: without `--disable-custom-all-reduce`), fused with the normalization after it where an engine can do "
        "so (vLLM: `fuse_allreduce_rms`). For large messages: sequence parallelism, which also divides what is between "
        "layers (Megatron: `--sequence-parallel`), and products in parts that overlap with communication "
        "(`--tp-comm-overlap`). Or use fewer ranks per group."
    ),
)
PIPELINE_BUBBLE: Final = UnsimulatedRule(
    name="pipeline_bubble",
    looks_for=(
        "stages of a pipeline that wait for each other for 10 % of a step or more, where all stages have the same "
        "number of microbatches, and messages return"
    ),
    gain="none, but an upper limit of the time that twice as many microbatches save",
    action="use more microbatches",
    title="Pipeline stages wait for each other",
    rest=": {bubble} of a step",
    detail=(
        "A step has {batches} on {stages} stages. While the pipeline fills and drains, even balanced stages wait: "
        "{formula} of a step.{gain}"
    ),
    remedy=(
        "Split a batch into more microbatches: with 1F1B this needs no more memory. Or give each rank several shorter "
        "stages (interleaved schedule)."
    ),
)
MEMORY_BOUND_DECODE: Final = UnsimulatedRule(
    name="memory_bound_decode",
    looks_for=(
        "matrix products of at most eight rows, 6 µs or longer, that take 30 % of the window and half of the time of "
        "all products"
    ),
    gain="none: it depends on the load. It is listed after all other advice",
    action="decode more sequences at once, or quantize the weights",
    title="Products of a few rows read all weights",
    rest=": {share} of the window",
    detail=(
        "Tokens of one or a few sequences at a time use a small part of the GPU's arithmetic: reading the weights "
        "takes most of the time. More sequences at once take hardly longer. The gain depends on the load."
    ),
    remedy=(
        "Decode more sequences at once (a larger batch, continuous batching), several tokens at once (speculative "
        "decoding), or smaller weights (FP8, INT4)."
    ),
)
PADDING: Final = UnsimulatedRule(
    name="padding",
    looks_for=(
        "a mask for each sample in most calls of `scaled_dot_product_attention`, by the shapes of operators (`--names "
        "shapes`, `record_shapes=True`)"
    ),
    gain=(
        "none: how much of a batch is padding is not recorded. If all batches have one length, it counts like a gain "
        "of 15 % in the choice of the first finding; otherwise, it is listed after all other advice"
    ),
    action="pad less: to the longest sample, by groups of similar length, or not at all",
    title="Attention gets a mask for each sample",
    rest=", so batches are probably padded",
    detail=(
        "Padding is computed like other tokens, in every layer. The capture has no lengths, so no gain is predicted; "
        "it is about the share of padding. (If samples are packed, the mask separates them, and no time is lost.)"
    ),
    remedy=(
        "Count the padding: `1 - attention_mask.float().mean()`. Pad a batch to its longest sample, not to a fixed "
        'length (`DataCollatorWithPadding(tokenizer, padding="longest")`), put samples of similar length into one '
        'batch (`train_sampling_strategy="group_by_length"` in TrainingArguments of transformers 5, '
        "`group_by_length=True` before), or pack them without padding (`DataCollatorWithFlattening()`)."
    ),
)
SMALL_BATCH: Final = UnsimulatedRule(
    name="small_batch",
    looks_for=(
        "ten or more kernels per step, where the kernels with 95 % of the time have at most a quarter as many blocks "
        "as the GPU has SMs (in blocks of 256 threads), and take at most 20 µs; or matrix products with 70 % of the "
        "kernel time whose blocks are at most a quarter of those that the SMs can hold at once, by registers, shared "
        "memory and threads"
    ),
    gain=(
        "none for the step. It predicts the step for a batch that is N times as large, up to eight times: the same "
        "launches and kernels, N times the other host code and the copied bytes; matrix products take 1 + (N − 1) "
        "√(the share of the SMs that they fill) times as long. Listed if it saves at least 30 % per item; in the "
        "choice of the first finding, this saving is weighted by 0.3"
    ),
    action="process more per step ({times} times the work: {per_item} less time per item)",
    title="Steps are small for this GPU",
    rest=": with {times} times the work, {each} would take {duration}, {per_item} less per item",
    detail=(
        "Kernels fill a small part of the GPU, so launches and latencies determine the time. With more data, the same "
        "kernels run on more SMs at the same time. Other host code is assumed to grow with the work; vectorized "
        "code grows less."
    ),
    remedy=(
        "Use a larger batch where results allow it. Likewise: many environments at once "
        "(`gymnasium.make_vec(name, num_envs=64)`), lists of texts instead of one (`tokenizer(texts, padding=True)`), "
        "independent systems or seeds side by side (torch.vmap, jax.vmap), requests together (dynamic batching)."
    ),
)
PROMPTS_BLOCK: Final = UnsimulatedRule(
    name="prompts_block",
    looks_for=(
        "steps of an inference engine with prompts that take at least three times as long as those that only decode, "
        "if requests that generate wait for them in one of ten"
    ),
    gain=(
        "the longest time between tokens with chunks that add at most the time of a step that only decodes; the time "
        "that a token of a prompt adds is measured, and the time of launches stays. So does the throughput. In the "
        "choice of the first finding, half of what the longest time would lose counts, in percent"
    ),
    action="cut prompts into smaller chunks",
    title="Requests that generate wait for the prompts of others",
    rest=": a step with a prompt takes {mixed}, others take {decode}; with chunks of {chunk} tokens, {after}",
    detail=(
        "In a step with a long prompt, every request that generates waits until the prompt is done: its user sees a "
        "pause. In chunks, the prompt itself takes somewhat longer."
    ),
    remedy=(
        "vLLM: `--max-num-batched-tokens {chunk}` (chunked prefill is on by default); SGLang: `--chunked-prefill-size "
        "{chunk} --enable-mixed-chunk`; TensorRT-LLM: `enable_chunked_prefill` with `max_num_tokens: {chunk}`. For the "
        "shortest pauses, serve prompts on other GPUs (disaggregated prefill)."
    ),
)
CACHE_FULL: Final = UnsimulatedRule(
    name="cache_full",
    looks_for=(
        "at least one preemption for twenty requests of a server, according to its log; or what `few_at_a_time` looks "
        "for, while the KV cache is at least 70 % full in the mean of the steps that decode, and 90 % in one"
    ),
    gain=(
        "none; in the choice of the first finding, half of the preemptions per request counts, at most half of a step, "
        "or half of the queue's share of the time to the first token"
    ),
    action="make room in the KV cache",
    title="The KV cache is too small for the requests",
    rest=": {reason}",
    detail=(
        "Requests wait until others have left room. What was computed for a preempted request is lost, and computed "
        "again when there is room."
    ),
    remedy=(
        "Give the cache more memory (vLLM `--gpu-memory-utilization`, SGLang `--mem-fraction-static`, TensorRT-LLM "
        "`kv_cache_config.free_gpu_memory_fraction`), make it smaller (`--kv-cache-dtype fp8`), or serve fewer "
        "requests at a time (vLLM `--max-num-seqs`, SGLang `--max-running-requests`). Weights on more GPUs leave more "
        "room."
    ),
)
FEW_AT_A_TIME: Final = UnsimulatedRule(
    name="few_at_a_time",
    looks_for=(
        "requests that queue for more than half of the time to their first token, while steps have at most 16 "
        "requests, those that only decode take half of the time, and few requests are preempted"
    ),
    gain=(
        "none: how long a step takes with more requests depends on the model. In the choice of the first finding, half "
        "of the queue's share of the time to the first token counts"
    ),
    action="serve more requests at a time",
    title="Requests queue while the engine decodes few at a time",
    rest=": {requests} per step; {queue} of the {ttft} to the first token",
    detail=(
        "A step reads all weights, whether for two requests or for thirty: a larger batch hardly takes longer until "
        "its products limit it."
    ),
    remedy=(
        "Allow more: vLLM `--max-num-seqs`, SGLang `--max-running-requests`, TensorRT-LLM `max_batch_size`. If the KV "
        "cache is the limit, give it more memory."
    ),
)
UNSIMULATED: Final = (
    LATE_RANK,
    LONE_RANK,
    NEEDED_COLLECTIVES,
    PIPELINE_BUBBLE,
    MEMORY_BOUND_DECODE,
    PADDING,
    SMALL_BATCH,
    PROMPTS_BLOCK,
    CACHE_FULL,
    FEW_AT_A_TIME,
)
"""The causes that need no simulation, in the order of the documentation."""
