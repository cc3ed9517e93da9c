"""SklearnModel: reads the layers of a fitted scikit-learn classifier.

Layers: "input"; each transformer of a pipeline by its step's name, and "step.inner" for the steps
of a pipeline inside it; "hidden1", "hidden2", ... and "logits" of an MLPClassifier; "output"
(decision function, else probabilities) of any other; "leaves" of a classifier of trees, and "table"
of one that takes gaps.

In a pipeline an imputer makes an ordinary value of a gap, and an encoder zeros of a category that
it does not know. The layer "table" is what came in, so that distances see it: the value of each
column, 0 where it is missing and a code where it is a category, and a flag for each that says so
(`iknow.metrics.Table`). Dates are days. Distances are between dense rows, so a sparse layer, such
as TfidfVectorizer's, is made dense one batch at a time, in single precision.

**Trees.** Two samples that share the leaves of most trees are alike to the model, however far apart
their features are. The distance is the number of trees that tell them apart
(`iknow.metrics.Hamming`). Beyond the training data all samples fall into the outermost leaves, so
leaves alone cannot see how far away a sample is.

The leaves are those that answer: boosting that stopped early uses its best iteration, and one with
trees for each class gives a column for every one of them.

A `Booster` puts a trained model of xgboost, lightgbm or catboost itself behind scikit-learn's
interface. Its classes are the numbers of its columns unless it knows better, as catboost does.

lightgbm goes by the position of columns and could take one feature for another, so we compare their
names. catboost finds them by name in any order, but distances need one order: that of its training.
"""

from __future__ import annotations

import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags

from iknow.core.arrays import Floats, Ints, Labels
from iknow.core.codes import UNKNOWN, positions_of
from iknow.core.robustness import Sensitivity
from iknow.core.text import shown
from iknow.errors import InputError, LayerError
from iknow.metrics.lipschitz import ACTIVATIONS, sensitivity_of, unwrap
from iknow.metrics.metric import LEAVES
from iknow.metrics.table import A_CATEGORY, A_GAP, MOST_CODES, code_of
from iknow.models.adapt import check_classifier, has_base, is_catboost
from iknow.models.differences import compare_columns
from iknow.models.inputs import (
    Sizes,
    as_array,
    as_dense,
    as_numbers,
    count_samples,
    is_missing,
    is_number,
    is_sparse,
    own_copy,
    take_rows,
)
from iknow.models.model import (
    Layer,
    Model,
    Observation,
    Role,
    check_layers,
    check_type,
    is_refusal,
    make_observation,
    observe_if_taken,
    refusing,
)

TABLE = "table"
SINGLE = ("BaseDecisionTree", "BaseForest", "BaseGradientBoosting")
SEVERAL = ("BaseBagging", "BaseWeightBoosting")  # of any classifiers
MOST_LEAVES = MOST_CODES
MOST_NAMES = 100_000
MICROSECONDS_IN_DAY = 86_400e6

CONTAINERS = ("DMatrix", "QuantileDMatrix", "Dataset", "Pool")
"""Classes in which the packages keep data to train with; their rows cannot be taken again."""
OBJECTIVES = {
    "xgboost": ("binary:logistic", "binary:logitraw", "multi:softmax", "multi:softprob"),
    "lightgbm": ("binary", "multiclass", "multiclassova"),
}
"""The objectives of classifiers."""


class SklearnModel(Model):
    """An `estimator`: a fitted classifier, or a pipeline that ends in one, frozen or not, or a
    booster.

    `steps` are the transformers of the pipeline by their layers' names, in order, and `final` is
    the classifier that comes after them.

    Examples:
        >>> SklearnModel(trained).observe(X, ["input"]).scores.shape
        (150, 3)
    """

    def __init__(self, estimator: Any) -> None:
        while isinstance(estimator, FrozenEstimator):
            estimator = estimator.estimator
        check_classifier(estimator)
        estimator = as_classifier(estimator)
        kind = type(estimator).__name__
        if not hasattr(estimator, "classes_"):
            raise InputError(
                f"{kind} is not a fitted classifier (it has no classes_): fit it first, or pass it "
                "unfrozen to EpistemicClassifier, which trains a clone"
            )
        classes = estimator.classes_
        several = isinstance(classes, (list, tuple)) and any(np.ndim(part) for part in classes)
        if several or np.ndim(classes) != 1:
            raise InputError(
                f"{kind} predicts more than one label per sample: wrap one classifier per output"
            )
        labels = np.asarray(classes).tolist()
        if len(set(labels)) < len(labels):
            raise InputError(f"classes_ of {kind} must name each class once; got {labels[:10]}")
        self.estimator, self._categories = estimator, dict[float, str]()
        outer, self.final = unwrap(estimator)
        given = [name for name, step in outer if step != "passthrough"]
        self._last_step = given[-1] if given else None
        self.steps = [step for name, each in outer for step in _inner_steps(name, each)]
        self._is_network = hasattr(self.final, "coefs_") and hasattr(self.final, "out_activation_")
        methods = ("decision_function", "predict_proba")
        self._output = next((name for name in methods if hasattr(self.final, name)), None)
        names = self._names = ["input", *(name for name, _ in self.steps)]
        if self._is_network:
            names += [f"hidden{i}" for i in range(1, len(self.final.coefs_))] + ["logits"]
        elif self._output is not None:
            names.append("output")
        if leaf_finder(self.final) is not None and LEAVES not in names:
            names.append(LEAVES)
        if TABLE not in names:
            names.append(TABLE)
        self.takes_gaps = takes_gaps(self.estimator)

    @property
    def classes(self) -> Labels:
        labels: Labels = np.asarray(self.estimator.classes_)
        return labels

    @property
    def categories(self) -> Mapping[float, str]:
        return self._categories

    def prepare(self, inputs: Any) -> Any:
        if type(inputs) is not np.ndarray:  # an array has no names of columns
            check_boosted(self.final if not self.steps else None, inputs)
        return as_dense(inputs)

    def layers(self, batch: Any) -> tuple[Layer, ...]:
        """Describe what enters the classifier; of a network its last hidden layer, of trees their
        leaves; and the output.

        What enters it is what the last step returns: comparable numbers instead of features of
        different scales, missing values and text. If the steps are out of sight, as in a
        CalibratedClassifierCV, text has no numbers before the output. If this `batch` has gaps, or
        is not all numbers, or if a step could fill gaps, the table that came in takes its place.
        """
        names = self._names
        is_text = self._last_step is None and len(np.shape(batch)) == 1
        first = "output" if is_text and "output" in names else self._last_step or "input"
        found = [first]
        if TABLE in names and len(np.shape(batch)) == 2 and not is_sparse(batch):
            with suppress(LayerError):  # objects that are neither numbers nor categories
                if has_flags(batch) or self._fills_gaps(batch):
                    found = [TABLE]
        found += [name for name in names if self.role(name) == "hidden"][-1:]
        found += [name for name in names if self.role(name) in ("leaves", "output")]
        return tuple(Layer(name, self.role(name)) for name in dict.fromkeys(found))

    def _fills_gaps(self, numbers: Any) -> bool:
        """Whether a step fills gaps, as an imputer does: nothing behind it shows them."""
        inside = take_rows(numbers, slice(1)) * np.nan
        with suppress(Exception), warnings.catch_warnings():  # most refuse gaps
            warnings.simplefilter("ignore")
            for _, step in self.steps:
                inside = inside if step == "passthrough" else step.transform(inside)
            return bool(self.steps) and bool(np.isfinite(_layer_numbers(inside)).any())
        return False

    def role(self, layer: str) -> Role:
        """Return what a `layer` is; what a pipeline's transformers return counts as input."""
        if layer == "input" or layer in dict(self.steps):
            return "input"
        own: dict[str, Role] = {LEAVES: "leaves", TABLE: "table"}
        return own.get(layer, "hidden" if layer.startswith("hidden") else "output")

    def feature_names(self, layer: str) -> Sequence[str] | None:
        names: Any = getattr(self.estimator, "feature_names_in_", None)
        if layer in ("input", TABLE):
            return None if names is None else [str(each) for each in names]
        for name, step in self.steps:
            if step != "passthrough":
                try:
                    names = step.get_feature_names_out(names)
                except Exception:  # a step may have no names, or not for these
                    return None
            if name == layer:
                return [str(each) for each in names]
        return None

    def unknown_words(self, text: str) -> list[str]:
        first: Any = self.steps[0][1] if self.steps else None
        if not hasattr(first, "build_analyzer") or not hasattr(first, "vocabulary_"):
            return []
        words = dict.fromkeys(first.build_analyzer()(text))
        return [word for word in words if word not in first.vocabulary_]

    def observe(self, batch: Any, layers: Sequence[str]) -> Observation:
        check_layers(layers, self._names, type(self.final).__name__)
        if double := [layer for layer in layers if self._names.count(layer) > 1]:
            raise LayerError(
                f"{double[0]!r} names more than one layer: give the pipeline's step another name"
            )
        return observe_if_taken(self._ask, batch, layers)

    def sensitivity(self, layer: str, inputs: Sizes) -> Sensitivity:
        check_type(self, SklearnModel)
        if self.role(layer) in ("leaves", "table"):
            raise LayerError("it changes in steps: the least change of an input may be a whole one")
        if inputs.dtype is None or len(inputs.shape) != 1:
            raise LayerError("nothing is known about inputs other than a 2D array")
        return sensitivity_of(self.estimator, layer, inputs.dtype, inputs.shape[0])

    def _ask(self, batch: Any, layers: Sequence[str]) -> Observation:
        """The estimator's answer for a batch as it is; `RefusedError` if it raises an error."""
        with refusing(type(self.final).__name__, batch, is_refusal):
            scores, belief = self._answer(batch)
            activations = self._activations(batch, layers)
        return make_observation(scores, activations, belief=belief)

    def _answer(self, batch: Any) -> tuple[Any, Ints]:
        """The scores and the prediction, which need not be the highest of them: SVC votes.

        Scores: probabilities, else the decision function, else the prediction itself as 0 and 1.
        """
        said = as_array(self.estimator.predict(own_copy(batch)), "predictions")
        name, n, classes = type(self.final).__name__, count_samples(batch), self.classes
        labels, n_classes = said.reshape(n) if said.shape == (n, 1) else said, len(classes)
        if labels.shape != (n,):
            advice = ""
            if hasattr(batch, "columns") and len(batch.columns) == 1:  # a vectorizer sees one text
                text = shown(batch.columns[0])
                column, table = f"the column X[{text}]", f"the table X[[{text}]]"
                advice = f": a step that reads text takes {column}, not {table}"
            raise InputError(
                f"{name} must predict one label for each of {n} inputs; got shape "
                f"{labels.shape}{advice}"
            )
        codes = positions_of(labels, classes)
        if (codes == UNKNOWN).any():
            raise InputError(
                f"{name} must predict one of its classes_ for each input, "
                f"{classes.tolist()[:10]}; got {labels[codes == UNKNOWN][:3].tolist()}"
            )
        if hasattr(self.estimator, "predict_proba"):
            shares = as_numbers(self.estimator.predict_proba(own_copy(batch)), "probabilities")
            if shares.shape != (n, n_classes):
                raise InputError(
                    f"predict_proba of {name} must give a column for each of its {n_classes} "
                    f"classes_; got shape {shares.shape}"
                )
            return shares, codes
        if hasattr(self.estimator, "decision_function"):
            decision = as_numbers(self.estimator.decision_function(own_copy(batch)), "decisions")
            if decision.ndim == 1:
                return np.column_stack([-decision, decision]), codes
            if decision.shape[1] == n_classes:  # else it is about pairs of classes
                return decision, codes
        return np.eye(n_classes)[codes], codes

    def _activations(self, batch: Any, layers: Sequence[str]) -> dict[str, Any]:
        found = {"input": _layer_numbers(batch)} if "input" in layers else {}
        if TABLE in layers and TABLE not in dict(self.steps):
            found[TABLE] = find_table(batch, self._categories)
        if set(layers) <= set(found):
            return {layer: found[layer] for layer in layers}
        inside = own_copy(batch)
        for name, transformer in self.steps:
            inside = inside if transformer == "passthrough" else transformer.transform(inside)
            if name in layers:
                found[name] = _layer_numbers(inside)
        if "output" in layers and "output" not in found:
            found["output"] = getattr(self.final, str(self._output))(inside)
        if LEAVES in layers and LEAVES not in found:
            found[LEAVES] = as_leaves(leaf_finder(self.final)(inside), count_samples(inside))
        if self._is_network:
            values = inside.astype(np.float64) if is_sparse(inside) else _layer_numbers(inside)
            *hidden, (weights, bias) = zip(self.final.coefs_, self.final.intercepts_, strict=True)
            activate, _ = ACTIVATIONS[self.final.activation]
            for i, (each, offset) in enumerate(hidden):
                values = activate(values @ each + offset)
                found[f"hidden{i + 1}"] = values
            found["logits"] = values @ weights + bias
        if not found.keys() >= set(layers):  # trained again since it was adapted
            check_layers(layers, found, type(self.final).__name__)
        return {layer: found[layer] for layer in layers}


def takes_gaps(classifier: Any) -> bool:
    """Whether a fitted classifier may take missing values as they are."""
    tags = get_tags(classifier) if hasattr(classifier, "__sklearn_tags__") else None
    return leaf_finder(classifier) is not None or (tags is not None and tags.input_tags.allow_nan)


def find_table(batch: Any, names: dict[float, str] | None = None) -> Floats:
    """The values of n samples and their flags, of shape (n, 2 * n_columns); see `Table`.

    names: takes the names of the categories by their codes, up to `MOST_NAMES`.
    """
    names = {} if names is None else names
    if hasattr(batch, "iloc"):
        columns = [batch.iloc[:, j] for j in range(batch.shape[1])]
    else:
        table = as_array(batch, f"the layer {TABLE!r}", LayerError)
        columns = list(table.reshape(len(table), -1).T)
    if not columns:
        raise LayerError(f"there are no columns, so there is no layer {TABLE!r}")
    found = [_read_column(column, names) for column in columns]
    return np.column_stack([*(values for values, _ in found), *(flags for _, flags in found)])


def has_flags(batch: Any) -> bool:
    """Whether a table has gaps, or anything but numbers."""
    if isinstance(batch, np.ndarray) and is_number(batch.dtype):  # which may be wide
        return bool(np.isnan(batch).any())
    return bool(find_table(batch)[:, np.shape(batch)[1] :].any())


def _read_column(column: Any, names: dict[float, str]) -> tuple[Floats, Floats]:
    """The values of a column and their flags, both of shape (n,)."""
    kind = getattr(column.dtype, "kind", "O")
    if kind in "mM":  # dates and time spans, in days
        unit = f"{kind}8[us]"
        times = column.to_numpy(unit) if hasattr(column, "iloc") else column.astype(unit)
        gaps = np.isnat(times)
        return np.where(gaps, 0.0, times.astype(np.int64) / MICROSECONDS_IN_DAY), gaps * A_GAP
    if is_number(column.dtype):
        values = as_numbers(column, f"the layer {TABLE!r}", LayerError).astype(np.float64)
        return np.where(np.isnan(values), 0.0, values), np.isnan(values) * A_GAP
    try:
        return _read_objects(column, names)
    except Exception as error:  # whatever they are, they may raise anything
        raise LayerError(
            f"a column holds what is neither a number nor a category ({type(error).__name__}), so "
            f"there is no layer {TABLE!r}"
        ) from error


def _read_objects(column: Any, names: dict[float, str]) -> tuple[Floats, Floats]:
    if hasattr(column, "factorize"):
        places, distinct = column.factorize(use_na_sentinel=False)
    else:
        distinct = list(dict.fromkeys(column.tolist()))  # a NaN is not found again, nor needed
        known = {value: place for place, value in enumerate(distinct)}
        places = np.array([known[value] for value in column.tolist()], dtype=np.int64)
    named = hasattr(column.dtype, "categories")  # numbers that are names
    values, flags = np.zeros(len(distinct)), np.zeros(len(distinct))
    for i, value in enumerate(distinct):
        if is_missing(value):
            flags[i] = A_GAP
        elif isinstance(value, Real) and not named:
            values[i] = as_numbers([value], "a value")[0]
        else:
            values[i], flags[i] = code_of(value), A_CATEGORY
            if len(names) < MOST_NAMES:
                names[values[i]] = str(value)
    return values[places], flags[places]


def _inner_steps(name: str, step: Any) -> list[tuple[str, Any]]:
    """A step, after the steps of the pipeline inside it if it is one."""
    if not hasattr(step, "steps") or not hasattr(step, "transform"):
        return [(name, step)]
    inner = [(each, "passthrough" if s is None else s) for each, s in step.steps]
    steps = [part for each, s in inner for part in _inner_steps(f"{name}.{each}", s)]
    return [*steps, (name, "passthrough")]


def _layer_numbers(batch: Any) -> Any:
    """A copy of a layer's numbers, which no step that works in place can change."""
    if is_sparse(batch):
        with np.errstate(over="ignore"):  # what overflows becomes inf and is marked
            return batch.astype(np.float32).toarray()
    try:
        return as_numbers(batch, "the layer").astype(np.float64, copy=True)
    except InputError as error:
        raise LayerError(
            f"distances need numbers, but these inputs are not all numbers ({error}): "
            "choose layers after the step that encodes them"
        ) from error


class Booster(ABC):
    """A trained model of a package itself, with scikit-learn's interface."""

    has_leaves = True

    def __init__(self, model: Any, classes: Labels, feature_names: Sequence[str] | None) -> None:
        self.model, self.classes_, self.feature_names = model, classes, feature_names

    @abstractmethod
    def ask(self, inputs: Any, *, leaves: bool) -> Any:
        """Return the numbers of leaves, of shape (n, n_trees), or else probabilities, of shape
        (n, n_classes), or (n,) for the second of two classes.
        """

    def predict_proba(self, inputs: Any) -> Floats:
        given = np.asarray(self.ask(inputs, leaves=False), dtype=np.float64)
        return np.column_stack([1 - given, given]) if given.ndim == 1 else given

    def predict(self, inputs: Any) -> Labels:
        labels: Labels = self.classes_[self.predict_proba(inputs).argmax(axis=1)]
        return labels


class XgboostBooster(Booster):
    def __init__(self, model: Any) -> None:
        import xgboost

        try:
            learner = json.loads(model.save_config())["learner"]
        except xgboost.core.XGBoostError as error:
            raise InputError("the Booster is not trained: train it first, or load one") from error
        _check_objective("xgboost", learner["objective"]["name"])
        n_classes = max(2, int(learner["learner_model_param"]["num_class"]))
        super().__init__(model, np.arange(n_classes), model.feature_names)
        self.has_leaves = learner["gradient_booster"]["name"] != "gblinear"

    def ask(self, inputs: Any, *, leaves: bool) -> Any:
        import xgboost

        stopped = self.model.attr("best_iteration")
        rounds = (0, 0) if stopped is None or not self.has_leaves else (0, int(stopped) + 1)
        data = xgboost.DMatrix(inputs, enable_categorical=True)
        if leaves:
            return self.model.predict(data, iteration_range=rounds, pred_leaf=True)
        # With multi:softmax a booster returns labels alone: probabilities come from the margins.
        margins = self.model.predict(data, iteration_range=rounds, output_margin=True)
        exact = np.asarray(margins, dtype=np.float64)
        return expit(exact) if exact.ndim == 1 else softmax(exact, axis=1)


class LightgbmBooster(Booster):
    def __init__(self, model: Any) -> None:
        objective = str(model.dump_model(num_iteration=1).get("objective", "your own function"))
        _check_objective("lightgbm", objective)
        n_classes = max(2, model.num_model_per_iteration())
        super().__init__(model, np.arange(n_classes), model.feature_name())

    def ask(self, inputs: Any, *, leaves: bool) -> Any:
        return self.model.predict(inputs, pred_leaf=leaves)


class CatboostBooster(Booster):
    def __init__(self, model: Any) -> None:
        if not model.is_fitted():
            raise InputError("the CatBoost model is not trained: train it first, or load one")
        labels = np.asarray(model.classes_)
        if labels.ndim != 1 or len(labels) < 2:
            _check_objective("catboost", model.get_all_params().get("loss_function"))
        super().__init__(model, labels, model.feature_names_)

    def ask(self, inputs: Any, *, leaves: bool) -> Any:
        if leaves:
            return self.model.calc_leaf_indexes(inputs)
        return self.model.predict(inputs, prediction_type="Probability")


def as_classifier(model: Any) -> Any:
    """A trained model of a package itself behind scikit-learn's interface; others as they are."""
    if has_base(model, "Booster", "xgboost"):
        return XgboostBooster(model)
    if has_base(model, "Booster", "lightgbm"):
        return LightgbmBooster(model)
    return CatboostBooster(model) if is_catboost(model) else model


def _check_objective(package: str, objective: Any) -> None:
    """Refuse a model whose objective is none of a classifier's."""
    if str(objective).split(" ")[0] not in OBJECTIVES.get(package, ()):
        raise InputError(
            f"this model of {package} is no classifier, or not of one label per sample: its "
            f"objective is {objective!r}"
        )


def check_boosted(classifier: Any, inputs: Any) -> None:
    """Refuse the packages' own containers of data, and columns that a model would mistake.

    classifier: what reads the inputs as they are, if nothing comes before it.
    """
    kind = type(inputs)
    package = kind.__module__.partition(".")[0]
    if kind.__name__ in CONTAINERS and package in ("xgboost", "lightgbm", "catboost"):
        raise InputError(
            f"X must be an array or a data frame; got a {kind.__name__} of {package}: pass the "
            "data that it was made of"
        )
    trained = classifier.feature_names if isinstance(classifier, Booster) else None
    if has_base(classifier, "LGBMModel", "lightgbm"):  # it goes by position; others compare names
        trained = classifier.feature_name_
    if not hasattr(inputs, "columns") or not trained:
        return
    made_up = [[f"{stem}{i}" for i in range(len(trained))] for stem in ("", "Column_")]
    # lightgbm writes underscores for spaces.
    found, wanted = ([str(name).replace(" ", "_") for name in x] for x in (inputs.columns, trained))
    told = compare_columns(found, wanted, "select them by name, X[[...]]")
    if told and list(trained) not in made_up:
        raise InputError(told)


def leaf_finder(classifier: Any) -> Any:
    """What gives the leaves of inputs; None if a fitted classifier has none."""
    if isinstance(classifier, Booster):
        return partial(classifier.ask, leaves=True) if classifier.has_leaves else None
    if has_base(classifier, "LGBMModel", "lightgbm"):
        return partial(classifier.predict, pred_leaf=True)
    if has_base(classifier, "CatBoost", "catboost"):
        return classifier.calc_leaf_indexes
    if has_base(classifier, "XGBModel", "xgboost"):
        return None if classifier.booster == "gblinear" else classifier.apply
    if any(has_base(classifier, name, "sklearn") for name in SINGLE):
        return classifier.apply
    is_several = any(has_base(classifier, name, "sklearn") for name in SEVERAL)
    trees = list(classifier.estimators_) if is_several else []
    if not trees or not all(has_base(tree, "BaseDecisionTree", "sklearn") for tree in trees):
        return None
    columns = getattr(classifier, "estimators_features_", [slice(None)] * len(trees))

    def apply_all(inputs: Any) -> Any:
        values = inputs if is_sparse(inputs) else np.asarray(inputs)
        pairs = zip(trees, columns, strict=True)
        return np.column_stack([tree.apply(values[:, seen]) for tree, seen in pairs])

    return apply_all


def as_leaves(found: Any, n_samples: int) -> NDArray[Any]:
    """The numbers of leaves as a library returns them, in a column for each tree."""
    leaves = np.asarray(found).reshape(n_samples, -1)  # boosting may have an axis for the classes
    if not leaves.shape[1]:
        raise LayerError(f"the model has no trees, so no layer {LEAVES!r}: choose another")
    if not (leaves < MOST_LEAVES).all():
        raise LayerError(
            f"a tree has leaves numbered up to {int(leaves.max())}; the layer {LEAVES!r} holds "
            "numbers below 2**24: choose another layer"
        )
    return leaves
