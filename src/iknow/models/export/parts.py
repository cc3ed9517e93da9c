"""Parts: what the parts of a scikit-learn model become, by their classes.

A model is a tree of parts: a pipeline holds steps, a voting classifier holds classifiers. A
transformer becomes a tensor, a classifier an `Answer`. The parts in the tables below are written
here, in double precision and with scikit-learn's own rules for ties. skl2onnx converts all others,
and we compare what its graph says about the examples with what the part itself says, since not
every one of its graphs is right in double precision.

Classes are compared by name and not by inheritance: a subclass may compute anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from sklearn.frozen import FrozenEstimator

from iknow.models.export.onnx.builder import Builder, Tensor
from iknow.models.export.onnx.inputs import Value

HERE = "iknow.models.export."
FOREIGN = "foreign"
TRANSFORMERS = {
    "Pipeline": "columns.run_pipeline",
    "ColumnTransformer": "columns.join_columns",
    "FeatureUnion": "columns.join_union",
    "FunctionTransformer": "columns.call_function",
    "OneHotEncoder": "encoders.encode_one_hot",
    "OrdinalEncoder": "encoders.encode_ordinal",
    "TfidfVectorizer": "encoders.read_tfidf",
    "TfidfTransformer": "encoders.weigh",
    "SimpleImputer": "numbers.impute",
    "StandardScaler": "numbers.standardize",
    "MinMaxScaler": "numbers.scale_to_range",
    "MaxAbsScaler": "numbers.scale_to_largest",
    "RobustScaler": "numbers.scale_by_quantiles",
    "Binarizer": "numbers.binarize",
    "PolynomialFeatures": "numbers.multiply",
    "PowerTransformer": "numbers.straighten",
}
CLASSIFIERS = {
    "Pipeline": "columns.end_pipeline",
    "LogisticRegression": "classifiers.read_logistic",
    "LogisticRegressionCV": "classifiers.read_logistic",
    "LinearDiscriminantAnalysis": "classifiers.read_logistic",
    "SGDClassifier": "classifiers.read_linear",
    "LinearSVC": "classifiers.read_linear",
    "Perceptron": "classifiers.read_linear",
    "PassiveAggressiveClassifier": "classifiers.read_linear",
    "RidgeClassifier": "classifiers.read_linear",
    "RidgeClassifierCV": "classifiers.read_linear",
    "SVC": "classifiers.read_support_vectors",
    "NuSVC": "classifiers.read_support_vectors",
    "MLPClassifier": "classifiers.read_network",
    "DecisionTreeClassifier": "trees.read_tree",
    "ExtraTreeClassifier": "trees.read_tree",
    "RandomForestClassifier": "trees.read_forest",
    "ExtraTreesClassifier": "trees.read_forest",
    "BaggingClassifier": "ensembles.read_bagging",
    "AdaBoostClassifier": "ensembles.read_boosting",
    "GradientBoostingClassifier": "trees.read_gradient_boosting",
    "HistGradientBoostingClassifier": "trees.read_histograms",
    "VotingClassifier": "ensembles.read_voting",
    "StackingClassifier": "ensembles.read_stacking",
    "CalibratedClassifierCV": "ensembles.read_calibrated",
    "XGBClassifier": "xgboost.read_classifier",
    "XGBRFClassifier": "xgboost.read_classifier",
    "XgboostBooster": "xgboost.read_booster",
    "LGBMClassifier": "lightgbm.read_classifier",
    "LightgbmBooster": "lightgbm.read_booster",
    "CatBoostClassifier": "catboost.read_classifier",
    "CatboostBooster": "catboost.read_booster",
}
PACKAGES = ("sklearn", "xgboost", "lightgbm", "catboost", "iknow")


@dataclass(frozen=True, eq=False)
class Answer:
    """What a classifier says.

    Attributes:
        chances: Probabilities of shape (n, n_classes); None if it has none.
        decision: The decision function, of shape (n, n_columns); None if it has none.
        belief: The position of its answer, of shape (n,); None where that is the highest of the
            scores, the first of equals.
        layers: Its inner layers by name.
    """

    chances: Tensor | None = None
    decision: Tensor | None = None
    belief: Tensor | None = None
    layers: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Part:
    """A fitted transformer or classifier, with what enters it.

    Attributes:
        b: The graph.
        estimator: The transformer or classifier.
        value: What enters it, as a part of the graph.
        sample: What enters it for the example inputs.
    """

    b: Builder
    estimator: Any
    value: Value
    sample: Any

    def of(self, estimator: Any) -> Part:
        """Return a part inside this one that gets the same input."""
        return Part(self.b, estimator, self.value, self.sample)


def transform(part: Part) -> Value:
    """What a transformer makes of its input."""
    if part.estimator is None or isinstance(part.estimator, str):  # "passthrough"
        return part.value
    found: Value = _converter(part.estimator, TRANSFORMERS, "convert_transformer")(_unwrapped(part))
    return found


def classify(part: Part) -> Answer:
    """What a classifier says about its input."""
    found: Answer = _converter(part.estimator, CLASSIFIERS, "convert_classifier")(_unwrapped(part))
    return found


def _unwrapped(part: Part) -> Part:
    return part.of(_inside(part.estimator))


def _inside(estimator: Any) -> Any:
    while isinstance(estimator, FrozenEstimator):
        estimator = estimator.estimator
    return estimator


def _converter(estimator: Any, table: dict[str, str], otherwise: str) -> Any:
    kind = type(_inside(estimator))
    is_known = kind.__module__.partition(".")[0] in PACKAGES
    place = table.get(kind.__name__) if is_known else None
    module, _, name = (place or f"{FOREIGN}.{otherwise}").partition(".")
    return getattr(import_module(HERE + module), name)
