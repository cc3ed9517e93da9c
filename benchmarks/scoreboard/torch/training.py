"""Networks, how they are trained, and the gradient attack on them.

The paper's dense network, a small convolutional one, a usual one for traffic signs, and a residual
one of eighteen layers for photographs. Training is one cycle of rates, by Adam, and for the
residual one by gradient descent with momentum; traffic signs are moved, turned and lit while
training, photographs moved and mirrored. Nothing here looks at validation data, and nothing at any
method's figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.scoreboard.problems import Kind
from iknow.core.arrays import Floats32, Ints

PLAN = {"mlp": (20, 512), "cnn": (6, 256), "signs": (30, 256), "resnet": (30, 256)}
"""Epochs and batch; small sets take smaller batches, and epochs until there are enough steps."""

LEAST_STEPS = 3000
ATTACK_STEPS = 40
RESTARTS = 5


class Residual(nn.Module):
    """What a short cut and two convolutions make of an image, added."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU(),
            nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False), nn.BatchNorm2d(n_out),
        )  # fmt: skip
        short = [nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out)]
        self.short = nn.Sequential(*(short if stride > 1 else ()))

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.short(x))


def build(kind: Kind, n_features: int, n_classes: int, width: int = 64) -> nn.Sequential:
    """A network without training, whose last layer gives logits. width: of a residual one."""
    if kind == "resnet":
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        stages = [
            nn.Sequential(Residual(before, after, 1 + (after > before)), Residual(after, after, 1))
            for before, after in pairwise(widths)
        ]
        stem = nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        pooled = nn.AdaptiveAvgPool2d(1), nn.Flatten()
        return nn.Sequential(*stem, *stages, *pooled, nn.Linear(8 * width, n_classes))
    if kind == "mlp":
        return nn.Sequential(
            nn.Linear(n_features, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(),
            nn.Linear(32, n_classes),
        )  # fmt: skip
    if kind == "cnn":
        return nn.Sequential(
            nn.Conv2d(1, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, n_classes),
        )  # fmt: skip
    blocks = [_block(3, 32), _block(32, 64), _block(64, 128)]
    return nn.Sequential(
        *(layer for block in blocks for layer in block),
        nn.Flatten(), nn.Dropout(0.3), nn.Linear(2048, 256), nn.ReLU(), nn.Dropout(0.3),
        nn.Linear(256, n_classes),
    )  # fmt: skip


def _block(n_in: int, n_out: int) -> list[nn.Module]:
    return [
        nn.Conv2d(n_in, n_out, 3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU(),
        nn.Conv2d(n_out, n_out, 3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU(), nn.MaxPool2d(2),
    ]  # fmt: skip


def train(
    kind: Kind, x: Any, y: Any, n_classes: int, seed: int, device: str, quick: bool = False
) -> nn.Module:
    """A trained network in eval mode on a device; x: (n, ...), y: (n,), both numpy arrays."""
    torch.manual_seed(seed)
    inputs, labels = torch.from_numpy(x).to(device), torch.from_numpy(y).to(device)
    epochs, batch = PLAN[kind]
    if len(x) < 10000:
        batch = 64
        epochs = max(epochs, LEAST_STEPS * batch // len(x)) if kind == "mlp" else epochs
    if quick:
        epochs = min(20, epochs) if kind == "mlp" else 1
    for _ in range(RESTARTS):
        network = build(kind, inputs[0].numel(), n_classes, 8 if quick else 64).to(device)
        _fit(network, inputs, labels, epochs, batch, AUGMENTED.get(kind))
        network.eval().requires_grad_(False)
        # Narrow networks sometimes die at the start.
        if (
            quick
            or (predict(network, inputs[:2000]).argmax(1) == labels[:2000]).float().mean() > 0.5
        ):
            break
    return network


def _fit(
    network: nn.Module, x: Tensor, y: Tensor, epochs: int, batch: int, change: Change | None
) -> None:
    n_steps, photographs = epochs * math.ceil(len(x) / batch), change is move_and_mirror
    optimizer: torch.optim.Optimizer
    if photographs:
        most = 0.1
        optimizer = torch.optim.SGD(
            network.parameters(), lr=most, momentum=0.9, nesterov=True, weight_decay=5e-4
        )
    else:
        most = 4e-3
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=x.is_cuda)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, most, n_steps)
    half = torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda and photographs)
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(x), device=x.device), batch):
            optimizer.zero_grad(set_to_none=True)
            inputs = x[rows] if change is None else change(x[rows])
            with half:
                scores = network(inputs)
            functional.cross_entropy(scores.float(), y[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()


def move_and_mirror(x: Tensor) -> Tensor:
    """Images moved by up to four pixels, every other one mirrored."""
    n, _, height, width = x.shape
    padded = functional.pad(x, (4, 4, 4, 4), mode="reflect")

    def draw(most: int) -> Tensor:
        return torch.randint(most, (n, 1), device=x.device)

    rows = draw(9) + torch.arange(height, device=x.device)
    columns = draw(9) + torch.arange(width, device=x.device)
    columns = torch.where(draw(2) == 1, columns.flip(1), columns)
    places = torch.arange(n, device=x.device)[:, None, None]
    return padded[places, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def augment(x: Tensor) -> Tensor:
    """Images moved by up to a tenth, turned by up to 12°, scaled by up to 15%, lit differently."""
    n, device = len(x), x.device

    def draw(low: float, high: float) -> Tensor:
        return torch.empty(n, device=device).uniform_(low, high)

    angle, scale = draw(-0.21, 0.21), draw(0.85, 1.15)
    cos, sin = scale * angle.cos(), scale * angle.sin()
    rows = [
        torch.stack([cos, -sin, draw(-0.2, 0.2)], 1),
        torch.stack([sin, cos, draw(-0.2, 0.2)], 1),
    ]
    grid = functional.affine_grid(torch.stack(rows, 1), list(x.shape), align_corners=False)
    moved = functional.grid_sample(x, grid, padding_mode="border", align_corners=False)
    mean = moved.mean((1, 2, 3), keepdim=True)
    gain, light = draw(0.6, 1.4).view(-1, 1, 1, 1), draw(-0.15, 0.15).view(-1, 1, 1, 1)
    return ((moved - mean) * gain + mean + light).clamp(0, 1)


Change = Callable[[Tensor], Tensor]
AUGMENTED: dict[Kind, Change] = {"signs": augment, "resnet": move_and_mirror}


@torch.no_grad()
def predict(network: nn.Module, x: Tensor) -> Tensor:
    """Logits of shape (n, n_classes)."""
    return torch.cat([network(part) for part in torch.split(x, 4096)])


def attack(network: nn.Module, x: Floats32, y: Ints, epsilon: float, image: bool) -> Floats32:
    """Samples of shape (n, ...), each feature changed by `epsilon` at most; pixels in [0, 1].

    Projected ascent on the loss of the true class (Madry and others, 2018).
    """
    device = next(network.parameters()).device
    given = torch.split(torch.from_numpy(x), 1024), torch.split(torch.from_numpy(y), 1024)
    parts = []
    for start, labels in zip(*given, strict=True):
        start, labels = start.to(device), labels.to(device)
        found = start.clone()
        for _ in range(ATTACK_STEPS):
            found.requires_grad_(True)
            loss = functional.cross_entropy(network(found), labels, reduction="sum")
            (gradient,) = torch.autograd.grad(loss, found)
            found = found.detach() + epsilon / 8 * gradient.sign()
            found = torch.minimum(torch.maximum(found, start - epsilon), start + epsilon)
            found = found.clamp(0, 1) if image else found
        parts.append(found.cpu().numpy())
    return np.concatenate(parts)
