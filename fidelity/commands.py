"""``torchlens-conformance fidelity run | table | check | wires``, and the group of all fidelity commands."""

from __future__ import annotations

import time
from pathlib import Path

import click

from .console import (
    console,
    measure,
    output_option,
    progress_lines,
    relative,
    route_option,
    show,
    timeout_option,
    written_places,
)
from .extra_command import extra
from .pins_commands import pins
from .version_commands import VERSION_COMMANDS


class _RunByDefault(click.Group):
    """A group in which options without a command mean ``run``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0].startswith("-") and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=_RunByDefault,
    epilog="Exit codes: 0 measured, 1 changed (check, changes, compare), 2 void or incomplete, 3 refused, or usage.",
)
def fidelity() -> None:
    """Measure what trackers do to numbers, and compare with what is committed."""


@fidelity.command(
    epilog="""Examples:

    torchlens-conformance fidelity run

    torchlens-conformance fidelity run --route wandb-relay --output /tmp/relay

    torchlens-conformance fidelity run --checkpoint ~/models/distilgpt2"""
)
@route_option
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="A folder with distilgpt2's config.json and weights. Default: the hub's local cache, else seeded weights.",
)
@click.option("--download", is_flag=True, help="Ask the hub over the network when there is no local copy.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where to write. Default: the project's own files for a full run in a checkout, else ./fidelity-output.",
)
@click.option("--seed", type=int, default=None, help="Seed of weights and dropout. Default: the committed one.")
@click.option("--histogram-wire", default=None, hidden=True)
@click.option("--scalar-form", default=None, hidden=True)
@click.option("--save-fixture", is_flag=True, help="Also write the points as the committed fixture (a checkout only).")
@timeout_option
def run(
    routes: tuple[str, ...],
    checkpoint: Path | None,
    download: bool,
    output: Path | None,
    seed: int | None,
    histogram_wire: str | None,
    scalar_form: str | None,
    save_fixture: bool,
    timeout: float,
) -> int:
    """Build the points from tensors, send them through every route, and write the table."""
    from reference_sinks.packages import require_installed

    from .fixture import FIXTURE_PATH
    from .output import DEFAULT_FOLDER, folder_places, prepare, prepare_files, project_places, write
    from .routes import ROUTE_IDS, get_route
    from .run import Options
    from .tensors import DEFAULT_SEED, find_source

    started = time.monotonic()
    require_installed("torch", "transformers", "matplotlib", "jsonschema", extra="fidelity")
    for route in routes:
        get_route(route)
    options = Options(
        routes=routes or ROUTE_IDS, timeout=timeout, histogram_wire=histogram_wire, scalar_form=scalar_form
    )
    provenance = find_source(checkpoint=checkpoint, download=download, seed=DEFAULT_SEED if seed is None else seed)
    default = not (routes or checkpoint or download or histogram_wire or scalar_form) and seed is None
    own = project_places(Path.cwd()) if default and output is None else None
    places = own or folder_places(output or DEFAULT_FOLDER)
    prepare(places)
    if save_fixture:
        prepare_files(FIXTURE_PATH)
    measurement = measure(None, options, provenance=provenance, checkpoint=checkpoint, save_fixture=save_fixture)
    if measurement is None:
        return 2
    if own and measurement.exit_code:
        click.echo("The project's own files are left as they are, since this result is void or incomplete.", err=True)
        places = folder_places(DEFAULT_FOLDER)
        prepare(places)
    written = write(measurement, places)
    show(measurement)
    click.echo(f"Wrote {', '.join(relative(path) for path in written if path.suffix != '.svg')} and the pictures.")
    click.echo(f"Took {time.monotonic() - started:.0f} seconds.")
    return measurement.exit_code


@fidelity.command(epilog="Example: torchlens-conformance fidelity table --controls")
@click.option(
    "--input",
    "source",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="A results file. Default: the committed one.",
)
@click.option("--controls", is_flag=True, help="Show the two control columns as well.")
@click.option("--markdown", is_flag=True, help="Print the whole page as Markdown.")
def table(source: Path | None, controls: bool, markdown: bool) -> int:
    """Print a measured table."""
    from .report import fidelity_page
    from .results import COMMITTED, load_results
    from .table import terminal_table

    result = load_results(source or COMMITTED)
    if markdown:
        click.echo(fidelity_page(result, drawn=[], picture_folder="pictures"))
    else:
        console().print(terminal_table(result, controls=controls))
    return 0


@fidelity.command(
    epilog="""Examples:

    torchlens-conformance fidelity check

    torchlens-conformance fidelity check --baseline old/measured.json"""
)
@route_option
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Results to compare with. Default: the committed ones.",
)
@timeout_option
def check(routes: tuple[str, ...], baseline: Path | None, timeout: float) -> int:
    """Measure the committed points again; exit 1 and name each cell whose word has changed."""
    from .fixture import load_fixture
    from .results import COMMITTED, changed_cells, load_results
    from .routes import ROUTE_IDS, get_route
    from .run import Options
    from .versions.compare import refuse_other_points, refuse_void

    for route in routes:
        get_route(route)
    old = load_results(baseline or COMMITTED)
    data = load_fixture()
    refuse_void(old, name="the baseline")
    refuse_other_points(old["tensors"]["sent_digest"], data.digest)
    options = Options(routes=routes or ROUTE_IDS, timeout=timeout)
    measurement = measure(data, options)
    if measurement is None:
        return 2
    if measurement.exit_code:
        show(measurement)
        return measurement.exit_code
    for difference in measurement.result["environment"]["pins_differ"]:
        click.echo(f"Not the pinned version: {difference}", err=True)
    changes = changed_cells(old, measurement.result)
    for route, row, grid, before, after in changes:
        click.echo(f"CHANGED {route}, {row}{f' ({grid})' if grid else ''}: {before!r} is now {after!r}")
    if changes:
        return 1
    measured = sum(len(route["rows"]) for route in measurement.result["routes"])
    click.echo(f"All {measured} cells have the words of the baseline of {old['date']}.")
    return 0


@fidelity.command(epilog="Example: torchlens-conformance fidelity wires")
@output_option
@timeout_option
def wires(output: Path | None, timeout: float) -> int:
    """Measure every form in which TensorBoardSink can write histograms and scalars, over every TensorBoard route."""
    from .fixture import load_fixture
    from .wires import WIRES_PAGE, WIRES_RESULTS, measure_wires, wires_page, write_wires

    results, page = written_places(output, WIRES_RESULTS, WIRES_PAGE)
    measured = measure_wires(load_fixture(), timeout=timeout, progress=progress_lines())
    write_wires(measured, results, page)
    click.echo(wires_page(measured))
    return 2 if measured["incomplete"] else 0


for _command in VERSION_COMMANDS:
    fidelity.add_command(_command)
fidelity.add_command(extra)
fidelity.add_command(pins)
