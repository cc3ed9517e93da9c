"""The example of a residual network: what IK is worth on ordinary and on strange images."""

import pytest

pytest.importorskip("torch")


@pytest.mark.slow
def test_what_it_knows_is_right_and_it_does_not_know_strangers(capsys):
    from examples.residual_network import main

    found = main()
    assert "layers: input, blocks.0.moments, fc.input" in capsys.readouterr().out
    assert found["coverage"] > 0.5
    assert found["accuracy on IK"] > found["accuracy elsewhere"]
    strangers = [name for name in found if name.startswith("IK: ")]
    assert len(strangers) == 3
    for name in strangers:
        assert found[name] <= 0.05
        assert found[name] <= found[name.replace("IK", "softmax")]
