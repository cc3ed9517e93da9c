"""The command line: `iknow demo`, `fit`, `assess`, `report` and `compare`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from iknow.cli.failures import OneLineErrors
from iknow.core.neighborhood import Neighborhood
from iknow.rules import RULES, Ball, RelativeBall
from iknow.storage.atomic import is_stream
from iknow.version import __version__

app = typer.Typer(
    name="iknow",
    help="Makes a classifier honest: IK, IMK or IDK for every prediction.",
    cls=OneLineErrors,
    pretty_exceptions_enable=False,
)


def rule_by_name(name: str) -> type[Neighborhood]:
    """The rule of a name on the command line."""
    rules = {rule.command_name(): rule for rule in RULES.values()}
    if name not in rules:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(rules)}", param_hint="--rule")
    return rules[name]


def quorum_by_name(text: str | None) -> int | tuple[int, int] | None:
    """The quorum of a text such as "3" or "1,3"."""
    if text is None:
        return None
    numbers = text.split(",")
    if len(numbers) > 2 or not all(re.fullmatch(r"\s*[0-9]{1,6}\s*", each) for each in numbers):
        raise typer.BadParameter(
            f"{text!r} is not a whole number, or two such as 1,3", param_hint="--quorum"
        )
    first, last = int(numbers[0]), int(numbers[-1])
    return first if len(numbers) == 1 else (first, last)


DEMO, PAGE = Path("iknow-demo.html"), Path("report.html")
RULE_NAMES = "|".join(rule.command_name() for rule in RULES.values())
KIND = f"The kind of neighborhood; {RelativeBall.command_name()} by default."
RuleOption = Annotated[str | None, typer.Option(help=KIND, metavar=RULE_NAMES)]
QUORUM = "Samples a class needs to count: 3, or 1,3 for the belief and any other class."
QuorumOption = Annotated[str | None, typer.Option(help=QUORUM, metavar="N|FOR,AGAINST")]
ALARM = "Bound the share of ordinary samples that are not IK; needs no labels."
FalseAlarmOption = Annotated[float | None, typer.Option(help=ALARM)]
ORDINARY = "More samples, without labels, that show what is ordinary."
ReferenceOption = Annotated[Path | None, typer.Option(help=ORDINARY)]
LabelOption = Annotated[str | None, typer.Option(help="Column or array that holds the labels.")]
LabelsOption = Annotated[Path | None, typer.Option(help="File of labels: .npy or .csv.")]
MODEL = (
    "A .joblib, .pkl, .pt or .pth file, or package.module:name, that you trust: it can run code."
)
ModelOption = Annotated[str | None, typer.Option(help=MODEL)]
SeedOption = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of split and training.")]
DeviceOption = Annotated[str | None, typer.Option(help="Search by torch: cuda, cuda:1, mps, cpu.")]
BundleArgument = Annotated[Path, typer.Argument(help="The bundle that `iknow fit` wrote.")]
DataArgument = Annotated[Path, typer.Argument(help="Samples: .csv, .npz, .npy or .parquet.")]
ANY_MODEL = "Accept any model, even one whose answers differ from the bundle's."
NoCheckOption = Annotated[bool, typer.Option("--no-check-model", help=ANY_MODEL)]


def _console(output: Path | None) -> Console:
    """The console for messages: not the stream that the result goes to."""
    return Console(stderr=output is not None and is_stream(output))


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        typer.echo(f"iknow {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


@app.command()
def demo(
    left_out: Annotated[int, typer.Option(help="The digit the network never sees.")] = 4,
    random_state: SeedOption = 0,
    output: Annotated[Path, typer.Option("--output", "-o", help="The report to write.")] = DEMO,
) -> None:
    """Train on scikit-learn's digits and see what the network knows. Needs no data."""
    from iknow.cli.console import show_demonstration, show_report
    from iknow.cli.demo import demonstrate, make_report
    from iknow.cli.jobs.outputs import check_page
    from iknow.storage.atomic import write_bytes

    check_page(output)
    with Console(stderr=True).status("Training on digits ..."):
        demonstration = demonstrate(left_out, random_state)
        page = make_report(demonstration)
    show_demonstration(demonstration, _console(output))
    write_bytes(output, page.encode())
    show_report(output, _console(output))


@app.command()
def fit(
    data: Annotated[Path, typer.Argument(help="Training samples: .csv, .npz, .npy or .parquet.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The bundle to write.")],
    model: ModelOption = None,
    train: Annotated[bool, typer.Option("--train", help="Train and write --model first.")] = False,
    validation: Annotated[Path | None, typer.Option(help="Labeled samples to tune on.")] = None,
    validation_labels: LabelsOption = None,
    hold_out: Annotated[float | None, typer.Option(help="Or tune on this share of DATA.")] = None,
    label: LabelOption = None,
    labels: LabelsOption = None,
    layer: Annotated[list[str] | None, typer.Option(help="A layer to search; repeatable.")] = None,
    rule: RuleOption = None,
    paper: Annotated[bool, typer.Option("--paper", help="As published: --rule ball.")] = False,
    quorum: QuorumOption = None,
    k: Annotated[int, typer.Option(min=1, help="Neighbors, for the rules that use them.")] = 5,
    accuracy: Annotated[float | None, typer.Option(help="Certify accuracy on IK, or fail.")] = None,
    confidence: Annotated[float, typer.Option(help="With this probability.")] = 0.95,
    coverage: Annotated[float | None, typer.Option(help="Match this share of IK.")] = None,
    false_alarm: FalseAlarmOption = None,
    reference: ReferenceOption = None,
    random_state: SeedOption = 0,
    force: Annotated[bool, typer.Option("--force", help="Let --train overwrite a model.")] = False,
) -> None:
    """Collect the evidence for a model, choose how near is near, and write both as a bundle.

    Ask for --accuracy, --coverage or --false-alarm. For example, for an IK
    that is right 99 times in 100:

    iknow fit train.npz --model m.pt --validation v.npz --accuracy 0.99 -o b.iknow

    Without a goal, IK shall be wrong ten times less often than the model. If
    there are too few samples to certify that, three quarters of them are IK,
    and nothing is guaranteed.
    """
    if paper and rule is not None:
        raise typer.BadParameter("--paper means --rule ball: leave one out", param_hint="--rule")
    from iknow.cli.console import show_fit
    from iknow.cli.jobs.fit import fit_job
    from iknow.cli.jobs.source import Source

    classifier = fit_job(
        Source(data, label, labels),
        output,
        model=model,
        train=train,
        validation=None if validation is None else Source(validation, label, validation_labels),
        hold_out=hold_out,
        layers=layer,
        rule=Ball if paper else RelativeBall if rule is None else rule_by_name(rule),
        quorum=quorum_by_name(quorum),
        k=k,
        goal={
            "accuracy": accuracy,
            "confidence": confidence,
            "coverage": coverage,
            "false_alarm": false_alarm,
        },
        reference=None if reference is None else Source(reference),
        random_state=random_state,
        force=force,
    )
    show_fit(classifier, output, _console(output))


@app.command()
def assess(
    bundle: BundleArgument,
    data: DataArgument,
    model: ModelOption = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Table to write.")] = None,
    label: LabelOption = None,
    labels: LabelsOption = None,
    device: DeviceOption = None,
    no_check_model: NoCheckOption = False,
) -> None:
    """Say IK, IMK or IDK for each prediction, and its level; with labels, how often it is right.

    For example: iknow assess b.iknow new.csv --model m.joblib -o assertions.csv
    """
    from iknow.cli.console import show_assessment
    from iknow.cli.jobs.assess import assess_job
    from iknow.cli.jobs.source import Source

    console, source = _console(output), Source(data, label, labels)
    assessment, y_true = assess_job(
        bundle, source, output, model=model, device=device, check_model=not no_check_model
    )
    show_assessment(assessment, y_true, output, console)


@app.command()
def report(
    bundle: BundleArgument,
    data: DataArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = PAGE,
    model: ModelOption = None,
    label: LabelOption = None,
    labels: LabelsOption = None,
    training: Annotated[
        Path | None, typer.Option(help="The file given to `iknow fit`, to show the exemplars.")
    ] = None,
    training_label: LabelOption = None,
    layer: Annotated[
        list[str] | None, typer.Option(help="A layer that decides; repeatable.")
    ] = None,
    show: Annotated[
        str | None,
        typer.Option(help="What samples look like: image:8x8, image:3x32x32, series, features."),
    ] = None,
    device: DeviceOption = None,
    no_check_model: NoCheckOption = False,
) -> None:
    """Write what is known, and why, as one HTML page that opens anywhere."""
    from iknow.cli.console import show_figures, show_report
    from iknow.cli.jobs.report import renderer_by_name, report_job
    from iknow.cli.jobs.source import Source

    assessment, y_true = report_job(
        bundle,
        Source(data, label, labels),
        output,
        model=model,
        training=None if training is None else Source(training, training_label or label),
        layers=layer,
        renderer=renderer_by_name(show),
        device=device,
        check_model=not no_check_model,
    )
    show_figures(assessment, y_true, _console(output))
    show_report(output, _console(output))


@app.command()
def compare(
    model: Annotated[str, typer.Argument(help=MODEL)],
    training: Annotated[Path, typer.Argument(help="The samples that the model was trained on.")],
    validation: Annotated[Path, typer.Argument(help="Labeled samples that it was not.")],
    test: Annotated[Path, typer.Argument(help="Further labeled samples, as clean.")],
    label: LabelOption = None,
    training_labels: LabelsOption = None,
    validation_labels: LabelsOption = None,
    test_labels: LabelsOption = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Further labeled data, NAME=FILE; repeatable.")
    ] = None,
    foreign: Annotated[
        list[str] | None,
        typer.Option(help="Data on which no answer is right, NAME=FILE; repeatable."),
    ] = None,
    layer: Annotated[list[str] | None, typer.Option(help="A layer to search; repeatable.")] = None,
    coverage: Annotated[
        list[float], typer.Option(help="Share of clean data to assert; repeatable.")
    ] = [0.6, 0.75, 0.9],  # noqa: B006
    accuracy: Annotated[float, typer.Option(help="The accuracy to certify.")] = 0.99,
    confidence: Annotated[float, typer.Option(help="Of certificates and intervals.")] = 0.95,
    random_state: SeedOption = 0,
    json: Annotated[Path | None, typer.Option(help="Write all figures as JSON.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with the curves.")] = None,
) -> None:
    """Compare iknow with other methods on your model and data, at equal coverage."""
    from iknow.cli.console import show_comparison
    from iknow.cli.jobs.compare import compare_job, sources_by_name
    from iknow.cli.jobs.source import Source

    with Console(stderr=True).status("Comparing ..."):
        comparison = compare_job(
            model,
            Source(training, label, training_labels),
            Source(validation, label, validation_labels),
            Source(test, label, test_labels),
            sets=sources_by_name(set_ or (), "--set", label),
            foreign=sources_by_name(foreign or (), "--foreign", None),
            layers=layer,
            coverages=coverage,
            accuracy=accuracy,
            confidence=confidence,
            random_state=random_state,
            json_output=json,
            page=html,
        )
    streams = [path for path in (json, html) if path is not None and is_stream(path)]
    show_comparison(comparison, [json, html], _console(streams[0] if streams else None))
