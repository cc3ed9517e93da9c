"""Training: Adam with one cycle of rates; traffic signs are moved, turned and lit while training.

Nothing here looks at validation data, and nothing at any method's figures.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.scoreboard.problems import Kind
from benchmarks.scoreboard.torch.networks import build

PLAN = {"mlp": (20, 512), "cnn": (6, 256), "signs": (30, 256)}
"""Epochs and batch; small sets take smaller batches, and epochs until there are enough steps."""

LEAST_STEPS = 3000
RESTARTS = 5


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
    for _ in range(RESTARTS):
        network = build(kind, inputs[0].numel(), n_classes).to(device)
        _fit(
            network,
            inputs,
            labels,
            min(20, epochs) if quick else epochs,
            batch,
            augmented=kind == "signs",
        )
        network.eval().requires_grad_(False)
        # Narrow networks sometimes die at the start.
        if (
            quick
            or (predict(network, inputs[:2000]).argmax(1) == labels[:2000]).float().mean() > 0.5
        ):
            break
    return network


def _fit(
    network: nn.Module, x: Tensor, y: Tensor, epochs: int, batch: int, augmented: bool
) -> None:
    n_steps = epochs * math.ceil(len(x) / batch)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=x.is_cuda)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, n_steps)
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(x), device=x.device), batch):
            optimizer.zero_grad(set_to_none=True)
            inputs = augment(x[rows]) if augmented else x[rows]
            functional.cross_entropy(network(inputs), y[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()


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


@torch.no_grad()
def predict(network: nn.Module, x: Tensor) -> Tensor:
    """Logits of shape (n, n_classes)."""
    return torch.cat([network(part) for part in torch.split(x, 4096)])
