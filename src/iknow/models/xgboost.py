"""xgboost's own `Booster`, read as a classifier.

If training stopped early the best iteration answers, as in `XGBClassifier`. With multi:softmax a
booster returns labels alone, so we take its margins and compute the probabilities from them.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import xgboost
from numpy.typing import NDArray
from scipy.special import expit, softmax

from iknow.core.arrays import Floats
from iknow.errors import InputError
from iknow.models.booster import Booster, no_classifier, two_columns
from iknow.models.sklearn import SklearnModel

OBJECTIVES = ("binary:logistic", "binary:logitraw", "multi:softmax", "multi:softprob")


class XgboostBooster(Booster):
    """A trained `xgboost.Booster`."""

    def __init__(self, model: xgboost.Booster) -> None:
        try:
            learner = json.loads(model.save_config())["learner"]
        except xgboost.core.XGBoostError as error:
            raise InputError("the Booster is not trained: train it first, or load one") from error
        objective = learner["objective"]["name"]
        if objective not in OBJECTIVES:
            raise no_classifier("xgboost", objective)
        n_classes = max(2, int(learner["learner_model_param"]["num_class"]))
        self.model, self.classes_ = model, np.arange(n_classes)
        self.feature_names = model.feature_names
        self.has_leaves = learner["gradient_booster"]["name"] != "gblinear"

    def predict_proba(self, inputs: Any) -> Floats:
        margins = np.asarray(self._ask(inputs, output_margin=True), dtype=np.float64)
        return two_columns(expit(margins) if margins.ndim == 1 else softmax(margins, axis=1))

    def find_leaves(self, inputs: Any) -> NDArray[Any]:
        return np.asarray(self._ask(inputs, pred_leaf=True))

    def _ask(self, inputs: Any, **wanted: bool) -> Any:
        stopped = self.model.attr("best_iteration")
        rounds = (0, 0) if stopped is None or not self.has_leaves else (0, int(stopped) + 1)
        data = xgboost.DMatrix(inputs, enable_categorical=True)
        return self.model.predict(data, iteration_range=rounds, **wanted)


def read_booster(model: xgboost.Booster) -> SklearnModel:
    """The adapter for a trained `xgboost.Booster`."""
    return SklearnModel(XgboostBooster(model))
