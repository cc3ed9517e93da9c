"""The user's model from its name on the command line: a file, or an object in Python code."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import joblib

from iknow.errors import IknowError, InputError, MissingExtraError
from iknow.models.adapt import is_estimator, is_torch_module
from iknow.models.model import Model
from iknow.storage.files import replacing

PICKLES, ONNX = (".joblib", ".pkl", ".pickle"), ".onnx"
NATIVE = {
    **dict.fromkeys((".pt", ".pth", ".pt2", ".ts"), "torch"),
    ".keras": "keras",
    **dict.fromkeys((".json", ".ubj"), "xgboost"),
    **dict.fromkeys((".txt", ".lgb"), "lightgbm"),
    ".cbm": "catboost",
}
"""The package that loads a file, by its ending."""
ENDINGS = (*PICKLES, ONNX, *NATIVE)

MODEL_HELP = (
    "The model: .joblib or .pkl (scikit-learn), .pt or .pth (torch, TorchScript), .pt2 "
    "(torch.export), .onnx, .keras, .json or .ubj (xgboost), .txt (lightgbm), .cbm (catboost), or "
    "package.module:name. Pickles, torch files and modules can run code: name only what you trust."
)


def files_of(name: str) -> tuple[Path, ...]:
    """The files that hold a model, as far as its name shows."""
    if Path(name).suffix.lower() in ENDINGS:
        return (Path(name),)
    module = name.partition(":")[0].replace(".", "/")
    return (Path(f"{module}.py"), Path(module, "__init__.py")) if module else ()


def load_model(name: str) -> Any:
    """The model named by a file or an import path."""
    ending = Path(name).suffix.lower()
    module, _, attribute = name.partition(":")
    if ending in ENDINGS and not Path(name).is_file():
        raise InputError(f"no such model file: {name}")
    if ending not in ENDINGS and (not module or module.startswith(".") or not attribute):
        raise InputError(
            f"{name} is not a model: expected a {', '.join(ENDINGS)} file, or package.module:name"
        )
    try:
        if ending in PICKLES:
            return joblib.load(name)
        if ending in NATIVE:
            return _load_native(name, NATIVE[ending])
        return name if ending == ONNX else _import_model(module, attribute)
    except (IknowError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a pickle may fail in any way, and code may call sys.exit
        kind = type(error).__name__
        raise InputError(f"{name} cannot be loaded as a model: {kind}: {error}") from error


def check_model_name(path: str | os.PathLike[str]) -> None:
    """Refuse a file that cannot hold a trained model."""
    if Path(path).suffix not in PICKLES:
        raise InputError(f"{path} must end in {', '.join(PICKLES)} to hold a trained model")


def save_model(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a scikit-learn model that `load_model` can read, at a path that was checked."""
    with replacing(Path(path)) as file:
        joblib.dump(model, file)


def _load_native(path: str, package: str) -> Any:
    """A model in the format of a package, which the package itself reads."""
    try:
        found = importlib.import_module(package)
    except ImportError as error:
        raise MissingExtraError(f"a model of {package}", package) from error
    if package == "torch":  # a module, TorchScript or a program of torch.export
        from iknow.models.torch import load_module

        return load_module(path)
    if package == "keras":  # its safe mode refuses layers that would run code
        return found.models.load_model(path, compile=False, safe_mode=True)
    if package == "catboost":  # it keeps the labels of a classifier
        return found.CatBoostClassifier().load_model(path)
    return found.Booster(model_file=path)


def _import_model(module: str, attribute: str) -> Any:
    """An object in Python code; if that is a function, what it returns."""
    here = os.getcwd()
    sys.path.insert(0, here)  # as `python -m` does
    try:
        model = getattr(importlib.import_module(module), attribute)
        ready = is_torch_module(model) or is_estimator(model) or isinstance(model, Model)
        return model() if callable(model) and not ready else model
    finally:
        if here in sys.path:
            sys.path.remove(here)
