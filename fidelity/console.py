"""What the fidelity commands share: options, progress, a measurement that tells what it does, a console."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from .run import Measurement, Options
    from .stimulus import SentData


def route_option(function: Any) -> Any:
    """Add ``--route``."""
    return click.option(
        "--route",
        "routes",
        multiple=True,
        metavar="ID",
        help="A route to measure; may be repeated. Default: all. The controls run always.",
    )(function)


def timeout_option(function: Any) -> Any:
    """Add ``--timeout``."""
    return click.option(
        "--timeout", default=120.0, show_default=True, help="Seconds that one step of a route may take."
    )(function)


def output_option(function: Any) -> Any:
    """Add ``--output`` of a command that makes a file of results and its page."""
    return click.option(
        "--output",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Where to write. Default: the project's own files in a checkout, else ./fidelity-output.",
    )(function)


def written_places(output: Path | None, *files: Path) -> list[Path]:
    """Return where files go that have a place in a checkout, in a folder that can be written.

    Args:
        output: The folder that was named, or None for the checkout that this runs in, or the default folder.
        files: Their places, seen from the top of a checkout.

    Raises ``fidelity_output_invalid``.
    """
    from .output import DEFAULT_FOLDER, prepare_files, project_root

    root = project_root(Path.cwd()) if output is None else None
    places = [root / file if root else (output or DEFAULT_FOLDER) / file.name for file in files]
    prepare_files(*places)
    return places


def measure(
    data: SentData | None,
    options: Options,
    *,
    provenance: Any = None,
    checkpoint: Path | None = None,
    save_fixture: bool = False,
) -> Measurement | None:
    """Measure with progress lines; None when the points could not be made."""
    from .fixture import FIXTURE_PATH, committed_points, load_fixture
    from .fixture import save_fixture as write_fixture
    from .processes import ProcessFailed, ProcessGroup
    from .run import build_points, measure_routes

    progress = progress_lines()
    replayed = data is not None
    if data is None:
        progress("tensors", provenance.description)
        group = ProcessGroup()
        try:
            data = build_points(provenance, checkpoint=checkpoint, group=group)
        except KeyboardInterrupt:
            group.interrupt()
            raise click.Abort from None
        except ProcessFailed as failure:
            click.echo(f"Error: the points could not be made: {failure}", err=True)
            return None
        if save_fixture:
            write_fixture(data)
            progress("tensors", f"wrote {relative(FIXTURE_PATH)}")
        else:
            data, note = committed_points(data, load_fixture())
            replayed = note is not None
            if note is not None:
                progress("tensors", note)
    return measure_routes(data, options, replayed=replayed, progress=progress)


def progress_lines() -> Callable[[str, str], None]:
    """Return a function that tells on the error stream what a route is doing, and since when."""
    started = time.monotonic()

    def progress(route: str, doing: str) -> None:
        click.echo(f"[{time.monotonic() - started:5.1f} s] {route}: {doing}", err=True)

    return progress


def show(measurement: Measurement) -> None:
    """Print the table of a measurement."""
    from .table import terminal_table

    console().print(terminal_table(measurement.result))


_WIDE = 400
# Characters of a line where nobody looks at a terminal: more than a table of every tracker needs.


def console() -> Any:
    """Return a console that never cuts a table."""
    from rich.console import Console

    console = Console()
    # Piped output has no width of its own; the table must not be cut there.
    return console if console.is_terminal else Console(width=_WIDE)


def relative(path: Path) -> str:
    """Return a path as seen from the working directory, where it lies below it."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
