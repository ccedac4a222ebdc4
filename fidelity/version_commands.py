"""``torchlens-conformance fidelity version | merge | changes | compare | matrix``: one tracker, many versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .console import measure, show, timeout_option


@click.command(
    epilog="""Example:

    torchlens-conformance fidelity version wandb --output results/wandb.json"""
)
@click.argument("tracker")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE",
    help="The file of measured results to write, for `fidelity merge`.",
)
@click.option("--environment", metavar="NAME", help="A name to note in the file, such as that of a tox environment.")
@timeout_option
def version(tracker: str, output: Path, environment: str | None, timeout: float) -> int:
    """Measure the routes of one TRACKER at the version that is installed, with the committed points."""
    from .files import write_text
    from .fixture import load_fixture
    from .results import dump_results
    from .run import Options
    from .trackers import routes_of

    options = Options(routes=routes_of(tracker), timeout=timeout, environment=environment)
    measurement = measure(load_fixture(), options)
    if measurement is None:
        return 2
    output.parent.mkdir(parents=True, exist_ok=True)
    write_text(output, dump_results(measurement.result))
    show(measurement)
    return measurement.exit_code


@click.command(
    epilog="""Examples:

    torchlens-conformance fidelity merge fidelity-output/versions/*.json

    torchlens-conformance fidelity merge fidelity/results/versions.json new.json --output /tmp/versions"""
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False), metavar="FILES...")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where to write. Default: the project's own files in a checkout, else ./fidelity-output.",
)
@click.option("--fresh", is_flag=True, help="Begin with nothing, not with the checkout's table.")
def merge(files: tuple[Path, ...], output: Path | None, fresh: bool) -> int:
    """Fold measured FILES into one table with a column for each version.

    In a checkout its committed table is renewed, so that what FILES do not hold stays as it is, and looks stale when it
    is. With --output the table holds what FILES hold.

    FILES are results of `fidelity version` and `fidelity run`, tables that were merged before, what
    `tox --result-json` wrote (it says why an installation failed) and what `fidelity matrix` wrote.
    """
    from .console import console, relative
    from .files import write_text
    from .output import DEFAULT_FOLDER, project_root
    from .versions.columns import MEASURED
    from .versions.inputs import read_inputs
    from .versions.merge import merge_columns
    from .versions.page import terminal_tables, versions_page
    from .versions.store import dump_columns

    root = project_root(Path.cwd()) if output is None else None
    folder = output or DEFAULT_FOLDER
    results = root / "fidelity" / "results" / "versions.json" if root else folder / "versions.json"
    renewed = [results] if root and not fresh and results.is_file() else []
    columns, expected = read_inputs([*renewed, *files])
    merged = merge_columns(columns, expected=expected)
    page = root / "docs" / "fidelity-versions.md" if root else folder / "fidelity-versions.md"
    for path, text in ((results, dump_columns(merged)), (page, versions_page(merged))):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    for table in terminal_tables(merged):
        console().print(table)
    measured = [c for c in merged if c["status"] == MEASURED]
    versions = {(c["tracker"], c["version"]) for c in measured}
    click.echo(
        f"{len(versions)} versions in {len(measured)} measured columns; {len(merged) - len(measured)} columns could "
        f"not be measured, {sum(bool(c['stale']) for c in merged)} are stale."
    )
    click.echo(f"Wrote {relative(results)} and {relative(page)}.")
    return 0


@click.command(epilog="Example: torchlens-conformance fidelity changes wandb 0.28.2 0.31.0")
@click.argument("tracker")
@click.argument("old")
@click.argument("new")
@click.option(
    "--table",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="A merged table of versions. Default: the committed one.",
)
def changes(tracker: str, old: str, new: str, table: Path | None) -> int:
    """Print what changed for a user of TRACKER between two measured versions; exit 1 when something did."""
    from .versions.changes import version_changes
    from .versions.columns import measured_versions
    from .versions.store import COMMITTED, load_columns

    columns = load_columns(table or COMMITTED)
    found = version_changes(columns, tracker, old, new)
    for change in found:
        click.echo(str(change))
    between = [v for v in measured_versions(columns, tracker) if v not in (old, new)]
    if not found:
        click.echo(f"Nothing changed for a user of {tracker} between {old} and {new}.")
    if between:
        click.echo(f"Other measured versions: {', '.join(between)}.")
    return 1 if found else 0


@click.command(epilog="Example: torchlens-conformance fidelity compare mine/measured.json theirs/measured.json")
@click.argument("one", type=click.Path(path_type=Path, dir_okay=False), metavar="A")
@click.argument("other", type=click.Path(path_type=Path, dir_okay=False), metavar="B")
def compare(one: Path, other: Path) -> int:
    """Compare two measured files cell by cell; exit 1 when a cell differs, refuse when other points were sent."""
    from .results import load_results
    from .versions.changes import compare_results

    results = [load_results(path) for path in (one, other)]
    found, remarks = compare_results(*results)
    for remark in remarks:
        click.echo(remark)
    for change in found:
        click.echo(f"DIFFERS {change}")
    if not found:
        click.echo(f"Every cell that both have is the same (points {results[0]['tensors']['sent_digest'][:16]}).")
    return 1 if found else 0


@click.command(epilog="Example: torchlens-conformance fidelity matrix > matrix.json")
def matrix() -> int:
    """Print the jobs of the version matrix as JSON, from tox's own list; run it at the top of a checkout."""
    from .versions.matrix import jobs_json, matrix_jobs

    click.echo(jobs_json(matrix_jobs(Path.cwd())))
    return 0


VERSION_COMMANDS: tuple[Any, ...] = (version, merge, changes, compare, matrix)
"""The commands of this module."""
