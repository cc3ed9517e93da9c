"""lightgbm's own `Booster`, read as a classifier.

It goes by the position of columns, so we compare their names. If training
stopped early the best iteration answers, as lightgbm has it.
"""

from __future__ import annotations

from typing import Any

import lightgbm
import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Floats
from iknow.models.booster import Booster, no_classifier, two_columns
from iknow.models.sklearn import SklearnModel

OBJECTIVES = ("binary", "multiclass", "multiclassova")


class LightgbmBooster(Booster):
    """A trained `lightgbm.Booster`."""

    def __init__(self, model: lightgbm.Booster) -> None:
        described = str(model.dump_model(num_iteration=1).get("objective", "your own function"))
        if described.split(" ")[0] not in OBJECTIVES:
            raise no_classifier("lightgbm", described)
        self.model, self.classes_ = model, np.arange(max(2, model.num_model_per_iteration()))
        self.feature_names = model.feature_name()

    def predict_proba(self, inputs: Any) -> Floats:
        return two_columns(self._ask(inputs))

    def find_leaves(self, inputs: Any) -> NDArray[Any]:
        return np.asarray(self._ask(inputs, pred_leaf=True))

    def _ask(self, inputs: Any, **wanted: bool) -> Any:
        return self.model.predict(inputs, **wanted)


def read_booster(model: lightgbm.Booster) -> SklearnModel:
    """The adapter for a trained `lightgbm.Booster`."""
    return SklearnModel(LightgbmBooster(model))
