"""Declare the switches: changes to a program from outside, the causes that they fix, and their effect on its results.

A change runs inside the program (workloads/injected/switching.py), or is an environment variable.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

PYTORCH: Final = "PyTorch"
"""The framework of most switches, and of the texts of rules that do not depend on it."""
NONE: Final = "none"
ROUNDING: Final = "rounding"
PRECISION: Final = "precision"
NUMERICS: Final = (NONE, ROUNDING, PRECISION)
"""How results change: not at all, by the order of operations, or by the number type."""


@dataclass(frozen=True, kw_only=True)
class Edit:
    """An edit of a line of a program that makes the change permanent.

    callees: the names of the functions called there. keywords: arguments to add. unless: arguments that exclude them.
    removes: the call is removed. Without callees, the switch's code is inserted after the line if it imports torch.
    """

    callees: tuple[str, ...] = ()
    keywords: Mapping[str, str] = field(default_factory=dict)
    unless: tuple[str, ...] = ()
    removes: bool = False


@dataclass(frozen=True, kw_only=True)
class Switch:
    """A change that is made from outside.

    done: what is different, as a noun phrase. rules: the causes that it fixes. tries: causes that it may reduce; their
    predicted gain is that of another fix. also: causes that it fixes together with one of `rules`, whose predicted gain
    it reaches at least. numerics: how results change. code: the lines to add to the program.
    place: a pattern that the finding's title must match, if a cause has several kinds of fix.
    environment: environment variables that make the change, in any program; without them, the change is made inside a
    Python program with PyTorch. excludes: switches that cannot be combined with it. edit: the edit of a line of the
    program, if it is certain. file: the user's file that makes the change. function: the function `MODULE.NAME` of the
    program that it changes; its results are recorded in all runs. framework: only for programs that use it, by its name
    in nightsight.events.frameworks; "": any. is_slow: compiling makes a run much longer.
    """

    name: str
    done: str
    rules: tuple[str, ...]
    numerics: str
    code: str
    tries: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    place: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    excludes: tuple[str, ...] = ()
    edit: Edit | None = None
    file: str = ""
    function: str = ""
    framework: str = ""
    is_slow: bool = False

    @property
    def key(self) -> str:
        """The name of the switch inside the program."""
        return self.file or self.name

    def is_for(self, framework: str) -> bool:
        """Whether it can change programs of a framework; "": that is unknown."""
        return self.framework in ("", framework) if self.environment else framework in ("", PYTORCH)

    def fixes(self, rule: str, title: str) -> bool:
        """Whether it is the fix of a finding, with the gain that the finding predicts."""
        return rule in self.rules and re.search(self.place, title) is not None

    def may_help(self, rule: str, title: str) -> bool:
        """Whether it may reduce the cause of a finding."""
        return rule in (*self.rules, *self.tries, *self.also) and re.search(self.place, title) is not None


_LOADER: Final = r"[Dd]ata ?[Ll]oader"

SWITCHES: Final = (
    Switch(
        name="tf32",
        done="matrix products and convolutions in TF32",
        rules=("tensor_cores",),
        numerics=PRECISION,
        code='torch.set_float32_matmul_precision("high")\ntorch.backends.cudnn.allow_tf32 = True',
        edit=Edit(),
    ),
    Switch(
        name="bf16",
        # it also halves the bytes of all kernels, and adds conversions: the predicted gain is that of TF32
        done="models under autocast in BF16",
        rules=(),
        tries=("tensor_cores", "fp64"),
        numerics=PRECISION,
        code='with torch.autocast("cuda", torch.bfloat16):\n    loss = model(batch)',
        excludes=("tf32",),
    ),
    Switch(
        name="bf16_weights",
        done="models for inference in BF16",
        rules=(),
        tries=("tensor_cores",),
        numerics=PRECISION,
        code="model = model.to(torch.bfloat16)  # and its inputs",
        excludes=("tf32", "bf16"),
    ),
    Switch(
        name="fused_optimizer",
        done="a fused optimizer",
        rules=("fused_optimizer",),
        tries=("launch_bound",),
        numerics=ROUNDING,
        code="torch.optim.AdamW(model.parameters(), ..., fused=True)",
        edit=Edit(callees=("Adam", "AdamW", "SGD", "Adagrad"), keywords={"fused": "True"}, unless=("foreach",)),
    ),
    Switch(
        name="sdpa",
        done="scaled_dot_product_attention for attention written out by hand",
        rules=("attention",),
        numerics=ROUNDING,
        code=(
            "out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)\n"
            '# transformers: attn_implementation="sdpa"; timm: timm.layers.set_fused_attn(True)'
        ),
    ),
    Switch(
        name="cudnn_attention",
        done="scaled_dot_product_attention without FlashAttention-2",
        rules=("flash_attention_2",),
        numerics=ROUNDING,
        code="torch.backends.cuda.enable_flash_sdp(False)  # so that cuDNN's attention is chosen",
    ),
    # the predicted gain of a launch-bound step is that of a graph that includes the optimizer
    Switch(
        name="cuda_graphs",
        done="forward and backward passes of models replayed as CUDA graphs",
        rules=(),
        tries=("launch_bound",),
        numerics=NONE,
        code=(
            "# before the loop, without hooks; all batches have the shape of this one\n"
            "model = torch.cuda.make_graphed_callables(model, (batch,))"
        ),
        excludes=("compile", "compile_graphs", "compile_autotune", "compile_dynamic"),
    ),
    Switch(
        name="compile",
        done="models compiled with torch.compile",
        rules=("fusion",),
        tries=("launch_bound", "attention"),
        numerics=ROUNDING,
        code="model = torch.compile(model)",
        is_slow=True,
    ),
    Switch(
        name="compile_graphs",
        done="models compiled into CUDA graphs",
        rules=("launch_bound",),
        also=("fusion",),
        numerics=ROUNDING,
        code=(
            'model = torch.compile(model, mode="reduce-overhead")\n'
            "torch.compiler.cudagraph_mark_step_begin()  # before each step"
        ),
        excludes=("compile",),
        is_slow=True,
    ),
    Switch(
        name="compile_autotune",
        done="models compiled with kernels chosen by timing",
        rules=(),
        numerics=ROUNDING,
        code=(
            'model = torch.compile(model, mode="max-autotune")\n'
            "torch.compiler.cudagraph_mark_step_begin()  # before each step"
        ),
        excludes=("compile", "compile_graphs"),
        is_slow=True,
    ),
    Switch(
        name="compile_dynamic",
        done="code compiled for all shapes",
        rules=("compilation",),
        numerics=ROUNDING,
        code="model = torch.compile(model, dynamic=True)",
        excludes=("compile", "compile_graphs"),
        edit=Edit(callees=("compile",), keywords={"dynamic": "True"}),
        is_slow=True,
    ),
    Switch(
        name="channels_last",
        done="models and images in NHWC, volumes in NDHWC",
        rules=("layout",),
        numerics=ROUNDING,
        code=(
            "model = model.to(memory_format=torch.channels_last)  # channels_last_3d for volumes\n"
            "images = images.to(memory_format=torch.channels_last)"
        ),
    ),
    Switch(
        name="cudnn_benchmark",
        done="convolutions chosen by timing",
        rules=(),
        numerics=ROUNDING,
        code="torch.backends.cudnn.benchmark = True",
        edit=Edit(),
    ),
    Switch(
        name="loader_workers",
        done="batches from worker processes",
        rules=("host_code", "interpreter"),
        place=_LOADER,
        numerics=NONE,
        code="DataLoader(..., num_workers=8, persistent_workers=True)  # or as many as there are cores",
        edit=Edit(callees=("DataLoader",), keywords={"num_workers": "8", "persistent_workers": "True"}),
    ),
    Switch(
        name="persistent_workers",
        done="workers that outlive an epoch",
        rules=("restarted_workers",),
        tries=("host_code",),
        place=_LOADER,
        numerics=NONE,
        code="DataLoader(..., persistent_workers=True)",
        edit=Edit(callees=("DataLoader",), keywords={"persistent_workers": "True"}),
    ),
    Switch(
        name="prefetched_batches",
        done="workers that prefetch eight batches",
        rules=(),
        tries=("host_code", "interpreter"),
        place=_LOADER,
        numerics=NONE,
        code="DataLoader(..., prefetch_factor=8)",
        edit=Edit(callees=("DataLoader",), keywords={"prefetch_factor": "8"}),
    ),
    # the predicted gain of a cause of copies is for copies ahead of time on a separate stream: no switch does that, and
    # a capture does not show how long the host takes to fill pinned memory
    Switch(
        name="pinned_batches",
        done="batches in pinned memory",
        rules=(),
        tries=("pageable_copy",),
        numerics=NONE,
        code="DataLoader(..., pin_memory=True)",
        edit=Edit(callees=("DataLoader",), keywords={"pin_memory": "True"}),
    ),
    Switch(
        name="non_blocking",
        done="non-blocking copies from pinned memory",
        rules=(),
        tries=("pageable_copy", "exposed_copy"),
        numerics=NONE,
        code="batch = batch.to(device, non_blocking=True)",
        edit=Edit(callees=("to", "cuda"), keywords={"non_blocking": "True"}),
    ),
    Switch(
        name="pinned_copies",
        done="large non-blocking copies from pinned memory",
        rules=(),
        tries=("pageable_copy",),
        place="Host-to-Device",
        numerics=NONE,
        code=("data = data.pin_memory()  # once, where it is made\nbatch = data[rows].to(device, non_blocking=True)"),
    ),
    Switch(
        name="deferred_item",
        done="values read when they are shown",
        rules=("wait", "wait_and_host_code"),
        place="cudaStreamSynchronize|cudaMemcpyAsync",
        numerics=NONE,
        code="total += loss.detach()  # instead of loss.item()\nif step % 100 == 0:\n    print(total.item())",
    ),
    Switch(
        name="reduce_once",
        done="gradients reduced once per update",
        rules=("repeated_reduction",),
        numerics=ROUNDING,
        code="with model.no_sync():  # in all passes before an update except the last\n    loss.backward()",
    ),
    Switch(
        name="bucket_views",
        done="gradients that are views of DistributedDataParallel's buckets",
        rules=(),
        tries=("exposed_communication",),
        numerics=NONE,
        code="DistributedDataParallel(..., gradient_as_bucket_view=True)",
        edit=Edit(callees=("DistributedDataParallel", "DDP"), keywords={"gradient_as_bucket_view": "True"}),
    ),
    Switch(
        name="static_graph",
        done="DistributedDataParallel with a static graph",
        rules=(),
        tries=("exposed_communication",),
        numerics=NONE,
        code="DistributedDataParallel(..., static_graph=True)",
        edit=Edit(callees=("DistributedDataParallel", "DDP"), keywords={"static_graph": "True"}),
    ),
    Switch(
        name="large_buckets",
        done="buckets of 100 MB in DistributedDataParallel",
        rules=("small_collectives",),
        tries=("exposed_communication",),
        numerics=ROUNDING,
        code="DistributedDataParallel(..., bucket_cap_mb=100)",
        edit=Edit(callees=("DistributedDataParallel", "DDP"), keywords={"bucket_cap_mb": "100"}),
    ),
    Switch(
        name="one_connection",
        done="kernels that start in the order of their launches",
        rules=(),
        tries=("exposed_communication",),
        numerics=NONE,
        code="CUDA_DEVICE_MAX_CONNECTIONS=1",
        environment={"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    ),
    Switch(
        name="gc_freeze",
        done="no garbage collection of objects that exist at the first step",
        rules=(),
        numerics=NONE,
        code="gc.collect()\ngc.freeze()  # before the loop",
    ),
    Switch(
        name="stored_activations",
        done="activations kept instead of computed again",
        rules=("recomputation",),
        # gradients may be summed in a different order
        numerics=ROUNDING,
        code="model.gradient_checkpointing_disable()  # of transformers",
    ),
    Switch(
        name="keep_cache",
        done="the allocator keeps its cache",
        rules=("allocation",),
        numerics=NONE,
        code="# remove torch.cuda.empty_cache() from the step",
        edit=Edit(callees=("empty_cache",), removes=True),
    ),
    Switch(
        name="expandable_segments",
        done="an allocator whose segments grow",
        rules=(),
        tries=("allocation",),
        numerics=NONE,
        code="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        environment={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    ),
    Switch(
        name="no_synchronize",
        done="no torch.cuda.synchronize()",
        rules=("wait", "wait_and_host_code"),
        place="cudaDeviceSynchronize",
        numerics=NONE,
        code="# remove torch.cuda.synchronize() from the step",
        edit=Edit(callees=("synchronize",), removes=True),
    ),
    Switch(
        name="override_tf32",
        done="products of NVIDIA's libraries in TF32",
        rules=("tensor_cores",),
        numerics=PRECISION,
        code="NVIDIA_TF32_OVERRIDE=1",
        environment={"NVIDIA_TF32_OVERRIDE": "1"},
        excludes=("tf32", "bf16"),
    ),
    Switch(
        name="one_thread",
        done="operations on the CPU in one thread",
        rules=(),
        numerics=ROUNDING,
        code="OMP_NUM_THREADS=1 MKL_NUM_THREADS=1",
        environment={"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    ),
    Switch(
        name="xla_overlap",
        done="communication of XLA that overlaps with computation",
        rules=("exposed_communication",),
        numerics=NONE,
        code="XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true",
        environment={"XLA_FLAGS": "--xla_gpu_enable_latency_hiding_scheduler=true"},
        framework="JAX",
    ),
    Switch(
        name="eager_loading",
        done="kernels loaded at the start",
        rules=("loading",),
        numerics=NONE,
        code="CUDA_MODULE_LOADING=EAGER",
        environment={"CUDA_MODULE_LOADING": "EAGER"},
    ),
)
"""All switches, in the order in which they are tried."""
SWITCH: Final = {switch.name: switch for switch in SWITCHES}
JIT: Final = Switch(
    name="jit=MODULE.FUNCTION",
    done="a function of a JAX program, compiled with jax.jit",
    rules=("not_jitted",),
    numerics=ROUNDING,
    code="@jax.jit  # before the function",
    is_slow=True,
)
"""The switch for a function that the user names; `jitted` creates it."""


def jitted(word: str) -> Switch | None:
    """Return the switch `jit=MODULE.FUNCTION`; None if a word is not one."""
    path = word.removeprefix(_JIT)
    module, _, function = path.rpartition(".")
    if not word.startswith(_JIT) or not all(name.isidentifier() for name in (*module.split("."), function)):
        return None
    code = f"@jax.jit\ndef {function}(...):  # in {module}"
    return replace(JIT, name=word, done=f"{path}, compiled with jax.jit", code=code, function=path)


def switches_for(rule: str, title: str, framework: str) -> tuple[Switch, ...]:
    """Return the switches for a finding in a program of a framework, those that fix its cause first."""
    helpful = (switch for switch in SWITCHES if switch.is_for(framework) and switch.may_help(rule, title))
    return tuple(sorted(helpful, key=lambda switch: not switch.fixes(rule, title)))


_JIT: Final = "jit="
NO_DROPOUT: Final = Switch(name="no_dropout", done="no dropout", rules=(), numerics=NONE, code="")
PERTURBED: Final = {
    numerics: Switch(name=f"perturbed_{numerics}", done="perturbed weights", rules=(), numerics=NONE, code="")
    for numerics in (ROUNDING, PRECISION)
}
"""Not fixes, but aids for comparing results: a change of numerics may differ as much as perturbed weights do."""
