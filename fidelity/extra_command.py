"""``torchlens-conformance fidelity extra``."""

from __future__ import annotations

from pathlib import Path

import click

from .console import output_option, progress_lines, timeout_option, written_places


@click.command(epilog="Example: torchlens-conformance fidelity extra")
@output_option
@timeout_option
def extra(output: Path | None, timeout: float) -> int:
    """Measure the extra routes, tensorboardX alone and under both relays and trailer, and write their page."""
    from .extra import EXTRA_PAGE, EXTRA_RESULTS, exit_code, measure_extra
    from .extra_page import extra_page
    from .fixture import load_fixture
    from .output import DEFAULT_FOLDER, write_texts
    from .results import dump_results

    results, page = written_places(output, EXTRA_RESULTS, EXTRA_PAGE)
    measured = measure_extra(load_fixture(), timeout=timeout, progress=progress_lines())
    code = exit_code(measured)
    if code and output is None:
        click.echo("The project's own files are left as they are, since this result is void or incomplete.", err=True)
        results, page = written_places(DEFAULT_FOLDER, EXTRA_RESULTS, EXTRA_PAGE)
    text = extra_page(measured)
    write_texts({page: text, results: dump_results(measured)})
    click.echo(text)
    return code
