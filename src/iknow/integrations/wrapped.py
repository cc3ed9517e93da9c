"""The wrapped model in a folder beside its bundle: a bundle does not hold the model itself.

    "pickle"       a scikit-learn classifier, or one with its interface, by joblib
    "onnx"         the .onnx file, copied
    "precomputed"  nothing: the classifier takes the outputs of a model that runs elsewhere
    "loader"       the user's files, and the name of a function that makes the model of them

Only a bundle is safe to load from anywhere. A pickle and a loader run code: load those from people
you trust.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import joblib

from iknow.core.text import shown
from iknow.errors import BundleError, InputError
from iknow.models.adapt import is_estimator, is_onnx
from iknow.models.precomputed import PrecomputedModel

PICKLE, ONNX, PRECOMPUTED, LOADER = "pickle", "onnx", "precomputed", "loader"
FOLDER = "model"
"""Where the model is, inside the folder of its bundle."""
NAMES = {PICKLE: "model.joblib", ONNX: "model.onnx"}
NO_PICKLES = "MLFLOW_ALLOW_PICKLE_DESERIALIZATION"
"""The environment variable by which users of MLflow forbid pickles."""


@dataclass(frozen=True)
class Stored:
    """How a model is stored. loader: "package.module:function", for that kind alone."""

    kind: str
    loader: str | None = None


def store_model(
    classifier: Any, folder: Path, loader: str | None = None, files: Sequence[Any] = ()
) -> Stored:
    """Store the model of a fitted classifier in a folder."""
    place = folder / FOLDER
    place.mkdir(parents=True, exist_ok=True)
    if loader is not None:
        _find_function(loader)
        for file in map(Path, files):
            (shutil.copytree if file.is_dir() else shutil.copy)(file, place / file.name)
        return Stored(LOADER, loader)
    if files:
        raise InputError("model_files are for a model_loader, which makes the model of them")
    options = ("pool", "scores", "embed")
    if functions := [name for name in options if callable(getattr(classifier, name))]:
        raise InputError(
            f"{functions[0]}= is a function, which cannot be stored: pass model_loader="
            f'"package.module:function", a function that returns (model, {{"{functions[0]}": ...}})'
        )
    model = classifier.model
    if isinstance(classifier.model_, PrecomputedModel):
        return Stored(PRECOMPUTED)
    if is_estimator(model):
        joblib.dump(getattr(classifier.model_, "estimator", model), place / NAMES[PICKLE])
        return Stored(PICKLE)
    if is_onnx(model):
        if isinstance(model, (str, os.PathLike)):
            shutil.copyfile(model, place / NAMES[ONNX])
        else:
            (place / NAMES[ONNX]).write_bytes(model.SerializeToString())
        return Stored(ONNX)
    raise InputError(
        f"a model of type {type(model).__name__} cannot be stored as it is: pass model_loader="
        '"package.module:function", the name of a function that takes a folder with your '
        "model_files and returns the model"
    )


def restore_model(folder: Path, stored: Stored) -> tuple[Any, Mapping[str, Any]]:
    """The model in a folder, and options of reading it; None for precomputed outputs."""
    place = folder / FOLDER
    if stored.kind == PRECOMPUTED:
        return None, {}
    if stored.kind == ONNX:
        return str(place / NAMES[ONNX]), {}
    if stored.kind == PICKLE:
        if os.environ.get(NO_PICKLES, "true").lower() in ("false", "0"):
            raise BundleError(
                f"{place / NAMES[PICKLE]} is a pickle, and {NO_PICKLES} forbids to load it: pass "
                "the trained model to load_model(uri, model)"
            )
        return joblib.load(place / NAMES[PICKLE]), {}
    if stored.kind == LOADER and stored.loader is not None:
        found = _find_function(stored.loader)(str(place))
        if isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], Mapping):
            return found
        return found, {}
    raise BundleError(f"a model stored as {shown(stored.kind)} is unknown to this version")


def _find_function(loader: Any) -> Any:
    """The function behind "package.module:function"."""
    module, _, name = loader.partition(":") if isinstance(loader, str) else ("", "", "")
    if not module or not name:
        raise InputError(f'model_loader must be "package.module:function"; got {shown(loader)}')
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InputError(f"model_loader {shown(loader)} cannot be found: {error}") from error
    if not callable(found):
        raise InputError(f"model_loader {shown(loader)} must be a function of a folder")
    return found
