"""Which peers apply to a model: that depends on its layers and on whether it has logits."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from iknow.evaluation.peers.dknn import DkNN
from iknow.evaluation.peers.energy import Energy
from iknow.evaluation.peers.knn_distance import KNNDistance
from iknow.evaluation.peers.mahalanobis import Mahalanobis
from iknow.evaluation.peers.observed import Observed
from iknow.evaluation.peers.peer import Peer
from iknow.evaluation.peers.softmax import Softmax
from iknow.evaluation.peers.temperature import TemperatureSoftmax
from iknow.evaluation.peers.trust_score import TrustScore
from iknow.evaluation.peers.vim import ViM
from iknow.search.cells import CpuIndex
from iknow.search.index import IndexFactory


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
