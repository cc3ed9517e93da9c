"""`iknow add`, `remove`, `relabel`, `compact` and `changes`: a bundle whose evidence changes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from iknow.cli import options

LOG = "The log"
WhoOption = Annotated[
    str | None,
    typer.Option(help="Who changes it. Default: your login name.", rich_help_panel=LOG),
]
WhyOption = Annotated[str, typer.Option(help="Why.", rich_help_panel=LOG)]
IdsFileOption = Annotated[
    Path | None, typer.Option(help="File with a sample's number in each line.")
]


def add(
    bundle: options.BundleArgument,
    data: options.DataArgument,
    model: options.ModelOption = None,
    label: options.LabelOption = None,
    labels: options.LabelsOption = None,
    identifier: Annotated[
        str | None,
        typer.Option(
            "--id",
            help="Column of whole numbers that name the samples. Default: they count on.",
            metavar="COLUMN",
            rich_help_panel=options.COLUMNS,
        ),
    ] = None,
    drop: options.DropOption = None,
    features: options.FeaturesOption = None,
    text: options.TextOption = None,
    input_format: options.InputFormatOption = None,
    who: WhoOption = None,
    why: WhyOption = "",
    no_check_model: options.NoCheckOption = False,
    config: options.ConfigOption = None,
) -> None:
    """Add labeled samples to a bundle's evidence.

    What was certified is stale afterwards, until it is certified again. For
    example:

    iknow add b.iknow new.csv --label y --model m.joblib --why "night shots"
    """
    from iknow.cli.jobs.change import add_job, login_name, show_numbers
    from iknow.cli.jobs.source import Source

    roles = options.roles_of(label, identifier, drop, features, text)
    with Console(stderr=True).status("Adding ..."):
        numbers = add_job(
            bundle,
            Source(data, roles, labels, input_format),
            model=model,
            check_model=not no_check_model,
            who=login_name() if who is None else who,
            why=why,
        )
    show_numbers("Added", numbers, bundle, Console())


def remove(
    bundle: options.BundleArgument,
    ids: Annotated[
        list[str] | None,
        typer.Option(
            "--ids", help="Numbers of samples, with commas between; repeatable.", metavar="3,7,..."
        ),
    ] = None,
    ids_file: IdsFileOption = None,
    who: WhoOption = None,
    why: WhyOption = "",
    config: options.ConfigOption = None,
) -> None:
    """Remove samples from a bundle's evidence, by their numbers.

    It needs no model. Their data is in the file until `iknow compact`. For
    example:

    iknow remove b.iknow --ids 3,7 --why "consent withdrawn"
    """
    from iknow.cli.jobs.change import login_name, read_ids, remove_job, show_numbers

    numbers = read_ids(ids, ids_file)
    remove_job(bundle, numbers, who=login_name() if who is None else who, why=why)
    show_numbers("Removed", numbers, bundle, Console())


def relabel(
    bundle: options.BundleArgument,
    pairs: Annotated[
        list[str] | None, typer.Argument(help="Numbers and labels.", metavar="ID=LABEL...")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help=".csv file with a number and a label in each line.")
    ] = None,
    who: WhoOption = None,
    why: WhyOption = "",
    config: options.ConfigOption = None,
) -> None:
    """Give samples of a bundle's evidence other labels.

    It needs no model. For example:

    iknow relabel b.iknow 3=cat 7=dog --why "second opinion"
    """
    from iknow.cli.jobs.change import login_name, read_pairs, relabel_job, show_numbers

    numbers, labels = read_pairs(pairs, file)
    relabel_job(bundle, numbers, labels, who=login_name() if who is None else who, why=why)
    show_numbers("Relabeled", numbers, bundle, Console())


def compact(bundle: options.BundleArgument, config: options.ConfigOption = None) -> None:
    """Fold a bundle's changes into it: nothing of removed samples is left but the log.

    Those who have it loaded keep the old file. For example:

    iknow compact b.iknow
    """
    from iknow.cli.jobs.change import compact_job, show_compacted

    with Console(stderr=True).status("Compacting ..."):
        before, after = compact_job(bundle)
    show_compacted(before, after, Console())


def changes(
    bundle: options.BundleArgument,
    json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
    config: options.ConfigOption = None,
) -> None:
    """List what happened to a bundle's evidence: who changed which samples, when and why.

    For example:

    iknow changes b.iknow
    """
    from iknow.cli.jobs.change import show_changes
    from iknow.storage.about import describe_bundle

    found = describe_bundle(bundle)
    if json:
        from json import dumps

        typer.echo(dumps(found.to_dict()["changes"], indent=1, ensure_ascii=True, default=str))
        return
    show_changes(found, Console())
