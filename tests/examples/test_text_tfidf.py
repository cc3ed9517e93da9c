"""The example of text: IK is worth more than the rest, and foreign text is seldom known."""


def test_what_it_knows_is_right_and_foreign_text_is_seldom_known(capsys):
    from examples.text_tfidf import main

    found = main()
    assert "IK" in capsys.readouterr().out
    assert found["coverage"] > 0.5
    assert found["accuracy on IK"] > 0.98 > found["accuracy elsewhere"]
    assert found["foreign IK"] < found["coverage"] / 3
