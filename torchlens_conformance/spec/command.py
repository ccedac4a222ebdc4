"""``torchlens-conformance spec [CLAUSE]...``."""

from __future__ import annotations

import shutil

import click

from .render import render

_WIDEST = 120


@click.command(
    epilog="""Examples:

    torchlens-conformance spec

    torchlens-conformance spec JSONL

    torchlens-conformance spec JSONL-2"""
)
@click.argument("clause_ids", nargs=-1, metavar="[CLAUSE]...")
def spec(clause_ids: tuple[str, ...]) -> None:
    """Print the clauses of the specification: all, a family (JSONL), or every field of one (JSONL-2)."""
    click.echo(render(clause_ids, width=min(shutil.get_terminal_size().columns, _WIDEST)))
