"""Simulated programs whose cause and gain are known: 38 stories, as an audit of 2026-11-25 told them, and later ones.

Each is a program of tests/program.py, in most cases beside the same program without its fault.
"""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from tests.program import (
    Body,
    Call,
    Copy,
    Expect,
    Follow,
    Graph,
    Host,
    Kernel,
    Post,
    Record,
    Reduce,
    Statement,
    Sync,
    Thread,
    within,
)

MEBI: Final = 1 << 20
_NATIVE: Final = "void at::native::vectorized_elementwise_kernel<4, at::native::"
_MUL: Final = f"{_NATIVE}BinaryFunctor<float, float, float, MulFunctor<float>>>"
_ADD: Final = f"{_NATIVE}CUDAFunctor_add<float>>"
_TANH: Final = f"{_NATIVE}tanh_kernel_cuda(at::TensorIteratorBase&)>"
_GEMM: Final = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_cublas"
_FULL: Final = 1024


@dataclass(frozen=True)
class Story:
    """A program and what is true of it.

    rules: what the first finding must be; none: no advice. fixed: the program without its fault; None where the gain is
    not judged. records: whether records of events are in the capture. capability: the compute capability of the GPUs.
    """

    threads: tuple[Thread, ...]
    rules: tuple[str, ...] = ()
    fixed: tuple[Thread, ...] | None = None
    records: bool = True
    capability: str = ""


def steps(*bodies: Body, times: int = 20, name: str = "step") -> tuple[Thread, ...]:
    """Return threads (ranks) that repeat a step in a range."""
    return tuple(Thread((within(name, *body),) * times, rank) for rank, body in enumerate(bodies))


def plain(*body: Statement, times: int = 20) -> tuple[Thread, ...]:
    """Return a thread that repeats statements, without ranges."""
    return (Thread(body * times),)


def product(us: float = 200, stream: int = 7) -> Kernel:
    return Kernel(us, stream, name=_GEMM, blocks=_FULL)


def layers(count: int, us: float = 100) -> Body:
    return tuple(part for _ in range(count) for part in (product(us), Host(4)))


def each(number: int, body: Body, more: Body, times: int = 40, name: str = "step") -> tuple[Thread, ...]:
    """Return a thread with steps, of which each n-th does more."""
    every = (within(name, *body, *(more if step % number == number - 1 else ())) for step in range(times))
    return (Thread(tuple(every)),)


TRAIN: Final = layers(10)
ITEM: Final = (Copy("D", 4, is_pinned=False),)
PAGEABLE: Final = Copy("H", 16 * MEBI, is_pinned=False)


def _loader_process() -> Story:
    loading = (within("next_batch", Host(3000)),)
    return Story(steps((*loading, *TRAIN, *ITEM)), ("host_code",), steps((*TRAIN, *ITEM)))


def _checkpoint_each_tenth() -> Story:
    save = (within("checkpoint", Copy("D", 64 * MEBI, is_pinned=False), Host(8000)),)
    return Story(each(10, TRAIN, save), ("host_code", "wait_and_host_code", "copies_to_host"), each(10, TRAIN, ()))


def _metrics_of_a_training() -> Story:
    metrics = (within("metrics", *ITEM, Host(800)),)
    return Story(steps((*TRAIN, *metrics)), ("host_code", "wait", "wait_and_host_code"), steps(TRAIN))


def _gan() -> Story:
    def body(*loss: Statement) -> Body:
        return (*layers(4), *loss, Host(300), *layers(4), *loss, Host(300))

    return Story(steps(body(*ITEM)), ("wait", "wait_and_host_code"), steps(body()))


def _environment() -> Story:
    acting = (*layers(3, 30), *ITEM)
    return Story(steps((*acting, within("env.step", Host(600)))), ("host_code",), steps(acting))


def _fused_chain() -> Story:
    chain = tuple(Kernel(50, name=name, blocks=_FULL) for name in (_MUL, _ADD, _TANH, _MUL, _ADD, _TANH, _MUL, _ADD))
    return Story(plain(*chain, Sync()), ("fusion",), plain(Kernel(60, name=_MUL, blocks=_FULL), Sync()))


def _many_chains() -> Story:
    def body(*kernels: Statement) -> Body:
        return tuple(itertools.chain.from_iterable((product(150 + 10 * n), *kernels) for n in range(8)))

    three = tuple(Kernel(30, name=name, blocks=_FULL) for name in (_MUL, _ADD, _TANH))
    return Story(steps(body(*three)), ("fusion",), steps(body(Kernel(30, name=_MUL, blocks=_FULL))))


def _prefetch_fails() -> Story:
    copy = Copy("H", 25 * MEBI)
    return Story(
        steps((copy, *TRAIN, Sync())),
        ("exposed_copy",),
        steps((Copy("H", 25 * MEBI, 9), *TRAIN, Sync(7))),
    )


def _solver() -> Story:
    """A conjugate-gradient solver that reads two scalars an iteration."""

    def body(*scalar: Statement) -> Body:
        return (product(60), Kernel(10), *scalar, Host(6), Kernel(20), Kernel(10), *scalar, Host(6), Kernel(20))

    return Story(plain(*body(Copy("D", 8, is_pinned=False)), times=200), ("wait",), plain(*body(), times=200))


def _jax_put() -> Story:
    put = (within("device_put", Host(2000), PAGEABLE),)
    return Story(steps((*put, *TRAIN)), ("host_code", "pageable_copy"), steps(TRAIN))


def _allocating_rank() -> Story:
    alloc = (Call("cudaMalloc", 300), Call("cudaFree", 400, waits=True))
    rank = (*TRAIN, Reduce(50))
    return Story(steps(rank, (*alloc * 2, *rank)), ("allocation",), steps(rank, rank))


def _default_stream(blocks: int = 16, capability: str = "") -> Story:
    """Two threads use the default stream; kernels that fill the GPU would take turns on other streams, too."""

    def threads(*streams: int) -> tuple[Thread, ...]:
        return tuple(
            Thread((within("step", *(Kernel(100, stream, blocks=blocks),) * 10, Sync(stream)),) * 20)
            for stream in streams
        )

    is_slow = blocks < _FULL
    return Story(
        threads(7, 7),
        ("default_stream",) if is_slow else (),
        threads(13, 14) if is_slow else None,
        capability=capability,
    )


def _turns_on_default_stream() -> Story:
    """Two threads take turns, as those of PyTorch's forward and backward pass do: each waits for the other."""
    forward = (*(Kernel(100, blocks=16),) * 10, Post("forward"), Expect("backward"))
    backward = (Expect("forward"), *(Kernel(100, blocks=16),) * 10, Post("backward"))
    return Story((*steps(forward), Thread(backward * 20)))


def _validation_idles() -> Story:
    train = (within("train", Kernel(1400, name=_GEMM, blocks=_FULL), Kernel(1500, name="b", blocks=_FULL), Host(20)),)
    validation = (within("validation", Kernel(500, name="c", blocks=_FULL), Sync(), Host(500)),)
    quick = (within("validation", Kernel(500, name="c", blocks=_FULL)),)
    return Story(
        (Thread((*train * 60, *validation * 200)),),
        ("wait", "host_code", "wait_and_host_code"),
        (Thread((*train * 60, *quick * 200)),),
    )


def _batch_job() -> Story:
    """Two large copies from pageable memory, and work that needs both; nothing repeats."""
    work = tuple(product(2000 + 50 * n) for n in range(60))
    copies = (Copy("H", 256 * MEBI, is_pinned=False),) * 2
    pinned = (Copy("H", 256 * MEBI),) * 2
    return Story((Thread((*copies, *work, Sync())),), ("pageable_copy",), (Thread((*pinned, *work, Sync())),))


def _experts() -> Story:
    """Experts between two all-to-alls take 1.8 ms on one rank and 1.0 on the other."""

    def rank(us: float) -> Body:
        return (*layers(5), Reduce(60), product(us), Reduce(60), *layers(3))

    return Story(steps(rank(1800), rank(1000)), ("straggler", "uneven_experts"), steps(rank(1400), rank(1400)))


def _accumulation() -> Story:
    def micro(*reduce: Statement) -> Body:
        return (*layers(6), *reduce)

    optimizer = tuple(
        Kernel(40, name=f"void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<{n}>>", blocks=_FULL)
        for n in range(3)
    )
    reduces = (Reduce(220), Reduce(180))
    each_time = (*micro(*reduces) * 4, *optimizer)
    reduced_once = (*micro() * 3, *micro(*reduces), *optimizer)
    return Story(
        steps(each_time, each_time), ("repeated_reduction", "exposed_communication"), steps(reduced_once, reduced_once)
    )


def _tensor_parallel() -> Story:
    rank = tuple(itertools.chain.from_iterable((*layers(2, 60), Reduce(25)) for _ in range(24)))
    return Story(steps(rank, rank), ("needed_collectives",))


def _flush_each_seventh() -> Story:
    step = (*layers(30), Sync())
    flush = (within("flush", Host(25_000)),)
    return Story(each(7, step, flush, 42), ("host_code", "wait", "wait_and_host_code"), each(7, step, (), 42))


def _graph_gaps() -> Story:
    body = (*layers(10), Sync(), Host(1000))
    return Story(plain(*body), ("host_code", "wait", "wait_and_host_code"), plain(*layers(10)))


def _new_epoch() -> Story:
    epoch = (within("start_workers", Host(30_000)),)
    return Story(each(10, (*layers(20), Sync()), epoch), ("host_code", "wait_and_host_code"), each(10, layers(20), ()))


def _collections() -> Story:
    """The garbage collector stops a step here and there, in different ranges."""
    random = np.random.default_rng(3)

    def step(is_stopped: bool) -> Body:
        where = random.integers(0, 3) if is_stopped and random.random() < 0.5 else -1
        parts = (within(name, *layers(5), *((Host(3000),) if n == where else ())) for n, name in enumerate("abc"))
        return (within("step", *parts, *ITEM),)

    def run(is_stopped: bool) -> tuple[Thread, ...]:
        return (Thread(tuple(itertools.chain.from_iterable(step(is_stopped) for _ in range(40)))),)

    return Story(run(True), ("host_code", "wait", "wait_and_host_code"), run(False))


def _served_tokens() -> Story:
    """Tokens of 60 tiny kernels, each of which the CPU must know."""
    token = (*(Kernel(5), Host(2)) * 60, *ITEM, Host(30))
    return Story(steps(token, times=60), ("launch_bound",), steps((Graph(60, 5), *ITEM, Host(30)), times=60))


def _device_copies() -> Story:
    copies = (Copy("I", 1000 * MEBI, us=450),) * 2
    return Story(steps((*layers(10), *copies)), ("device_copy",), steps(layers(10)))


def _halo() -> Story:
    """A halo is copied to the peer after the kernel, where it could be copied during it."""

    def rank(stream: int) -> Body:
        return (product(400), Copy("P", 8 * MEBI, stream, us=200))

    return Story(steps(rank(7)), ("device_copy", "peer_copy"), steps(rank(9)))


def _parameters() -> Story:
    """A C++ loop: 40 pageable copies of 2 kB, 40 launches of one kernel, a wait."""
    slow = ((Copy("H", 2048, is_pinned=False), Kernel(40)) * 40, (Kernel(40),) * 40)
    return Story(plain(*slow[0], Sync()), ("many_small_copies",), plain(*slow[1], Sync()))


def _unread_validation() -> Story:
    """A second loop that idles is left out of the window."""
    train = (within("train", *layers(28)),)
    validation = (within("validation", *layers(5), Sync(), Host(500)),)
    fixed = (within("validation", *layers(5)),)
    return Story(
        (Thread((*train * 60, *validation * 200)),),
        ("wait", "host_code", "wait_and_host_code"),
        (Thread((*train * 60, *fixed * 200)),),
    )


def _idle_server() -> Story:
    """A server without requests."""
    request = (*layers(10), *ITEM)
    random = np.random.default_rng(5)
    waits = random.exponential(6000, 60)
    body = itertools.chain.from_iterable((Host(us), *request) for us in waits)
    return Story((Thread(tuple(body)),))


def _half_warm() -> Story:
    cold = within("step", *(Kernel(200, call_us=3000), Host(5)) * 6, *layers(4))
    return Story((Thread((cold, *(within("step", *layers(20)),) * 49)),))


def _uneven_kernels() -> Story:
    random = np.random.default_rng(7)
    return Story(
        (Thread(tuple(within("step", *(product(us) for us in random.lognormal(5, 0.5, 30))) for _ in range(30))),)
    )


def _small_graph() -> Story:
    return Story(steps((Graph(40, 8), Host(10)), times=50))


def _hidden_communication() -> Story:
    reduced: list[Body] = [(product(300), Record(n), Follow(n, 9), Reduce(150, 9)) for n in range(8)]
    rank = tuple(itertools.chain.from_iterable(reduced))
    last = (Record(9, 9), Follow(9, 7), product(100))
    return Story(steps((*rank, *last), (*rank, *last)))


def _simulation() -> Story:
    """Large kernels, and output each hundredth step."""
    return Story(each(100, tuple(Kernel(500 + 10 * n, name=c, blocks=_FULL) for n, c in enumerate("abcd")), ITEM, 200))


def _bounded_queue() -> Story:
    """A program that lets the GPU be one step behind."""
    body = (*layers(12), Record(1), Sync(9))
    return Story(steps(body, times=40))


def _three_streams(*, records: bool) -> Story:
    """Three streams that events join, and a wait each step that hides the order."""
    body = (
        product(300),
        Record(1),
        Follow(1, 8),
        product(300, 8),
        Record(2, 8),
        Follow(2, 9),
        product(300, 9),
        Record(3, 9),
        Follow(3, 7),
    )
    return Story(steps((*body, Sync()), times=40), (), steps(body, times=40), records=records)


def _throttled() -> Story:
    """Kernels take 30 % longer from step 20 on."""
    fast, slow = (within("step", *layers(20, us)) for us in (100, 130))
    return Story((Thread((*(fast,) * 20, *(slow,) * 20)),))


def _two_processes() -> Story:
    """Two processes take turns on one GPU, so kernels of each take twice as long."""
    body = (*layers(20, 100),)
    return Story(tuple(Thread((within("step", *body),) * 20, rank, gpu=0) for rank in (0, 1)), ("shared_gpu",))


def _held_interpreter() -> Story:
    """Another thread computes in Python, so host code of the launching one takes 5 ms a piece."""
    step = (*layers(3), Host(5000), *layers(3), *ITEM)
    return Story(steps(step), ("host_code", "interpreter"), steps((*layers(6), *ITEM)))


def _small_gradients(*, host_us: float = 0.0, sizes: bool = True) -> Story:
    """Gradients of 80 small parameters are reduced one by one, and divided by the number of ranks."""
    divide = Kernel(2, name=_MUL, blocks=4)

    def reduce(size: int, us: float) -> Body:
        return (
            (Host(host_us), Reduce(us, size=size * sizes), divide)
            if host_us
            else (Reduce(us, size=size * sizes), divide)
        )

    one_by_one = tuple(itertools.chain.from_iterable(reduce(size, 10 + size / 100_000) for size in (1024, 65536) * 40))
    total = 40 * (1024 + 65536)
    bad, fixed = ((*layers(12), *part) for part in (one_by_one, reduce(total, 10 + total / 100_000)))
    return Story(steps(bad, bad), ("small_collectives",), steps(fixed, fixed))


def _small_buckets() -> Story:
    """Gradients are reduced in small buckets on a stream of their own, while the backward pass runs."""

    def body(count: int, size: int) -> Body:
        bucket: Body = (product(10), Record(1), Follow(1, 9), Reduce(12 + size / 100_000, 9, size), Host(15))
        none: Body = (product(10), Host(15))
        parts = (bucket if n % (120 // count) == 120 // count - 1 else none for n in range(120))
        last = (Record(2, 9), Follow(2, 7), Kernel(20, name=_MUL, blocks=_FULL))
        return (*itertools.chain.from_iterable(parts), *last)

    bad, fixed = body(120, 8192), body(4, 30 * 8192)
    return Story(steps(bad, bad), ("small_collectives", "launch_bound"), steps(fixed, fixed))


def _needed_collectives() -> Story:
    """Each small collective is needed by the product after it, as in tensor parallelism of a few tokens."""
    rank: Body = (product(60), Reduce(12, size=16384)) * 48
    return Story(steps(rank, rank), ("needed_collectives",))


def _reduced_by_layer() -> Story:
    """Gradients of each layer are reduced in the backward pass, on the stream of the kernels."""

    def rank(*reduced: Body) -> Body:
        backward = itertools.chain.from_iterable((product(100), *one) for one in reduced)
        return (*layers(24, 50), *backward)

    bad = rank(*((Reduce(25),),) * 24)
    ahead: list[Body] = [(Record(n), Follow(n, 9), Reduce(25, 9)) for n in range(24)]
    fixed = (*rank(*ahead), Record(99, 9), Follow(99, 7))
    return Story(steps(bad, bad), ("exposed_communication",), steps(fixed, fixed))


def _few_collectives() -> Story:
    """A loss, a norm and some metrics are reduced in each step."""
    rank = (*layers(20), *(Reduce(12, size=8),) * 5)
    return Story(steps(rank, rank))


def _sized(blocks: float, *, has_blocks: bool = True) -> Body:
    """A step of training whose batch has so many blocks; its optimizer does the same in each step."""
    names = ("embedding", "layer_norm", "rotary", "softmax", "cross_entropy")
    kernels = (Kernel(blocks / 4, name=name, blocks=round(blocks) if has_blocks else 400) for name in names)
    return (product(blocks), *kernels, Kernel(100, name="adam", blocks=_FULL))


def _of_sizes(sizes: Iterable[float], *, has_blocks: bool = True) -> Story:
    return Story((Thread(tuple(within("step", *_sized(size, has_blocks=has_blocks)) for size in sizes)),))


def small_step(times: int = 1, host_us: float = 0.0, blocks: int = 4) -> Body:
    """A policy acts in so many environments: tiny kernels, a wait for the actions, and host code for each."""
    host = (within("environments", Host(times * host_us)),) if host_us else ()
    return (*(Kernel(2, blocks=times * blocks), Host(3)) * 30, *ITEM, *host)


def _small_steps(host_us: float = 0.0, blocks: int = 4) -> Story:
    body = small_step(1, host_us, blocks)
    rules = ("small_batch", "host_code", "launch_bound", "wait", "wait_and_host_code")
    return Story(steps(body), rules, capability="9.0")


LENGTHS: Final[tuple[float, ...]] = tuple(np.random.default_rng(11).integers(200, 1200, 30).astype(float).tolist())


_FLASH_2 = (
    "void pytorch_flash::flash_{}_kernel<Flash_{}_kernel_traits<(int)128, (int)128, (int)64, (int)8, (bool)0, (bool)0, "
    "cutlass::bfloat16_t>, (bool)0, (bool)1>(pytorch_flash::Flash_{}_params)"
)
_FLASH_OF_CUDNN = (
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_cga1x1x1_kernel0_0"
)


def _attending(us: float, name: str = "", layers_: int = 6) -> Body:
    """Training with attention that takes so long in the forward pass, and twice as long in the backward pass."""
    forward, backward = (_FLASH_2.format(*words) for words in (("fwd",) * 3, ("bwd_dq_dk_dv_loop", "bwd", "bwd")))
    ahead = (product(150), Kernel(us, name=name or forward, blocks=_FULL))
    back = (Kernel(2 * us, name=name or backward, blocks=_FULL), product(300))
    return (*ahead * layers_, *back * layers_)


def _older_attention(us: float = 200, capability: str = "9.0", name: str = "") -> Story:
    """FlashAttention-2; on Hopper, other kernels take two thirds or less of its time."""
    is_slow = capability == "9.0" and not name and us > 100
    rules, fixed = (("flash_attention_2",), steps(_attending(us / 1.6))) if is_slow else ((), None)
    return Story(steps(_attending(us, name)), rules, fixed, capability=capability)


def _middle() -> Story:
    """A loop whose capture begins and ends in the middle of steps."""
    body = (*TRAIN, Sync(), within("write", Host(900)))
    return Story(
        (Thread((*body[10:], *(within("step", *body),) * 15, *TRAIN[:7])),),
        ("host_code", "wait", "wait_and_host_code"),
        steps(TRAIN, times=15),
    )


def _lone_kernels() -> Story:
    """One short kernel after the other, with some host code before each launch; fixed: graphs of 50."""
    return Story(
        plain(Kernel(3, name=_MUL, blocks=_FULL), Host(30), times=1000),
        ("launch_bound",),
        plain(Graph(50, 3), Host(2), times=20),
    )


STORIES: Final[dict[str, Callable[[], Story]]] = {
    "loader_process": _loader_process,
    "lone_kernels": _lone_kernels,
    "checkpoint10": _checkpoint_each_tenth,
    "train_eval": _metrics_of_a_training,
    "gan": _gan,
    "rl": _environment,
    "cut_mid": _middle,
    "chain_cpp": _fused_chain,
    "prefetch_fails": _prefetch_fails,
    "gil": _held_interpreter,
    "cg": _solver,
    "jax_put": _jax_put,
    "alloc_rank": _allocating_rank,
    "default_stream": _default_stream,
    "default_stream_hopper": lambda: _default_stream(capability="9.0"),
    "default_stream_full": lambda: _default_stream(blocks=_FULL, capability="9.0"),
    "default_stream_turns": _turns_on_default_stream,
    "two_loops_val": _validation_idles,
    "batch_job": _batch_job,
    "a2a": _experts,
    "grad_accum": _accumulation,
    "tp": _tensor_parallel,
    "slow7": _flush_each_seventh,
    "graph_gaps": _graph_gaps,
    "epoch_restart": _new_epoch,
    "gc_pauses": _collections,
    "serve": _served_tokens,
    "many_chains": _many_chains,
    "d2d": _device_copies,
    "p2p": _halo,
    "params": _parameters,
    "two_loops": _unread_validation,
    "mps_two": _two_processes,
    "idle_server": _idle_server,
    "half_warm": _half_warm,
    "lognormal": _uneven_kernels,
    "tiny_graph": _small_graph,
    "overlap_ok": _hidden_communication,
    "hpc_ok": _simulation,
    "bounded": _bounded_queue,
    "three_streams": lambda: _three_streams(records=True),
    "three_streams_no_records": lambda: _three_streams(records=False),
    "throttle": _throttled,
    "small_gradients": _small_gradients,
    "small_gradients_python": lambda: _small_gradients(host_us=40),
    "small_gradients_unknown_size": lambda: _small_gradients(sizes=False),
    "small_buckets": _small_buckets,
    "needed_collectives": _needed_collectives,
    "reduced_by_layer": _reduced_by_layer,
    "few_collectives": _few_collectives,
    "small_steps": _small_steps,
    "small_steps_with_host_code": lambda: _small_steps(host_us=150),
    # most of the time belongs to what each environment does, and kernels that fill the GPU
    "slow_environments": lambda: _small_steps(host_us=5000),
    "large_steps": lambda: _small_steps(blocks=132),
    "uneven_lengths": lambda: _of_sizes(LENGTHS),
    "even_lengths": lambda: _of_sizes(580 + length / 30 for length in LENGTHS),
    "growing_cache": lambda: _of_sizes(range(300, 900, 20)),
    "uneven_speed": lambda: _of_sizes(LENGTHS, has_blocks=False),
    "flash2": _older_attention,
    "flash2_ampere": lambda: _older_attention(capability="8.0"),
    "flash2_little": lambda: _older_attention(us=21),
    "flash_cudnn": lambda: _older_attention(name=_FLASH_OF_CUDNN),
}
