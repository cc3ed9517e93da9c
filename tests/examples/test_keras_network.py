"""The example of Keras: IK is worth more than the rest, and unknown digits are not known."""

import pytest

pytest.importorskip("keras")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy")
def test_what_it_knows_is_right_and_unknown_digits_are_not_known(capsys):
    from examples.keras_network import main

    found = main()
    assert "layers: input, digits.input" in capsys.readouterr().out
    assert found["coverage"] > 0.5
    assert found["accuracy on IK"] > 0.98 > found["accuracy elsewhere"]
    assert found["foreign IK"] < 0.1
    assert found["foreign IK"] < found["foreign confident"]
