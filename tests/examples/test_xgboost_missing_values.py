"""The example with missing values: IK is worth something there, and nothing foreign is known."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("xgboost")

PATH = Path(__file__).parents[2] / "examples" / "xgboost_missing_values.py"


def load():
    spec = importlib.util.spec_from_file_location("xgboost_missing_values", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_what_is_known_is_right_and_what_is_foreign_is_not_known(capsys):
    with pytest.warns(UserWarning, match="check its unit"):
        found = load().main()
    said = capsys.readouterr().out
    assert "layers: table, leaves" in said
    rates = {name: (each.assertion == 2).mean() for name, each in found.items()}
    ordinary = rates.pop("patients like those before")
    assert ordinary > 0.6
    assert max(rates.values()) < 0.2  # the model is sure of most
    known, other = (
        float(line.split()[-1].rstrip("%"))
        for line in said.splitlines()
        if line.startswith(("IK ", "not IK"))
    )
    assert known > other + 5
