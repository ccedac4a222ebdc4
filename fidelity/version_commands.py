"""``torchlens-conformance fidelity version | merge | changes | compare | matrix``: one tracker, many versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .console import measure, output_option, show, timeout_option, written_places


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
    from .fixture import load_fixture
    from .output import prepare_files, write_texts
    from .results import dump_results
    from .run import Options
    from .trackers import routes_of

    options = Options(routes=routes_of(tracker), timeout=timeout, environment=environment)
    prepare_files(output)
    measurement = measure(load_fixture(), options)
    if measurement is None:
        return 2
    write_texts({output: dump_results(measurement.result)})
    show(measurement)
    return measurement.exit_code


@click.command(
    epilog="""Exit codes: 0 merged, 2 merged and written without the files that could not be read (each is named), 3 no
file could be read, or usage.

Examples:

    torchlens-conformance fidelity merge fidelity-output/versions/*.json

    torchlens-conformance fidelity merge fidelity/results/versions.json new.json --output /tmp/versions"""
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False), metavar="FILES...")
@output_option
@click.option("--fresh", is_flag=True, help="Begin with nothing, not with the checkout's table.")
def merge(files: tuple[Path, ...], output: Path | None, fresh: bool) -> int:
    """Fold measured FILES into one table with a column for each version.

    In a checkout its committed table is renewed, so that what FILES do not hold stays as it is, and looks stale when it
    is. With --output the table holds what FILES hold.

    FILES are results of `fidelity version` and `fidelity run`, tables that were merged before, what
    `tox --result-json` wrote (it says why an installation failed) and what `fidelity matrix` wrote.
    """
    from .console import console, relative
    from .output import project_root, write_texts
    from .versions.columns import MEASURED
    from .versions.inputs import read_inputs
    from .versions.merge import merge_columns
    from .versions.page import terminal_tables, versions_page
    from .versions.store import VERSIONS_PAGE, VERSIONS_RESULTS, dump_columns, load_columns

    root = project_root(Path.cwd()) if output is None else None
    own = root / VERSIONS_RESULTS if root and not fresh else None
    renewed = load_columns(own) if own and own.is_file() else []
    inputs = read_inputs(files)
    results, page = written_places(output, VERSIONS_RESULTS, VERSIONS_PAGE)
    merged = merge_columns([*renewed, *inputs.columns], expected=inputs.expected)
    write_texts({results: dump_columns(merged), page: versions_page(merged)})
    for table in terminal_tables(merged, page=relative(page)):
        console().print(table)
    measured = [c for c in merged if c["status"] == MEASURED]
    versions = {(c["tracker"], c["version"]) for c in measured}
    click.echo(
        f"{len(versions)} versions in {len(measured)} measured columns; {len(merged) - len(measured)} columns could "
        f"not be measured, {sum(bool(c['stale']) for c in merged)} are stale."
    )
    click.echo(f"Wrote {relative(results)} and {relative(page)}.")
    for path, refusal in inputs.refused.items():
        click.echo(f"NOT MERGED {path}: {refusal}", err=True)
    return 2 if inputs.refused else 0


@click.command(epilog="Example: torchlens-conformance fidelity changes wandb 0.19.11 0.28.2 --numbers")
@click.argument("tracker")
@click.argument("old")
@click.argument("new")
@click.option(
    "--table",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="A merged table of versions. Default: the committed one.",
)
@click.option("--numbers", is_flag=True, help="Show the numbers behind each sentence as well.")
def changes(tracker: str, old: str, new: str, table: Path | None, numbers: bool) -> int:
    """Print what changed for a user of TRACKER between two measured versions; exit 1 when something did."""
    from .versions.changes import version_step
    from .versions.columns import measured_versions
    from .versions.store import COMMITTED, load_columns
    from .versions.told import told

    columns = load_columns(table or COMMITTED)
    step = version_step(columns, tracker, old, new)
    for change in told(step.changes):
        click.echo(change.sentence)
        for line in change.numbers if numbers else ():
            click.echo(click.style(f"    {line}", dim=True))
    if not step.changes:
        click.echo(f"Nothing changed for a user of {tracker} between {old} and {new} ({', '.join(step.shared)}).")
    for remark in step.remarks():
        click.echo(remark)
    between = [v for v in measured_versions(columns, tracker) if v not in (old, new)]
    if between:
        click.echo(f"Other measured versions: {', '.join(between)}.")
    return 1 if step.changes else 0


@click.command(epilog="Example: torchlens-conformance fidelity compare mine/measured.json theirs/measured.json")
@click.argument("one", type=click.Path(path_type=Path, dir_okay=False), metavar="A")
@click.argument("other", type=click.Path(path_type=Path, dir_okay=False), metavar="B")
def compare(one: Path, other: Path) -> int:
    """Compare two measured files cell by cell; exit 1 when a cell differs.

    Files that sent other points, that share no measured cell of a tracker, or that are void are refused.
    """
    from .results import load_results
    from .versions.compare import compare_results
    from .versions.significant import cell_count

    results = [load_results(path) for path in (one, other)]
    found = compare_results(*results, names=(str(one), str(other)))
    for remark in found.remarks:
        click.echo(remark)
    for change in found.changes:
        click.echo(f"DIFFERS {change}")
    if not found.changes:
        points = results[0]["tensors"]["sent_digest"][:16]
        click.echo(f"Every cell that both have measured is the same ({cell_count(found.cells)}, points {points}).")
    return 1 if found.changes else 0


@click.command(epilog="Example: torchlens-conformance fidelity matrix > matrix.json")
def matrix() -> int:
    """Print the jobs of the version matrix as JSON, from tox's own list; run it at the top of a checkout."""
    from .versions.matrix import jobs_json, matrix_jobs

    click.echo(jobs_json(matrix_jobs(Path.cwd())))
    return 0


VERSION_COMMANDS: tuple[Any, ...] = (version, merge, changes, compare, matrix)
"""The commands of this module."""
