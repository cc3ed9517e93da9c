"""The German Traffic Sign Recognition Benchmark as 32x32 images, made from its original images.

The benchmark's training images are frames of tracks: a track is one sign seen from a nearing car.
Its 32x32 form in common use, and in the paper, splits them by track into a training and a
validation part (`VALIDATION`) and resizes every whole image, not cropped to the sign.

    GTSRB/Final_Training/Images/CLASS/TRACK_FRAME.ppm  →  gtsrb32_train.npz, gtsrb32_valid.npz
    GTSRB/Final_Test/Images/NUMBER.ppm                 →  gtsrb32_test.npz

Each .npz file holds x, uint8 of shape (n, 32, 32, 3), and y, uint8 of shape (n,): signs 0 to 42.

The split and the order of the tracks are those of that form. The order looks random but is the same
for all signs with about as many tracks; a sign's training tracks are in it with gaps where its
validation tracks were taken out. Without it the data would be the same but not its checksum, nor
what a random draw from it yields.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from iknow.models.samples import track as show_progress

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


Track = tuple[int, int]  # a sign, and the number of one of its tracks

# fmt: off
# By the number of tracks that a sign has at most.
ORDERS: dict[int, tuple[int, ...]] = {
    11: (4, 8, 6, 2, 9, 1, 5, 0, 7, 3),
    21: (8, 16, 12, 10, 14, 18, 6, 3, 13, 7, 19, 4, 11, 9, 1, 5, 15, 17, 0, 2),
    43: (
        41, 31, 36, 26, 23, 1, 40, 22, 37, 16, 3, 19, 4, 11, 42, 0, 32, 27, 29, 24, 9, 5, 38, 8,
        10, 35, 34, 18, 6, 13, 7, 30, 39, 21, 20, 33, 28, 12, 14, 15, 17, 2, 25,
    ),
    75: (
        72, 36, 65, 23, 22, 57, 49, 16, 67, 3, 29, 0, 74, 20, 27, 52, 24, 9, 66, 50, 41, 8, 60, 44,
        10, 35, 73, 58, 6, 48, 28, 30, 21, 33, 55, 1, 5, 15, 17, 68, 2, 25, 61, 31, 26, 32, 63, 38,
        12, 37, 4, 11, 34, 19, 54, 42, 59, 71, 70, 64, 43, 46, 51, 18, 13, 7, 39, 40, 45, 56, 14,
        69, 47, 53, 62,
    ),
}
SIGNS = ORDERS[43]  # the signs are themselves 43 things in that order

VALIDATION: dict[int, tuple[int, ...]] = {
    0: (6,), 1: (54, 47, 68, 17, 48, 64, 11, 41), 2: (44, 0, 22, 35, 49, 55, 13, 59),
    3: (33, 0, 18, 45, 3), 4: (24, 32, 43, 61, 37, 51, 23), 5: (59, 17, 50, 21, 33, 20, 16),
    6: (7, 4), 7: (39, 29, 25, 5, 43), 8: (24, 40, 22, 14, 11), 9: (7, 8, 22, 32, 17),
    10: (46, 50, 29, 6, 0, 58, 62), 11: (41, 32, 37, 14, 1), 12: (8, 16, 17, 54, 40, 37, 57),
    13: (44, 22, 12, 1, 71, 43, 27, 6), 14: (8, 2, 25), 15: (20, 6, 11), 16: (6, 10),
    17: (27, 15, 31, 2), 18: (10, 8, 31, 27), 19: (5,), 20: (10, 7), 21: (10, 0), 22: (11, 8),
    23: (10, 12), 24: (8,), 25: (6, 22, 33, 46, 5), 26: (6, 1), 27: (4,), 28: (16, 2), 29: (2,),
    30: (10, 7), 31: (2, 3, 13), 32: (4,), 33: (1, 13, 4), 34: (11, 0), 35: (2, 24, 16, 38),
    36: (6, 12), 37: (5,), 38: (43, 8, 32, 28, 47, 64, 58), 39: (3,), 40: (8, 1), 41: (5,),
    42: (6,),
}
# fmt: on


def training_order(tracks: Collection[Track]) -> list[Track]:
    """The training tracks among all tracks of the benchmark, in order."""
    order = []
    for sign in SIGNS:
        numbers = {number for of, number in tracks if of == sign}
        remaining = numbers - set(VALIDATION[sign])
        places = next(places for most, places in ORDERS.items() if len(numbers) <= most)
        order += [(sign, number) for number in sorted(remaining, key=places.index)]
    return order


def validation_order(tracks: Collection[Track]) -> list[Track]:
    """The validation tracks among all tracks of the benchmark, in order."""
    order = [(sign, number) for sign in SIGNS for number in VALIDATION[sign]]
    return [track for track in order if track in tracks]


def read_resized(content: bytes, size: int) -> NDArray[np.uint8]:
    """Decode an image and resize the whole of it: of shape (size, size, 3), RGB.

    Pillow's bilinear filter widens with the reduction, so no pixel of a large image is skipped.
    """
    try:
        with Image.open(io.BytesIO(content)) as image:
            resized = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
    except OSError as error:  # Pillow's error for a damaged image; there is no file it could be of
        raise ValueError(f"an image cannot be read: {error}") from error
    return np.asarray(resized)
