"""Copies: whether validation samples were taken from the training data.

What is tuned or certified on training samples holds for them alone. Yet data may repeat itself, so
a copy, a sample at distance 0 in every layer, proves nothing by itself. But after a random split a
validation sample has a copy in the training set as often as a training sample has one among the
others. So we compare the two shares by Fisher's exact test.

Training samples that are alike come at least in pairs, and both count, so the test takes half as
many independent observations. (With pairs that is exact: given that a pair is not both in the
validation set, it is divided with probability n / (n + N / 2).) Validation samples that are alike
are not independent either: all of them have a copy, or none. If a quarter of the training samples
or more have copies, validation samples count as no more than the training set; if fewer, as
something in between.
"""

from __future__ import annotations

import warnings

from scipy.stats import hypergeom

from iknow.errors import InputError

LEVEL = 1e-4  # of honest random splits, at most this share is refused
SUSPICIOUS = 1e-2  # and this share warned about: few copies or training samples prove no more


def check_unseen(n_copied: int, n_samples: int, n_repeated: int, n_training: int) -> None:
    """Refuse validation data with more copies than a random split explains, or warn.

    Of the `n_samples` validation samples, `n_copied` have a copy in the training set; of the
    `n_training` training samples, `n_repeated` have one among the others.
    """
    chance = chance_of_copies(n_copied, n_samples, n_repeated, n_training)
    if chance > SUSPICIOUS:
        return
    message = (
        f"{n_copied} of the {n_samples} validation samples are copies of training samples, while "
        f"{n_repeated} of {n_training} training samples have a copy among the others: a random "
        f"split gives that with a probability of {max(chance, 1e-99):.0e}. What you choose or "
        "certify on samples that fit has seen says nothing about new ones: give others, or leave "
        "the copies out"
    )
    if chance <= LEVEL:
        raise InputError(message)
    warnings.warn(message, stacklevel=4)


def chance_of_copies(n_copied: int, n_samples: int, n_repeated: int, n_training: int) -> float:
    """An upper bound on the probability that a random split gives `n_copied` copies or more."""
    pairs, independent = n_repeated // 2, n_training // 2
    repeating = min(1.0, 4 * n_repeated / max(n_training, 1))
    n_told = int((1 - repeating) * n_samples + repeating * min(n_samples, independent))
    copied = n_copied * n_told // max(n_samples, 1)
    return float(hypergeom.sf(copied - 1, independent + n_told, pairs + copied, n_told))
