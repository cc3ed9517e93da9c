"""Checking: our copy of magika's network must say what magika itself says, mode by mode."""

from __future__ import annotations

from collections.abc import Sequence

import magika
import numpy as np
from scipy.special import softmax

from benchmarks.magika.collecting import File
from benchmarks.magika.methods import MODES, named_by_magika
from benchmarks.magika.said import Network

CHECKED = 200  # files
CLOSE = 1e-4  # magika runs the same graph, one file at a time


def check_same(model: Network, files: Sequence[File]) -> None:
    """Compare labels, scores and what each mode gives, on files spread over all of them."""
    some = [files[row] for row in np.linspace(0, len(files) - 1, CHECKED).astype(int)]
    said = model.ask([file.content for file in some])
    labels, scores = model.labels[said.belief], softmax(said.logits, axis=1).max(axis=1)
    for mode in MODES:
        own = magika.Magika(prediction_mode=magika.PredictionMode[f"{mode.upper()}_CONFIDENCE"])
        results = [own.identify_bytes(file.content) for file in some]
        named = named_by_magika(said, model.config, mode)
        for result, label, score, is_named in zip(results, labels, scores, named, strict=True):
            if str(result.dl.label) != label or abs(result.score - score) > CLOSE:
                raise AssertionError(
                    f"our copy of the network says {label} ({score:.4f}), and magika "
                    f"{result.dl.label} ({result.score:.4f}): is its graph of another form?"
                )
            # Where magika is not sure of a text it says "txt", which may be the label too.
            if (str(result.output.label) == label) != is_named and label != "txt":
                raise AssertionError(
                    f"in its mode of {mode} confidence magika says {result.output.label} for "
                    f"{label} ({score:.4f}): have the modes changed?"
                )
