"""The German Traffic Sign Recognition Benchmark as 32x32 images, made from its original images.

The benchmark's training images are frames of tracks: a track is one sign seen from a nearing car.
Its 32x32 form in common use, and in the paper, splits them by track into a training and a
validation part (gtsrb_split.py) and resizes every whole image, not cropped to the sign.

    GTSRB/Final_Training/Images/CLASS/TRACK_FRAME.ppm  →  gtsrb32_train.npz, gtsrb32_valid.npz
    GTSRB/Final_Test/Images/NUMBER.ppm                 →  gtsrb32_test.npz

Each .npz file holds x, uint8 of shape (n, 32, 32, 3), and y, uint8 of shape (n,): signs 0 to 42.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from iknow.models.samples import track as show_progress
from reproduction.data.gtsrb_split import training_order, validation_order
from reproduction.data.pillow import read_resized

SIZE = 32
TRAINING_IMAGE = re.compile(r"(?:.*/)?(\d{5})/(\d{5})_(\d{5})\.ppm")
TEST_IMAGE = re.compile(r"(?:.*/)?(\d{5}\.ppm)")
TEST_LABELS = "GT-final_test.csv"


class Frame(NamedTuple):
    """A training image's place in the benchmark, and the archive's member that holds it."""

    sign: int
    track: int
    number: int
    member: str


def convert_training(downloads: Sequence[Path], targets: Sequence[Path]) -> None:
    """Make the training and the validation part from the archive of training images."""
    (download,) = downloads
    with zipfile.ZipFile(download) as archive:
        tracks = _tracks(archive.namelist())
        for target, order in zip(targets, (training_order, validation_order), strict=True):
            frames = [frame for track in order(tracks) for frame in tracks[track]]
            members = [frame.member for frame in frames]
            _write(target, archive, members, [frame.sign for frame in frames])


def convert_test(downloads: Sequence[Path], targets: Sequence[Path]) -> None:
    """Make the test part from the archives of test images and of their labels."""
    images, labels = downloads
    (target,) = targets
    with zipfile.ZipFile(labels) as archive:
        table = io.StringIO(archive.read(TEST_LABELS).decode())
    signs = {row["Filename"]: int(row["ClassId"]) for row in csv.DictReader(table, delimiter=";")}
    with zipfile.ZipFile(images) as archive:
        matches = filter(None, map(TEST_IMAGE.fullmatch, archive.namelist()))
        members = {match[1]: match[0] for match in matches}
        names = sorted(members)
        _write(target, archive, [members[name] for name in names], [signs[name] for name in names])


def _tracks(members: Sequence[str]) -> dict[tuple[int, int], list[Frame]]:
    """The frames, in order, of every track: a pair of sign and number."""
    matches = filter(None, map(TRAINING_IMAGE.fullmatch, members))
    frames = sorted(Frame(int(m[1]), int(m[2]), int(m[3]), m[0]) for m in matches)
    tracks: dict[tuple[int, int], list[Frame]] = {}
    for frame in frames:
        tracks.setdefault((frame.sign, frame.track), []).append(frame)
    return tracks


def _write(
    target: Path, archive: zipfile.ZipFile, members: Sequence[str], signs: Sequence[int]
) -> None:
    x = np.empty((len(members), SIZE, SIZE, 3), dtype=np.uint8)
    for i, member in enumerate(
        show_progress(members, len(members), f"making {target.name}", enabled=True)
    ):
        x[i] = read_resized(archive.read(member), SIZE)
    np.savez_compressed(target, x=x, y=np.array(signs, dtype=np.uint8))
