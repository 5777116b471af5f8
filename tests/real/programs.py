"""Programs as people write them: `python programs.py NAME [FORM]` prints how long a step takes without a profiler.

None has annotations; each has the loop of its library. The form `base` is what gets profiled; the others are fixes. The
second half of the steps is timed. With REAL_LOCK, only one program at a time uses the GPU: the others wait before their
first step, with everything imported.
"""

import fcntl
import itertools
import os
import random
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import Queue
from threading import Thread
from types import FunctionType
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

NAME = sys.argv[1] if len(sys.argv) > 1 else ""
FORM = sys.argv[2] if len(sys.argv) > 2 else "base"
# without a GPU, everything is small, and only shows that the program runs
SMALL = bool(os.environ.get("REAL_SMALL"))
_LOCK: list[Any] = []


def alone() -> None:
    """Wait until no other program of the suite uses the GPU."""
    if path := os.environ.get("REAL_LOCK"):
        _LOCK.append(Path(path).open("w", encoding="utf-8"))
        fcntl.flock(_LOCK[0], fcntl.LOCK_EX)


class Clock:
    """Called after each step; prints the mean of the second half."""

    def __init__(self, steps: int, sync: Callable[[], Any], *, units: int = 1) -> None:
        self.steps, self.sync, self.units, self.count, self.since = steps, sync, units, 0, 0.0

    def __call__(self) -> None:
        self.count += 1
        if self.count in (self.steps // 2, self.steps):
            self.sync()
            now = time.perf_counter()
            if self.count == self.steps:
                each = (now - self.since) / (self.steps - self.steps // 2) / self.units
                print(f"{NAME} {FORM} step {1e3 * each:.4f} ms", flush=True)
            self.since = now


def steps_of(many: int, few: int = 4) -> int:
    """Return how many steps to do; a capture has fewer."""
    return few if SMALL else max(round(many * float(os.environ.get("REAL_SHARE", "1"))), few)


def device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def sync() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def loop(step: Callable[[int], Any], steps: int, waits: Callable[[], Any] = sync) -> None:
    clock = Clock(steps, waits)
    for number in range(steps):
        step(number)
        clock()


# -- transformers and what is built on it -----------------------------------------------------------------------------


def accelerate_bert() -> None:
    """BERT classifies sentences with Accelerate's defaults: FP32. Fixes: TF32; BF16."""
    import torch
    from accelerate import Accelerator
    from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

    alone()
    count, size, length = steps_of(50), 4 if SMALL else 32, 16 if SMALL else 128
    torch.backends.cuda.matmul.allow_tf32 = FORM == "tf32"
    accelerator = Accelerator(mixed_precision="bf16" if FORM == "bf16" else "no")
    layers = 1 if SMALL else 12
    model = BertForSequenceClassification(BertConfig(num_hidden_layers=layers, num_labels=3))
    tokens = torch.randint(0, 30000, (count * size, length))
    data = torch.utils.data.TensorDataset(tokens, torch.randint(0, 3, (len(tokens),)))
    loader = torch.utils.data.DataLoader(data, batch_size=size, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    schedule = get_linear_schedule_with_warmup(optimizer, 10, count)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    clock = Clock(count, sync)
    model.train()
    for batch, labels in loader:
        loss = model(input_ids=batch, labels=labels).loss
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        clock()


def bert_padding() -> None:
    """Sentences of 10 to 120 words are all padded to 512. Fix: pad each batch to its longest."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    alone()
    count, size = steps_of(60), 4 if SMALL else 32
    random.seed(0)
    lengths = [[random.randrange(10, 120) for _ in range(size)] for _ in range(count)]
    config = BertConfig(num_hidden_layers=1 if SMALL else 12, num_labels=2)
    model = BertForSequenceClassification(config).to(device())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=not SMALL)

    def step(number: int) -> None:
        width = max(lengths[number]) if FORM == "longest" else 128 if SMALL else 512
        mask = torch.zeros(size, width, dtype=torch.long)
        for row, length in enumerate(lengths[number]):
            mask[row, :length] = 1
        tokens = torch.randint(1, 30000, (size, width)) * mask
        batch, attention = (tensor.to(device(), non_blocking=True) for tensor in (tokens, mask))
        with torch.autocast(device(), torch.bfloat16):
            loss = model(batch, attention_mask=attention, labels=torch.zeros(size, dtype=torch.long).to(device())).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    loop(step, count)


def llama_checkpointing() -> None:
    """LoRA on a Llama with gradient checkpointing, although memory would do. Fix: none of that."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    alone()
    layers, width = (2, 128) if SMALL else (8, 2048)
    config = LlamaConfig(
        hidden_size=width,
        intermediate_size=width * 11 // 4,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 64,
        vocab_size=8000,
        use_cache=False,
    )
    model = LlamaForCausalLM(config).to(device(), torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "v_proj"]))
    if FORM != "stored":
        model.enable_input_require_grads()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    called = torch.compile(model) if FORM == "compile" else model
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, fused=not SMALL)
    tokens = torch.randint(0, 8000, (4, 64 if SMALL else 1024), device=device())

    def step(_: int) -> None:
        called(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    loop(step, steps_of(30))


def gpt2_vocabulary() -> None:
    """GPT-2 has 50,257 words, which no tensor core likes. Fix: 50,304."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    alone()
    words = 50304 if FORM == "padded" else 50257
    model = GPT2LMHeadModel(GPT2Config(n_layer=1 if SMALL else 4, vocab_size=words, n_positions=1024)).to(device())
    optimizer = torch.optim.AdamW(model.parameters(), fused=not SMALL)
    tokens = torch.randint(0, 50000, (1 if SMALL else 8, 32 if SMALL else 1024), device=device())

    def step(_: int) -> None:
        with torch.autocast(device(), torch.bfloat16):
            loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    loop(step, steps_of(30))


def gpt2_generate() -> None:
    """Text is generated token by token with transformers' defaults. Fix: a static cache, which gets compiled."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    alone()
    model = GPT2LMHeadModel(GPT2Config(n_layer=1 if SMALL else 12)).to(device(), torch.bfloat16).eval()
    tokens = torch.randint(0, 50000, (4, 16), device=device())
    new = 8 if SMALL else 64
    extra: dict[str, Any] = {"cache_implementation": "static"} if FORM == "static" else {}
    clock = Clock(steps_of(8), sync, units=new)
    for _ in range(steps_of(8)):
        model.generate(tokens, max_new_tokens=new, min_new_tokens=new, do_sample=False, pad_token_id=0, **extra)
        clock()


def llama_decode() -> None:
    """A Llama of 3 billion parameters answers one person, token by token: DRAM's rate. Fix: eight people at a time."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    alone()
    width, layers = (128, 2) if SMALL else (3072, 24)
    config = LlamaConfig(
        hidden_size=width,
        intermediate_size=width * 8 // 3 // 64 * 64,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 64,
        vocab_size=8000,
        dtype=torch.bfloat16,
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device()):
        model = LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    people = 8 if FORM == "batch" else 1
    tokens = torch.randint(0, 8000, (people, 16), device=device())
    new = 8 if SMALL else 24
    extra: dict[str, Any] = {"cache_implementation": "static"} if FORM == "static" else {}
    clock = Clock(steps_of(6), sync, units=new * people)
    for _ in range(steps_of(6)):
        model.generate(tokens, max_new_tokens=new, min_new_tokens=new, do_sample=False, pad_token_id=0, **extra)
        clock()


def sentence_embeddings() -> None:
    """Sentences are embedded in FP32, 8 at a time. Fixes: BF16; BF16 and 256 at a time."""
    import torch
    from transformers import BertConfig, BertModel

    alone()
    size = 256 if FORM == "large" else 8
    model = BertModel(BertConfig(num_hidden_layers=1 if SMALL else 12)).to(device()).eval()
    if FORM in ("bf16", "large"):
        model = model.to(torch.bfloat16)
    called = torch.compile(model, mode="reduce-overhead") if FORM == "graph" else model
    total = 16 if SMALL else 2048
    tokens = torch.randint(0, 30000, (total, 64))
    count = max(total // size, 2)
    kept = []
    clock = Clock(count, sync, units=size)
    with torch.inference_mode():
        for first in range(0, count * size, size):
            place = first % total
            states = called(input_ids=tokens[place : place + size].to(device())).last_hidden_state
            kept.append(torch.nn.functional.normalize(states.mean(1), dim=1).float().cpu().numpy())
            clock()


# -- images and sound -------------------------------------------------------------------------------------------------


def vit_attention() -> None:
    """A ViT classifies images in FP16 with attention written out. Fix: timm's fused attention."""
    import timm
    import timm.layers
    import torch

    alone()
    timm.layers.set_fused_attn(FORM == "fused")
    model = timm.create_model("vit_tiny_patch16_224" if SMALL else "vit_base_patch16_384", num_classes=100)
    model = model.to(device(), torch.float32 if SMALL else torch.float16).eval()
    side = 224 if SMALL else 384
    images = torch.randn(2 if SMALL else 32, 3, side, side, device=device(), dtype=next(model.parameters()).dtype)
    with torch.inference_mode():
        loop(lambda _: model(images), steps_of(40))


def convnext_nchw() -> None:
    """ConvNeXt trains under autocast in NCHW. Fix: channels_last."""
    import timm
    import torch

    alone()
    model = timm.create_model("convnext_atto" if SMALL else "convnext_small", num_classes=100).to(device())
    images = torch.randn(2 if SMALL else 48, 3, 224, 224, device=device())
    if FORM == "channels_last":
        model, images = (each.to(memory_format=torch.channels_last) for each in (model, images))
    modes = {"compile": "default", "graph": "reduce-overhead"}
    called = torch.compile(model, mode=modes[FORM]) if FORM in modes else model
    labels = torch.randint(0, 100, (len(images),), device=device())
    optimizer = torch.optim.AdamW(model.parameters(), fused=not SMALL)

    def step(_: int) -> None:
        with torch.autocast(device(), torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(called(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    loop(step, steps_of(30))


def lightning_images() -> None:
    """Lightning trains on images that the main process decodes and crops. Fix: 8 workers."""
    import lightning
    import numpy as np
    import torch
    import torchvision

    alone()
    count, size = steps_of(40), 4 if SMALL else 64
    clock = Clock(count, sync)

    class Images(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return size * count

        def __getitem__(self, number: int) -> Any:
            pixels = np.random.default_rng(number).integers(0, 255, (3, 160, 160), dtype=np.uint8)
            image = torch.from_numpy(pixels).float().div_(255)
            image = torchvision.transforms.functional.resize(image, [128, 128], antialias=True)
            return torchvision.transforms.functional.hflip(image), number % 100

    class Net(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = torchvision.models.resnet18(num_classes=100)

        def training_step(self, batch: Any, number: int) -> Any:
            images, labels = batch
            loss = torch.nn.functional.cross_entropy(self.net(images), labels)
            self.log("loss", loss, prog_bar=True)
            return loss

        def on_train_batch_end(self, *_: Any) -> None:
            clock()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1, momentum=0.9)

    torch.set_num_threads(1)
    workers = (1 if SMALL else 8) if FORM == "workers" else 0
    loader = torch.utils.data.DataLoader(
        Images(), size, num_workers=workers, pin_memory=not SMALL, persistent_workers=bool(workers)
    )
    trainer = lightning.Trainer(
        max_steps=count,
        accelerator="auto",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Net(), loader)


def audio_features() -> None:
    """Spectrograms are computed on the CPU before each step. Fix: on the GPU."""
    import torch
    import torchaudio

    alone()
    size = 2 if SMALL else 64
    melody = torchaudio.transforms.MelSpectrogram(16000, n_fft=1024, hop_length=160, n_mels=80)
    melody = melody.to(device()) if FORM == "gpu" else melody
    net = torch.nn.Sequential(
        torch.nn.Conv1d(80, 256, 5, padding=2),
        torch.nn.ReLU(),
        torch.nn.Conv1d(256, 512, 5, padding=2),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool1d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(512, 35),
    ).to(device())
    optimizer = torch.optim.Adam(net.parameters(), fused=not SMALL)
    waves, labels = torch.randn(size, 16000), torch.randint(0, 35, (size,)).to(device())

    def step(_: int) -> None:
        batch = waves.to(device()) if FORM == "gpu" else waves
        features = torch.log(melody(batch) + 1e-6).to(device())
        torch.nn.functional.cross_entropy(net(features), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    loop(step, steps_of(40))


def image_folder() -> None:
    """JPEGs are decoded by workers that start anew for each epoch of 8 batches. Fix: persistent workers."""
    import io

    import numpy as np
    import torch
    import torchvision
    from PIL import Image

    alone()
    size, batches = 4 if SMALL else 32, 8

    class Jpegs(torch.utils.data.Dataset[Any]):
        def __init__(self) -> None:
            self.files = []
            for number in range(8):
                buffer = io.BytesIO()
                noise = np.random.default_rng(number).integers(0, 255, (96, 96, 3), dtype=np.uint8)
                Image.fromarray(noise).save(buffer, "JPEG")
                self.files.append(buffer.getvalue())

        def __len__(self) -> int:
            return size * batches

        def __getitem__(self, number: int) -> Any:
            image = Image.open(io.BytesIO(self.files[number % 8])).convert("RGB")
            return torchvision.transforms.functional.pil_to_tensor(image).float() / 255, number % 10

    net = torchvision.models.resnet18(num_classes=10).to(device())
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    loader = torch.utils.data.DataLoader(
        Jpegs(), size, num_workers=4, pin_memory=not SMALL, persistent_workers=FORM == "persistent"
    )
    epochs = 2 if SMALL else 10
    clock = Clock(epochs * batches, sync)
    for _ in range(epochs):
        for images, labels in loader:
            batch, target = (each.to(device(), non_blocking=True) for each in (images, labels))
            torch.nn.functional.cross_entropy(net(batch), target).backward()
            optimizer.step()
            optimizer.zero_grad()
            clock()


# -- science ----------------------------------------------------------------------------------------------------------


def exact_gp() -> None:
    """An exact Gaussian process in FP64, as its data are. Fix: FP32."""
    import gpytorch
    import torch

    alone()
    kind = torch.float32 if FORM == "fp32" else torch.float64
    count = 100 if SMALL else 6000
    inputs = torch.rand(count, 4, device=device(), dtype=kind)
    targets = torch.sin(inputs.sum(1) * 6)

    class Model(gpytorch.models.ExactGP):
        def __init__(self, x: Any, y: Any, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=4))

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Model(inputs, targets, likelihood).to(device(), kind).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood.to(device(), kind).train(), model)

    def step(_: int) -> None:
        optimizer.zero_grad()
        loss = -objective(model(inputs), targets)
        loss.backward()
        optimizer.step()

    loop(step, steps_of(30))


def e3nn_molecules() -> None:
    """An equivariant network on small molecules: many tiny kernels. Fixes: torch.compile, and with CUDA graphs."""
    import torch
    from e3nn import o3

    alone()
    nodes, edges = (20, 60) if SMALL else (256, 2048)
    hidden = o3.Irreps("16x0e + 16x1o + 8x2e")
    harmonics = o3.Irreps.spherical_harmonics(2)

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.product = o3.FullyConnectedTensorProduct(hidden, harmonics, hidden, shared_weights=False)
            self.weights = torch.nn.Sequential(
                torch.nn.Linear(8, 16), torch.nn.SiLU(), torch.nn.Linear(16, self.product.weight_numel)
            )
            self.own = o3.Linear(hidden, hidden)

        def forward(self, x: Any, source: Any, target: Any, directions: Any, lengths: Any) -> Any:
            messages = self.product(x[source], directions, self.weights(lengths))
            return self.own(x) + torch.zeros_like(x).index_add(0, target, messages)

    layers: Any = torch.nn.ModuleList([Layer() for _ in range(2)]).to(device())
    modes = {"compile": "default", "graph": "reduce-overhead"}
    called = [torch.compile(layer, mode=modes[FORM]) if FORM in modes else layer for layer in layers]
    optimizer = torch.optim.Adam(layers.parameters(), 1e-3)
    source, target = (torch.randint(0, nodes, (edges,), device=device()) for _ in range(2))
    directions = o3.spherical_harmonics(harmonics, torch.randn(edges, 3, device=device()), normalize=True)
    lengths, start = torch.rand(edges, 8, device=device()), torch.randn(nodes, hidden.dim, device=device())

    def step(_: int) -> None:
        x = start
        for layer in called:
            x = layer(x, source, target, directions, lengths)
        x.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    loop(step, steps_of(60))


def pyg_molecules() -> None:
    """Small graphs are put together in the main process for each batch. Fix: 4 workers."""
    import torch
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader
    from torch_geometric.nn import GINConv, global_add_pool

    alone()
    count, size = steps_of(50), 4 if SMALL else 256
    graphs = [
        Data(x=torch.randn(24, 32), edge_index=torch.randint(0, 24, (2, 52)), y=torch.randn(1)) for _ in range(512)
    ]

    def block(inputs: int) -> Any:
        return GINConv(torch.nn.Sequential(torch.nn.Linear(inputs, 128), torch.nn.ReLU(), torch.nn.Linear(128, 128)))

    convolutions: Any = torch.nn.ModuleList([block(32), block(128), block(128)]).to(device())
    head = torch.nn.Linear(128, 1).to(device())
    optimizer = torch.optim.Adam([*convolutions.parameters(), *head.parameters()], fused=not SMALL)
    workers = 4 if FORM == "workers" else 0
    data = [graphs[number % 512] for number in range(size * count)]
    loader = DataLoader(data, size, shuffle=True, num_workers=workers)
    clock = Clock(count, sync)
    for batch in loader:
        moved = batch.to(device())
        x = moved.x
        for convolution in convolutions:
            x = convolution(x, moved.edge_index).relu()
        loss = (head(global_add_pool(x, moved.batch)).squeeze(1) - moved.y).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        clock()


def neural_ode() -> None:
    """An adaptive solver asks for each of its errors. Fix: a solver with fixed steps."""
    import torch
    from torchdiffeq import odeint

    alone()
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 64)).to(device())
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    start, times = torch.randn(512, 64, device=device()), torch.linspace(0, 1, 5, device=device())
    extra: dict[str, Any] = {"method": "rk4"} if FORM == "fixed" else {"rtol": 1e-4, "atol": 1e-5}

    def step(_: int) -> None:
        odeint(lambda _, y: net(y), start, times, **extra)[-1].square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    loop(step, steps_of(40))


def policy_gradient() -> None:
    """A policy on the GPU acts in one environment at a time. Fix: 64 environments at a time; per action."""
    import numpy as np
    import torch

    alone()
    many = 64 if FORM == "vectorized" else 1
    policy = torch.nn.Sequential(
        torch.nn.Linear(4, 128), torch.nn.Tanh(), torch.nn.Linear(128, 128), torch.nn.Tanh(), torch.nn.Linear(128, 2)
    ).to(device())
    acting = torch.compile(policy, mode="reduce-overhead") if FORM == "graph" else policy
    optimizer = torch.optim.Adam(policy.parameters(), 1e-3)
    generator, state = np.random.default_rng(0), np.zeros((many, 4), dtype=np.float32)

    def environment(actions: Any) -> Any:
        nonlocal state
        position, speed, angle, turn = state.T
        force = np.where(actions == 1, 10.0, -10.0)
        pull = (force + 0.05 * turn**2 * np.sin(angle)) / 1.1
        twist = (9.8 * np.sin(angle) - np.cos(angle) * pull) / (0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1))
        push = pull - 0.05 * twist * np.cos(angle) / 1.1
        state = np.stack([position + 0.02 * speed, speed + 0.02 * push, angle + 0.02 * turn, turn + 0.02 * twist], 1)
        over = (np.abs(state[:, 2]) > 0.2) | (np.abs(state[:, 0]) > 2.4)
        state[over] = generator.uniform(-0.05, 0.05, (int(over.sum()), 4))
        state = state.astype(np.float32)
        return np.where(over, 0.0, 1.0).astype(np.float32)

    episode, rewards = [], []

    def step(number: int) -> None:
        choice = torch.distributions.Categorical(logits=acting(torch.from_numpy(state).to(device())))
        action = choice.sample()
        rewards.append(environment(action.cpu().numpy()))
        episode.append(choice.log_prob(action))
        if len(episode) == 32:
            returns = torch.from_numpy(np.stack(rewards)[::-1].cumsum(0)[::-1].copy()).to(device())
            loss = -(torch.stack(episode) * (returns - returns.mean())).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            episode.clear()
            rewards.clear()

    count = steps_of(1600, 8)
    clock = Clock(count, sync, units=many)
    for number in range(count):
        step(number)
        clock()


def saved_often() -> None:
    """A model of 400 MB is saved in each fifth step. Fix: in each fiftieth."""
    import torch

    alone()
    width = 64 if SMALL else 2048
    net = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(24)]).to(device())
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    batch = torch.randn(2048, width, device=device())
    every = 50 if FORM == "rarely" else 5

    def step(number: int) -> None:
        with torch.autocast(device(), torch.bfloat16):
            loss = net(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if number % every == every - 1:
            torch.save(net.state_dict(), "/dev/shm/saved_often.pt")

    loop(step, steps_of(100, 10))


# -- JAX, CuPy, Numba -------------------------------------------------------------------------------------------------


def flax_batches() -> None:
    """A jitted Flax network gets each batch from NumPy. Fix: the next batch is put on the GPU during the step."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    from flax import linen

    alone()

    class Net(linen.Module):
        @linen.compact
        def __call__(self, x: Any) -> Any:
            for features in (64, 128, 256):
                x = linen.relu(linen.Conv(features, (3, 3), strides=(2, 2))(x))
            return linen.Dense(10)(x.mean((1, 2)))

    net, optimizer = Net(), optax.adam(1e-3)
    size = 4 if SMALL else 512
    batches = [np.random.default_rng(n).standard_normal((size, 64, 64, 3), dtype=np.float32) for n in range(4)]
    labels = np.zeros(size, dtype=np.int32)
    params = net.init(jax.random.PRNGKey(0), batches[0][:1])
    state = optimizer.init(params)

    @jax.jit
    def update(params: Any, state: Any, x: Any, y: Any) -> Any:
        def loss(p: Any) -> Any:
            return optax.softmax_cross_entropy_with_integer_labels(net.apply(p, x), y).mean()

        gradients = jax.grad(loss)(params)
        changes, state = optimizer.update(gradients, state)
        return optax.apply_updates(params, changes), state

    held: list[Any] = [params, state, jax.device_put(batches[0])]
    queue: Queue[Any] = Queue(2)

    def fill() -> None:
        for number in itertools.count():
            queue.put(jax.device_put(batches[number % 4]))

    if FORM == "thread":
        Thread(target=fill, daemon=True).start()

    def step(number: int) -> None:
        if FORM == "thread":
            params, state = update(held[0], held[1], queue.get(), labels)
        elif FORM == "ahead":
            params, state = update(held[0], held[1], held[2], labels)
            held[2] = jax.device_put(batches[(number + 1) % 4])
        else:
            params, state = update(held[0], held[1], jnp.asarray(batches[number % 4]), labels)
        held[:2] = params, state

    loop(step, steps_of(80), lambda: jax.block_until_ready(held[0]))


def jax_loop() -> None:
    """A simulation calls a jitted function for each of 200 time steps. Fix: lax.fori_loop."""
    import jax
    import jax.numpy as jnp

    alone()

    def advance(u: Any) -> Any:
        around = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1)
        return u + 0.1 * (around - 4 * u) + 0.01 * u * (1 - u)

    single = jax.jit(advance)
    whole = jax.jit(lambda u: jax.lax.fori_loop(0, 200, lambda _, v: advance(v), u))
    held = [jax.random.uniform(jax.random.PRNGKey(0), (64 if SMALL else 512, 64 if SMALL else 512))]

    def step(_: int) -> None:
        if FORM == "fused":
            held[0] = whole(held[0])
        else:
            for _ in range(200):
                held[0] = single(held[0])

    loop(step, steps_of(30), lambda: jax.block_until_ready(held[0]))


def cupy_options() -> None:
    """Options are priced with CuPy, operation by operation. Fix: one ElementwiseKernel."""
    import cupy

    alone()
    count = 10_000 if SMALL else 20_000_000
    price, strike, years = (cupy.random.uniform(low, high, count) for low, high in ((10, 50), (10, 50), (0.2, 2)))
    fused = cupy.ElementwiseKernel(
        "float64 s, float64 k, float64 t",
        "float64 c",
        "double v = 0.3 * sqrt(t), d = (log(s / k) + 0.065 * t) / v;"
        "c = s * normcdf(d) - k * exp(-0.02 * t) * normcdf(d - v);",
        "black_scholes",
    )

    def step(_: int) -> None:
        if FORM == "kernel":
            fused(price, strike, years)
            return
        spread = 0.3 * cupy.sqrt(years)
        first = (cupy.log(price / strike) + 0.065 * years) / spread
        low, high = (0.5 * (1 + cupy.tanh(0.7978845608 * (d + 0.044715 * d**3))) for d in (first, first - spread))
        price * low - strike * cupy.exp(-0.02 * years) * high  # the result is not needed

    loop(step, steps_of(40), cupy.cuda.Device().synchronize)


def cupy_converges() -> None:
    """Jacobi's method with CuPy asks after each sweep how much changed. Fix: after each fiftieth."""
    import cupy

    alone()
    size = 64 if SMALL else 1024
    held = [cupy.zeros((size, size), dtype=cupy.float32)]
    held[0][0] = 1
    every = 50 if FORM == "rarely" else 1

    def step(number: int) -> None:
        u = held[0]
        new = u.copy()
        new[1:-1, 1:-1] = 0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2])
        if number % every == 0 and float(cupy.abs(new - u).max()) < 1e-9:
            raise SystemExit
        held[0] = new

    loop(step, steps_of(1000), cupy.cuda.Device().synchronize)


def numba_arrays() -> None:
    """A Numba kernel gets NumPy arrays, so each call copies them there and back. Fix: arrays on the GPU."""
    import numpy as np

    np.row_stack = getattr(np, "row_stack", np.vstack)  # this Numba was written for an older NumPy
    from numba import cuda

    alone()

    @cuda.jit  # type: ignore[untyped-decorator,unused-ignore]
    def smooth(source: Any, target: Any) -> None:
        place = cuda.grid(1)
        if 0 < place < source.size - 1:
            target[place] = (source[place - 1] + 2 * source[place] + source[place + 1]) / 4

    count = 10_000 if SMALL else 8_000_000
    one, other = np.random.default_rng(0).random(count, dtype=np.float32), np.zeros(count, dtype=np.float32)
    arrays: list[Any] = [cuda.to_device(one), cuda.to_device(other)] if FORM == "device" else [one, other]

    def step(_: int) -> None:
        smooth[(count + 255) // 256, 256](*arrays)
        arrays.reverse()

    loop(step, steps_of(60), cuda.synchronize)


# -- CUDA C++ ---------------------------------------------------------------------------------------------------------


def native(name: str) -> None:
    """Build and run a CUDA program, which prints its own time."""
    import subprocess

    source = Path(__file__).with_name(f"{name}.cu")
    binary = Path(os.environ.get("REAL_BUILD", "/tmp")) / name
    if not binary.exists():
        subprocess.run(["nvcc", "-O3", "-o", binary, source, "-lcublas", "-lcufft"], check=True)
    alone()
    os.set_inheritable(_LOCK[0].fileno(), True) if _LOCK else None
    os.execv(binary, [str(binary), FORM])


def cublas_batches() -> None:
    """512 small products, each with a call of cuBLAS, copied results and a wait. Fix: one product, or one copy."""
    native("cublas_batches")


def jacobi_waits() -> None:
    """Jacobi's method in C++ copies the residual to pageable memory after each sweep. Fix: after each hundredth."""
    native("jacobi_waits")


def spectra_plans() -> None:
    """Spectra of four lengths, with a new plan of cuFFT for each. Fix: plans that are kept."""
    native("spectra_plans")


def sorted_particles() -> None:
    """Thrust sorts and sums, and allocates memory each time. Fix: a pool."""
    native("sorted_particles")


def native_healthy() -> None:
    """Large products in TF32 with cuBLAS, launched ahead: healthy."""
    native("native_healthy")


# -- healthy ----------------------------------------------------------------------------------------------------------


def llama_healthy() -> None:
    """A Llama trains in BF16 with SDPA, a fused optimizer and large batches: healthy."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    alone()
    width, layers = (128, 2) if SMALL else (2048, 6)
    config = LlamaConfig(
        hidden_size=width,
        intermediate_size=width * 11 // 4,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 64,
        vocab_size=8192,
        use_cache=False,
    )
    model = LlamaForCausalLM(config).to(device(), torch.bfloat16)
    called = torch.compile(model) if not SMALL else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=not SMALL)
    tokens = torch.randint(0, 8192, (2 if SMALL else 16, 32 if SMALL else 1024), device=device())

    def step(_: int) -> None:
        called(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    loop(step, steps_of(30))


def jax_healthy() -> None:
    """A jitted step of large BF16 products on data that are on the GPU: healthy."""
    import jax
    import jax.numpy as jnp

    alone()
    width, depth = (64, 2) if SMALL else (4096, 6)
    keys = jax.random.split(jax.random.PRNGKey(0), depth + 1)
    weights = [jax.random.normal(key, (width, width), dtype=jnp.bfloat16) / width**0.5 for key in keys[:-1]]
    batch = jax.random.normal(keys[-1], (width, width), dtype=jnp.bfloat16)

    @jax.jit
    def update(weights: Any, x: Any) -> Any:
        def loss(weights: Any) -> Any:
            y = x
            for weight in weights:
                y = jax.nn.relu(y @ weight)
            return jnp.mean(jnp.square(y.astype(jnp.float32)))

        return [weight - 0.01 * gradient for weight, gradient in zip(weights, jax.grad(loss)(weights), strict=True)]

    held = [weights]

    def step(_: int) -> None:
        held[0] = update(held[0], batch)

    loop(step, steps_of(60), lambda: jax.block_until_ready(held[0]))


def run(module: Mapping[str, Any], *helpers: Callable[..., Any]) -> None:
    """Run the program of a module that the command line names, or print the names of all: its functions but helpers."""
    if NAME:
        module[NAME]()
        sys.stdout.flush()
        return
    functions = {name: value for name, value in module.items() if isinstance(value, FunctionType)}
    print(*(name for name, value in functions.items() if value.__module__ == "__main__" and value not in helpers))


if __name__ == "__main__":
    run(globals(), alone, steps_of, device, sync, loop, native, run)
