"""``torchlens-conformance fidelity pins check | list | update``: what is installed, pinned and measured (FID-3)."""

from __future__ import annotations

import json
from pathlib import Path

import click

from .console import timeout_option

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group()
def pins() -> None:
    """Compare installed trackers with pinned and measured ones, and renew the pins."""


@pins.command(
    epilog="""Exit codes: 0 as pinned and measured, 1 changed or unmeasured (or lossy with --strict, or a named one is
missing), 2 no tracker is installed, 3 usage, which an unknown tracker or use is too.

Examples:

    torchlens-conformance fidelity pins check

    torchlens-conformance fidelity pins check --tracker wandb --use sync_tensorboard

    torchlens-conformance fidelity pins check --pins constraints.txt --json"""
)
@click.option("--pins", "pins_file", type=_FILE, metavar="FILE", help="A constraints file (default: ours).")
@click.option("--table", "tables", multiple=True, type=_FILE, metavar="FILE", help="A further table of versions.")
@click.option(
    "--tracker", "trackers", multiple=True, metavar="NAME", help="A tracker that must be there. Default: all."
)
@click.option(
    "--use",
    "uses",
    multiple=True,
    metavar="NAME",
    help="What you use, such as sync_tensorboard or the route wandb-relay; may be repeated. Default: everything.",
)
@click.option("--strict", is_flag=True, help="Losses count as a failure.")
@click.option("--contents", is_flag=True, help="Read the packages' files, which finds those that were edited.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def check(
    pins_file: Path | None,
    tables: tuple[Path, ...],
    trackers: tuple[str, ...],
    uses: tuple[str, ...],
    strict: bool,
    contents: bool,
    as_json: bool,
) -> int:
    """Say what is known about each installed tracker; nothing is measured, no tracker is imported."""
    from .pins_check import check_pins

    report = check_pins(pins=pins_file, tables=tables, trackers=trackers, uses=uses, strict=strict, contents=contents)
    click.echo(json.dumps(report.as_dict(), indent=1) if as_json else report.format())
    return report.exit_code


@pins.command(
    name="list",
    epilog="Example: torchlens-conformance fidelity pins list --pins constraints.txt",
)
@click.option("--pins", "pins_file", type=_FILE, metavar="FILE", help="A constraints file (default: ours).")
def list_pins(pins_file: Path | None) -> int:
    """Print the pins as JSON: distribution, version, and the digest of what was measured with it."""
    from .pins import pins_document, read_pins

    click.echo(json.dumps(pins_document(read_pins(pins_file)), indent=1))
    return 0


@pins.command(
    epilog="""Exit codes: 0 written, 1 nothing was written since you said no, 2 a tracker could not be pinned, 3 usage.

Examples:

    torchlens-conformance fidelity pins update

    torchlens-conformance fidelity pins update --tracker wandb --pins constraints.txt --table versions.json --yes"""
)
@click.option(
    "--pins", "pins_file", type=_FILE, metavar="FILE", help="The constraints file. Default: a checkout's own."
)
@click.option("--table", type=_FILE, metavar="FILE", help="The table of versions. Default: a checkout's own.")
@click.option("--tracker", "trackers", multiple=True, metavar="NAME", help="A tracker to pin. Default: all installed.")
@click.option(
    "--from", "sources", multiple=True, type=_FILE, metavar="FILE", help="Measured files, instead of measuring."
)
@click.option("--keep", is_flag=True, help="Keep the pinned versions; renew what was measured with them.")
@click.option("--yes", is_flag=True, help="Write without asking.")
@timeout_option
def update(
    pins_file: Path | None,
    table: Path | None,
    trackers: tuple[str, ...],
    sources: tuple[Path, ...],
    keep: bool,
    yes: bool,
    timeout: float,
) -> int:
    """Measure the installed trackers, show what differs from the pins cell by cell, then write pins and table."""
    from .pins_update import measured_columns, named_trackers, plan_update, update_places, write_update
    from .pins_write import probe
    from .versions.store import load_columns

    places = update_places(Path.cwd(), pins=pins_file, table=table)
    probe(places.files())
    columns = [column for path in sources for column in load_columns(path)]
    named = named_trackers(trackers, columns)
    if not sources:
        columns = measured_columns(places, trackers=named, timeout=timeout)
    plan = plan_update(columns, places, trackers=named, keep=keep)
    click.echo(plan.format())
    if not plan.pins:
        return 2
    if not yes and not click.confirm(f"Write {places.pins.name} and {places.table.name}?"):
        click.echo("Nothing was written.")
        return 1
    write_update(plan, places)
    click.echo(f"Wrote {places.pins.name} and {places.table.name}.")
    return 2 if plan.unmeasured or plan.left else 0
