"""Declare the code of fixes: lines to paste into a program, by the rule of the finding and the program's framework.

Only lines that are certain are here: if a fix depends on what the capture does not show, the finding says in words what
to do. The lines for PyTorch are those of the switch that makes the same change from outside, where there is one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import dedent
from typing import Final

from nightsight.results.switches import JIT, PYTORCH, SWITCH

PYTHON: Final = "python"
CPP: Final = "cpp"
SHELL: Final = "sh"
_VARIABLE: Final = re.compile(r"[A-Z][A-Z\d_]*=")


@dataclass(frozen=True)
class Code:
    """Lines for programs of a framework (nightsight.events.frameworks).

    where: a pattern of texts of findings that they fix, if a cause has several kinds of fix.
    """

    framework: str
    lines: str
    where: str = ""


def _code(framework: str, lines: str, where: str = "") -> Code:
    return Code(framework, dedent(lines).strip(), where)


def code_for(rule: str, framework: str, about: str) -> str:
    """Return the code that fixes a finding; "" if none is certain. about: its texts and names."""
    fitting = (
        code.lines for code in CODE.get(rule, ()) if code.framework == framework and re.search(code.where, about)
    )
    return next(fitting, "")


def language_of(lines: str) -> str:
    """Return the language of code, as Markdown names it: environment variables are lines of a shell."""
    if _VARIABLE.match(lines):
        return SHELL
    return CPP if re.search(r";\s*(//.*)?$", lines, re.MULTILINE) else PYTHON


_JAX: Final = "JAX"
_CUPY: Final = "CuPy"
_NUMBA: Final = "Numba"
_CUDA: Final = "CUDA"
# a library or the program loads modules with these calls, and the runtime loads its kernels lazily with others
_PLANS: Final = r"(?s)\A[^\n]*cuModule.*fft"
_LAZY: Final = r"\A(?![^\n]*cuModule)"
_TO_GPU: Final = "Host-to-Device"
# the next batch is copied while the GPU works on this one
_AHEAD: Final = (
    _code(
        PYTORCH,
        """
        def ahead(loader, device):  # of a DataLoader(..., pin_memory=True)
            stream, ready = torch.cuda.Stream(), None
            for batch in loader:
                with torch.cuda.stream(stream):
                    copied = batch.to(device, non_blocking=True)
                if ready is not None:
                    yield ready
                torch.cuda.current_stream().wait_stream(stream)
                copied.record_stream(torch.cuda.current_stream())
                ready = copied
            if ready is not None:
                yield ready
        """,
        _TO_GPU,
    ),
    _code(
        _JAX,
        """
        def ahead(batches):
            with ThreadPoolExecutor(1) as thread:
                ready = None
                for batch in batches:
                    copied = thread.submit(jax.device_put, batch)
                    if ready is not None:
                        yield ready.result()
                    ready = copied
                if ready is not None:
                    yield ready.result()
        """,
        _TO_GPU,
    ),
    _code(
        _CUPY,
        """
        # before the loop
        pinned = cupyx.empty_pinned(following.shape, following.dtype)
        stream = cupy.cuda.Stream(non_blocking=True)
        # while the GPU works on the array before
        pinned[...] = batch
        following.set(pinned, stream=stream)
        # before the kernels that read it
        cupy.cuda.get_current_stream().wait_event(stream.record())
        """,
        _TO_GPU,
    ),
    _code(
        _CUDA,
        """
        cudaMallocHost(&pinned, bytes);  // once, before the loop
        // while kernels read the buffer before
        cudaMemcpyAsync(following, pinned, bytes, cudaMemcpyHostToDevice, copies);
        cudaEventRecord(copied, copies);
        // before the kernels that read this one
        cudaStreamWaitEvent(stream, copied, 0);
        """,
        _TO_GPU,
    ),
)
CODE: Final[Mapping[str, tuple[Code, ...]]] = {
    "host_code": (_code(PYTORCH, SWITCH["loader_workers"].code, "_SingleProcessDataLoaderIter"),),
    "wait": (
        _code(PYTORCH, SWITCH["deferred_item"].code, SWITCH["deferred_item"].place),
        _code(
            _JAX,
            """
            losses.append(loss)  # instead of float(loss)
            if step % 100 == 0:
                print(jax.device_get(losses)[-1])
            """,
        ),
        _code(
            _CUPY,
            """
            if step % 100 == 0 and float(error) < tolerance:
                break
            """,
        ),
        _code(
            _NUMBA,
            """
            if step % 100 == 0:
                host = result.copy_to_host()
            """,
        ),
        _code(
            _CUDA,
            """
            cudaMallocHost(&pinned, bytes);  // once, before the loop
            cudaMemcpyAsync(pinned, result, bytes, cudaMemcpyDeviceToHost, stream);
            cudaEventRecord(copied, stream);
            // after the launches of the next step
            cudaEventSynchronize(copied);  // then read pinned
            """,
            "cudaStreamSynchronize|cudaMemcpy",
        ),
    ),
    "masks": (
        _code(
            PYTORCH,
            """
            x = torch.where(mask, update(x), x)  # instead of x[mask] = update(x[mask])
            loss = (error * mask).sum() / mask.sum()  # instead of error[mask].mean()
            """,
        ),
    ),
    "launch_bound": (
        _code(PYTORCH, SWITCH["compile_graphs"].code),
        _code(
            _JAX,
            """
            @jax.jit
            def run(state, batches):  # many steps at once; step returns (state, metrics)
                return jax.lax.scan(step, state, batches)
            """,
        ),
        _code(
            _CUPY,
            """
            stream = cupy.cuda.Stream(non_blocking=True)
            with stream:
                step()  # once before, which compiles its kernels
                stream.begin_capture()
                step()
                graph = stream.end_capture()
            for _ in range(steps):
                graph.launch(stream)
            """,
        ),
        _code(
            _CUDA,
            """
            cudaGraph_t graph;
            cudaGraphExec_t step;
            cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
            // launch the kernels of one step on this stream
            cudaStreamEndCapture(stream, &graph);
            cudaGraphInstantiate(&step, graph, 0);
            // in the loop
            cudaGraphLaunch(step, stream);
            """,
        ),
    ),
    "not_jitted": (_code(_JAX, JIT.code),),
    "allocation": (
        _code(_JAX, "step = jax.jit(step, donate_argnums=0)  # the state that it updates"),
        _code(_NUMBA, "out = cuda.device_array(shape, dtype)  # once, before the loop"),
        _code(
            _CUDA,
            """
            cudaMemPool_t pool;
            uint64_t keep = UINT64_MAX;
            cudaDeviceGetDefaultMemPool(&pool, device);
            cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep);
            // in the loop, instead of cudaMalloc and cudaFree
            cudaMallocAsync(&buffer, bytes, stream);
            cudaFreeAsync(buffer, stream);
            """,
        ),
    ),
    "loading": (
        _code(PYTORCH, "torch.backends.cuda.cufft_plan_cache.max_size = 64  # plans, one for each shape", _PLANS),
        _code(
            _CUDA,
            """
            cufftPlan1d(&plan, length, CUFFT_C2C, batch);  // once, before the loop
            cufftExecC2C(plan, input, output, CUFFT_FORWARD);  // in each step
            """,
            _PLANS,
        ),
        *(_code(each, SWITCH["eager_loading"].code, _LAZY) for each in (PYTORCH, _JAX, _CUPY, _NUMBA, _CUDA)),
    ),
    "compilation": (
        _code(PYTORCH, "torch.backends.cuda.enable_cudnn_sdp(False)", "cudnn_generated"),
        _code(PYTORCH, SWITCH["compile_dynamic"].code, r"torch\.compile"),
        _code(
            _JAX,
            """
            length = max(16, 1 << (tokens.shape[1] - 1).bit_length())  # few lengths: powers of two
            tokens = jnp.pad(tokens, ((0, 0), (0, length - tokens.shape[1])))
            """,
        ),
    ),
    "restarted_workers": (_code(PYTORCH, SWITCH["persistent_workers"].code),),
    "pageable_copy": (
        _code(
            PYTORCH,
            """
            loader = DataLoader(..., pin_memory=True)  # or data = data.pin_memory(), once
            batch = batch.to(device, non_blocking=True)
            """,
            _TO_GPU,
        ),
        *(code for code in _AHEAD if code.framework != PYTORCH),
    ),
    "exposed_copy": _AHEAD,
    "peer_copy": (
        _code(
            _CUDA,
            """
            cudaMemcpyPeerAsync(target, target_gpu, source, source_gpu, bytes, copies);
            cudaEventRecord(copied, copies);
            // before the kernels that read it
            cudaStreamWaitEvent(stream, copied, 0);
            """,
        ),
    ),
    "copies_to_host": (
        _code(
            PYTORCH,
            """
            # before the loop
            pinned = torch.empty(result.shape, dtype=result.dtype, pin_memory=True)
            stream = torch.cuda.Stream()
            # in each step
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                pinned.copy_(result, non_blocking=True)
                result.record_stream(stream)
            # a step later
            stream.synchronize()  # then read pinned
            """,
        ),
        _code(
            _JAX,
            """
            if step % 100 == 0:
                host = jax.device_get(results)
            """,
        ),
        _code(
            _CUPY,
            """
            if step % 100 == 0:
                host = result.get()
            """,
        ),
        _code(
            _CUDA,
            """
            cudaMallocHost(&pinned, bytes);  // once, before the loop
            cudaEventRecord(computed, stream);
            cudaStreamWaitEvent(copies, computed, 0);
            cudaMemcpyAsync(pinned, result, bytes, cudaMemcpyDeviceToHost, copies);
            // a step later
            cudaStreamSynchronize(copies);  // then read pinned
            """,
        ),
    ),
    "many_small_copies": (
        _code(PYTORCH, "loss, error, norm = torch.stack([loss, error, norm]).tolist()", "Device-to-Host"),
        _code(PYTORCH, "inputs = torch.stack(inputs).to(device)  # instead of one copy each", _TO_GPU),
    ),
    "migration": (
        _code(
            _CUDA,
            """
            cudaMalloc(&data, bytes);  // instead of cudaMallocManaged
            cudaMallocHost(&pinned, bytes);
            cudaMemcpyAsync(data, pinned, bytes, cudaMemcpyHostToDevice, stream);
            """,
        ),
    ),
    "exposed_communication": (_code(_JAX, SWITCH["xla_overlap"].code),),
    "repeated_reduction": (_code(PYTORCH, SWITCH["reduce_once"].code),),
    "small_collectives": (
        _code(
            PYTORCH,
            """
            grads = [p.grad for p in model.parameters() if p.grad is not None]
            flat = torch.nn.utils.parameters_to_vector(grads)
            torch.distributed.all_reduce(flat)
            torch.nn.utils.vector_to_parameters(flat, grads)
            """,
        ),
        _code(_JAX, "XLA_FLAGS=--xla_gpu_all_reduce_combine_threshold_bytes=134217728"),
        _code(
            _CUDA,
            """
            ncclGroupStart();
            // all calls of ncclAllReduce
            ncclGroupEnd();
            """,
        ),
    ),
    "tensor_cores": (
        _code(PYTORCH, SWITCH["tf32"].code),
        _code(_JAX, 'jax.config.update("jax_default_matmul_precision", "tensorfloat32")'),
        _code(_CUPY, "CUPY_TF32=1"),
        _code(_CUDA, "cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH);"),
    ),
    "fusion": (
        _code(PYTORCH, SWITCH["compile"].code),
        _code(_JAX, JIT.code),
        _code(_CUPY, "@cupy.fuse()  # before a function of elementwise operations"),
    ),
    "attention": (
        _code(PYTORCH, SWITCH["sdpa"].code),
        _code(_JAX, 'out = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")'),
    ),
    "flash_attention_2": (
        _code(
            PYTORCH,
            """
            from torch.nn.attention import SDPBackend, sdpa_kernel

            order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]
            with sdpa_kernel(order, set_priority=True):
                loss = model(batch)
            """,
        ),
    ),
    "recomputation": (_code(PYTORCH, SWITCH["stored_activations"].code),),
    "fused_optimizer": (_code(PYTORCH, SWITCH["fused_optimizer"].code),),
    "fp64": (_code(_JAX, 'jax.config.update("jax_enable_x64", False)'),),
    "layout": (_code(PYTORCH, SWITCH["channels_last"].code),),
}
"""The code of each rule that has any: for a finding, the first that fits."""
