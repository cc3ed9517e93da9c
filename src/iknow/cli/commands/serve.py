"""`iknow serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from iknow.cli.options import ConfigOption, option

LIMITS, AUDIT, ALARM, SAFETY = "Limits", "Audit", "Alarm", "Safety"


def serve(
    bundles: Annotated[
        list[str] | None,
        typer.Argument(help="Portable bundles, each as FILE or NAME=FILE.", metavar="BUNDLE..."),
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Serve a digit reader, and show how to ask it.")
    ] = False,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    workers: Annotated[
        int, typer.Option(min=1, help="Processes that compute, which share the evidence.")
    ] = 1,
    picture: Annotated[
        list[str] | None,
        typer.Option(help="NAME=28x28: draw unknown samples on the page.", metavar="SIZE"),
    ] = None,
    tokens: Annotated[
        Path | None,
        option(
            "File of tokens: lines of a name, scopes and a token. Or IKNOW_TOKENS in the "
            "environment. Needed unless only this machine is served.",
            SAFETY,
        ),
    ] = None,
    ssl_certfile: Annotated[Path | None, option("Certificate for TLS.", SAFETY)] = None,
    ssl_keyfile: Annotated[Path | None, option("Its key.", SAFETY)] = None,
    audit: Annotated[
        str | None,
        option(
            "Record every answer in this file, or in a PostgreSQL database by its URL.",
            AUDIT,
            metavar="FILE|URL",
        ),
    ] = None,
    keep_inputs: Annotated[
        bool, option("Record inputs too, for audit verify.", AUDIT, "--keep-inputs")
    ] = False,
    audit_optional: Annotated[
        bool,
        option(
            "Answer even if that cannot be recorded, instead of with 503.",
            AUDIT,
            "--audit-optional",
        ),
    ] = False,
    retain_days: Annotated[float | None, option("Keep records this long.", AUDIT)] = None,
    retain_mib: Annotated[int | None, option("Keep this much of them, in MiB.", AUDIT)] = None,
    alarm_rate: Annotated[
        float, option("Probability with which an alarm may ever be false.", ALARM)
    ] = 0.01,
    state: Annotated[
        Path | None,
        option("Folder that keeps alarms across restarts; else beside the audit or bundle.", ALARM),
    ] = None,
    max_body: Annotated[int, option("Largest body, in MiB.", LIMITS, min=1)] = 32,
    max_rows: Annotated[int, option("Most rows of a request.", LIMITS, min=1)] = 10_000,
    queue: Annotated[int, option("Most rows that wait; then 429.", LIMITS, min=1)] = 20_000,
    timeout: Annotated[float, option("Seconds for an answer; then 504.", LIMITS)] = 30.0,
    drain: Annotated[float, option("Seconds to finish requests after SIGTERM.", LIMITS)] = 20.0,
    config: ConfigOption = None,
) -> None:
    """Serve bundles over HTTP, with a page of what they know, an audit and an alarm.

    It takes portable bundles, which carry their model: see iknow export. For example:

    iknow serve signs.iknow --audit answers.db

    curl localhost:8000/v1/models/signs/assess -H 'Content-Type: application/json' -d '{"rows":
    [[0.1, 0.2]]}'
    """
    from iknow.cli.jobs.serve import Plan, run_demo, run_service

    if demo is bool(bundles):
        raise typer.BadParameter("give bundles, or --demo alone", param_hint="BUNDLE...")
    start = run_demo if demo else run_service
    start(
        Plan(
            bundles=tuple(bundles or ()),
            pictures=tuple(picture or ()),
            host=host,
            port=port,
            tokens=tokens,
            certificate=ssl_certfile,
            key=ssl_keyfile,
            settings={
                "workers": workers,
                "audit": audit,
                "keep_inputs": keep_inputs,
                "audit_required": not audit_optional,
                "retain_days": retain_days,
                "retain_bytes": None if retain_mib is None else retain_mib << 20,
                "alarm_rate": alarm_rate,
                "state": state,
                "most_body": max_body << 20,
                "most_rows": min(max_rows, queue),
                "most_waiting": queue,
                "timeout": timeout,
                "drain": drain,
            },
        )
    )
