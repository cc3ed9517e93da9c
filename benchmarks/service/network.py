"""The network of the load test: a small one for MNIST, as a bare ONNX file and as a bundle.

Both are made once and kept in the system's folder for temporary files.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from iknow import EpistemicClassifier
from iknow.core.arrays import Floats32
from reproduction.data.datasets import load_dataset

EPOCHS, BATCH = 3, 128
ROWS = 2_000
"""Test rows that are kept to ask with."""


class Network(NamedTuple):
    """Where the bare model and the bundle are, and rows of shape (n, 784) to ask about."""

    onnx: Path
    bundle: Path
    rows: Floats32


def make_network() -> Network:
    """The network, trained if it is not there yet."""
    folder = Path(tempfile.gettempdir()) / "iknow-service-benchmark"
    folder.mkdir(exist_ok=True)
    found = folder / "mnist.onnx", folder / "mnist.iknow", folder / "rows.npy"
    if not all(path.exists() for path in found):
        _make(*found)
    return Network(found[0], found[1], np.load(found[2]))


def _make(onnx: Path, bundle: Path, rows: Path) -> None:
    data = load_dataset("mnist", 0)
    x, y = _flat(data.X_train), data.y_train
    net = _train(x, y)
    torch.onnx.export(
        net, (torch.zeros(2, x.shape[1]),), onnx, dynamo=False, input_names=["rows"],
        output_names=["scores"], dynamic_axes={"rows": {0: "n"}, "scores": {0: "n"}},
    )  # fmt: skip
    fitted = EpistemicClassifier(net, progress=False).fit(x, y)
    fitted.tune(_flat(data.X_val), data.y_val).save(bundle, onnx=True)
    np.save(rows, _flat(data.X_test)[:ROWS])


def _train(x: Floats32, y: Any) -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(x.shape[1], 128), nn.ReLU(), nn.Linear(128, 32), nn.ReLU(), nn.Linear(32, 10)
    )
    step = torch.optim.Adam(net.parameters(), 1e-3)
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y.astype(np.int64))
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(x)).split(BATCH):  # type: ignore[no-untyped-call]
            step.zero_grad()
            nn.functional.cross_entropy(net(inputs[rows]), labels[rows]).backward()  # type: ignore[no-untyped-call]
            step.step()
    return net.eval()


def _flat(images: Any) -> Floats32:
    return np.asarray(images, dtype=np.float32).reshape(len(images), -1)
