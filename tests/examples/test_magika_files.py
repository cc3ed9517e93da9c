"""The example of an ONNX classifier of files shows what it says."""

import pytest

from examples import magika_files


@pytest.mark.slow
def test_what_it_knows_it_knows_and_what_is_strange_it_does_not(capsys):
    found = magika_files.main()
    assert found["coverage"] > 0.4
    assert found["accuracy on IK"] > 0.85
    assert found["accuracy on IK"] > found["accuracy elsewhere"] + 0.2
    strange = [name.removeprefix("IK: ") for name in found if name.startswith("IK: ")]
    assert len(strange) == 3
    by_nearness = sum(found[f"IK: {name}"] for name in strange)
    assert by_nearness < sum(found[f"score: {name}"] for name in strange)
    assert found["IK: the bytes in another order"] < 0.1
    assert "layer: jax2tf" in capsys.readouterr().out
