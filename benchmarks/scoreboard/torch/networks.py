"""Networks: the paper's dense one, a small convolutional one, and a usual one for traffic signs."""

from __future__ import annotations

from torch import nn

from benchmarks.scoreboard.problems import Kind


def build(kind: Kind, n_features: int, n_classes: int) -> nn.Sequential:
    """A network without training, whose last layer gives logits."""
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
