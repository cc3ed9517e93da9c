"""DenseIndex against float64 brute force, and its promises about memory and storage."""

import pickle

import numpy as np
from scipy.spatial.distance import cdist

from iknow.search.dense import DenseIndex
from iknow.testing import IndexContract, assert_same_evidence


class TestDenseIndex(IndexContract):
    def make_index(self, activations, labels, n_classes, rows=None):
        return DenseIndex(activations, labels, n_classes, rows=rows)
