"""Find the user's model from its name on the command line.

    model.joblib, model.pkl    a fitted scikit-learn classifier
    model.pt, model.pth        a whole torch module, saved by torch.save(module, ...)
    package.module:name        an object in Python code, or a function that returns it

Loading any of these can run code: the user must name them. Bundles never hold code.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import joblib

from iknow.errors import InputError, MissingExtraError
from iknow.models.adapt import is_estimator, is_torch_module
from iknow.models.model import Model
from iknow.storage.atomic import replacing

PICKLES = (".joblib", ".pkl", ".pickle")
TORCH_FILES = (".pt", ".pth")


def load_model(name: str) -> Any:
    """The model named by a file or an import path."""
    path = Path(name)
    if path.suffix in PICKLES + TORCH_FILES:
        if not path.is_file():
            raise InputError(f"no such model file: {path}")
        return _load_pickle(path) if path.suffix in PICKLES else _load_torch(path)
    if ":" in name:
        return _import_model(name)
    raise InputError(
        f"{name} is not a model: expected a {', '.join(PICKLES + TORCH_FILES)} file, or "
        "package.module:name"
    )


def files_of(name: str) -> tuple[Path, ...]:
    """The files that hold a model, as far as its name shows."""
    if Path(name).suffix in PICKLES + TORCH_FILES:
        return (Path(name),)
    module = name.partition(":")[0].replace(".", "/")
    return (Path(f"{module}.py"), Path(module, "__init__.py")) if module else ()


def check_model_name(path: str | os.PathLike[str]) -> None:
    """Refuse a file that cannot hold a trained model."""
    if Path(path).suffix not in PICKLES:
        raise InputError(f"{path} must end in {', '.join(PICKLES)} to hold a trained model")


def save_model(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a scikit-learn model that `load_model` can read."""
    check_model_name(path)
    with replacing(Path(path)) as file:
        joblib.dump(model, file)


def _load_pickle(path: Path) -> Any:
    try:
        return joblib.load(path)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a pickle may fail in any way
        raise InputError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error


def _load_torch(path: Path) -> Any:
    try:
        from iknow.models.torch import load_module
    except ImportError as error:
        raise MissingExtraError("a torch model", "torch") from error
    return load_module(path)


def _import_model(name: str) -> Any:
    module_name, _, attribute = name.partition(":")
    if not module_name or module_name.startswith(".") or not attribute:
        raise InputError(f"{name} is not a model: expected package.module:name")
    here = os.getcwd()
    sys.path.insert(0, here)  # as `python -m` does
    try:
        model = getattr(importlib.import_module(module_name), attribute)
        ready = is_torch_module(model) or is_estimator(model) or isinstance(model, Model)
        return model() if callable(model) and not ready else model
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the user's code may even call sys.exit
        raise InputError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        if here in sys.path:
            sys.path.remove(here)
