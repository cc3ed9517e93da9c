"""Evidence against bare matrix products of the same sizes, in one run on one machine.

    python benchmarks/dense.py

Prints the time of each and their ratio, which is what to compare between machines. The products are
run at their best here: tiled to stay in the cache, on all cores.
"""

import time

import numpy as np

from iknow.search.dense import DenseIndex
from iknow.search.threads import for_each, n_cores

SIZES = [  # rows, features, queries, classes, k
    (50_000, 32, 10_000, 10, 0),
    (50_000, 32, 10_000, 10, 10),
    (50_000, 10, 10_000, 10, 0),
    (50_000, 784, 2_000, 10, 0),
    (30_000, 3_072, 1_000, 10, 0),
    (200_000, 64, 2_000, 1_000, 0),
]
REPEATS = 5


def bare_products(points, queries, tile=1024, width=512):
    """All products of queries and points, tile by tile; the results are thrown away."""

    def work(start):
        columns = np.ascontiguousarray(queries[start : start + width].T)
        out = np.empty((tile, columns.shape[1]), dtype=np.float32)
        for first in range(0, len(points), tile):
            rows = points[first : first + tile]
            np.matmul(rows, columns, out=out[: len(rows)])

    for_each(work, range(0, len(queries), width))


def timed(work, *arguments):
    start = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - start


def main():
    rng = np.random.default_rng(0)
    print(f"{n_cores()} cores, best of {REPEATS}")
    print(
        f"{'rows':>9} {'features':>8} {'queries':>8} {'classes':>8} {'k':>3}"
        f" {'products':>10} {'evidence':>10} {'ratio':>6}"
    )
    for n_rows, n_features, n_queries, n_classes, k in SIZES:
        centers = rng.standard_normal((n_classes, n_features)) * 2
        labels = rng.integers(n_classes, size=n_rows)
        points = (centers[labels] + rng.standard_normal((n_rows, n_features))).astype(np.float32)
        about = centers[rng.integers(n_classes, size=n_queries)]
        queries = (about + rng.standard_normal((n_queries, n_features))).astype(np.float32)
        index = DenseIndex(points, labels, n_classes)
        index.gather(queries[:1], k)
        products, evidence = [], []
        for _ in range(REPEATS):  # alternating, so that both see the same machine
            products.append(timed(bare_products, points, queries))
            evidence.append(timed(index.gather, queries, k))
        print(
            f"{n_rows:>9,} {n_features:>8} {n_queries:>8,} {n_classes:>8,} {k:>3}"
            f" {min(products):>9.3f}s {min(evidence):>9.3f}s"
            f" {min(evidence) / min(products):>6.2f}"
        )


if __name__ == "__main__":
    main()
