"""The programs of halves F and G: `python third.py NAME [FORM]` prints how long a step takes, like programs.py.

They are of kinds that the halves A to E lack, and were written without a look at how causes are found.
"""

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))
from tests.real.blind import graphed
from tests.real.programs import FORM, SMALL, Clock, alone, device, loop, native, run, steps_of, sync

# -- training ---------------------------------------------------------------------------------------------------------


def dcgan_faces() -> None:
    """A DCGAN learns faces, and reads five numbers of each step. Fixes: of each fiftieth step; a CUDA graph."""
    import torch

    alone()
    size, code, width = (4, 16, 8) if SMALL else (128, 100, 64)
    nn = torch.nn

    def rise(inputs: int, outputs: int, *place: int) -> list[Any]:
        return [nn.ConvTranspose2d(inputs, outputs, 4, *place, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(True)]

    def fall(inputs: int, outputs: int) -> list[Any]:
        parts: list[Any] = [nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs)]
        return [*parts, nn.LeakyReLU(0.2, inplace=True)]

    generator = nn.Sequential(
        *rise(code, width * 8, 1, 0),
        *rise(width * 8, width * 4, 2, 1),
        *rise(width * 4, width * 2, 2, 1),
        *rise(width * 2, width, 2, 1),
        nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False),
        nn.Tanh(),
    ).to(device())
    critic = nn.Sequential(
        nn.Conv2d(3, width, 4, 2, 1, bias=False),
        nn.LeakyReLU(0.2, inplace=True),
        *fall(width, width * 2),
        *fall(width * 2, width * 4),
        *fall(width * 4, width * 8),
        nn.Conv2d(width * 8, 1, 4, 1, 0, bias=False),
        nn.Sigmoid(),
        nn.Flatten(0),
    ).to(device())
    is_graph = FORM == "graph"
    of_critic, of_generator = (
        torch.optim.Adam(net.parameters(), 2e-4, betas=(0.5, 0.999), capturable=is_graph) for net in (critic, generator)
    )
    criterion = nn.BCELoss()
    true, false = torch.ones(size, device=device()), torch.zeros(size, device=device())
    faces = [torch.rand(size, 3, 64, 64, device=device()) * 2 - 1 for _ in range(4)]
    curves: list[list[float]] = []

    def train(real: Any) -> Any:
        numbers = []

        def note(value: Any) -> None:
            numbers.append(value.detach() if FORM in ("rarely", "graph") else value.item())

        critic.zero_grad()
        seen = critic(real)
        error_true = criterion(seen, true)
        error_true.backward()
        note(seen.mean())
        made = generator(torch.randn(size, code, 1, 1, device=device()))
        seen = critic(made.detach())
        error_false = criterion(seen, false)
        error_false.backward()
        note(seen.mean())
        note(error_true + error_false)
        of_critic.step()
        generator.zero_grad()
        seen = critic(made)
        error = criterion(seen, true)
        error.backward()
        note(error)
        note(seen.mean())
        of_generator.step()
        return torch.stack(numbers) if FORM in ("rarely", "graph") else numbers

    called = graphed(train, faces[0].clone()) if is_graph else train

    def step(number: int) -> None:
        numbers = called(faces[number % 4])
        if FORM == "base":
            curves.append(numbers)
        elif number % 50 == 0:
            curves.append(numbers.tolist())

    loop(step, steps_of(300))


def tabular_rows() -> None:
    """Lightning learns from a table whose rows workers put together one by one. Fix: rows of a tensor on the GPU."""
    import lightning
    import torch

    alone()
    rows, columns, size, width = (500, 8, 16, 32) if SMALL else (1_500_000, 48, 8192, 512)
    count = steps_of(160)
    clock = Clock(count, sync)
    features, prices = torch.randn(rows, columns), torch.randn(rows)

    class Sales(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return rows

        def __getitem__(self, number: int) -> Any:
            return features[number], prices[number]

    class Batches:
        """What a loader yields, from tensors on the GPU."""

        def __init__(self) -> None:
            self.features, self.prices = features.to(device()), prices.to(device())

        def __len__(self) -> int:
            return rows // size

        def __iter__(self) -> Iterator[Any]:
            order = torch.randperm(rows, device=device())
            for number in range(len(self)):
                chosen = order[number * size : (number + 1) * size]
                yield self.features[chosen], self.prices[chosen]

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.LayerNorm(width)
            self.first, self.second = torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width)

        def forward(self, x: Any) -> Any:
            return x + self.second(self.first(self.norm(x)).relu())

    class Regressor(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            blocks = [Block() for _ in range(4)]
            self.net = torch.nn.Sequential(torch.nn.Linear(columns, width), *blocks, torch.nn.Linear(width, 1))

        def training_step(self, batch: Any, number: int) -> Any:
            known, wanted = batch
            loss = torch.nn.functional.huber_loss(self.net(known).squeeze(1).float(), wanted)
            self.log("loss", loss)
            return loss

        def on_train_batch_end(self, *_: Any) -> None:
            clock()

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), 1e-3, fused=not SMALL)

    workers = 1 if SMALL else 4
    loader: Any = (
        Batches()
        if FORM == "tensors"
        else torch.utils.data.DataLoader(
            Sales(),
            size,
            shuffle=True,
            drop_last=True,
            num_workers=workers,
            pin_memory=not SMALL,
            persistent_workers=True,
        )
    )
    trainer = lightning.Trainer(
        max_steps=count,
        accelerator="auto",
        devices=1,
        precision="32-true" if SMALL else "bf16-mixed",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Regressor(), loader)


def speech_errors() -> None:
    """A Conformer learns to transcribe; Python counts the errors of each batch. Fix: of each fiftieth."""
    import torch
    import torchaudio

    alone()
    size, seconds, length, width, layers = (2, 1, 6, 32, 1) if SMALL else (48, 10, 48, 256, 6)
    words, nn = 500, torch.nn
    melody = torchaudio.transforms.MelSpectrogram(16000, n_fft=512, hop_length=160, n_mels=80).to(device())

    class Listener(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shorter = nn.Sequential(nn.Conv1d(80, width, 3, 2, 1), nn.ReLU(), nn.Conv1d(width, width, 3, 2, 1))
            self.encoder = torchaudio.models.Conformer(width, 4, 4 * width, layers, 31)
            layer = nn.TransformerDecoderLayer(width, 4, 4 * width, 0.0, batch_first=True)
            self.decoder = nn.TransformerDecoder(layer, max(layers // 2, 1))
            self.table, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.out = nn.Linear(width, words)

        def forward(self, features: Any, text: Any) -> Any:
            x = self.shorter(features).transpose(1, 2)
            heard, _ = self.encoder(x, torch.full((len(x),), x.shape[1], device=x.device))
            asked = self.table(text) + self.places.weight[: text.shape[1]]
            mask = nn.Transformer.generate_square_subsequent_mask(text.shape[1], device=x.device)
            return self.out(self.decoder(asked, heard, tgt_mask=mask, tgt_is_causal=True))

    def distance(one: list[int], other: list[int]) -> int:
        """Count insertions, deletions and replacements."""
        above = list(range(len(other) + 1))
        for place, word in enumerate(one, 1):
            row = [place]
            for column, compared in enumerate(other, 1):
                row.append(min(above[column] + 1, row[-1] + 1, above[column - 1] + (word != compared)))
            above = row
        return above[-1]

    listener = Listener().to(device())
    optimizer = torch.optim.AdamW(listener.parameters(), 1e-4, fused=not SMALL)
    waves = [torch.randn(size, 16000 * seconds, device=device()) for _ in range(3)]
    texts = [torch.randint(1, words, (size, length), device=device()) for _ in range(3)]
    rates = []

    def step(number: int) -> None:
        text = texts[number % 3]
        with torch.no_grad():
            features = torch.log(melody(waves[number % 3]) + 1e-6)
        with torch.autocast(device(), torch.bfloat16):
            scores = listener(features, torch.cat([torch.zeros_like(text[:, :1]), text[:, :-1]], 1))
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), text.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if FORM == "base" or number % 50 == 0:
            pairs = zip(scores.argmax(-1).tolist(), text.tolist(), strict=True)
            rates.append(sum(distance(one, other) for one, other in pairs) / text.numel())

    loop(step, steps_of(80))


def series_bias() -> None:
    """A forecaster makes its bias for distances (ALiBi) on the CPU in each pass. Fix: a buffer on the GPU."""
    import torch

    alone()
    size, length, width, layers, heads = (2, 32, 32, 1, 2) if SMALL else (16, 1024, 1024, 6, 16)
    patch, nn = 16, torch.nn

    def alibi() -> Any:
        slopes = torch.tensor([2 ** (-8 * (head + 1) / heads) for head in range(heads)])
        places = torch.arange(length)
        away = (places[None] - places[:, None]).float()
        return (slopes[:, None, None] * away).masked_fill(away > 0, -math.inf)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
            self.both, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any, bias: Any) -> Any:
            parts = self.both(self.norms[0](x)).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
            seen = nn.functional.scaled_dot_product_attention(*parts, attn_mask=bias)
            x = x + self.out(seen.transpose(1, 2).flatten(2))
            return x + self.narrow(nn.functional.gelu(self.wide(self.norms[1](x))))

    class Forecaster(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inputs, self.outputs = nn.Linear(patch, width), nn.Linear(width, patch)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            if FORM == "buffer":
                self.register_buffer("bias", alibi()[None])

        def forward(self, series: Any) -> Any:
            x = self.inputs(series)
            bias = (self.bias if FORM == "buffer" else alibi()[None].to(x.device)).to(torch.bfloat16)
            for block in self.blocks:
                x = block(x, bias)
            return self.outputs(x)

    net = Forecaster().to(device())
    optimizer = torch.optim.AdamW(net.parameters(), 3e-4, fused=not SMALL)
    series = [torch.randn(size, length + 1, patch, device=device()) for _ in range(4)]

    def step(number: int) -> None:
        values = series[number % 4]
        with torch.autocast(device(), torch.bfloat16):
            loss = nn.functional.mse_loss(net(values[:, :-1]), values[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    loop(step, steps_of(60))


def ppo_pendulums() -> None:
    """PPO swings up 4096 pendulums that are simulated on the GPU, in small operations. Fix: CUDA graphs."""
    import torch

    alone()
    many, horizon, rounds, parts = (16, 8, 1, 2) if SMALL else (4096, 32, 4, 4)
    nn, is_graph = torch.nn, FORM == "graph"
    torch.distributions.Normal.set_default_validate_args(False)

    def mlp(outputs: int) -> Any:
        return nn.Sequential(nn.Linear(3, 128), nn.ELU(), nn.Linear(128, 128), nn.ELU(), nn.Linear(128, outputs))

    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.actor, self.critic, self.log_std = mlp(1), mlp(1), nn.Parameter(torch.zeros(1))

        def forward(self, seen: Any) -> Any:
            mean = self.actor(seen).squeeze(-1)
            return torch.distributions.Normal(mean, self.log_std.exp().expand_as(mean)), self.critic(seen).squeeze(-1)

    class Pendulums:
        def __init__(self) -> None:
            self.angle = torch.rand(many, device=device()) * 6.28 - 3.14
            self.speed, self.age = torch.zeros(many, device=device()), torch.randint(0, 200, (many,), device=device())

        def seen(self) -> Any:
            return torch.stack([self.angle.cos(), self.angle.sin(), self.speed / 8], -1)

        def step(self, action: Any) -> Any:
            torque = 2 * action.clamp(-1, 1)
            cost = self.wrapped() ** 2 + 0.1 * self.speed**2 + 0.001 * torque**2
            self.speed.add_((15 * self.angle.sin() + 3 * torque) * 0.05).clamp_(-8, 8)
            self.angle += self.speed * 0.05
            self.age += 1
            over = self.age >= 200
            self.angle.copy_(torch.where(over, torch.rand_like(self.angle) * 6.28 - 3.14, self.angle))
            self.speed.copy_(torch.where(over, torch.rand_like(self.speed) * 2 - 1, self.speed))
            self.age.copy_(torch.where(over, torch.zeros_like(self.age), self.age))
            return -cost / 16, over.float()

        def wrapped(self) -> Any:
            return torch.remainder(self.angle + math.pi, 2 * math.pi) - math.pi

    policy, world, shape = Policy().to(device()), Pendulums(), (horizon, many)
    optimizer = torch.optim.Adam(policy.parameters(), 3e-4, eps=1e-5, capturable=is_graph)
    states = torch.zeros(*shape, 3, device=device())
    # what was done, how probable that was, what it was worth, what it brought, and whether an episode ended
    kept = [torch.zeros(shape, device=device()) for _ in range(5)]

    @torch.no_grad()
    def act() -> Any:
        seen = world.seen()
        choice, value = policy(seen)
        action = choice.rsample()
        return seen, action, choice.log_prob(action), value, *world.step(action)

    @torch.no_grad()
    def advantages(values: Any, rewards: Any, ends: Any) -> Any:
        following, gain = policy(world.seen())[1], torch.zeros(many, device=device())
        gains = torch.zeros_like(rewards)
        for moment in reversed(range(horizon)):
            goes_on = 1 - ends[moment]
            surprise = rewards[moment] + 0.99 * following * goes_on - values[moment]
            gain = surprise + 0.99 * 0.95 * goes_on * gain
            gains[moment] = gain
            following = values[moment]
        return gains

    def learn(seen: Any, action: Any, before: Any, gain: Any, wanted: Any) -> None:
        choice, value = policy(seen)
        ratio = (choice.log_prob(action) - before).exp()
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        loss = torch.max(-gain * ratio, -gain * ratio.clamp(0.8, 1.2)).mean()
        loss += 0.5 * (value - wanted).square().mean() - 0.01 * choice.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        optimizer.step()

    called: Any = (act, advantages, learn)
    if is_graph:
        numbers = [torch.zeros(horizon * many // parts, device=device()) for _ in range(4)]
        of_learn = (torch.zeros(len(numbers[0]), 3, device=device()), *numbers)
        inputs: Any = ((), [torch.zeros(shape, device=device()) for _ in range(3)], of_learn)
        called = [graphed(call, *given) for call, given in zip(called, inputs, strict=True)]

    def step(_: int) -> None:
        for moment in range(horizon):
            seen, *others = called[0]()
            states[moment] = seen
            for all_moments, value in zip(kept, others, strict=True):
                all_moments[moment] = value
        actions, before, values, rewards, ends = kept
        gains = called[1](values, rewards, ends)
        flat = [each.flatten(0, 1) for each in (states, actions, before, gains, gains + values)]
        for _ in range(rounds):
            for chosen in torch.randperm(horizon * many, device=device()).chunk(parts):
                called[2](*(each[chosen] for each in flat))

    loop(step, steps_of(60))


def opt_pretraining() -> None:
    """HF Trainer trains a wide OPT in BF16 with a fused optimizer and large batches: healthy."""
    import torch
    from transformers import OPTConfig, OPTForCausalLM, Trainer, TrainerCallback, TrainingArguments

    alone()
    count, size, length, width, layers = (steps_of(40), 2, 16, 64, 1) if SMALL else (steps_of(40), 16, 512, 4096, 4)
    clock = Clock(count, sync)

    class Watch(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock()

    config = OPTConfig(
        hidden_size=width,
        ffn_dim=4 * width,
        word_embed_proj_dim=width,
        num_hidden_layers=layers,
        num_attention_heads=max(width // 128, 1),
        vocab_size=8192,
        max_position_embeddings=length,
        dropout=0.0,
        use_cache=False,
    )
    with torch.device(device()):
        model = OPTForCausalLM(config).to(torch.float32 if SMALL else torch.bfloat16)
    texts = torch.randint(4, 8192, (count * size, length))
    data: Any = [{"input_ids": text, "labels": text} for text in texts]
    arguments = TrainingArguments(
        output_dir="/tmp/opt_pretraining",
        per_device_train_batch_size=size,
        max_steps=count,
        learning_rate=1e-4,
        optim="adamw_torch" if SMALL else "adamw_torch_fused",
        logging_steps=1000,
        logging_nan_inf_filter=False,
        save_strategy="no",
        dataloader_num_workers=0 if SMALL else 2,
        report_to=[],
        disable_tqdm=True,
    )
    Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Watch()]).train()


def flax_mixer() -> None:
    """An MLP-Mixer learns in BF16 from images on the GPU, with one jitted function and donated memory: healthy."""
    import jax
    import jax.numpy as jnp
    import optax
    from flax import linen

    alone()
    size, stored, side, width, layers = (2, 4, 32, 32, 1) if SMALL else (256, 1024, 256, 1024, 4)

    class Mlp(linen.Module):
        hidden: int

        @linen.compact
        def __call__(self, x: Any) -> Any:
            y = linen.gelu(linen.Dense(self.hidden, dtype=jnp.bfloat16)(x))
            return linen.Dense(x.shape[-1], dtype=jnp.bfloat16)(y)

    class Mixer(linen.Module):
        @linen.compact
        def __call__(self, images: Any) -> Any:
            x = linen.Conv(width, (16, 16), strides=(16, 16), dtype=jnp.bfloat16)(images)
            x = x.reshape(len(x), -1, width)
            for _ in range(layers):
                y = linen.LayerNorm(dtype=jnp.bfloat16)(x).swapaxes(1, 2)
                x = x + Mlp(512)(y).swapaxes(1, 2)
                x = x + Mlp(4 * width)(linen.LayerNorm(dtype=jnp.bfloat16)(x))
            return linen.Dense(1000)(linen.LayerNorm()(x.mean(1)))

    mixer, optimizer = Mixer(), optax.adamw(1e-3)
    keys = jax.random.split(jax.random.PRNGKey(0), 3)
    images = jax.random.randint(keys[0], (stored, side + 16, side + 16, 3), 0, 256, dtype=jnp.uint8)
    labels = jax.random.randint(keys[1], (stored,), 0, 1000)
    params = mixer.init(keys[2], jnp.zeros((1, side, side, 3), jnp.bfloat16))

    def cropped(image: Any, corner: Any) -> Any:
        return jax.lax.dynamic_slice(image, (corner[0], corner[1], 0), (side, side, 3))

    def update(params: Any, state: Any, key: Any, images: Any, labels: Any) -> Any:
        key, of_places, of_corners = jax.random.split(key, 3)
        places = jax.random.randint(of_places, (size,), 0, stored)
        corners = jax.random.randint(of_corners, (size, 2), 0, 16)
        batch = jax.vmap(cropped)(images[places], corners).astype(jnp.bfloat16) / 127.5 - 1

        def loss(params: Any) -> Any:
            scores = mixer.apply(params, batch)
            return optax.softmax_cross_entropy_with_integer_labels(scores, labels[places]).mean()

        error, gradients = jax.value_and_grad(loss)(params)
        changes, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, changes), state, key, error

    called = jax.jit(update, donate_argnums=(0, 1, 2))
    held: list[Any] = [params, optimizer.init(params), jax.random.PRNGKey(1), None]

    def step(_: int) -> None:
        held[:] = called(*held[:3], images, labels)

    loop(step, steps_of(60), lambda: jax.block_until_ready(held[3]))


# -- inference --------------------------------------------------------------------------------------------------------


def detection_service() -> None:
    """A service finds objects in images, and removes overlapping boxes one by one on the GPU. Fix: by a table of all.

    The table of overlaps is computed at once, and the host chooses from it.
    """
    import numpy as np
    import timm
    import torch

    alone()
    torch.manual_seed(0)
    side, classes, best = (64, 4, 20) if SMALL else (640, 80, 400)
    kind, nn = torch.float32 if SMALL else torch.float16, torch.nn

    class Detector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = timm.create_model(
                "resnet18" if SMALL else "resnet50", features_only=True, out_indices=(2, 3, 4)
            )
            self.even = nn.ModuleList([nn.Conv2d(channels, 256, 1) for channels in self.body.feature_info.channels()])
            self.tower = nn.Sequential(*[part for _ in range(4) for part in (nn.Conv2d(256, 256, 3, 1, 1), nn.ReLU())])
            self.classes, self.boxes = nn.Conv2d(256, classes, 3, 1, 1), nn.Conv2d(256, 4, 3, 1, 1)
            for part in (*self.even, *self.tower[::2]):
                nn.init.kaiming_normal_(part.weight)

        def forward(self, image: Any) -> Any:
            levels = [even(level) for even, level in zip(self.even, self.body(image), strict=True)]
            for place in (1, 0):
                levels[place] = levels[place] + nn.functional.interpolate(levels[place + 1], scale_factor=2.0)
            scores, boxes = [], []
            for place, level in enumerate(levels):
                stride, x = 8 * 2**place, self.tower(level)
                scores.append(self.classes(x).float().sigmoid().flatten(2)[0].T)
                rows, columns = (torch.arange(edge, device=x.device) * stride for edge in x.shape[2:])
                centers = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), -1).flatten(0, 1)
                reach = self.boxes(x).float().flatten(2)[0].T.exp() * stride * 2
                boxes.append(torch.cat([centers - reach[:, :2], centers + reach[:, 2:]], 1))
            return torch.cat(scores), torch.cat(boxes)

    detector = Detector().to(device(), kind, memory_format=torch.channels_last).eval()

    def overlaps(box: Any, boxes: Any) -> Any:
        sides = (torch.minimum(box[..., 2:], boxes[..., 2:]) - torch.maximum(box[..., :2], boxes[..., :2])).clamp(min=0)
        shared = sides[..., 0] * sides[..., 1]
        areas = [(each[..., 2] - each[..., 0]) * (each[..., 3] - each[..., 1]) for each in (box, boxes)]
        return shared / (areas[0] + areas[1] - shared)

    def one_by_one(values: Any, labels: Any, boxes: Any) -> list[Any]:
        found = []
        for label in labels.unique():
            of_class = labels == label
            own, certain = boxes[of_class], values[of_class]
            order = certain.argsort(descending=True)
            while order.numel():
                first = order[0]
                found.append((label.item(), certain[first].item(), own[first].tolist()))
                order = order[1:]
                order = order[overlaps(own[first], own[order]) <= 0.5]
        return found

    def at_once(values: Any, labels: Any, boxes: Any) -> list[Any]:
        apart = boxes + labels[:, None] * 10_000.0
        covers = (overlaps(apart[:, None], apart[None]) > 0.5).cpu().numpy()
        listed = list(zip(labels.tolist(), values.tolist(), boxes.tolist(), strict=True))
        found, is_left = [], np.ones(len(listed), dtype=bool)
        for place, each in enumerate(listed):
            if is_left[place]:
                found.append(each)
                is_left &= ~covers[place]
        return found

    requests, answers = Queue[Any](4), Queue[Any]()
    count = steps_of(60)

    def ask() -> None:
        pictures = [torch.randint(0, 256, (1, 3, side, side), dtype=torch.uint8) for _ in range(4)]
        if not SMALL:
            pictures = [each.pin_memory() for each in pictures]
        for number in range(count):
            requests.put(pictures[number % 4])

    Thread(target=ask, daemon=True).start()

    def serve(_: int) -> None:
        image = requests.get().to(device(), non_blocking=True)
        image = image.to(kind, memory_format=torch.channels_last).div_(127.5).sub_(1)
        scores, boxes = detector(image)
        values, places = scores.flatten().topk(best)
        labels, chosen = places % classes, boxes[places // classes]
        answers.put((at_once if FORM == "table" else one_by_one)(values, labels, chosen))

    with torch.inference_mode():
        loop(serve, count)


# -- science ----------------------------------------------------------------------------------------------------------


def jax_neighbors() -> None:
    """Molecular dynamics in JAX, whose pairs of neighbours come from SciPy's tree. Fix: all pairs in the function."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from scipy.spatial import cKDTree

    alone()
    edge, reach = (6 if SMALL else 16), 2.5
    atoms = edge**3
    side = (atoms / 0.8) ** (1 / 3)
    room = 40 * atoms
    generator = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(*[np.arange(edge)] * 3), -1).reshape(-1, 3) * (side / edge)
    moving = generator.standard_normal((atoms, 3)) * 0.7

    def pulls(apart: Any, counts: Any) -> Any:
        apart = apart - side * jnp.round(apart / side)
        squared = (apart * apart).sum(-1)
        counts = counts & (squared < reach**2)
        inverse = 1 / jnp.where(counts, squared, 1.0)
        sixth = inverse**3
        return jnp.where(counts, 24 * inverse * sixth * (2 * sixth - 1), 0.0)[..., None] * apart

    def of_pairs(positions: Any, pairs: Any) -> Any:
        one, other = pairs
        force = pulls(positions[one] - positions[other], one != other)
        return jnp.zeros_like(positions).at[one].add(force).at[other].add(-force)

    def of_all(positions: Any, _: Any) -> Any:
        return pulls(positions[:, None] - positions, ~jnp.eye(atoms, dtype=bool)).sum(1)

    @jax.jit
    def advance(positions: Any, speeds: Any, pairs: Any) -> Any:
        forces = (of_all if FORM == "pairs" else of_pairs)(positions, pairs)
        speeds = speeds + 0.002 * forces
        return (positions + 0.002 * speeds) % side, speeds

    def neighbours(positions: Any) -> Any:
        tree = cKDTree(np.asarray(positions, dtype=np.float64) % side, boxsize=side)
        pairs = tree.query_pairs(reach, output_type="ndarray")
        # the same length each time, or it is compiled again
        padded = np.zeros((2, room), dtype=np.int32)
        padded[:, : len(pairs)] = pairs.T
        return jnp.asarray(padded)

    held: list[Any] = [jnp.asarray(grid, jnp.float32), jnp.asarray(moving, jnp.float32)]

    def step(_: int) -> None:
        pairs = None if FORM == "pairs" else neighbours(held[0])
        held[:] = advance(*held, pairs)

    loop(step, steps_of(100), lambda: jax.block_until_ready(held[0]))


def numba_bilateral() -> None:
    """A bilateral filter in Numba, with a thread for each row of an image. Fix: a thread for each pixel."""
    import numpy as np

    np.row_stack = getattr(np, "row_stack", np.vstack)  # this Numba was written for an older NumPy
    from numba import cuda

    alone()
    zero, near, alike = np.float32(0), np.float32(-0.08), np.float32(-20)

    @cuda.jit(device=True)  # type: ignore[untyped-decorator,unused-ignore]
    def filtered(image: Any, row: int, column: int) -> Any:
        middle, total, weights = image[row, column], zero, zero
        for up in range(-2, 3):
            for right in range(-2, 3):
                y = min(max(row + up, 0), image.shape[0] - 1)
                x = min(max(column + right, 0), image.shape[1] - 1)
                value = image[y, x]
                unlike = value - middle
                weight = math.exp(near * np.float32(up * up + right * right) + alike * unlike * unlike)
                total += weight * value
                weights += weight
        return total / weights

    @cuda.jit  # type: ignore[untyped-decorator,unused-ignore]
    def by_rows(image: Any, result: Any) -> None:
        row = cuda.grid(1)
        if row < image.shape[0]:
            for column in range(image.shape[1]):
                result[row, column] = filtered(image, row, column)

    @cuda.jit  # type: ignore[untyped-decorator,unused-ignore]
    def by_pixels(image: Any, result: Any) -> None:
        column, row = cuda.grid(2)
        if row < image.shape[0] and column < image.shape[1]:
            result[row, column] = filtered(image, row, column)

    height, width = (8, 12) if SMALL else (2160, 3840)
    image = np.random.default_rng(0).random((height, width), dtype=np.float32)
    held = [cuda.to_device(image), cuda.to_device(np.zeros_like(image))]

    def step(_: int) -> None:
        if FORM == "pixels":
            by_pixels[((width + 31) // 32, (height + 7) // 8), (32, 8)](*held)
        else:
            by_rows[(height + 127) // 128, 128](*held)
        held.reverse()

    loop(step, steps_of(100), cuda.synchronize)


def frames_managed() -> None:
    """A camera's frames are in managed memory that the host and the GPU touch. Fixes: prefetched; pinned copies."""
    native("frames_managed")


def multigrid_checks() -> None:
    """Multigrid waits for each kernel to check it for errors. Fixes: only launches are checked; a CUDA graph."""
    native("multigrid_checks")


if __name__ == "__main__":
    run(globals())
