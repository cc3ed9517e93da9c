"""The example of a transformer: what IK is worth on ordinary and on strange sentences."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.mark.slow
def test_what_it_knows_is_right_and_strange_sentences_are_known_less_than_softmax_accepts(capsys):
    from examples.transformer import main

    found = main()
    assert "sentences it should not know" in capsys.readouterr().out
    assert found["coverage"] > 0.5
    assert found["accuracy on IK"] > found["accuracy elsewhere"]
    assert found["IK: a fourth topic"] <= 0.05
    assert found["IK: no topic"] <= 0.05
    for name in [name for name in found if name.startswith("IK: ")]:
        assert found[name] < found[name.replace("IK", "softmax")]
