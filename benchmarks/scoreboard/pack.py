"""Pack the datasets: python -m benchmarks.scoreboard.pack SOURCE TARGET.

SOURCE holds the published files: mnist/*.gz, gtsrb/gtsrb32_*.npz, grid_stability/*.csv,
italy_power_demand/*.tsv and synthetic_control/*.tsv. Digits and breast cancer come with
scikit-learn. Of each track of traffic signs every third frame is kept: the frames of a track are
nearly the same picture.
"""

from __future__ import annotations

import csv
import gzip
import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits

from benchmarks.scoreboard.data import delta

N_SIGNS = 10000  # of the test part, whose order is random


def pack(source: Path, target: Path) -> None:
    """Write one file per dataset."""
    target.mkdir(parents=True, exist_ok=True)
    parts: dict[str, Any] = {}
    for name, file in {"train": "train", "test": "t10k"}.items():
        with gzip.open(source / f"mnist/{file}-images-idx3-ubyte.gz") as stream:
            parts[f"x_{name}"] = np.frombuffer(stream.read()[16:], np.uint8).reshape(-1, 28, 28)
        with gzip.open(source / f"mnist/{file}-labels-idx1-ubyte.gz") as stream:
            parts[f"y_{name}"] = np.frombuffer(stream.read()[8:], np.uint8)
    np.savez_compressed(target / "mnist.npz", **parts)
    _pack_signs(source / "gtsrb", target)
    with (source / "grid_stability/Data_for_UCI_named.csv").open() as lines:
        rows = list(csv.reader(lines))[1:]
    x = np.array([row[:12] for row in rows], dtype=np.float32)
    np.savez_compressed(
        target / "grid.npz", x=x, y=np.array([row[13] == "unstable" for row in rows])
    )
    for name, stem in {
        "italy": "italy_power_demand/ItalyPowerDemand",
        "control": "synthetic_control/SyntheticControl",
    }.items():
        table = np.concatenate(
            [np.loadtxt(source / f"{stem}_{part}.tsv") for part in ("TRAIN", "TEST")]
        )
        np.savez_compressed(
            target / f"{name}.npz", x=table[:, 1:].astype(np.float32), y=table[:, 0].astype(int) - 1
        )
    x, y = load_digits(return_X_y=True)
    pixels = (x / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    np.savez_compressed(target / "digits.npz", x=pixels, y=y.astype(np.int64))
    x, y = load_breast_cancer(return_X_y=True)
    np.savez_compressed(target / "cancer.npz", x=x.astype(np.float32), y=y.astype(np.int64))


def _pack_signs(source: Path, target: Path) -> None:
    train = [np.load(source / f"gtsrb32_{name}.npz") for name in ("train", "valid")]
    kept = [part["frame"] % 3 == 1 for part in train]
    test = np.load(source / "gtsrb32_test.npz")
    np.savez_compressed(
        target / "signs.npz",
        x_train=delta(np.concatenate([p["x"][k] for p, k in zip(train, kept, strict=True)])),
        y_train=np.concatenate([p["y"][k] for p, k in zip(train, kept, strict=True)]),
        x_test=delta(test["x"][:N_SIGNS]),
        y_test=test["y"][:N_SIGNS],
    )


if __name__ == "__main__":
    pack(Path(sys.argv[1]), Path(sys.argv[2]))
