"""`iknow demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from iknow.cli.options import ConfigOption, SeedOption, console_for

PAGE = Path("iknow-demo.html")


def demo(
    left_out: Annotated[int, typer.Option(help="The digit the network never sees.")] = 4,
    random_state: SeedOption = 0,
    output: Annotated[Path, typer.Option("--output", "-o", help="The report to write.")] = PAGE,
    config: ConfigOption = None,
) -> None:
    """Train on scikit-learn's digits and see what the network knows. Needs no data.

    For example, with a network that has never seen a 7:

    iknow demo --left-out 7 -o seven.html
    """
    from iknow.cli.console import show_demonstration, show_report
    from iknow.cli.demo import demonstrate, make_page
    from iknow.cli.jobs.outputs import check_page, write_page

    check_page(output)
    with Console(stderr=True).status("Training on digits ..."):
        demonstration = demonstrate(left_out, random_state)
        page = make_page(demonstration)
    show_demonstration(demonstration, console_for(output))
    write_page(output, page)
    show_report(output, console_for(output))
