"""Ray Data: the rows of a dataset of any size, assessed by actors that each load the bundle."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from iknow.classifier.estimator import EpistemicClassifier
from iknow.core.text import names
from iknow.errors import ClusterError, InputError, MissingExtraError
from iknow.integrations import answers_of

try:
    import ray
except ImportError as error:
    raise MissingExtraError("assessing by Ray", "ray") from error

Load = Callable[[], EpistemicClassifier]


def append_answers(classifier: EpistemicClassifier, batch: Any) -> Any:
    """The batch with columns of answers; its features are those that were fitted, else all."""
    features = list(getattr(classifier, "feature_names_in_", batch.columns))
    if missing := [name for name in features if name not in batch]:
        raise InputError(f"the dataset has no column {names(missing)}; it has {names(batch)}")
    said = answers_of(classifier, batch[features])
    if taken := [name for name in said if name in batch]:
        raise InputError(f"the dataset has a column {names(taken)} already: rename it")
    return batch.assign(**{name: said[name].to_numpy() for name in said})


def assess(
    dataset: Any,
    bundle: str | os.PathLike[str] | Load,
    model: Any = None,
    *,
    answer: Callable[[EpistemicClassifier, Any], Any] = append_answers,
    **options: Any,
) -> Any:
    """Assess the rows of a Ray dataset, in their order, on all cores: lazily, as Ray does.

    Args:
        dataset: A `ray.data.Dataset` with a column for each feature; others are passed on.
        bundle: A bundle that every node can read, or a function that loads a classifier there.
        model: The model, unless the bundle holds it. Ray sends it to the actors.
        answer: A function of a classifier and a batch that returns, or yields in parts, what is
            kept of the batch. Default: the batch with columns of answers.
        options: More for `Dataset.map_batches`, such as `batch_size=1000` or `num_gpus=1`.

    Examples:
        >>> answers = assess(ray.data.read_parquet("rows/"), "signs.iknow")  # doctest: +SKIP
    """
    load = bundle if callable(bundle) else partial(EpistemicClassifier.load, bundle, model)
    needed = {"num_cpus": 1, "num_gpus": 0, "batch_format": "pandas", **options}
    has = ray.cluster_resources()
    for option, kind in (("num_cpus", "CPU"), ("num_gpus", "GPU")):
        if needed[option] > (n := has.get(kind, 0)):
            raise ClusterError(f"an actor needs {needed[option]:g} {kind}s; the cluster has {n:g}")
    if "concurrency" not in needed:
        needed.setdefault("compute", ray.data.ActorPoolStrategy(min_size=1))
    said = dataset.map_batches(Assessor, fn_constructor_args=(load, answer), **needed)
    said.context.execution_options.preserve_order = True
    return said


class Assessor:
    """An actor that answers batches."""

    def __init__(self, load: Load, answer: Any) -> None:
        os.environ["LOKY_MAX_CPU_COUNT"] = "1"  # there is an actor for every core
        self._classifier, self._answer = load(), answer

    def __call__(self, batch: Any) -> Any:
        return self._answer(self._classifier, batch)
