"""Bundles: a fitted classifier on disk, without its model.

A bundle is a directory of one JSON manifest and plain arrays. Nothing in it can execute code. The
manifest holds the sha256 of every file and of itself, so a changed byte is noticed. On load the
arrays are memory-mapped and not read: each is compared with its sha256 before it is first used. A
new bundle is written beside the old one and takes its place in one step: at every moment one whole
bundle is there.

    NAME.iknow/
      manifest.json
      labels.npy                     class codes, ascending
      rows.npy                       the training row each stored sample came from
      layers/LAYER/activations.npy   float32, in the order of labels.npy, as the metric sees them
      layers/LAYER/metric-*.npy      the arrays of the layer's metric, if it has any
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import numpy as np

from iknow.core.arrays import Floats32, Ints, Labels
from iknow.core.neighborhood import Neighborhood, neighborhood_from_dict, neighborhood_to_dict
from iknow.errors import BundleError, InputError
from iknow.geometry import Metric, metric_from_dict
from iknow.sealed import Seal, SealedArray

FORMAT = 1
MANIFEST = "manifest.json"
LABEL_KINDS = {"b": "bool", "i": "int64", "u": "int64", "f": "float64", "U": "str", "O": "object"}


@dataclass(frozen=True, eq=False)
class Bundle:
    """What a bundle holds.

    classes: of shape (n_classes,). labels, rows: of shape (n_rows,). activations: for each layer,
    of shape (n_rows, n_features). settings: plain values that the classifier wants back. check: to
    be called before the arrays of a bundle that was read are used; it refuses damaged ones.
    """

    classes: Labels
    labels: Ints
    rows: Ints
    activations: Mapping[str, Floats32]
    metrics: Mapping[str, Metric]
    neighborhoods: Mapping[str, Neighborhood]
    fingerprint: str | None
    settings: Mapping[str, Any]
    check: Callable[[], None] | None = None


def write_bundle(path: str | os.PathLike[str], bundle: Bundle, version: str) -> None:
    """Write a bundle, or leave what was there untouched."""
    target = Path(path).resolve()  # a link keeps pointing at the bundle that is replaced
    if target.exists() and not (target / MANIFEST).is_file():
        raise BundleError(f"{target} exists and is not a bundle: choose another name or remove it")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        arrays: dict[str, Any] = {"labels.npy": bundle.labels, "rows.npy": bundle.rows}
        for layer, values in bundle.activations.items():
            arrays[_layer_file(layer, "activations")] = values
            for name, part in bundle.metrics[layer].arrays().items():
                arrays[_layer_file(layer, f"metric-{name}")] = part
        files = {name: _write_array(temporary / name, array) for name, array in arrays.items()}
        manifest = {
            "format": FORMAT,
            "iknow": version,
            "classes": _classes_to_dict(bundle.classes),
            "layers": {
                layer: {
                    "file": _layer_file(layer, "activations"),
                    "metric": bundle.metrics[layer].to_dict(),
                    "metric_files": {
                        name: _layer_file(layer, f"metric-{name}")
                        for name in bundle.metrics[layer].arrays()
                    },
                    "neighborhood": neighborhood_to_dict(bundle.neighborhoods[layer])
                    if layer in bundle.neighborhoods
                    else None,
                }
                for layer in bundle.activations
            },
            "fingerprint": bundle.fingerprint,
            "settings": dict(bundle.settings),
            "files": files,
        }
        manifest["sha256"] = _manifest_hash(manifest)
        _write_text(temporary / MANIFEST, _to_text(manifest))
        for folder in [*temporary.rglob("*"), temporary]:
            if folder.is_dir():
                _sync_directory(folder)
        os.chmod(temporary, 0o755)  # mkdtemp makes it private
        _replace_directory(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read_bundle(path: str | os.PathLike[str], *, verify: bool | Literal["now"] = True) -> Bundle:
    """Read a bundle, arrays memory-mapped.

    verify: True to compare the arrays with their checksums when they are first used (`check`),
    "now" to compare them here, False never to. The manifest is always compared with its own.
    """
    if verify not in (True, False, "now"):
        raise InputError(f"verify must be True, False or 'now'; got {verify!r}")
    source = Path(path)
    manifest = _read_manifest(source)
    sealed = {name: SealedArray(source, name, sha) for name, sha in manifest["files"].items()}
    seal = Seal(sealed.values() if verify else ())
    if verify == "now":
        seal.check()
    layers = manifest["layers"]
    bundle = Bundle(
        classes=_classes_from_dict(manifest["classes"]),
        labels=sealed["labels.npy"].array,
        rows=sealed["rows.npy"].array,
        activations={name: sealed[layer["file"]].array for name, layer in layers.items()},
        metrics={
            name: metric_from_dict(
                layer["metric"],
                {
                    part: _read_now(sealed[file], verify=bool(verify))
                    for part, file in layer["metric_files"].items()
                },
            )
            for name, layer in layers.items()
        },
        neighborhoods={
            name: neighborhood_from_dict(layer["neighborhood"])
            for name, layer in layers.items()
            if layer["neighborhood"] is not None
        },
        fingerprint=manifest["fingerprint"],
        settings=manifest["settings"],
        check=seal.check,
    )
    _check_shapes(source, bundle)
    return bundle


def _read_now(sealed: SealedArray, *, verify: bool) -> Any:
    """A small array that is needed at once."""
    if verify:
        sealed.verify()
    return sealed.array


def _check_shapes(source: Path, bundle: Bundle) -> None:
    """The arrays must fit each other, as far as that can be told without reading them."""
    n_rows = len(bundle.labels) if bundle.labels.ndim else 0
    for name, values in (("labels.npy", bundle.labels), ("rows.npy", bundle.rows)):
        if values.dtype.kind not in "iu" or values.shape != (n_rows,):
            raise BundleError(
                f"{source}: {name} must hold {n_rows} whole numbers; it holds an array of shape "
                f"{values.shape} and dtype {values.dtype}"
            )
    for layer, points in bundle.activations.items():
        if points.dtype.kind != "f" or points.ndim != 2:
            raise BundleError(
                f"{source}: layer {layer!r} must hold a table of floats; it holds an array of "
                f"shape {points.shape} and dtype {points.dtype}"
            )
        if len(points) != n_rows:
            raise BundleError(f"{source}: layer {layer!r} has {len(points)} rows, not {n_rows}")


def _read_manifest(source: Path) -> dict[str, Any]:
    file = source / MANIFEST
    if not file.is_file():
        raise BundleError(f"{source} is not a bundle: {MANIFEST} is missing")
    try:
        text = file.read_bytes().decode()
        manifest: dict[str, Any] = json.loads(text)
        found = manifest["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise BundleError(f"{file} is damaged: it cannot be read as a manifest") from error
    # The format comes before the checksum: a newer one may compute it in another way.
    if found != FORMAT:
        raise BundleError(
            f"{source} has format {found}; this version of iknow reads format {FORMAT}: "
            "use the version of iknow that wrote it, or a newer one"
        )
    # A change that JSON does not see, such as a space, is still one: the text is compared too.
    if manifest.get("sha256") != _manifest_hash(manifest) or text != _to_text(manifest):
        raise BundleError(f"{file} is damaged: it does not match its own checksum")
    return manifest


def _layer_file(layer: str, array: str) -> str:
    """A file name for any layer name: separators and a leading dot are escaped."""
    name = quote(layer, safe="")
    name = "%2E" + name[1:] if name.startswith(".") else name or "%"
    return f"layers/{name}/{array}.npy"


def _to_text(manifest: Mapping[str, Any]) -> str:
    return json.dumps(manifest, indent=2, ensure_ascii=False)


def _manifest_hash(manifest: Mapping[str, Any]) -> str:
    content = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _write_array(file: Path, array: Any) -> str:
    """Write an array to disk for good; returns its file's sha256."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as stream:
        np.save(stream, np.ascontiguousarray(array), allow_pickle=False)
        stream.flush()
        os.fsync(stream.fileno())
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _write_text(file: Path, text: str) -> None:
    with file.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def _replace_directory(new: Path, target: Path) -> None:
    """Put `new` in the place of `target`, in one step where the system can exchange two names."""
    if not target.exists():
        os.rename(new, target)
    elif not _exchange(new, target):
        aside = new.with_name(new.name + ".old")
        os.rename(target, aside)
        try:
            os.rename(new, target)
        except BaseException:
            os.rename(aside, target)
            raise
        shutil.rmtree(aside, ignore_errors=True)
    _sync_directory(target.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names atomically, if the system can: Linux's renameat2."""
    if not sys.platform.startswith("linux"):
        return False
    at_cwd, rename_exchange = -100, 2
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    return bool(rename(at_cwd, os.fsencode(one), at_cwd, os.fsencode(other), rename_exchange) == 0)


def _sync_directory(folder: Path) -> None:
    """Make names in a directory last through a power failure; not every system has the notion."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def _classes_to_dict(classes: Labels) -> dict[str, Any]:
    values = classes.tolist()
    if classes.dtype.kind not in LABEL_KINDS or not all(
        isinstance(value, (str, int, float)) for value in values
    ):
        raise InputError(
            f"only labels that are text or numbers can be saved; got {values[:3]} of dtype "
            f"{classes.dtype}"
        )
    return {"kind": LABEL_KINDS[classes.dtype.kind], "values": values}


def _classes_from_dict(record: Mapping[str, Any]) -> Labels:
    return np.array(record["values"], dtype=record["kind"])
