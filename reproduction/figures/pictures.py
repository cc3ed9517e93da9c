"""The paper's figures, from data to pictures.

regions.png      what is asserted over a plane with two classes
supports.png     how support is found with ε-balls
radius.png       fractions of IK, IMK and IDK, and accuracy on IK, against ε
confusion.png    augmented confusion matrices at four values of ε
noise.png        how much can be known with three levels of noise
signs.png        the traffic signs by group, if there are any

The first two are about inputs, with data of our own (`toy`); the next three are about the logits,
with the authors' data and network (`experiment`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from numpy.typing import NDArray

from iknow.errors import InputError, MissingExtraError
from iknow.storage.files import write_bytes
from reproduction.figures.experiment import make_experiment
from reproduction.figures.toy import make_regions, make_supports
from reproduction.notebooks.settings import NOISES

Signs = tuple[NDArray[Any], Sequence[str]]
SHOWN_NOISE = 1.0


def make_figures(
    out: str | os.PathLike[str], seed: int = 0, quick: bool = False, signs: Signs | None = None
) -> list[Path]:
    """Write the figures into a folder, which is created if needed; returns their paths.

    On one machine the same seed gives the same bytes. quick: coarser regions, to see that
    everything works. signs: images of shape (n_groups, m, height, width, 3), and the names of the
    groups from top to bottom.
    """
    drawing = _import_drawing()
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"the figures go into a folder; {folder} is a file")
    experiments = {noise: make_experiment(noise, seed) for noise in NOISES}
    shown = experiments[SHOWN_NOISE]
    figures = {
        "regions": drawing.draw_regions(make_regions(100 if quick else 800, seed)),
        "supports": drawing.draw_supports(make_supports(seed)),
        "radius": drawing.draw_radius(shown),
        "confusion": drawing.draw_confusion(shown),
        "noise": drawing.draw_noise(list(experiments.values())),
    }
    if signs is not None:
        figures["signs"] = drawing.draw_signs(*signs)
    return [
        write_bytes(folder / f"{name}.png", drawing.to_png(figure))
        for name, figure in figures.items()
    ]


def _import_drawing() -> ModuleType:
    try:
        from reproduction.figures import matplotlib as drawing
    except ImportError as error:
        raise MissingExtraError("drawing the paper's figures", "plots") from error
    return drawing
