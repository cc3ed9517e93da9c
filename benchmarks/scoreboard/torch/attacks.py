"""The gradient attack: projected ascent on the loss of the true class (Madry and others, 2018)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from iknow.core.arrays import Floats32, Ints

STEPS = 40


def attack(network: nn.Module, x: Floats32, y: Ints, epsilon: float, image: bool) -> Floats32:
    """Samples of shape (n, ...), each feature changed by `epsilon` at most; pixels in [0, 1]."""
    device = next(network.parameters()).device
    start, labels = torch.from_numpy(x).to(device), torch.from_numpy(y).to(device)
    found = start.clone()
    for _ in range(STEPS):
        found.requires_grad_(True)
        loss = functional.cross_entropy(network(found), labels, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, found)
        found = found.detach() + epsilon / 8 * gradient.sign()
        found = torch.minimum(torch.maximum(found, start - epsilon), start + epsilon)
        found = found.clamp(0, 1) if image else found
    values: Floats32 = found.cpu().numpy()
    return values
