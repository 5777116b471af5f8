"""The programs of half C: `python blind.py NAME [FORM]` prints how long a step takes, like programs.py.

They are of kinds that the halves A and B lack, and were written without a look at how causes are found.
"""

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))
from tests.real.programs import FORM, SMALL, Clock, alone, device, loop, native, run, steps_of, sync


def graphed(call: Callable[..., Any], *inputs: Any) -> Callable[..., Any]:
    """Return a function that copies its arguments to the inputs of a CUDA graph, and replays it."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call(*inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call(*inputs)

    def replay(*values: Any) -> Any:
        for own, value in zip(inputs, values, strict=True):
            own.copy_(value)
        graph.replay()
        return result

    return replay


# -- training ---------------------------------------------------------------------------------------------------------


def trainer_norms() -> None:
    """HF Trainer in BF16 logs each step, and a callback the norm of each gradient. Fix: each fiftieth step."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

    alone()
    count, size, length = steps_of(40), 4 if SMALL else 64, 16 if SMALL else 128
    every = 50 if FORM == "rarely" else 1
    clock = Clock(count, sync)
    written: list[dict[str, float]] = []

    class Norms(TrainerCallback):
        def on_pre_optimizer_step(self, _: Any, state: Any, __: Any, **known: Any) -> None:
            if state.global_step % every == 0:
                parameters = known["model"].named_parameters()
                written.append({name: p.grad.norm().item() for name, p in parameters if p.grad is not None})

        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock()

    model = BertForSequenceClassification(BertConfig(num_hidden_layers=1 if SMALL else 12, num_labels=5))
    texts = torch.randint(0, 30000, (256, length))
    data: Any = [{"input_ids": texts[number % 256], "labels": number % 5} for number in range(count * size)]
    arguments = TrainingArguments(
        output_dir="/tmp/trainer_norms",
        per_device_train_batch_size=size,
        max_steps=count,
        learning_rate=2e-5,
        bf16=not SMALL,
        logging_steps=every,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Norms()]).train()


def video_fp32() -> None:
    """A network of 3D convolutions learns from clips in FP32, TF32 switched off. Fixes: TF32; BF16."""
    import torch
    import torchvision

    alone()
    torch.backends.cudnn.allow_tf32 = FORM == "tf32"
    frames, side = (4, 32) if SMALL else (16, 112)
    model = torchvision.models.video.r3d_18(num_classes=50).to(device())
    clips = torch.randn(1 if SMALL else 8, 3, frames, side, side, device=device())
    labels = torch.randint(0, 50, (len(clips),), device=device())
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    def step(_: int) -> None:
        with torch.autocast(device(), torch.bfloat16, enabled=FORM == "bf16"):
            loss = torch.nn.functional.cross_entropy(model(clips), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    loop(step, steps_of(30))


def foreach_off() -> None:
    """EfficientNetV2 in BF16 has an AdamW that updates one tensor after the other. Fix: fused=True."""
    import timm
    import torch

    alone()
    model = timm.create_model("efficientnet_b0" if SMALL else "efficientnetv2_rw_s", num_classes=100).to(device())
    images = torch.randn(2 if SMALL else 64, 3, 224, 224, device=device())
    model, images = (each.to(memory_format=torch.channels_last) for each in (model, images))
    labels = torch.randint(0, 100, (len(images),), device=device())
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}]
    fused = FORM == "fused"
    optimizer = torch.optim.AdamW(groups, lr=1e-3, foreach=None if fused else False, fused=True if fused else None)

    def step(_: int) -> None:
        with torch.autocast(device(), torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    loop(step, steps_of(30))


def scan_loop() -> None:
    """A state space model computes its states in a Python loop over time. Fixes: a parallel scan; a CUDA graph."""
    import torch

    alone()
    size, length, width, states = (2, 16, 32, 4) if SMALL else (8, 128, 512, 16)

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.LayerNorm(width)
            self.inputs = torch.nn.Linear(width, 2 * states)
            self.rate = torch.nn.Linear(width, width)
            self.decay = torch.nn.Parameter(torch.rand(width, states))

        def forward(self, x: Any) -> Any:
            y = self.norm(x)
            enters, leaves = self.inputs(y).chunk(2, -1)
            rate = torch.nn.functional.softplus(self.rate(y))
            kept = torch.exp(-rate[..., None] * self.decay.exp())
            added = (rate * y)[..., None] * enters[:, :, None]
            if FORM == "parallel":
                shift = 1
                while shift < length:
                    added = torch.cat([added[:, :shift], added[:, shift:] + kept[:, shift:] * added[:, :-shift]], 1)
                    kept = torch.cat([kept[:, :shift], kept[:, shift:] * kept[:, :-shift]], 1)
                    shift *= 2
                return x + (added * leaves[:, :, None]).sum(-1)
            state = torch.zeros(size, width, states, device=x.device)
            outputs = []
            for moment in range(length):
                state = kept[:, moment] * state + added[:, moment]
                outputs.append((state * leaves[:, moment, None]).sum(-1))
            return x + torch.stack(outputs, 1)

    model = torch.nn.Sequential(Layer(), Layer(), torch.nn.Linear(width, 1)).to(device())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=not SMALL)
    series = torch.randn(size, length, width, device=device())
    wanted = torch.randn(size, length, 1, device=device())

    def gradients(x: Any) -> None:
        (model(x) - wanted).square().mean().backward()

    called = graphed(gradients, series.clone()) if FORM == "graph" else gradients

    def step(_: int) -> None:
        if FORM == "graph":
            for p in model.parameters():
                p.grad.zero_()
        else:
            optimizer.zero_grad()
        called(series)
        optimizer.step()

    loop(step, steps_of(30))


def volumes_pageable() -> None:
    """Volumes of a scanner are moved to the GPU from plain tensors. Fix: pinned tensors."""
    import torch

    alone()
    size, side = (1, 16) if SMALL else (4, 96)

    def block(inputs: int, outputs: int, stride: int = 1) -> Any:
        convolution = torch.nn.Conv3d(inputs, outputs, 3, stride, 1)
        return torch.nn.Sequential(convolution, torch.nn.InstanceNorm3d(outputs), torch.nn.LeakyReLU())

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.third = block(4, 16, 2), block(16, 32), block(32, 64)
            self.rise = torch.nn.ConvTranspose3d(64, 32, 2, 2)
            self.merge, self.head = block(64, 32), torch.nn.Conv3d(32, 3, 1)
            self.last = torch.nn.ConvTranspose3d(3, 3, 4, 4)

        def forward(self, x: Any) -> Any:
            half = self.second(torch.nn.functional.max_pool3d(self.first(x), 2))
            low = self.third(torch.nn.functional.max_pool3d(half, 2))
            return self.last(self.head(self.merge(torch.cat([self.rise(low), half], 1))))

    net = Net().to(device())
    optimizer = torch.optim.Adam(net.parameters(), 1e-3, fused=not SMALL)
    scans = [torch.randn(size, 4, side, side, side) for _ in range(4)]
    masks = [torch.randint(0, 3, (size, side, side, side)) for _ in range(4)]
    if FORM == "pinned":
        scans, masks = ([each.pin_memory() for each in tensors] for tensors in (scans, masks))

    def step(number: int) -> None:
        scan = scans[number % 4].to(device(), non_blocking=FORM == "pinned")
        mask = masks[number % 4].to(device(), non_blocking=FORM == "pinned")
        with torch.autocast(device(), torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(net(scan), mask)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    loop(step, steps_of(60))


def graph_sampling() -> None:
    """GraphSAGE: the main process samples neighbours with NumPy. Fix: 8 workers."""
    import numpy as np
    import torch

    alone()
    nodes, size, count = (1000, 16, steps_of(50)) if SMALL else (500_000, 1024, steps_of(50))
    generator = np.random.default_rng(0)
    degrees = generator.integers(5, 40, nodes)
    starts = np.concatenate([[0], degrees.cumsum()])
    neighbours = generator.integers(0, nodes, starts[-1])
    features, labels = torch.randn(nodes, 128, device=device()), torch.randint(0, 40, (nodes,), device=device())

    def sample(seeds: list[int]) -> Any:
        """Return the nodes, and for each hop the places of sources and targets in them."""
        known = np.array(seeds)
        hops = []
        for fan in (15, 10):
            picks = np.random.randint(0, 1 << 30, (len(known), fan)) % degrees[known][:, None]
            sources = neighbours[starts[known][:, None] + picks].ravel()
            targets = np.repeat(np.arange(len(known)), fan)
            new = np.setdiff1d(sources, known)
            every = np.concatenate([known, new])
            order = np.argsort(every)
            hops.append(
                (torch.from_numpy(order[np.searchsorted(every, sources, sorter=order)]), torch.from_numpy(targets))
            )
            known = every
        return torch.from_numpy(known), hops[::-1]

    class Convolution(torch.nn.Module):
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.own, self.others = torch.nn.Linear(inputs, outputs), torch.nn.Linear(inputs, outputs)

        def forward(self, x: Any, source: Any, target: Any) -> Any:
            total = torch.zeros_like(x).index_add_(0, target, x[source])
            return self.own(x) + self.others(total / 10)

    first, second = Convolution(128, 256).to(device()), Convolution(256, 40).to(device())
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], 1e-3, fused=not SMALL)
    seeds: Any = generator.integers(0, nodes, size * count).tolist()
    workers = 8 if FORM == "workers" else 0
    loader = torch.utils.data.DataLoader(
        seeds, size, shuffle=True, collate_fn=sample, num_workers=workers, pin_memory=not SMALL
    )
    clock = Clock(count, sync)
    for known, hops in loader:
        places = known.to(device(), non_blocking=True)
        x = features[places]
        edges = [[each.to(device(), non_blocking=True) for each in hop] for hop in hops]
        x = torch.relu(first(x, *edges[0]))
        x = second(x, *edges[1])[:size]
        torch.nn.functional.cross_entropy(x, labels[places[:size]]).backward()
        optimizer.step()
        optimizer.zero_grad()
        clock()


def recommender() -> None:
    """A recommender looks up 26 features in a table each. Fixes: one table for all; a CUDA graph."""
    import torch

    alone()
    size, rows, width, features = (16, 100, 8, 26) if SMALL else (2048, 20_000, 32, 26)

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            if FORM == "merged":
                self.table = torch.nn.EmbeddingBag(rows * features, width, mode="sum")
                self.register_buffer("offsets", torch.arange(features)[:, None] * rows)
            else:
                self.tables = torch.nn.ModuleList(
                    [torch.nn.EmbeddingBag(rows, width, mode="sum") for _ in range(features)]
                )
            self.bottom = torch.nn.Sequential(
                torch.nn.Linear(13, 256), torch.nn.ReLU(), torch.nn.Linear(256, width), torch.nn.ReLU()
            )
            pairs = (features + 1) * features // 2
            self.top = torch.nn.Sequential(
                torch.nn.Linear(pairs + width, 512),
                torch.nn.ReLU(),
                torch.nn.Linear(512, 256),
                torch.nn.ReLU(),
                torch.nn.Linear(256, 1),
            )
            self.register_buffer("pairs", torch.tril_indices(features + 1, features + 1, -1))

        def forward(self, numbers: Any, words: Any) -> Any:
            dense = self.bottom(numbers)
            if FORM == "merged":
                flat = (words + self.offsets).view(-1, words.shape[-1])
                found = [self.table(flat).view(-1, features, width)]
            else:
                found = [table(words[:, place])[:, None] for place, table in enumerate(self.tables)]
            both: Any = torch.cat([dense[:, None], *found], 1)
            products = both @ both.transpose(1, 2)
            return self.top(torch.cat([dense, products[:, self.pairs[0], self.pairs[1]]], 1))

    net = Net().to(device())
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    batches = [
        (torch.randn(size, 13), torch.randint(0, rows, (size, features, 3)), torch.randint(0, 2, (size, 1)).float())
        for _ in range(4)
    ]
    if not SMALL:
        batches = [tuple(each.pin_memory() for each in batch) for batch in batches]  # type: ignore[misc]

    def gradients(numbers: Any, words: Any, clicked: Any) -> None:
        torch.nn.functional.binary_cross_entropy_with_logits(net(numbers, words), clicked).backward()

    moved = [each.to(device()) for each in batches[0]]
    called = graphed(gradients, *moved) if FORM == "graph" else gradients

    def step(number: int) -> None:
        optimizer.zero_grad(set_to_none=FORM != "graph")
        called(*(each.to(device(), non_blocking=True) for each in batches[number % 4]))
        optimizer.step()

    loop(step, steps_of(300))


def jax_metrics() -> None:
    """A jitted step of JAX; its loss and accuracy are asked for each time. Fix: each hundredth time."""
    import jax
    import jax.numpy as jnp
    import optax

    alone()
    width, depth, size = (32, 2, 16) if SMALL else (2048, 4, 1024)
    every = 100 if FORM == "rarely" else 1
    keys = jax.random.split(jax.random.PRNGKey(0), depth + 3)
    params = {
        **{f"w{n}": jax.random.normal(keys[n], (width, width), jnp.bfloat16) / width**0.5 for n in range(depth)},
        "out": jax.random.normal(keys[depth], (width, 10), jnp.bfloat16) / width**0.5,
    }
    x = jax.random.normal(keys[-1], (size, width), jnp.bfloat16)
    y = jax.random.randint(keys[-2], (size,), 0, 10)
    optimizer = optax.adamw(1e-3)

    def loss(params: Any, x: Any, y: Any) -> Any:
        for number in range(depth):
            x = x + jax.nn.gelu(x @ params[f"w{number}"])
        logits = (x @ params["out"]).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), (logits.argmax(-1) == y).mean()

    @jax.jit
    def update(params: Any, state: Any, x: Any, y: Any) -> Any:
        values, gradients = jax.value_and_grad(loss, has_aux=True)(params, x, y)
        changes, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, changes), state, values

    held: list[Any] = [params, optimizer.init(params)]
    history: list[tuple[float, float]] = []

    def step(number: int) -> None:
        held[0], held[1], (value, accuracy) = update(held[0], held[1], x, y)
        if number % every == 0:
            history.append((float(value), float(accuracy)))

    loop(step, steps_of(800), lambda: jax.block_until_ready(held[0]))


# -- inference --------------------------------------------------------------------------------------------------------


def diffusion_unet() -> None:
    """A diffusion model makes one image of 64 x 64 with a sampler by hand. Fix: a CUDA graph of the network."""
    import torch

    alone()
    kind = torch.float32 if SMALL else torch.float16
    base = 32 if SMALL else 128

    class Block(torch.nn.Module):
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.norms = torch.nn.ModuleList([torch.nn.GroupNorm(32, inputs), torch.nn.GroupNorm(32, outputs)])
            self.first = torch.nn.Conv2d(inputs, outputs, 3, padding=1)
            self.second = torch.nn.Conv2d(outputs, outputs, 3, padding=1)
            self.time = torch.nn.Linear(4 * base, outputs)
            self.skip = torch.nn.Conv2d(inputs, outputs, 1) if inputs != outputs else torch.nn.Identity()

        def forward(self, x: Any, time: Any) -> Any:
            y = self.first(torch.nn.functional.silu(self.norms[0](x)))
            y = y + self.time(torch.nn.functional.silu(time))[:, :, None, None]
            return self.skip(x) + self.second(torch.nn.functional.silu(self.norms[1](y)))

    class Attention(torch.nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm = torch.nn.GroupNorm(32, width)
            self.both, self.out = torch.nn.Conv2d(width, 3 * width, 1), torch.nn.Conv2d(width, width, 1)

        def forward(self, x: Any, _: Any) -> Any:
            parts = self.both(self.norm(x)).flatten(2).unflatten(1, (3, 4, -1)).transpose(-1, -2).unbind(1)
            y = torch.nn.functional.scaled_dot_product_attention(*parts)
            return x + self.out(y.transpose(-1, -2).reshape(x.shape))

    class UNet(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.time = torch.nn.Sequential(
                torch.nn.Linear(base, 4 * base), torch.nn.SiLU(), torch.nn.Linear(4 * base, 4 * base)
            )
            self.enter, self.leave = torch.nn.Conv2d(3, base, 3, padding=1), torch.nn.Conv2d(base, 3, 3, padding=1)
            self.norm = torch.nn.GroupNorm(32, base)
            widths = (base, 2 * base, 4 * base)
            self.down, self.up = torch.nn.ModuleList(), torch.nn.ModuleList()
            now, kept = base, [base]
            for level, width in enumerate(widths):
                for _ in range(2):
                    self.down.append(Block(now, width))
                    if level:
                        self.down.append(Attention(width))
                    now = width
                    kept.append(now)
                if level < 2:
                    self.down.append(torch.nn.Conv2d(now, now, 3, 2, 1))
                    kept.append(now)
            self.middle = torch.nn.ModuleList([Block(now, now), Attention(now), Block(now, now)])
            for level, width in reversed(list(enumerate(widths))):
                for _ in range(3):
                    self.up.append(Block(now + kept.pop(), width))
                    if level:
                        self.up.append(Attention(width))
                    now = width
                if level:
                    self.up.append(torch.nn.ConvTranspose2d(now, now, 4, 2, 1))

        def forward(self, x: Any, moment: Any) -> Any:
            rates = torch.exp(-math.log(10000) * torch.arange(base // 2, device=x.device) / (base // 2))
            angles = moment[:, None].float() * rates
            time = self.time(torch.cat([angles.sin(), angles.cos()], -1).to(x.dtype))
            x = self.enter(x)
            kept = [x]
            for place, module in enumerate(self.down):
                x = module(x) if isinstance(module, torch.nn.Conv2d) else module(x, time)
                following = self.down[place + 1] if place + 1 < len(self.down) else None
                if not isinstance(following, Attention):
                    kept.append(x)
            for module in self.middle:
                x = module(x, time)
            for module in self.up:
                if isinstance(module, Block):
                    x = torch.cat([x, kept.pop()], 1)
                x = module(x) if isinstance(module, torch.nn.ConvTranspose2d) else module(x, time)
            return self.leave(torch.nn.functional.silu(self.norm(x)))

    net = UNet().to(device(), kind).eval()
    alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000, device=device()), 0)
    moments = list(range(999, 0, -20 if not SMALL else -500))
    count = steps_of(8, 2)
    clock = Clock(count, sync, units=len(moments))
    with torch.no_grad():
        side = 16 if SMALL else 64
        start = torch.randn(1, 3, side, side, device=device(), dtype=kind)
        called = graphed(net, start.clone(), torch.tensor([999], device=device())) if FORM == "graph" else net
        images = []
        for _ in range(count):
            x = torch.randn_like(start)
            for place, moment in enumerate(moments):
                noise = called(x, torch.tensor([moment], device=device()))
                now = alphas[moment]
                later = alphas[moments[place + 1]] if place + 1 < len(moments) else alphas[0]
                clean = (x - (1 - now).sqrt() * noise) / now.sqrt()
                x = (later.sqrt() * clean.clamp(-1, 1) + (1 - later).sqrt() * noise).to(kind)
            images.append(((x + 1) * 127.5).clamp(0, 255).to(torch.uint8).cpu())
            clock()


def seq2seq_cat() -> None:
    """A translator decodes greedily for 512 sentences; torch.cat makes its cache longer. Fix: a cache made once."""
    import torch

    alone()
    size, width, layers, source, prompt, new = (4, 64, 2, 8, 4, 6) if SMALL else (512, 1024, 6, 64, 96, 160)
    heads, words = width // 64, 8000
    kind = torch.float32 if SMALL else torch.bfloat16

    def split(x: Any) -> Any:
        return x.unflatten(-1, (heads, 64)).transpose(1, 2)

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(width) for _ in range(3)])
            self.both, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
            self.asks, self.answers = torch.nn.Linear(width, width), torch.nn.Linear(width, width)
            self.memory = torch.nn.Linear(width, 2 * width)
            self.wide, self.narrow = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

        def forward(self, x: Any, cache: list[Any], crossed: Any, place: int) -> Any:
            attend = torch.nn.functional.scaled_dot_product_attention
            asked, key, value = (split(each) for each in self.both(self.norms[0](x)).chunk(3, -1))
            if FORM == "static":
                end = place + x.shape[1]
                cache[0][:, :, place:end], cache[1][:, :, place:end] = key, value
                key, value = cache[0][:, :, :end], cache[1][:, :, :end]
            else:
                if cache:
                    key, value = torch.cat([cache[0], key], 2), torch.cat([cache[1], value], 2)
                cache[:] = key, value
            x = x + self.out(attend(asked, key, value, is_causal=x.shape[1] > 1).transpose(1, 2).flatten(2))
            x = x + self.answers(attend(split(self.asks(self.norms[1](x))), *crossed).transpose(1, 2).flatten(2))
            return x + self.narrow(torch.nn.functional.relu(self.wide(self.norms[2](x))))

    stack: Any = torch.nn.ModuleList([Layer() for _ in range(layers)]).to(device(), kind).eval()
    table = torch.nn.Embedding(words, width).to(device(), kind)
    count = steps_of(6, 2)
    clock = Clock(count, sync, units=new)
    with torch.inference_mode():
        for _ in range(count):
            encoded = torch.randn(size, source, width, device=device(), dtype=kind)
            crossed = [[split(each) for each in layer.memory(encoded).chunk(2, -1)] for layer in stack]
            shape = (size, heads, prompt + new, 64)
            caches: list[list[Any]] = [
                [torch.empty(shape, device=device(), dtype=kind) for _ in range(2)] if FORM == "static" else []
                for _ in stack
            ]
            tokens = torch.randint(0, words, (size, prompt), device=device())
            answer, place = [], 0
            for _ in range(new):
                x = table(tokens)
                for layer, cache, memory in zip(stack, caches, crossed, strict=True):
                    x = layer(x, cache, memory, place)
                place += tokens.shape[1]
                tokens = (x[:, -1] @ table.weight.T).argmax(-1)[:, None]
                answer.append(tokens)
            torch.cat(answer, 1).cpu()
            clock()


# -- science ----------------------------------------------------------------------------------------------------------


def particles_masks() -> None:
    """Particles bounce off six walls, which masks select. Fix: torch.where for all walls."""
    import torch

    alone()
    count = 1000 if SMALL else 1_000_000
    position = torch.rand(count, 3, device=device())
    velocity = torch.randn(count, 3, device=device())
    center = torch.full((3,), 0.5, device=device())

    def step(_: int) -> None:
        pull = center - position
        distance = pull.square().sum(1, keepdim=True).add_(1e-3).sqrt_()
        velocity.add_(pull / distance**3, alpha=1e-4)
        position.add_(velocity, alpha=1e-3)
        if FORM == "where":
            low, high = position < 0, position > 1
            velocity.copy_(torch.where(low | high, -velocity, velocity))
            position.copy_(torch.where(low, -position, torch.where(high, 2 - position, position)))
            return
        for axis in range(3):
            low = position[:, axis] < 0
            velocity[low, axis] = -velocity[low, axis]
            position[low, axis] = -position[low, axis]
            high = position[:, axis] > 1
            velocity[high, axis] = -velocity[high, axis]
            position[high, axis] = 2 - position[high, axis]

    with torch.no_grad():
        loop(step, steps_of(400))


def pinn_fp64() -> None:
    """A physics-informed network solves the wave equation in NumPy's FP64. Fix: FP32."""
    import numpy as np
    import torch

    alone()
    kind = torch.float32 if FORM == "fp32" else torch.float64
    count, width = (200, 16) if SMALL else (50_000, 256)
    points = torch.from_numpy(np.random.default_rng(0).uniform(0, 1, (count, 2))).to(device(), kind)
    parts: list[Any] = [torch.nn.Linear(2, width), torch.nn.Tanh()]
    for _ in range(4):
        parts += [torch.nn.Linear(width, width), torch.nn.Tanh()]
    net = torch.nn.Sequential(*parts, torch.nn.Linear(width, 1)).to(device(), kind)
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)

    def step(_: int) -> None:
        place = points.requires_grad_()
        value = net(place)
        first = torch.autograd.grad(value.sum(), place, create_graph=True)[0]
        along = torch.autograd.grad(first[:, 0].sum(), place, create_graph=True)[0][:, 0]
        later = torch.autograd.grad(first[:, 1].sum(), place, create_graph=True)[0][:, 1]
        start = value[:, 0] - torch.sin(torch.pi * place[:, 0])
        loss = (later - along).square().mean() + (start * (place[:, 1] < 0.01)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    loop(step, steps_of(40))


def heat_thrust() -> None:
    """Heat flows, with vectors made and a reduction in each step, by Thrust. Fixes: vectors made once; rare sums."""
    native("heat_thrust")


def fft_plans() -> None:
    """Images are filtered in a function that makes plans of cuFFT in each call. Fix: plans made once."""
    native("fft_plans")


# -- healthy ----------------------------------------------------------------------------------------------------------


def resnet_healthy() -> None:
    """A compiled ResNet-50 trains in BF16, NHWC, with large batches and a fused optimizer: healthy."""
    import torch
    import torchvision

    alone()
    torch.backends.cudnn.benchmark = True
    model = torchvision.models.resnet50(num_classes=1000).to(device())
    images = torch.randn(2 if SMALL else 256, 3, 224, 224, device=device())
    model, images = (each.to(memory_format=torch.channels_last) for each in (model, images))
    labels = torch.randint(0, 1000, (len(images),), device=device())
    called = model if SMALL else torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, fused=not SMALL)

    def step(_: int) -> None:
        with torch.autocast(device(), torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(called(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    loop(step, steps_of(24))


def pipelined_healthy() -> None:
    """Batches come from pinned memory on a second stream while cuBLAS works on the last one: healthy."""
    native("pipelined_healthy")


if __name__ == "__main__":
    run(globals(), graphed)
