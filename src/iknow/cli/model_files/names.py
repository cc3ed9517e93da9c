"""The names of models on the command line, and which of them can run code.

model.joblib, .pkl, .pickle    a fitted scikit-learn classifier, xgboost's, lightgbm's ...
model.pt, .pth                 a whole torch module, or TorchScript
model.pt2                      a program of torch.export
model.onnx                     an ONNX graph
model.keras                    a Keras model
model.json, .ubj               a booster of xgboost
model.txt, .lgb                a booster of lightgbm
model.cbm                      a model of catboost
package.module:name            an object in Python code, or a function that returns it
"""

from __future__ import annotations

from pathlib import Path

PICKLES = (".joblib", ".pkl", ".pickle")
TORCH = (".pt", ".pth", ".pt2", ".ts")
ONNX = (".onnx",)
KERAS = (".keras",)
XGBOOST = (".json", ".ubj")
LIGHTGBM = (".txt", ".lgb")
CATBOOST = (".cbm",)
RUNS_CODE = PICKLES + TORCH
ENDINGS = RUNS_CODE + ONNX + KERAS + XGBOOST + LIGHTGBM + CATBOOST

MODEL_HELP = (
    "The model: .joblib or .pkl (scikit-learn), .pt or .pth (torch, TorchScript), .pt2 "
    "(torch.export), .onnx, .keras, .json or .ubj (xgboost), .txt (lightgbm), .cbm (catboost), or "
    "package.module:name. Pickles, torch files and modules can run code: name only what you trust."
)


def is_file_name(name: str) -> bool:
    """Whether the name of a model is that of a file."""
    return Path(name).suffix.lower() in ENDINGS


def files_of(name: str) -> tuple[Path, ...]:
    """The files that hold a model, as far as its name shows."""
    if is_file_name(name):
        return (Path(name),)
    module = name.partition(":")[0].replace(".", "/")
    return (Path(f"{module}.py"), Path(module, "__init__.py")) if module else ()
