"""`iknow warm-up`: the search compiled, and bundles asked once."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from iknow.classifier.estimator import EpistemicClassifier
from iknow.cli import options
from iknow.cli.options import argument
from iknow.core.text import name
from iknow.models import PrecomputedModel
from iknow.models.probe import Probe
from iknow.search.layer import warm_up as compile_search


@options.command
def warm_up(
    bundles: list[Path] | None = argument("Bundles to check, prepare and ask once.", default=None),
) -> None:
    """Compile the search, so that nobody waits for it later.

    Run it once where iknow is installed, such as in a Dockerfile: processes
    started later find the compiled code. For example:

    iknow warm-up signs.iknow
    """
    console = Console()
    compile_search()
    console.print("The search is compiled")
    for bundle in bundles or ():
        classifier = EpistemicClassifier.load(bundle, verify="now")
        classifier.progress = False
        classifier.warm_up()
        probe, said = classifier.probe_, "is whole; its model is not in it"
        if isinstance(probe, Probe) and not isinstance(classifier.model_, PrecomputedModel):
            said = "answers"
            if hasattr(classifier, "neighborhoods_"):
                classifier.assess(probe.inputs)
        console.print(Text(f"{name(bundle)} {said}"))
