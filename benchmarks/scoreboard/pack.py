"""Pack the datasets small, to carry them: python -m benchmarks.scoreboard.pack SOURCE TARGET.

Images are stored as differences between neighboring pixels, which deflate better. Of each track of
traffic signs every third frame is kept: the frames of a track are nearly the same picture.
"""

from __future__ import annotations

import csv
import gzip
import sys
from pathlib import Path

import numpy as np


def pack(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    parts = {}
    for name, file in {"train": "train", "test": "t10k"}.items():
        with gzip.open(source / f"mnist/{file}-images-idx3-ubyte.gz") as f:
            parts[f"x_{name}"] = delta(np.frombuffer(f.read()[16:], np.uint8).reshape(-1, 28, 28))
        with gzip.open(source / f"mnist/{file}-labels-idx1-ubyte.gz") as f:
            parts[f"y_{name}"] = np.frombuffer(f.read()[8:], np.uint8)
    np.savez_compressed(target / "mnist.npz", **parts)
    train = [np.load(source / f"gtsrb/gtsrb32_{name}.npz") for name in ("train", "valid")]
    kept = [part["frame"] % 3 == 1 for part in train]
    test = np.load(source / "gtsrb/gtsrb32_test.npz")
    np.savez_compressed(
        target / "gtsrb.npz",
        x_train=delta(np.concatenate([p["x"][k] for p, k in zip(train, kept, strict=True)])),
        y_train=np.concatenate([p["y"][k] for p, k in zip(train, kept, strict=True)]),
        x_test=delta(test["x"]),
        y_test=test["y"],
    )
    with (source / "grid_stability/Data_for_UCI_named.csv").open() as f:
        rows = list(csv.reader(f))[1:]
    np.savez_compressed(
        target / "grid.npz",
        x=np.array([row[:12] for row in rows], dtype=np.float32),
        y=np.array([row[13] == "unstable" for row in rows], dtype=np.uint8),
    )


def delta(images: np.ndarray) -> np.ndarray:
    """Differences along the width (axis 2), modulo 256; and between color planes if there are."""
    if images.ndim == 4:
        images = images.copy()
        images[..., 0] -= images[..., 1]
        images[..., 2] -= images[..., 1]
        images = np.ascontiguousarray(images.transpose(3, 0, 1, 2))
        rows = np.diff(images, axis=2, prepend=np.zeros_like(images[:, :, :1]))
        return np.diff(rows, axis=3, prepend=np.zeros_like(images[..., :1]))
    return images


def undelta(images: np.ndarray) -> np.ndarray:
    if images.ndim == 4:
        images = np.cumsum(np.cumsum(images, axis=3, dtype=np.uint8), axis=2, dtype=np.uint8)
        images = np.ascontiguousarray(images.transpose(1, 2, 3, 0))
        images[..., 0] += images[..., 1]
        images[..., 2] += images[..., 1]
    return images


if __name__ == "__main__":
    pack(Path(sys.argv[1]), Path(sys.argv[2]))
