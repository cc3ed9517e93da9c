"""MLflow: log a classifier with its model, load it, and serve it as a `pyfunc`.

    import iknow.integrations.mlflow as iknow_mlflow

    info = iknow_mlflow.log_model(ec, name="signs")
    mlflow.pyfunc.load_model(info.model_uri).predict(frame)   # belief, assertion, reason, level
    ec = iknow_mlflow.load_model(info.model_uri)              # the classifier itself

The folder of a logged model holds `bundle.iknow` and the wrapped model in `model/` (see `wrapped`).
MLflow's own flavors pickle scikit-learn models too; as there, loading a pickle runs code.
"""

from __future__ import annotations

import json
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from iknow.classifier.epistemic import EpistemicClassifier
from iknow.core.text import shown
from iknow.errors import BundleError, InputError, MissingExtraError
from iknow.integrations.answers import Answers, takes_texts
from iknow.integrations.wrapped import ONNX, Stored, restore_model, store_model
from iknow.models.probe import Probe
from iknow.storage.about import BundleInfo, describe_bundle
from iknow.version import __version__

try:
    import mlflow
    from mlflow.models import Model, ModelSignature, infer_signature
    from mlflow.models.model import MLMODEL_FILE_NAME
    from mlflow.models.utils import _save_example
    from mlflow.utils import environment
    from mlflow.utils.model_utils import _validate_and_copy_code_paths

    with warnings.catch_warnings():  # of types of its own, on import
        warnings.simplefilter("ignore", UserWarning)
        import mlflow.pyfunc
except ImportError as error:
    raise MissingExtraError("iknow.integrations.mlflow", "mlflow") from error

FLAVOR_NAME = "iknow"
BUNDLE = "bundle.iknow"
DISTRIBUTIONS = {"sklearn": ("scikit-learn",), "xgboost": ("xgboost", "xgboost-cpu")}
"""What pip calls packages that go by another name."""


def save_model(
    classifier: EpistemicClassifier,
    path: str | PathLike[str],
    *,
    signature: Any = None,
    input_example: Any = None,
    model_loader: str | None = None,
    model_files: Sequence[str | PathLike[str]] = (),
    code_paths: list[str] | None = None,
    pip_requirements: Any = None,
    extra_pip_requirements: Any = None,
    metadata: Mapping[str, Any] | None = None,
    mlflow_model: Any = None,
) -> None:
    """Save a classifier, with its model, as an MLflow model in a new folder.

    The model is loaded back at once, so that one that cannot be restored is refused here.

    Args:
        classifier: A fitted classifier that can assess.
        path: The folder, which must not exist or be empty.
        signature: An MLflow signature. Default: inferred from the example or, without one, from the
            training inputs in the bundle; False for none.
        input_example: Some inputs, to keep with the model.
        model_loader: For a model that is neither a scikit-learn classifier nor an ONNX file:
            "package.module:function", a function that takes the folder of `model_files` and returns
            the model, or a pair of it and a dict of `pool`, `scores` and `embed`.
        model_files: Files or folders that the function needs, such as weights.
        code_paths: Python files or packages to keep with the model and import from there.
        pip_requirements: Instead of the versions of iknow and of the model's package used here.
        extra_pip_requirements: In addition to those.
        metadata: Further metadata of the model; iknow adds what its bundle says.
        mlflow_model: The MLflow model to add to; `log_model` passes it.

    Examples:
        >>> ec = EpistemicClassifier(FrozenEstimator(trained)).fit(X_train, y_train)
        >>> save_model(ec.tune(X_val, y_val), "irises")
        >>> mlflow.pyfunc.load_model("irises").predict(X_val[:2])
           belief assertion reason     level
        0       0        IK  KNOWN  0.893333
        1       0        IK  KNOWN  0.626667
    """
    if not isinstance(classifier, EpistemicClassifier):
        raise InputError(f"an EpistemicClassifier is needed; got {shown(classifier)}")
    with _new_folder(Path(path)) as folder:
        classifier.save(folder / BUNDLE)
        stored = store_model(classifier, folder, model_loader, model_files)
        loaded = _load(folder, stored)
        code = _validate_and_copy_code_paths(code_paths, str(folder))  # type: ignore[no-untyped-call]
        model = Model() if mlflow_model is None else mlflow_model
        _save_example(model, input_example, str(folder))
        if signature is None:
            signature = make_signature(loaded, input_example)
        model.signature = signature or None
        said = {FLAVOR_NAME: _summarize(describe_bundle(folder / BUNDLE))}
        model.metadata = {**(model.metadata or {}), **(metadata or {}), **said}
        _add_flavors(model, stored, code)
        model.save(str(folder / MLMODEL_FILE_NAME))
        needed = _requirements(loaded, stored)
        _write_environment(folder, needed, pip_requirements, extra_pip_requirements)


def log_model(
    classifier: EpistemicClassifier,
    name: str = "model",
    *,
    registered_model_name: str | None = None,
    **options: Any,
) -> Any:
    """Log a classifier, with its model, to the current run, or to a new one.

    Args:
        classifier: A fitted classifier that can assess.
        name: What to call it there.
        registered_model_name: Also make it a version of this registered model.
        **options: For `save_model`, and for `mlflow.models.Model.log`, such as `params` and `tags`.

    Returns:
        MLflow's `ModelInfo`: its `model_uri` is what `load_model` takes.

    Examples:
        >>> info = log_model(ec, name="irises")  # doctest: +SKIP
        >>> load_model(info.model_uri).assess(X)  # doctest: +SKIP
    """
    return Model.log(
        artifact_path=None,
        name=name,
        flavor=sys.modules[__name__],
        registered_model_name=registered_model_name,
        classifier=classifier,
        **options,
    )


def load_model(model_uri: str, model: Any = None, *, dst_path: str | None = None) -> Any:
    """Load a classifier that was logged or saved.

    Args:
        model_uri: Where it is, such as "models:/signs/1" or a folder.
        model: The trained model, to use instead of the stored one: then no pickle is loaded and no
            loader called. The bundle recognizes it, as in `EpistemicClassifier.load`.
        dst_path: Where to download it to.

    Returns:
        The `EpistemicClassifier`.

    Examples:
        >>> ec = EpistemicClassifier(FrozenEstimator(trained)).fit(X_train, y_train)
        >>> save_model(ec.tune(X_val, y_val), "irises")
        >>> load_model("irises").layers_
        ('input',)
    """
    folder = Path(mlflow.artifacts.download_artifacts(str(model_uri), dst_path=dst_path))
    flavor = Model.load(str(folder)).flavors.get(FLAVOR_NAME)
    if flavor is None:
        raise BundleError(f"{model_uri} is an MLflow model, but not one of iknow")
    if model is not None:
        return EpistemicClassifier.load(folder / BUNDLE, model)
    if (code := flavor.get("code")) is not None:
        sys.path.insert(0, str(folder / Path(str(code)).name))
    return _load(folder, Stored(flavor.get("kind"), flavor.get("loader")))


def make_signature(classifier: EpistemicClassifier, input_example: Any = None) -> Any:
    """Infer MLflow's signature: what `predict` of the `pyfunc` takes and returns.

    Args:
        classifier: A fitted classifier that can assess.
        input_example: Some inputs. Default: the training inputs that its bundle would keep.

    Returns:
        The signature; None if there are no such inputs.

    Examples:
        >>> ec = EpistemicClassifier(FrozenEstimator(trained)).fit(X_train, y_train)
        >>> make_signature(ec.tune(X_val, y_val)).outputs.input_names()
        ['belief', 'assertion', 'reason', 'level']
    """
    example = input_example
    if example is None and isinstance(classifier.probe_, Probe):
        example = classifier.probe_.inputs
        example = getattr(example, "arrays", example)  # inputs by name
    if example is None:
        return None
    if takes_texts(classifier):
        example = np.asarray(example).reshape(-1).tolist()
    answers = Answers(classifier).predict(example)
    with warnings.catch_warnings():  # it warns of whole numbers, which labels may well be
        warnings.simplefilter("ignore", UserWarning)
        outputs = infer_signature(answers).inputs
    return ModelSignature(infer_signature(example).inputs, outputs)


def _load_pyfunc(path: str) -> Answers:
    """What `mlflow.pyfunc.load_model` calls, with the folder of the model."""
    return Answers(load_model(path))


def _load(folder: Path, stored: Stored) -> EpistemicClassifier:
    model, options = restore_model(folder, stored)
    return EpistemicClassifier.load(folder / BUNDLE, model, **options)


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """A new or empty folder, which does not outlive an error."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists and is not an empty folder: choose another name")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder)
        raise


def _add_flavors(model: Any, stored: Stored, code: str | None) -> None:
    """Say in an MLflow model how to load it, as a `pyfunc` and as ours."""
    files = {
        "conda_env": environment._CONDA_ENV_FILE_NAME,
        "python_env": environment._PYTHON_ENV_FILE_NAME,
    }
    mlflow.pyfunc.add_to_model(model, loader_module=__name__, code=code, **files)
    model.add_flavor(
        FLAVOR_NAME, iknow_version=__version__, bundle=BUNDLE, code=code, **vars(stored)
    )


def _summarize(info: BundleInfo) -> dict[str, Any]:
    """What MLflow shows about a logged model."""
    record = info.to_dict()
    kept = ("name", "note", "created", "model", "n_samples", "rule", "selection")
    return {name: record[name] for name in kept} | {"promises": info.promises}


def _requirements(classifier: EpistemicClassifier, stored: Stored) -> list[str]:
    """The versions that the model needs: of iknow, pandas, and the model's own package."""
    model = getattr(classifier.model_, "estimator", classifier.model)
    packages = {type(model).__module__.partition(".")[0], "sklearn", "pandas"}
    packages |= {"onnxruntime"} if stored.kind == ONNX else set()
    pins = [_pin(package) for package in sorted(packages - {"iknow"})]
    return [f"iknow=={__version__}", *(pin for pin in pins if pin is not None)]


def _pin(package: str) -> str | None:
    """The version of a package as pip writes it; None for one that pip did not install."""
    for name in DISTRIBUTIONS.get(package, (package,)):
        try:
            return f"{name}=={version(name)}"
        except PackageNotFoundError:
            continue
    return None


def _write_environment(folder: Path, default: list[str], given: Any, extra: Any) -> None:
    """Write the files from which MLflow makes an environment for the model."""
    conda, pip, constraints = environment._process_pip_requirements(  # type: ignore[no-untyped-call]
        default if given is None else None, given, extra
    )
    # JSON is YAML too.
    (folder / environment._CONDA_ENV_FILE_NAME).write_text(json.dumps(conda, indent=1))
    (folder / environment._REQUIREMENTS_FILE_NAME).write_text("\n".join(pip))
    if constraints:
        (folder / environment._CONSTRAINTS_FILE_NAME).write_text("\n".join(constraints))
    python_env = environment._PythonEnv.current()  # type: ignore[no-untyped-call]
    python_env.to_yaml(str(folder / environment._PYTHON_ENV_FILE_NAME))
