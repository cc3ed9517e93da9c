"""Reading: how a classifier looks at the samples that a user passes, through its model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from iknow.classifier import parameters
from iknow.classifier.progress import track
from iknow.classifier.streaming import check_first, observe_to_disk
from iknow.core.arrays import Labels
from iknow.core.quorum import Quorum
from iknow.core.text import as_flag
from iknow.metrics import Metric
from iknow.models import PrecomputedModel
from iknow.models.adapt import as_model, is_estimator
from iknow.models.labels import as_vector, name_positions
from iknow.models.model import Model, Observation, observe_all
from iknow.models.samples import Samples, as_samples
from iknow.search.scratch import Folder
from iknow.storage.committing import CommittingMixin


class ReadingMixin(CommittingMixin):
    """From what the user passes to samples and observations, for these parameters."""

    model: Any
    layers: Sequence[str] | None
    quorum: int | Quorum | None
    k: int
    metric: str | Metric | Mapping[str, str | Metric] | None
    classes: Any
    validation_fraction: float
    batch_size: int | None
    random_state: Any
    progress: bool

    def _adapt(self, model: Any) -> Model:
        return as_model(model, device=self.search if isinstance(self.search, str) else None)

    def _samples(self, X: Any, y: Any = None) -> Samples:
        """The samples of what the user passed, as batches for the model."""

        def prepare(inputs: Any) -> Any:
            prepared = self.model_.prepare(inputs)
            table = prepared if isinstance(inputs, Mapping) else inputs
            # Other models take numbers by their places: a table's names must not change either.
            known = hasattr(self, "n_features_in_")
            if (known or not hasattr(self, "indexes_")) and (
                is_estimator(self.model) or hasattr(table, "columns")
            ):
                parameters.check_features(self, table, reset=not known)
            return prepared

        takes_pairs = isinstance(self.model_, PrecomputedModel)
        return as_samples(X, y, prepare, self.batch_size, takes_pairs=takes_pairs)

    def _labels(self, samples: Samples) -> Labels | None:
        """The labels of samples, as far as they are known; positions as the classes the user gave.

        A loader's labels are known after it was read.
        """
        labels = samples.labels
        if labels is None or self.classes is None:
            return labels
        return name_positions(labels, as_vector(self.classes, "classes"))

    def _run(
        self, samples: Samples, layers: Sequence[str], folder: Folder = None
    ) -> tuple[Observation, int]:
        """What the model says about all samples, and the number of score columns.

        folder: where to keep the activations; None for memory.
        """
        enabled = as_flag(self.progress, "progress")
        batches = samples.read()
        shown = track(batches, samples.n_batches, "Collecting evidence", enabled=enabled)
        if folder is not None:
            labeled = check_first(shown, samples)
            return observe_to_disk(self.model_, labeled, samples.n_expected, layers, folder)
        return observe_all(self.model_, shown, samples.n_samples, layers)

    def _all_labels(self, samples: Samples) -> Labels:
        """The labels of all samples, after they were read; see `_labels`."""
        samples.all_labels()
        labels = self._labels(samples)
        assert labels is not None
        return labels
