from docstrings import list_arguments

TEXT = """Choose the radii.

X: n samples that were not in the training data. y: their labels, of shape (n,). k: one number
    or several. Note: this is no argument. low, high:
both.

    Ball: an example, as it stands

Promise: nothing."""


def test_arguments_become_a_list_and_the_rest_stays():
    assert list_arguments(TEXT, ["X", "y", "k", "low", "high", "Ball"]).split("\n\n") == [
        "Choose the radii.",
        "- `X`: n samples that were not in the training data.\n"
        "- `y`: their labels, of shape (n,).\n"
        "- `k`: one number or several. Note: this is no argument.\n"
        "- `low`, `high`: both.",
        "    Ball: an example, as it stands",
        "Promise: nothing.",
    ]


def test_what_comes_before_them_stays_before_them():
    text = "A frozen record. radius: a number."
    assert list_arguments(text, ["radius"]) == "A frozen record.\n\n- `radius`: a number."
