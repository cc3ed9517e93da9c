import pytest

from blocks import BlockError, fill, find_blocks

PAGE = "before\n\n<!-- made by one -->\nold\n<!-- end -->\n\n<!-- made by two -->\n<!-- end -->\n"
MAKERS = {"one": lambda: "new\n", "two": lambda: "| a |\n"}


def test_blocks_are_made_anew_and_the_rest_stays():
    filled = fill(PAGE, MAKERS)
    assert filled.startswith("before\n\n<!-- made by one -->\n\nnew\n\n<!-- end -->")
    assert {name: text.strip() for name, text in find_blocks(filled).items()} == {
        "one": "new",
        "two": "| a |",
    }
    assert fill(filled, MAKERS) == filled


def test_a_block_that_nothing_makes_is_an_error():
    with pytest.raises(BlockError, match="'one'"):
        fill(PAGE, {"two": lambda: ""})
