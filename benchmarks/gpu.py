"""TorchIndex on a GPU against torch.cdist and compiled products, in one run on one machine.

    python -m benchmarks.gpu --out gpu.json
    python -m benchmarks.gpu --per-class 3 5

Checks the answers first, bit for bit against numpy in float64 for some of the queries. Then all
contenders take turns, each until the device is done, and we compare medians. The rows are grouped
by class in classes of equal size, so that the rivals need only a reshape for the minimum of each
class.
"""

import argparse
import json
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.race import Contestant, keep, now, race
from iknow.search.kernels.torch import TorchIndex

SIZES = [  # rows, features, queries, classes, k
    (1_000_000, 64, 32_768, 10, 0),
    (1_000_000, 64, 32_768, 10, 10),
    (1_000_000, 64, 32_768, 1_000, 0),
    (50_000, 32, 10_000, 10, 0),
    (50_000, 32, 10_000, 10, 10),
]
TORCH_INDEX = "fp16"  # the precision of its products
QUERIES_CHECKED = 64
BYTES_OF_RIVALS = 16 << 30  # for their matrices of distances


def make_problem(n_rows, n_features, n_queries, n_classes):
    rng = np.random.default_rng(0)
    points = rng.standard_normal((n_rows, n_features), dtype=np.float32)
    labels = np.repeat(np.arange(n_classes), n_rows // n_classes)
    queries = rng.standard_normal((n_queries, n_features), dtype=np.float32)
    return points, labels, queries


def check(evidence, points, labels, queries, n_classes, k):
    """Compare the evidence about some queries with numpy's, bit for bit; rows are sorted."""
    exact = points.astype(np.float64)
    starts = np.searchsorted(labels, np.arange(n_classes))
    some = np.random.default_rng(1).choice(len(queries), QUERIES_CHECKED, replace=False)

    def is_right(i):
        distances = np.sqrt(np.square(exact - queries[i].astype(np.float64)).sum(axis=1))
        classes = np.split(distances, starts[1:])
        nearest = [part.argsort(kind="stable")[: evidence.per_class] for part in classes]
        exemplars = starts[:, None] + np.array(nearest)
        return (
            np.array_equal(evidence.distances[i], distances[exemplars])
            and np.array_equal(evidence.rows[i], exemplars)
            and np.array_equal(evidence.neighbor_distances[i], np.sort(distances)[:k])
        )

    with ThreadPoolExecutor(8) as pool:
        wrong = QUERIES_CHECKED - sum(pool.map(is_right, some))
    if wrong:
        sys.exit(f"{wrong} of {QUERIES_CHECKED} queries got a wrong answer")


def in_batches(points, queries, work):
    step = max(1, BYTES_OF_RIVALS // (4 * len(points)))
    return torch.cat([work(part) for part in queries.split(step)])


def cdist_and_amin(points, queries, n_classes, k):
    def work(part):
        distances = torch.cdist(part, points)
        nearest = distances.view(len(part), n_classes, -1).amin(2)
        return torch.cat([nearest, distances.topk(k, largest=False).values], 1) if k else nearest

    return in_batches(points, queries, work)


def make_compiled(points, n_classes, k):
    """Products in tf32 and the minima of their expansion, compiled."""
    half_norms = points.square().sum(1) / 2

    @torch.compile
    def work(part):
        bounds = half_norms - part @ points.T
        nearest = bounds.view(len(part), n_classes, -1).amin(2)
        return torch.cat([nearest, bounds.topk(k, largest=False).values], 1) if k else nearest

    def run(queries):
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        try:
            return in_batches(points, queries, work)
        finally:
            torch.set_float32_matmul_precision(before)

    return run


def device_clock():
    """Seconds at which the device has finished what it was given."""
    torch.cuda.synchronize()
    return now()


def peak_memory(work):
    """The peak number of bytes that the work allocated."""
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def medians_of(contenders, repeats):
    """Milliseconds of the middle round, by name; contenders: works without arguments."""
    racing = [Contestant(name, lambda _, work=work: work()) for name, work in contenders.items()]
    laps = race(racing, 1, repeats, clock=device_clock)
    return {lap.contestant.name: 1e3 * statistics.median(lap.seconds) for lap in laps}


def compare(n_rows, n_features, n_queries, n_classes, k, repeats):
    points, labels, queries = make_problem(n_rows, n_features, n_queries, n_classes)
    rows, asked = torch.from_numpy(points).cuda(), torch.from_numpy(queries).cuda()
    index = TorchIndex(points, labels, n_classes, device="cuda")
    check(index.gather(queries, k), points, labels, queries, n_classes, k)
    contenders = {"cdist": lambda: cdist_and_amin(rows, asked, n_classes, k)}
    skipped = {}
    compiled = make_compiled(rows, n_classes, k)
    try:
        compiled(asked)
        contenders["compiled products"] = lambda: compiled(asked)
    except Exception as error:  # a compiler may raise anything
        skipped["compiled products"] = str(error).splitlines()[0]
    # What `gather` does between its transfers, as the rivals have their queries on the device.
    contenders[TORCH_INDEX] = lambda: index._find(asked, k, 1)
    contenders["from and to numpy"] = lambda: index.gather(queries, k)
    medians = medians_of(contenders, repeats)
    return {
        "rows": n_rows,
        "features": n_features,
        "queries": n_queries,
        "classes": n_classes,
        "k": k,
        "milliseconds": medians,
        "ratio_to_cdist": {name: medians["cdist"] / value for name, value in medians.items()},
        "skipped": skipped,
        "checked_queries": QUERIES_CHECKED,
        "peak_bytes": peak_memory(lambda: index._find(asked, k, 1)),
    }


def price_of_several(n_rows, n_features, n_queries, n_classes, k, numbers, repeats):
    """The cost of the nearest few rows of each class, as a ratio to that of the nearest alone."""
    points, labels, queries = make_problem(n_rows, n_features, n_queries, n_classes)
    index = TorchIndex(points, labels, n_classes, device="cuda")
    asked = torch.from_numpy(queries).cuda()
    for m in (1, *numbers):
        check(index.gather(queries, k, m), points, labels, queries, n_classes, k)
    works = {m: lambda m=m: index._find(asked, k, m) for m in (1, *numbers)}
    medians = medians_of(works, repeats)
    return {
        "rows": n_rows,
        "features": n_features,
        "queries": n_queries,
        "classes": n_classes,
        "k": k,
        "milliseconds_per_class": medians,
        "ratio_to_one": {m: value / medians[1] for m, value in medians.items()},
        "checked_queries": QUERIES_CHECKED,
    }


def search_in_parts(repeats):
    """The price of memory for only a fraction of the rows; the answer is the same."""
    points, labels, queries = make_problem(1_000_000, 64, 32_768, 10)
    whole = TorchIndex(points, labels, 10, device="cuda")
    parts = TorchIndex(points, labels, 10, device="cuda", memory=1 << 30)
    expected, found = whole.gather(queries), parts.gather(queries)
    for name in ("class_distances", "exemplars"):
        if not np.array_equal(getattr(expected, name), getattr(found, name)):
            sys.exit(f"{name} differ between searching the index whole and in parts")
    medians = medians_of(
        {"whole": lambda: whole.gather(queries), "parts": lambda: parts.gather(queries)}, repeats
    )
    return {"milliseconds_whole": medians["whole"], "milliseconds_in_parts": medians["parts"]}


def run_ahead(repeats):
    """A network on the GPU that processes the next batch while the CPU searches, or waits."""
    from unittest.mock import patch

    from iknow import Ball, EpistemicClassifier
    from iknow.models.torch import TorchModel

    rng = np.random.default_rng(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(784, 8192),
        torch.nn.ReLU(),
        *[torch.nn.Linear(8192, 8192), torch.nn.ReLU()] * 6,
        torch.nn.Linear(8192, 32),
        torch.nn.ReLU(),
        torch.nn.Linear(32, 10),
    ).cuda()
    X = rng.standard_normal((40_000, 784), dtype=np.float32)
    wrapped = EpistemicClassifier(
        network, rule=Ball(0.1), classes=np.arange(10), batch_size=2048, progress=False
    )
    wrapped.fit(X[:20_000], rng.integers(10, size=20_000))

    def assess(ahead):
        with patch.object(TorchModel, "is_elsewhere", ahead):
            wrapped.assess(X, evidence=True)

    medians = medians_of({ahead: partial(assess, ahead) for ahead in (True, False)}, repeats)
    return {"milliseconds_ahead": medians[True], "milliseconds_waiting": medians[False]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="file for the results, as JSON")
    parser.add_argument(
        "--per-class", type=int, nargs="+", metavar="M", help="compare with M rows of each class"
    )
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the sizes to run, from 0")
    parser.add_argument("--repeats", type=int, default=12)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit(f"torch {torch.__version__} sees no CUDA device here: nothing to measure")
    sizes = SIZES if arguments.only is None else [SIZES[i] for i in arguments.only]
    if arguments.per_class:
        for size in sizes:
            result = price_of_several(*size, arguments.per_class, arguments.repeats)
            print(json.dumps(result, indent=1), flush=True)
        return
    report = {
        "device": torch.cuda.get_device_name(),
        "versions": {"torch": torch.__version__, "numpy": np.__version__, "python": sys.version},
        "repeats": arguments.repeats,
        "sizes": [compare(*size, arguments.repeats) for size in sizes],
        "larger_than_its_memory": search_in_parts(arguments.repeats),
        "network_on_the_gpu_search_on_the_cpu": run_ahead(arguments.repeats),
    }
    print(json.dumps(keep(report, arguments.out), indent=1), flush=True)


if __name__ == "__main__":
    main()
