"""CpuIndex on real images of 784 dimensions, against scipy's direct distances."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from iknow.search.cells import CpuIndex

pytestmark = pytest.mark.slow


def read_idx(name, header):
    folder = os.environ.get("IKNOW_DATA")
    path = Path(folder or "") / "mnist" / name
    if folder is None or not path.is_file():
        pytest.skip(f"needs mnist/{name} in the folder that IKNOW_DATA names")
    return np.frombuffer(gzip.decompress(path.read_bytes()), dtype=np.uint8, offset=header)


@pytest.fixture(scope="module")
def mnist():
    images = read_idx("train-images-idx3-ubyte.gz", 16).reshape(-1, 784)
    labels = read_idx("train-labels-idx1-ubyte.gz", 8)
    queries = read_idx("t10k-images-idx3-ubyte.gz", 16).reshape(-1, 784)
    return images, labels.astype(int), queries[:100]


@pytest.mark.parametrize("scale", ["bytes", "unit interval"])
def test_evidence_from_60000_images_equals_scipys(mnist, scale):
    images, labels, queries = mnist
    # Bytes make whole squared distances, with exact ties; thirds of them do not.
    divisor = 1 if scale == "bytes" else 255 * 3
    points = (images / divisor).astype(np.float32)
    places = (queries / divisor).astype(np.float32)
    evidence = CpuIndex(points, labels, 10).gather(places, k=10)
    distances = cdist(places.astype(np.float64), points.astype(np.float64))
    np.testing.assert_allclose(
        evidence.neighbor_distances, np.sort(distances, axis=1)[:, :10], rtol=1e-13
    )
    for digit in range(10):
        members = np.flatnonzero(labels == digit)
        nearest = distances[:, members].min(axis=1)
        np.testing.assert_allclose(evidence.class_distances[:, digit], nearest, rtol=1e-13)
        named = distances[np.arange(100), evidence.exemplars[:, digit]]
        np.testing.assert_allclose(named, nearest, rtol=1e-13)
