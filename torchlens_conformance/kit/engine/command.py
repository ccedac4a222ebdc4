"""The command ``torchlens-conformance engine``: it parses, calls and prints."""

from __future__ import annotations

from pathlib import Path

import click

from ..model import CONFORMANT, VERDICTS


@click.command(
    epilog="""Examples:

    torchlens-conformance engine ours --report-dir report

    torchlens-conformance engine torchlens --expect nonconformant

    torchlens-conformance engine mypackage.adapters:ENGINE --laws step.machine,amp.derived

Exit codes: 0 conformant, or the verdict of --expect; 1 with deviations or nonconformant; 2 incomplete or void; 3 wrong
usage or a fault of the kit."""
)
@click.argument("adapter", metavar="ADAPTER")
@click.option("--laws", metavar="LAW,LAW", help="Ask only these laws; such a run is incomplete.")
@click.option(
    "--report-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write report.json, report.html, junit.xml, badge.json, report.txt and table.md into this folder.",
)
@click.option(
    "--expect", type=click.Choice(VERDICTS), default=CONFORMANT, show_default=True, help="The verdict that exits 0."
)
def engine(adapter: str, laws: str | None, report_dir: Path | None, expect: str) -> int:
    """Examine an engine: run the controls, then every law, and print the verdict.

    ADAPTER is ours, torchlens, plain, or an adapter of yours as PKG.MOD:OBJECT.
    """
    from .adapters import find_engine
    from .examine import examine
    from .report_text import report_lines, write_engine_report

    chosen = None if laws is None else [law.strip() for law in laws.split(",") if law.strip()]
    report = examine(find_engine(adapter), target=adapter, laws=chosen)
    if report_dir is not None:
        try:
            for path in write_engine_report(report.document, report_dir).values():
                click.echo(f"wrote {path}", err=True)
        except OSError as error:
            raise click.ClickException(f"{report_dir} cannot be written: {error}") from error
    for line in report_lines(report.document):
        click.echo(line)
    return 0 if report.verdict == expect else report.exit_code or 1
