"""MLflow: log a classifier with its model, load it, and serve it as a `pyfunc`.

    import iknow.integrations.mlflow as iknow_mlflow

    info = iknow_mlflow.log_model(ec, name="signs")
    mlflow.pyfunc.load_model(info.model_uri).predict(frame)   # belief, assertion, reason, level
    ec = iknow_mlflow.load_model(info.model_uri)              # the classifier itself

The folder of a logged model holds `bundle.iknow` and, in `model/`, the model itself: a scikit-learn
classifier, or one with its interface, as `model.joblib`; the files for the user's own
`model_loader`; or nothing, if the model runs elsewhere or is ONNX, as that is in the bundle.

Only a bundle is safe to load from anywhere. A pickle, as in MLflow's own flavors, and a loader run
code: load those from people you trust.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from importlib.metadata import packages_distributions, version
from os import PathLike
from pathlib import Path
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import Any

import joblib
import numpy as np

from iknow.classifier.estimator import EpistemicClassifier
from iknow.core.text import shown
from iknow.errors import BundleError, InputError, MissingExtraError
from iknow.integrations import answers_of, takes_texts
from iknow.models import PrecomputedModel
from iknow.models.adapt import is_estimator, is_onnx
from iknow.models.probe import Probe
from iknow.storage.info import describe_bundle
from iknow.version import __version__

try:
    import mlflow
    from mlflow.models import Model, ModelSignature, infer_signature
    from mlflow.models.model import MLMODEL_FILE_NAME

    with warnings.catch_warnings():  # of types of its own, on import
        warnings.simplefilter("ignore", UserWarning)
        import mlflow.pyfunc
except ImportError as error:
    raise MissingExtraError("iknow.integrations.mlflow", "mlflow") from error

FLAVOR_NAME = "iknow"
BUNDLE, MODEL = "bundle.iknow", "model"  # in the folder of a logged model
PICKLE = "model.joblib"  # in MODEL
SHOWN = ("name", "note", "created", "model", "n_samples", "rule", "selection")  # by MLflow
NO_PICKLES = "MLFLOW_ALLOW_PICKLE_DESERIALIZATION"  # by which users of MLflow forbid them


def save_model(
    classifier: EpistemicClassifier,
    path: str | PathLike[str],
    *,
    signature: Any = None,
    input_example: Any = None,
    model_loader: str | None = None,
    model_files: Sequence[str | PathLike[str]] = (),
    extra_pip_requirements: Any = None,
    mlflow_model: Any = None,
    **options: Any,
) -> None:
    """Save a classifier, with its model, as an MLflow model in a new folder.

    The model is loaded back at once, so that one that cannot be restored is refused here.

    Args:
        classifier: A fitted classifier that can assess.
        path: The folder, which must not exist or be empty.
        signature: An MLflow signature; False for none. Default: that of `make_signature`.
        input_example: Some inputs, to keep with the model.
        model_loader: "package.module:function", for a model that cannot be stored as it is: a
            function that takes the folder of `model_files`, such as weights, and returns the model,
            or `as_model(model, ...)`.
        model_files: Files or folders for that function.
        extra_pip_requirements: In addition to the versions of iknow and of the model's package.
        mlflow_model: The MLflow model to add to; `log_model` passes it.
        **options: For `mlflow.pyfunc.save_model`, such as `code_paths` to import from there,
            `pip_requirements` instead of those versions, and `metadata`.

    Examples:
        >>> ec = EpistemicClassifier(FrozenEstimator(trained)).fit(X_train, y_train)
        >>> save_model(ec.tune(X_val, y_val), "irises")
        >>> load_model("irises").layers_
        ('input',)
        >>> mlflow.pyfunc.load_model("irises").predict(X_val[:2])
           belief assertion reason     level
        0       0        IK  KNOWN  0.893333
        1       0        IK  KNOWN  0.626667
    """
    if not isinstance(classifier, EpistemicClassifier):
        raise InputError(f"an EpistemicClassifier is needed; got {shown(classifier)}")
    folder, model = Path(path), Model() if mlflow_model is None else mlflow_model
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists and is not an empty folder: choose another name")
    if options.get("pip_requirements") is None:
        extra = extra_pip_requirements or ()
        more = [f"-r {extra}"] if isinstance(extra, str) else extra
        options["pip_requirements"] = [*_requirements(classifier), *more]
    options |= {"mlflow_model": model, "input_example": input_example}
    try:
        mlflow.pyfunc.save_model(str(folder), loader_module=__name__, **options)
        own = getattr(classifier.model, "source", None) or classifier.model
        classifier.save(folder / BUNDLE, onnx=model_loader is None and is_onnx(own))
        file = _store_model(classifier, folder / MODEL, model_loader, model_files)
        loaded = _load(folder, file, model_loader)
        if signature is None:
            signature = make_signature(loaded, input_example)
        model.signature = signature or None
        info = describe_bundle(folder / BUNDLE)
        said = {"promises": info.promises, **{name: info.to_dict()[name] for name in SHOWN}}
        model.metadata = {**(model.metadata or {}), FLAVOR_NAME: said}
        model.model_size_bytes = sum(each.stat().st_size for each in folder.rglob("*"))
        model.add_flavor(FLAVOR_NAME, iknow_version=__version__, file=file, loader=model_loader)
        model.save(str(folder / MLMODEL_FILE_NAME))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def log_model(classifier: EpistemicClassifier, name: str = "model", **options: Any) -> Any:
    """Log a fitted `classifier`, with its model, as `name` to the current run, or to a new one.

    `options` go to `save_model` and to `mlflow.models.Model.log`, such as `registered_model_name`,
    `params` and `tags`. Returns MLflow's `ModelInfo`; `load_model` takes its `model_uri`.

    Examples:
        >>> info = log_model(ec, name="irises")  # doctest: +SKIP
    """
    flavor = sys.modules[__name__]
    return Model.log(artifact_path=None, name=name, flavor=flavor, classifier=classifier, **options)


def load_model(model_uri: str, model: Any = None, *, dst_path: str | None = None) -> Any:
    """Load the `EpistemicClassifier` at `model_uri`, such as "models:/signs/1" or a folder.

    With a trained `model` to use instead of the stored one no pickle is loaded and no loader
    called; the bundle recognizes it. `dst_path` says where to download to.

    Examples:
        >>> load_model("models:/signs/1").assess(X)  # doctest: +SKIP
    """
    folder = Path(mlflow.artifacts.download_artifacts(str(model_uri), dst_path=dst_path))
    flavors = Model.load(str(folder)).flavors
    if (flavor := flavors.get(FLAVOR_NAME)) is None:
        raise BundleError(f"{model_uri} is an MLflow model, but not one of iknow")
    if model is not None:
        return EpistemicClassifier.load(folder / BUNDLE, model)
    if (code := flavors.get(mlflow.pyfunc.FLAVOR_NAME, {}).get("code")) is not None:
        sys.path.insert(0, str(folder / Path(str(code)).name))
    return _load(folder, flavor.get("file"), flavor.get("loader"))


def make_signature(classifier: EpistemicClassifier, input_example: Any = None) -> Any:
    """Infer MLflow's signature of a fitted `classifier`: what its `pyfunc` takes and returns.

    `input_example` are some inputs; by default, the training inputs that its bundle would keep, and
    None is returned if there are none.

    Examples:
        >>> ec = EpistemicClassifier(FrozenEstimator(trained)).fit(X_train, y_train)
        >>> make_signature(ec.tune(X_val, y_val)).outputs.input_names()
        ['belief', 'assertion', 'reason', 'level']
    """
    example, probe = input_example, classifier.probe_
    if example is None and isinstance(probe, Probe):
        example = getattr(probe.inputs, "arrays", probe.inputs)  # inputs by name
    if example is None:
        return None
    if takes_texts(classifier):
        example = np.asarray(example).reshape(-1).tolist()
    answers = answers_of(classifier, example)
    with warnings.catch_warnings():  # it warns of whole numbers, which labels may well be
        warnings.simplefilter("ignore", UserWarning)
        outputs = infer_signature(answers).inputs
    return ModelSignature(infer_signature(example).inputs, outputs)


def _load_pyfunc(path: str) -> Any:
    """What `mlflow.pyfunc.load_model` calls: `predict` answers in frames, as `answers_of` does."""
    return SimpleNamespace(predict=partial(answers_of, load_model(path)))


def _store_model(classifier: Any, place: Path, loader: str | None, files: Sequence[Any]) -> Any:
    """Store the model of a fitted classifier in a new folder; returns the name of its file."""
    place.mkdir()
    if loader is not None:
        _find_function(loader)
        for file in map(Path, files):
            (shutil.copytree if file.is_dir() else shutil.copy)(file, place / file.name)
        return None
    if files:
        raise InputError("model_files are for a model_loader, which makes the model of them")
    for name, option in classifier.model_.options.items():
        if callable(option):
            raise InputError(
                f"{name}= is a function, which cannot be stored: pass model_loader="
                f'"package.module:function", a function that returns as_model(model, {name}=...)'
            )
    model = getattr(classifier.model, "source", None) or classifier.model
    if is_estimator(model) and not isinstance(classifier.model_, PrecomputedModel):
        joblib.dump(getattr(classifier.model_, "estimator", model), place / PICKLE)
        return PICKLE
    in_bundle = describe_bundle(place.parent / BUNDLE).is_portable
    if in_bundle or isinstance(classifier.model_, PrecomputedModel):
        return None
    raise InputError(
        f"a model of type {type(model).__name__} cannot be stored as it is: pass model_loader="
        '"package.module:function", the name of a function that takes a folder with your '
        "model_files and returns the model"
    )


def _load(folder: Path, file: Any, loader: Any) -> EpistemicClassifier:
    """The classifier in a folder, with its model restored as `_store_model` stored it."""
    model: Any = None
    if loader is not None:
        model = _find_function(loader)(str(folder / MODEL))
    elif file == PICKLE:
        if os.environ.get(NO_PICKLES, "true").lower() in ("false", "0"):
            raise BundleError(
                f"{folder / MODEL / file} is a pickle, and {NO_PICKLES} forbids to load it: pass "
                "the trained model to load_model(uri, model)"
            )
        model = joblib.load(folder / MODEL / file)
    elif file is not None:
        raise BundleError(f"a model stored as {shown(file)} is unknown to this version")
    return EpistemicClassifier.load(folder / BUNDLE, model)


def _find_function(loader: Any) -> Any:
    """The function behind "package.module:function"."""
    try:
        found = resolve_name(loader)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise InputError(
            f'model_loader must be "package.module:function"; got {shown(loader)}: {error}'
        ) from error
    if not callable(found):
        raise InputError(f"model_loader {shown(loader)} must be a function of a folder")
    return found


def _requirements(classifier: EpistemicClassifier) -> list[str]:
    """The versions that are needed: of iknow, pandas, and the model's own package."""
    model = getattr(getattr(classifier, "model_", None), "estimator", classifier.model)
    packages = {type(model).__module__.partition(".")[0], "sklearn", "pandas"}
    packages |= {"onnxruntime"} if hasattr(classifier.model_, "tensors") else set()
    installed = packages_distributions()  # by pip, under names of its own
    names = {name for package in packages - {"iknow"} for name in installed.get(package, ())}
    return [f"iknow=={__version__}", *(f"{name}=={version(name)}" for name in sorted(names))]
