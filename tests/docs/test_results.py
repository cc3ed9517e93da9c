import re

import pytest

from iknow.cli.app import app
from results import DOCS, MAKERS, agreement, commands


@pytest.mark.parametrize("name", MAKERS)
def test_every_maker_makes_something(name):
    assert len(MAKERS[name]().strip()) > 100


def test_agreement_is_that_of_the_comparison():
    (whole,) = (line for line in agreement().splitlines() if line.startswith("| **all**"))
    cells, agree, share = re.findall(r"[\d.]+%?", whole)[:3]
    page = (DOCS / "reproduction" / "comparison.md").read_text("utf-8")
    assert f"**{agree} of {cells} counted cells agree ({share}).**" in page


def test_every_command_has_a_section():
    sections = re.findall(r"^## `iknow ([\w-]+)`$", commands(), re.MULTILINE)
    names = [each.name or each.callback.__name__ for each in app.registered_commands]
    groups = [group.typer_instance.info.name for group in app.registered_groups]
    assert sections == [name.replace("_", "-") for name in [*names, *groups]]
