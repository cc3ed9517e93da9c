"""catboost's own `CatBoost`, such as one read from a file, as a classifier; it knows its labels.

It finds columns by their names in any order, but distances between inputs need one order: that of
its training.
"""

from __future__ import annotations

from typing import Any

import catboost
import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Floats
from iknow.errors import InputError
from iknow.models.booster import Booster, no_classifier, two_columns
from iknow.models.sklearn import SklearnModel


class CatboostBooster(Booster):
    """A trained `catboost.CatBoost`."""

    def __init__(self, model: catboost.CatBoost) -> None:
        if not model.is_fitted():
            raise InputError("the CatBoost model is not trained: train it first, or load one")
        labels = np.asarray(model.classes_)
        if labels.ndim != 1 or len(labels) < 2:
            raise no_classifier("catboost", model.get_all_params().get("loss_function"))
        self.model, self.classes_ = model, labels
        self.feature_names = model.feature_names_

    def predict_proba(self, inputs: Any) -> Floats:
        return two_columns(self.model.predict(inputs, prediction_type="Probability"))

    def find_leaves(self, inputs: Any) -> NDArray[Any]:
        return np.asarray(self.model.calc_leaf_indexes(inputs))


def read_booster(model: catboost.CatBoost) -> SklearnModel:
    """The adapter for a trained `catboost.CatBoost`."""
    return SklearnModel(CatboostBooster(model))
