"""The programs of half D: `python fresh.py NAME [FORM]` prints how long a step takes, like programs.py.

They are of kinds that the halves A, B and C lack, and were written without a look at how causes are found.
"""

import copy
import itertools
import random
import sys
from collections import deque
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))
from tests.real.blind import graphed
from tests.real.programs import FORM, SMALL, Clock, alone, device, loop, native, run, steps_of, sync

# -- training ---------------------------------------------------------------------------------------------------------


def vit_pretraining() -> None:
    """A ViT learns with clipping and a mean of its weights, tensor by tensor. Fixes: foreach; a CUDA graph."""
    import timm
    import torch

    alone()
    name = "vit_tiny_patch16_224" if SMALL else "vit_small_patch16_224"
    model = timm.create_model(name, num_classes=100).to(device())
    average = copy.deepcopy(model).eval().requires_grad_(False)
    images = torch.randn(2 if SMALL else 32, 3, 224, 224, device=device())
    labels = torch.randint(0, 100, (len(images),), device=device())
    own, means = list(model.parameters()), list(average.parameters())
    optimizer = torch.optim.AdamW(own, 1e-3, weight_decay=0.05, fused=not SMALL, capturable=FORM == "graph")

    @torch.no_grad()
    def clip(limit: float) -> None:
        if FORM == "foreach":
            torch.nn.utils.clip_grad_norm_(own, limit)
            return
        total = torch.zeros((), device=device())
        for p in own:
            if p.grad is not None:
                total += p.grad.norm() ** 2
        scale = (limit / (total.sqrt() + 1e-6)).clamp(max=1.0)
        for p in own:
            if p.grad is not None:
                p.grad.mul_(scale)

    @torch.no_grad()
    def follow(decay: float) -> None:
        if FORM == "foreach":
            torch._foreach_lerp_(means, own, 1 - decay)
            return
        for mean, p in zip(means, own, strict=True):
            mean.mul_(decay).add_(p, alpha=1 - decay)

    def train(batch: Any) -> None:
        optimizer.zero_grad()
        with torch.autocast(device(), torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(batch), labels)
        loss.backward()
        clip(1.0)
        optimizer.step()
        follow(0.999)

    called = graphed(train, images.clone()) if FORM == "graph" else train
    loop(lambda _: called(images), steps_of(80))


def gpt2_finetune() -> None:
    """GPT-2 is tuned with gradients of 8 small batches, although memory would do for all. Fix: one large batch."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    alone()
    layers, length, total = (1, 16, 8) if SMALL else (6, 128, 16)
    model = GPT2LMHeadModel(GPT2Config(n_layer=layers, vocab_size=50304, use_cache=False)).to(device()).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, fused=not SMALL)
    tokens = torch.randint(0, 50000, (8, total, length), device=device())
    parts = 1 if FORM == "whole" else 8

    def step(number: int) -> None:
        for part in tokens[number % 8].chunk(parts):
            with torch.autocast(device(), torch.bfloat16):
                loss = model(part, labels=part).loss / parts
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    loop(step, steps_of(30))


def mixture_lm() -> None:
    """A mixture of experts looks in a loop which tokens each expert gets. Fix: a fixed capacity for all at once."""
    import torch

    alone()
    size, length, width, experts, layers = (2, 16, 32, 4, 1) if SMALL else (8, 256, 512, 16, 4)
    functional, each = torch.nn.functional, 2

    class Expert(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide, self.narrow = torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width)

        def forward(self, x: Any) -> Any:
            return self.narrow(functional.gelu(self.wide(x)))

    class Mixture(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = torch.nn.Linear(width, experts, bias=False)
            if FORM == "capacity":
                self.wide = torch.nn.Parameter(torch.randn(experts, width, 2 * width) / width**0.5)
                self.narrow = torch.nn.Parameter(torch.randn(experts, 2 * width, width) / (2 * width) ** 0.5)
            else:
                self.experts = torch.nn.ModuleList([Expert() for _ in range(experts)])

        def forward(self, x: Any) -> Any:
            flat = x.flatten(0, 1)
            shares, chosen = functional.softmax(self.gate(flat).float(), -1).topk(each, -1)
            shares = shares / shares.sum(-1, keepdim=True)
            out = torch.zeros_like(flat)
            if FORM == "capacity":
                self.at_once(flat, shares.flatten(), chosen.flatten(), out)
            else:
                for number, expert in enumerate(self.experts):
                    places, slots = torch.where(chosen == number)
                    if not len(places):
                        continue
                    made = expert(flat[places]) * shares[places, slots, None]
                    out.index_add_(0, places, made.to(out.dtype))
            return out.view_as(x)

        def at_once(self, flat: Any, shares: Any, chosen: Any, out: Any) -> None:
            capacity = len(chosen) * 3 // (2 * experts)
            order = chosen.argsort()
            ordered = chosen[order]
            numbers = torch.arange(experts, device=flat.device)
            places = torch.arange(len(order), device=flat.device) - torch.searchsorted(ordered, numbers)[ordered]
            slots = torch.where(places < capacity, ordered * capacity + places, experts * capacity)
            sources = order // each
            queue = flat.new_zeros(experts * capacity + 1, width).index_copy(0, slots, flat[sources])
            hidden = functional.gelu(torch.bmm(queue[:-1].view(experts, capacity, width), self.wide))
            made = torch.bmm(hidden, self.narrow).flatten(0, 1)
            made = torch.cat([made, made.new_zeros(1, width)])[slots] * shares[order, None]
            out.index_add_(0, sources, made.to(out.dtype))

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)])
            self.both, self.out, self.mixture = (
                torch.nn.Linear(width, 3 * width),
                torch.nn.Linear(width, width),
                Mixture(),
            )

        def forward(self, x: Any) -> Any:
            parts = (
                self.both(self.norms[0](x)).unflatten(-1, (3, -1, 16 if SMALL else 64)).permute(2, 0, 3, 1, 4).unbind(0)
            )
            seen = functional.scaled_dot_product_attention(*parts, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).flatten(2))
            return x + self.mixture(self.norms[1](x))

    words = 8192
    model = torch.nn.Sequential(
        torch.nn.Embedding(words, width), *[Block() for _ in range(layers)], torch.nn.Linear(width, words)
    ).to(device())
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, fused=not SMALL)
    tokens = torch.randint(0, words, (size, length + 1), device=device())

    def step(_: int) -> None:
        with torch.autocast(device(), torch.bfloat16):
            loss = functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    loop(step, steps_of(60))


def segment_unet() -> None:
    """A U-Net learns to segment, and gives its memory back after each batch. Fix: it keeps that."""
    import torch

    alone()
    size, side, base = (1, 32, 8) if SMALL else (8, 512, 32)

    def block(inputs: int, outputs: int) -> Any:
        parts: list[Any] = []
        for enters in (inputs, outputs):
            parts += [torch.nn.Conv2d(enters, outputs, 3, padding=1, bias=False), torch.nn.BatchNorm2d(outputs)]
            parts += [torch.nn.ReLU(inplace=True)]
        return torch.nn.Sequential(*parts)

    class UNet(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = [base * 2**level for level in range(5)]
            pairs = list(itertools.pairwise(widths))
            self.first = block(3, base)
            self.down = torch.nn.ModuleList([block(small, large) for small, large in pairs])
            self.rise = torch.nn.ModuleList([torch.nn.ConvTranspose2d(large, small, 2, 2) for small, large in pairs])
            self.up = torch.nn.ModuleList([block(large, small) for small, large in pairs])
            self.head = torch.nn.Conv2d(base, 1, 1)

        def forward(self, x: Any) -> Any:
            kept = [self.first(x)]
            for down in self.down:
                kept.append(down(torch.nn.functional.max_pool2d(kept[-1], 2)))
            y = kept.pop()
            for rise, up in zip(reversed(self.rise), reversed(self.up), strict=True):
                y = up(torch.cat([kept.pop(), rise(y)], 1))
            return self.head(y)

    net = UNet().to(device(), memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3, fused=not SMALL)
    images = torch.randn(size, 3, side, side, device=device()).to(memory_format=torch.channels_last)
    masks = torch.randint(0, 2, (size, 1, side, side), device=device()).float()

    def step(_: int) -> None:
        with torch.autocast(device(), torch.bfloat16):
            loss = torch.nn.functional.binary_cross_entropy_with_logits(net(images), masks)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        del loss
        if FORM != "kept":
            torch.cuda.empty_cache()

    loop(step, steps_of(60))


def dqn_frames() -> None:
    """A DQN puts its batches together from frames in a deque. Fix: frames that stay on the GPU."""
    import numpy as np
    import torch

    alone()
    stored, size = (200, 8) if SMALL else (8000, 256)
    frames = np.random.default_rng(0).integers(0, 255, (stored, 84, 84), dtype=np.uint8)
    actions = np.random.default_rng(1).integers(0, 6, stored)
    memory: deque[Any] = deque(maxlen=stored)
    for place in range(4, stored):
        # a state is its last four frames, which states share
        states = [[frames[place - back] for back in range(start, start - 4, -1)] for start in (4, 3)]
        memory.append((states[0], int(actions[place]), float(place % 2), states[1], place % 100 == 0))
    on_gpu = torch.from_numpy(frames).to(device())
    chosen, rewards = torch.from_numpy(actions).to(device()), torch.arange(stored, device=device()) % 2.0
    ends = torch.arange(stored, device=device()) % 100 == 0
    window = torch.arange(-4, 0, device=device())

    def sampled() -> list[Any]:
        if FORM == "gpu":
            places = torch.randint(4, stored, (size, 1), device=device())
            now = places[:, 0]
            states = [on_gpu[places + window], on_gpu[places + window + 1]]
            return [states[0], chosen[now], rewards[now], states[1], ends[now].float()]
        batch = random.sample(memory, size)
        before, did, got, after, over = zip(*batch, strict=True)
        states = [torch.from_numpy(np.stack([np.stack(state) for state in many])) for many in (before, after)]
        values = [torch.tensor(did), torch.tensor(got), torch.tensor(over, dtype=torch.float32)]
        return [each.to(device()) for each in (states[0], *values[:2], states[1], values[2])]

    net = torch.nn.Sequential(
        torch.nn.Conv2d(4, 32, 8, 4),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, 64, 4, 2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(64, 64, 3),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(3136, 512),
        torch.nn.ReLU(),
        torch.nn.Linear(512, 6),
    ).to(device())
    target = copy.deepcopy(net).requires_grad_(False)
    optimizer = torch.optim.Adam(net.parameters(), 1e-4, fused=not SMALL)

    def step(number: int) -> None:
        before, did, got, after, over = sampled()
        with torch.no_grad():
            wanted = got + 0.99 * (1 - over) * target(after.float().div_(255)).max(1).values
        value = net(before.float().div_(255)).gather(1, did[:, None]).squeeze(1)
        torch.nn.functional.smooth_l1_loss(value, wanted).backward()
        optimizer.step()
        optimizer.zero_grad()
        if number % 500 == 499:
            target.load_state_dict(net.state_dict())

    loop(step, steps_of(300))


def citation_gnn() -> None:
    """GraphSAGE on all of a graph, which is moved to the GPU in each epoch. Fixes: it stays there; it is pinned."""
    import torch
    from torch_geometric.data import Data
    from torch_geometric.nn import SAGEConv

    alone()
    nodes, edges, width = (200, 800, 16) if SMALL else (200_000, 1_500_000, 256)
    data = Data(
        x=torch.randn(nodes, width),
        edge_index=torch.randint(0, nodes, (2, edges)),
        y=torch.randint(0, 40, (nodes,)),
    )
    if FORM == "resident":
        data = data.to(device())
    elif FORM == "pinned":
        data = data.pin_memory()

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = SAGEConv(width, 128), SAGEConv(128, 40)

        def forward(self, x: Any, edge_index: Any) -> Any:
            return self.second(self.first(x, edge_index).relu(), edge_index)

    net = Net().to(device())
    optimizer = torch.optim.Adam(net.parameters(), 0.01, weight_decay=5e-4, fused=not SMALL)

    def step(_: int) -> None:
        optimizer.zero_grad()
        inputs = (data.x, data.edge_index, data.y)
        x, edge_index, labels = (each.to(device(), non_blocking=FORM == "pinned") for each in inputs)
        torch.nn.functional.cross_entropy(net(x, edge_index), labels).backward()
        optimizer.step()

    loop(step, steps_of(60))


def jax_sentences() -> None:
    """JAX learns from sentences padded to the longest of their batch: each length is compiled. Fix: powers of two."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax

    alone()
    size, words, width, layers = (4, 100, 32, 1) if SMALL else (64, 30_000, 512, 3)
    generator = np.random.default_rng(0)
    keys = jax.random.split(jax.random.PRNGKey(0), layers + 3)
    params = {
        "table": jax.random.normal(keys[0], (words, width)) * 0.02,
        "places": jax.random.normal(keys[1], (512, width)) * 0.02,
        "out": jax.random.normal(keys[2], (width, 4)) * 0.02,
        "gate": jnp.ones(width),
        "asks": jnp.ones(width) / width**0.5,
        "layers": [jax.random.normal(key, (width, width)) / width**0.5 for key in keys[3:]],
    }
    optimizer = optax.adamw(1e-3)

    def collated() -> Any:
        lengths = np.clip(generator.lognormal(3.8, 0.5, size), 4, 512).astype(int)
        longest = int(lengths.max())
        if FORM == "powers":
            longest = 1 << (longest - 1).bit_length()
        mask = (np.arange(longest) < lengths[:, None]).astype(np.float32)
        tokens = (generator.integers(1, words, (size, 512))[:, :longest] * mask).astype(np.int32)
        return tokens, mask, generator.integers(0, 4, size).astype(np.int32)

    def loss(params: Any, tokens: Any, mask: Any, labels: Any) -> Any:
        x = params["table"][tokens] + params["places"][: tokens.shape[1]]
        heat = (jnp.tanh(x * params["gate"]) * params["asks"]).sum(-1)
        heat = jax.nn.softmax(jnp.where(mask > 0, heat, -1e9), axis=1)
        pooled = (heat[..., None] * x).sum(1)
        for weight in params["layers"]:
            pooled = pooled + jax.nn.silu(pooled @ weight)
        return optax.softmax_cross_entropy_with_integer_labels(pooled @ params["out"], labels).mean()

    @jax.jit
    def update(params: Any, state: Any, tokens: Any, mask: Any, labels: Any) -> Any:
        changes, state = optimizer.update(jax.grad(loss)(params, tokens, mask, labels), state, params)
        return optax.apply_updates(params, changes), state

    held: list[Any] = [params, optimizer.init(params)]

    def step(_: int) -> None:
        held[:] = update(held[0], held[1], *collated())

    loop(step, steps_of(20), lambda: jax.block_until_ready(held[0]))


def cells_autoencoder() -> None:
    """An autoencoder of cells: FP32, and counts of genes in plain memory. Fixes: TF32; pinned tensors; both."""
    import torch

    alone()
    torch.backends.cuda.matmul.allow_tf32 = FORM in ("tf32", "both")
    size, genes, hidden = (16, 100, 32) if SMALL else (4096, 9000, 2048)
    batches = [torch.rand(size, genes) for _ in range(3)]
    is_pinned = FORM in ("pinned", "both")
    if is_pinned:
        batches = [each.pin_memory() for each in batches]

    def mlp(*widths: int) -> Any:
        parts: list[Any] = []
        for inputs, outputs in itertools.pairwise(widths):
            parts += [torch.nn.Linear(inputs, outputs), torch.nn.BatchNorm1d(outputs), torch.nn.ReLU()]
        return torch.nn.Sequential(*parts)

    encoder, decoder = mlp(genes, hidden, 512), mlp(32, 512, hidden)
    middle, head = torch.nn.Linear(512, 64), torch.nn.Linear(hidden, genes)
    net = torch.nn.ModuleList([encoder, middle, decoder, head]).to(device())
    optimizer = torch.optim.Adam(net.parameters(), 1e-4, fused=not SMALL)

    def step(number: int) -> None:
        counts = batches[number % 3].to(device(), non_blocking=is_pinned)
        mean, spread = middle(encoder(counts)).chunk(2, -1)
        code = mean + torch.randn_like(mean) * (0.5 * spread).exp()
        divergence = -0.5 * (1 + spread - mean.square() - spread.exp()).sum(1).mean()
        loss = torch.nn.functional.mse_loss(head(decoder(code)), counts) + 1e-4 * divergence
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    loop(step, steps_of(60))


def nerf_rays() -> None:
    """A radiance field in FP32 with an activation written by hand. Fixes: TF32; torch.compile; both."""
    import torch

    alone()
    torch.backends.cuda.matmul.allow_tf32 = FORM in ("tf32", "both")
    rays, samples, width = (16, 8, 32) if SMALL else (4096, 64, 256)
    rates = 2.0 ** torch.arange(10, device=device())

    def mish(x: Any) -> Any:
        return x * torch.tanh(torch.log(1 + torch.exp(x)))

    class Field(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = [60, *[width] * 8]
            pairs = itertools.pairwise(widths)
            self.layers = torch.nn.ModuleList([torch.nn.Linear(inputs, outputs) for inputs, outputs in pairs])
            self.density, self.color = torch.nn.Linear(width, 1), torch.nn.Linear(width, 3)

        def forward(self, points: Any) -> Any:
            angles = (points[..., None] * rates).flatten(-2)
            x = torch.cat([angles.sin(), angles.cos()], -1)
            for layer in self.layers:
                x = mish(layer(x))
            return self.density(x).squeeze(-1).relu(), self.color(x).sigmoid()

    field = Field().to(device())
    called = torch.compile(field) if FORM in ("compile", "both") else field
    optimizer = torch.optim.Adam(field.parameters(), 5e-4, fused=not SMALL)
    origins, directions = torch.randn(rays, 1, 3, device=device()), torch.randn(rays, 1, 3, device=device())
    wanted, depths = torch.rand(rays, 3, device=device()), torch.linspace(2, 6, samples, device=device())

    def step(_: int) -> None:
        density, color = called(origins + directions * depths[:, None])
        opaque = 1 - torch.exp(-density * (4 / samples))
        through = torch.cumprod(torch.cat([torch.ones_like(opaque[:, :1]), 1 - opaque[:, :-1] + 1e-10], 1), 1)
        seen = ((opaque * through)[..., None] * color).sum(1)
        (seen - wanted).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    loop(step, steps_of(60))


# -- inference --------------------------------------------------------------------------------------------------------


def dino_features() -> None:
    """All tokens of images are copied to the host for their first one. Fixes: only that; pinned memory."""
    import torch
    from transformers import Dinov2Config, Dinov2Model

    alone()
    size, side = (2, 56) if SMALL else (64, 224)
    kind = torch.float32 if SMALL else torch.float16
    model = Dinov2Model(Dinov2Config(num_hidden_layers=1 if SMALL else 12, image_size=side)).to(device(), kind).eval()
    batches = [torch.randn(size, 3, side, side, dtype=kind) for _ in range(3)]
    tokens = 1 + (side // 14) ** 2
    if not SMALL:
        batches = [each.pin_memory() for each in batches]
    places = [torch.empty(size, tokens, 768, pin_memory=not SMALL) for _ in range(2)] if FORM == "pinned" else []
    arrived: list[Any] = [torch.cuda.Event() for _ in places] if torch.cuda.is_available() else []
    index: list[Any] = []

    def step(number: int) -> None:
        images = batches[number % 3].to(device(), non_blocking=True)
        states = model(pixel_values=images).last_hidden_state
        if FORM == "first":
            index.append(states[:, 0].float().cpu())
        elif FORM == "pinned":
            places[number % 2].copy_(states, non_blocking=True)
            if arrived:
                arrived[number % 2].record()
            if number:
                if arrived:
                    arrived[1 - number % 2].synchronize()
                index.append(places[1 - number % 2][:, 0].clone())
        else:
            index.append(states.float().cpu()[:, 0].clone())

    with torch.inference_mode():
        loop(step, steps_of(80))


def captions_beam() -> None:
    """A captioner's beam search asks for each candidate. Fixes: one list in each step; beams that stay on the GPU."""
    import torch

    alone()
    images, beams, width, words, new = (2, 2, 32, 100, 4) if SMALL else (8, 5, 512, 10_000, 20)
    rows = images * beams

    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.cell = torch.nn.Embedding(words, width), torch.nn.LSTMCell(2 * width, width)
            self.ask, self.out = torch.nn.Linear(width, width), torch.nn.Linear(width, words)

        def forward(self, last: Any, state: Any, regions: Any) -> Any:
            heat = (regions @ self.ask(state[0])[:, :, None]).softmax(1)
            seen = (heat * regions).sum(1)
            state = self.cell(torch.cat([self.table(last), seen], 1), state)
            return torch.log_softmax(self.out(state[0]), -1), state

    decoder = Decoder().to(device()).eval()
    clock = Clock(steps_of(30), sync, units=new)
    captions = []

    def by_hand(scores: Any, texts: list[list[int]], sums: list[float]) -> Any:
        """Return the row that each beam continues, its text and its sum; a row is a beam of an image."""
        best = scores.topk(beams, -1) if FORM == "listed" else None
        listed = (best.values.tolist(), best.indices.tolist()) if best is not None else None
        order, longer, totals = [], [], []
        for image in range(images):
            candidates = []
            for row in range(image * beams, (image + 1) * beams):
                if listed is not None:
                    pairs = list(zip(listed[0][row], listed[1][row], strict=True))
                else:
                    values, indices = scores[row].topk(beams)
                    pairs = [(value.item(), word.item()) for value, word in zip(values, indices, strict=True)]
                candidates += [(sums[row] + value, row, [*texts[row], word]) for value, word in pairs]
            candidates.sort(key=lambda each: each[0], reverse=True)
            for total, row, text in candidates[:beams]:
                order.append(row)
                longer.append(text)
                totals.append(total)
        return order, longer, totals

    def describe(regions: Any) -> list[list[int]]:
        state = (torch.zeros(rows, width, device=device()), torch.zeros(rows, width, device=device()))
        last = torch.ones(rows, dtype=torch.long, device=device())
        if FORM == "batched":
            totals = torch.zeros(images, beams, device=device())
            written = torch.zeros(rows, 0, dtype=torch.long, device=device())
            first = torch.arange(images, device=device())[:, None] * beams
            for _ in range(new):
                scores, state = decoder(last, state, regions)
                totals, picked = (totals[:, :, None] + scores.view(images, beams, words)).flatten(1).topk(beams, -1)
                order = (first + picked // words).flatten()
                last = (picked % words).flatten()
                written = torch.cat([written[order], last[:, None]], 1)
                state = (state[0][order], state[1][order])
            return written.tolist()
        texts: list[list[int]] = [[] for _ in range(rows)]
        sums = [0.0] * rows
        for _ in range(new):
            scores, state = decoder(last, state, regions)
            rows_of, texts, sums = by_hand(scores, texts, sums)
            order = torch.tensor(rows_of, device=device())
            last = torch.tensor([text[-1] for text in texts], device=device())
            state = (state[0][order], state[1][order])
        return texts

    with torch.inference_mode():
        for _ in range(steps_of(30)):
            regions = torch.randn(images, 49, width, device=device()).repeat_interleave(beams, 0)
            captions.append(describe(regions)[::beams])
            clock()


def embedder_batches() -> None:
    """A compiled Llama in BF16 embeds texts of equal length, which come from pinned memory: healthy."""
    import torch
    from transformers import LlamaConfig, LlamaModel

    alone()
    size, length, width, layers = (2, 16, 128, 1) if SMALL else (64, 512, 2048, 6)
    config = LlamaConfig(
        hidden_size=width,
        intermediate_size=width * 11 // 4,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 64,
        vocab_size=32000,
        use_cache=False,
    )
    model = LlamaModel(config).to(device(), torch.float32 if SMALL else torch.bfloat16).eval()
    called = model if SMALL else torch.compile(model)
    batches = [torch.randint(0, 32000, (size, length)) for _ in range(4)]
    if not SMALL:
        batches = [each.pin_memory() for each in batches]
    count = steps_of(60)
    found = torch.zeros(count, size, width, device=device())

    def step(number: int) -> None:
        tokens = batches[number % 4].to(device(), non_blocking=True)
        found[number] = torch.nn.functional.normalize(called(input_ids=tokens).last_hidden_state[:, -1].float(), dim=-1)

    with torch.no_grad():
        loop(step, count)
    found.cpu()


# -- science ----------------------------------------------------------------------------------------------------------


def cupy_seismic() -> None:
    """Traces are filtered with CuPy, but scaled with NumPy in between. Fix: CuPy for that, too."""
    import cupy
    import numpy as np

    alone()
    traces, samples = (8, 256) if SMALL else (512, 16384)
    recorded = cupy.random.standard_normal((traces, samples), dtype=cupy.float32)
    rates = cupy.fft.rfftfreq(samples, 0.002).astype(cupy.float32)
    band = cupy.exp(-(((rates - 30) / 15) ** 2)).astype(cupy.float32)
    wavelet = cupy.fft.rfft(cupy.random.standard_normal(samples, dtype=cupy.float32)).conj()
    peaks = []

    def scaled(xp: Any, filtered: Any) -> Any:
        power = xp.sqrt((filtered * filtered).mean(axis=1, keepdims=True))
        return xp.clip(filtered / (power + np.float32(1e-6)), -3, 3)

    def step(_: int) -> None:
        filtered = cupy.fft.irfft(cupy.fft.rfft(recorded, axis=1) * band, n=samples, axis=1)
        even = scaled(cupy, filtered) if FORM == "stays" else cupy.asarray(scaled(np, cupy.asnumpy(filtered)))
        matched = cupy.fft.irfft(cupy.fft.rfft(even, axis=1) * wavelet, n=samples, axis=1)
        peaks.append(matched.max(axis=1))

    loop(step, steps_of(60), cupy.cuda.Device().synchronize)


def lattice_flow() -> None:
    """A lattice Boltzmann method whose neighbouring threads take cells of a column. Fix: cells of a row."""
    native("lattice_flow")


def mesh_skinning() -> None:
    """Meshes follow bones, and the matrix of each bone is copied by itself. Fix: all matrices in one copy."""
    native("mesh_skinning")


def nbody_tiles() -> None:
    """Bodies attract each other, with tiles in shared memory: healthy."""
    native("nbody_tiles")


if __name__ == "__main__":
    run(globals())
