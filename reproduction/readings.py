"""Other readings of what the paper leaves open, by name, to see what they change.

`python -m reproduction NAME` runs one; `python -m reproduction all` runs none of them.
docs/reproduction/protocol.md says which came nearer to the paper, and why we kept ours.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from iknow.errors import InputError
from reproduction.setups import SETUPS, Attack, Setup


def _other(setup: Setup, name: str, **training: Any) -> Setup:
    """A setup trained otherwise."""
    return replace(setup, name=f"{setup.name}_{name}", training=replace(setup.training, **training))


def _padded(setup: Setup, name: str, *, same: bool) -> Setup:
    return replace(
        setup,
        name=f"{setup.name}_{name}",
        architecture=replace(setup.architecture, same=same),
    )


_GRID, _MNIST, _GTSRB = (SETUPS[name] for name in ("grid_stability", "mnist", "gtsrb"))
_SERIES = [SETUPS["italy_power_demand"], SETUPS["synthetic_control"]]
_OTHERS = [
    # He's weights; Grid needs more epochs from them.
    _other(_GRID, "he", weights="he", epochs=20),
    _other(SETUPS["iris"], "he", weights="he"),
    *(_other(each, "he", weights="he") for each in _SERIES),
    _other(_MNIST, "he", weights="he"),
    _other(_GTSRB, "he", weights="he"),
    # Other batches.
    _other(_GRID, "batch_512", batch=512, epochs=100),
    _other(_MNIST, "batch_32", batch=32, epochs=3),
    _other(_MNIST, "batch_2048", batch=2048),
    # Stopped once the published accuracy holds on validation data.
    _other(_GRID, "stopped", weights="he", epochs=100, until=0.9374),
    _other(_MNIST, "stopped", weights="he", batch=2048, epochs=100, until=0.9603),
    # Where layers are read, and padding.
    replace(_GRID, name="grid_stability_before_relu", layers=("dense2", "logits")),
    replace(_MNIST, name="mnist_before_relu", layers=("dense2", "logits")),
    *(_padded(each, "same", same=True) for each in _SERIES),
    _other(
        _padded(_GTSRB, "valid", same=False),
        "stopped",
        weights="he",
        batch=512,
        epochs=100,
        until=0.9741,
    ),
    _other(_padded(_GTSRB, "valid", same=False), "long", batch=2048, epochs=50),
    # Steps of the attack.
    replace(_MNIST, name="mnist_short_attack", attack=Attack(0.2, step=0.02, iterations=10)),
    replace(_GTSRB, name="gtsrb_short_attack", attack=Attack(0.05, step=0.01, iterations=10)),
]
READINGS: dict[str, Setup] = {setup.name: setup for setup in _OTHERS}


def find_setup(name: str) -> Setup:
    """The experiment with a name."""
    known = SETUPS | READINGS
    if name not in known:
        raise InputError(
            f"no experiment is named {name!r}: choose all, figures, notebooks, one of "
            f"{', '.join(SETUPS)}, or one of the other readings {', '.join(READINGS)}"
        )
    return known[name]
