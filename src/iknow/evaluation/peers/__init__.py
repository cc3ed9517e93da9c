"""Peers: other methods that say how far to trust a model's answer.

They are short reference implementations of the papers' formulas, on numpy and iknow's own exact
search, so that a comparison needs no other package. Each learns from `Observed` training and
validation data and returns one number per sample: the higher, the more to be trusted.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from iknow.evaluation.peers.features import Mahalanobis, ViM
from iknow.evaluation.peers.logits import Energy, Softmax, TemperatureSoftmax, ensemble
from iknow.evaluation.peers.neighbors import DkNN, KNNDistance, TrustScore
from iknow.evaluation.peers.peer import Observed, Peer
from iknow.search.cells import CpuIndex
from iknow.search.index import IndexFactory

__all__ = [
    "DkNN", "Energy", "KNNDistance", "Mahalanobis", "Observed", "Peer", "Softmax",
    "TemperatureSoftmax", "TrustScore", "ViM", "default_peers", "ensemble",
]  # fmt: skip


def default_peers(training: Observed, index: IndexFactory = CpuIndex) -> list[Peer]:
    """List the peers that apply to a model, unfitted, by what it says about `training`.

    Energy and ViM need logits, and log-probabilities are none; ViM needs a hidden layer. Without a
    hidden layer Mahalanobis and k-NN distance use the input. `index` searches for neighbors.

    Examples:
        >>> [peer.name for peer in default_peers(training)][:2]
        ['softmax', 'softmax, temperature']
    """
    has_logits = not np.allclose(logsumexp(training.logits, axis=1), 0.0, atol=1e-6)
    last = training.layers[-1]
    peers: list[Peer] = [Softmax(), TemperatureSoftmax()]
    if has_logits:
        peers.append(Energy())
    peers += [Mahalanobis(last), KNNDistance(layer=last, index=index)]
    if has_logits and training.hidden is not None:
        peers.append(ViM())
    trust = (TrustScore(layer, index=index) for layer in training.layers)
    return [*peers, *trust, DkNN(index=index)]
