"""MLflow: log a classifier with its model, load it, and serve it as a `pyfunc`.

    import iknow.integrations.mlflow as iknow_mlflow

    info = iknow_mlflow.log_model(ec, name="signs")
    # belief, assertion, reason, level, probability:
    mlflow.pyfunc.load_model(info.model_uri).predict(frame)
    ec = iknow_mlflow.load_model(info.model_uri)              # the classifier itself

The folder of a logged model holds `bundle.iknow`. The model itself is in the bundle, as ONNX; or
beside it, as `model.joblib`, if it is a scikit-learn classifier or one with its interface; or a
`model_loader` makes it of the files in `model`; or it is nowhere, if only its outputs are known.

Only a bundle is safe to load from anywhere. A pickle, as in MLflow's own flavors, and a loader run
code: load them from people you trust.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Mapping, Sequence
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
from iknow.errors import BundleError, ExportError, InputError, MissingExtraError
from iknow.integrations import answers_of, takes_texts
from iknow.models import PrecomputedModel
from iknow.models.adapt import is_estimator
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
BUNDLE, PICKLE, FILES = "bundle.iknow", "model.joblib", "model"  # in a logged model's folder
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
        input_example: Some inputs, to keep with the model, and to compare an exported one on.
        model_loader: "package.module:function", for a model that cannot become ONNX, such as a
            Keras model or a function: takes the folder of `model_files`, such as weights, and
            returns the model, or `as_model(model, ...)`.
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
           belief assertion reason     level  probability
        0       0        IK  KNOWN  0.666667     0.998588
        1       0        IK  KNOWN  0.626667     0.998252
    """
    if not isinstance(classifier, EpistemicClassifier):
        raise InputError(f"an EpistemicClassifier is needed; got {shown(classifier)}")
    folder, model = Path(path), Model() if mlflow_model is None else mlflow_model
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists and is not an empty folder: choose another name")
    if options.get("pip_requirements") is None:
        extra = extra_pip_requirements or ()
        more = [f"-r {extra}"] if isinstance(extra, str) else extra
        options["pip_requirements"] = [*_requirements(classifier, model_loader), *more]
    options |= {"mlflow_model": model, "input_example": input_example}
    try:
        mlflow.pyfunc.save_model(str(folder), loader_module=__name__, **options)
        stored = _store(classifier, folder, input_example, model_loader, model_files)
        loaded = _load(folder, stored)
        if signature is None:
            signature = make_signature(loaded, input_example)
        model.signature = signature or None
        info = describe_bundle(folder / BUNDLE)
        said = {"promises": info.promises, **{name: info.to_dict()[name] for name in SHOWN}}
        model.metadata = {**(model.metadata or {}), FLAVOR_NAME: said}
        model.model_size_bytes = sum(each.stat().st_size for each in folder.rglob("*"))
        model.add_flavor(FLAVOR_NAME, iknow_version=__version__, **stored)
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
    return _load(folder, flavor)


def make_signature(classifier: EpistemicClassifier, input_example: Any = None) -> Any:
    """Infer MLflow's signature of a fitted `classifier`: what its `pyfunc` takes and returns.

    `input_example` are some inputs; by default, the training inputs that its bundle would keep, and
    None is returned if there are none.

    Examples:
        >>> ec = EpistemicClassifier(FrozenEstimator(trained)).fit(X_train, y_train)
        >>> make_signature(ec.tune(X_val, y_val)).outputs.input_names()
        ['belief', 'assertion', 'reason', 'level', 'probability']
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


def _store(
    classifier: EpistemicClassifier, folder: Path, example: Any, loader: Any, files: Sequence[Any]
) -> dict[str, Any]:
    """Store a fitted classifier and its model; returns what `_load` needs to know."""
    own = getattr(classifier.model_, "estimator", None)
    pickled = loader is None and is_estimator(own)
    within = not (loader or pickled or isinstance(classifier.model_, PrecomputedModel))
    if files and loader is None:
        raise InputError("model_files are for a model_loader, which makes the model of them")
    try:
        classifier.save(folder / BUNDLE, onnx=within, samples=example if within else None)
    except ExportError as error:
        raise ExportError(f"{error}. Or pass a model_loader=, which makes the model") from error
    (folder / FILES).mkdir()
    for file in map(Path, files):
        (shutil.copytree if file.is_dir() else shutil.copy)(file, folder / FILES / file.name)
    if pickled:
        joblib.dump(own, folder / PICKLE)
    return {"file": PICKLE if pickled else None, "loader": loader}


def _load(folder: Path, stored: Mapping[str, Any]) -> EpistemicClassifier:
    """The classifier in a folder, with its model restored as `_store` stored it."""
    file, loader, model = (stored.get(name) for name in ("file", "loader", "model"))
    if file not in (None, PICKLE):
        raise BundleError(f"a model stored as {shown(file)} is unknown to this version")
    if file and os.environ.get(NO_PICKLES, "true").lower() in ("false", "0"):
        raise BundleError(
            f"{folder / file} is a pickle, and {NO_PICKLES} forbids to load it: pass the trained "
            "model to load_model(uri, model)"
        )
    if loader is not None:
        try:
            if not callable(make := resolve_name(loader)):
                raise TypeError("it cannot be called")
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            raise InputError(
                'model_loader must be "package.module:function", a function of a folder; got '
                f"{shown(loader)}: {error}"
            ) from error
        model = make(str(folder / FILES))
    elif file:
        model = joblib.load(folder / file)
    return EpistemicClassifier.load(folder / BUNDLE, model)


def _requirements(classifier: EpistemicClassifier, loader: Any) -> list[str]:
    """The versions that are needed: of iknow, pandas, and the model's own package."""
    own, packages = getattr(classifier.model_, "estimator", None), {"sklearn", "pandas"}
    if not isinstance(classifier.model_, PrecomputedModel):
        module = type(own if is_estimator(own) else classifier.model_.source).__module__
        packages.add(module.partition(".")[0] if loader or is_estimator(own) else "onnxruntime")
    installed = packages_distributions()  # by pip, under names of its own
    names = {name for package in packages - {"iknow"} for name in installed.get(package, ())}
    return [f"iknow=={__version__}", *(f"{name}=={version(name)}" for name in sorted(names))]
