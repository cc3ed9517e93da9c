"""Peers: other methods that say how far to trust a model's answer, one file each.

They are short reference implementations of the papers' formulas, on numpy and iknow's own exact
search, so that a comparison needs no other package. Each learns from `Observed` training and
validation data and returns one number per sample: the higher, the more to be trusted.
"""

from iknow.evaluation.peers.default import default_peers
from iknow.evaluation.peers.dknn import DkNN
from iknow.evaluation.peers.energy import Energy
from iknow.evaluation.peers.ensemble import ensemble
from iknow.evaluation.peers.knn_distance import KNNDistance
from iknow.evaluation.peers.mahalanobis import Mahalanobis
from iknow.evaluation.peers.observed import Observed
from iknow.evaluation.peers.peer import Peer
from iknow.evaluation.peers.softmax import Softmax
from iknow.evaluation.peers.temperature import TemperatureSoftmax
from iknow.evaluation.peers.trust_score import TrustScore
from iknow.evaluation.peers.vim import ViM

__all__ = [
    "DkNN", "Energy", "KNNDistance", "Mahalanobis", "Observed", "Peer", "Softmax",
    "TemperatureSoftmax", "TrustScore", "ViM", "default_peers", "ensemble",
]  # fmt: skip
