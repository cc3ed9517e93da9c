"""Pack the datasets: python -m benchmarks.scoreboard.pack SOURCE TARGET.

SOURCE holds the published files: mnist/*.gz, gtsrb/gtsrb32_*.npz, grid_stability/*.csv,
italy_power_demand/*.tsv, synthetic_control/*.tsv, adult/adult.csv, and cifar10/images.bin with
index.json, JPEG files and their sizes and labels. Digits and breast cancer come with scikit-learn.
Of each track of traffic signs every third frame is kept: the frames of a track are nearly the same
picture. A problem needs its own file, and `foreign.npz` if it is about images.
"""

from __future__ import annotations

import csv
import gzip
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits

from benchmarks.scoreboard.data import delta

N_SIGNS = 7500  # of the test part, whose order is random
N_FOREIGN = 2000
N_CIFAR = {1: 25000, 0: 5000}  # of the training and the test part


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
    _pack_signs(source / "gtsrb", target, parts["x_test"][:N_FOREIGN])
    _pack_cifar(source / "cifar10", target)
    _pack_adult(source / "adult/adult.csv", target)
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


def _pack_signs(source: Path, target: Path, digits: Any) -> None:
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
    signs = delta(test["x"][N_SIGNS : N_SIGNS + N_FOREIGN])
    np.savez_compressed(target / "foreign.npz", signs=signs, digits=digits)


def _pack_cifar(source: Path, target: Path) -> None:
    index = json.loads((source / "index.json").read_text("utf-8"))
    sizes, is_train = np.array(index["size"]), np.array(index["train"])
    kept = np.concatenate([np.flatnonzero(is_train == part)[:n] for part, n in N_CIFAR.items()])
    files = np.split(np.fromfile(source / "images.bin", np.uint8), np.cumsum(sizes)[:-1])
    np.savez(
        target / "cifar.npz",
        jpeg=np.concatenate([files[place] for place in kept]),
        sizes=sizes[kept],
        y=np.array(index["label"])[kept],
        n_train=N_CIFAR[1],
    )


def _pack_adult(path: Path, target: Path) -> None:
    with path.open() as lines:
        table = np.array(list(csv.reader(lines))[1:])
    x, y = table[:, :-1], table[:, -1] == ">50K"
    numeric = np.array([value.isdigit() for value in x[0]])
    names, codes = np.unique(x[:, ~numeric], return_inverse=True)
    np.savez_compressed(
        target / "adult.npz",
        numbers=x[:, numeric].astype(np.float64),
        codes=codes.reshape(len(x), -1).astype(np.uint8),
        names=names,
        y=y,
    )


if __name__ == "__main__":
    pack(Path(sys.argv[1]), Path(sys.argv[2]))
