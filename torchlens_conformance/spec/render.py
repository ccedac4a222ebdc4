"""The catalogue as plain text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from .catalogue import clauses, families, select_clauses
from .model import Clause

_NARROWEST = 60
_LABEL = 8


def render(clause_ids: str | Iterable[str] | None = None, *, width: int = 100) -> str:
    """Return clauses as text: a table, or all fields when exactly one id is asked for.

    Args:
        clause_ids: An id (``JSONL-2``), a family (``JSONL``), or several of them, capitals or not. None, or nothing
            in it, means every clause.
        width: Columns to wrap at, 60 or more (less is taken as 60).

    Returns:
        Lines of at most ``width`` columns (a single longer word stands out) without a newline at the end.

    Raises ``spec_clause_unknown``, with near ids and families in ``fields["near"]``. Clause: PROT-9.
    """
    width = max(width, _NARROWEST)
    selectors = [clause_ids] if isinstance(clause_ids, str) else list(clause_ids or ())
    chosen = select_clauses(selectors) if selectors else clauses()
    is_family = any(selector.strip().upper() in families() for selector in selectors)
    if len(chosen) == 1 and not is_family:
        return _all_fields(chosen[0], width)
    return _table(chosen, width)


def _all_fields(entry: Clause, width: int) -> str:
    fields = {
        "level": entry.level,
        "origin": entry.origin,
        "binds": ", ".join(entry.binds),
        "status": entry.status,
        "rule": entry.rule,
    }
    lines = [entry.id]
    for label, text in fields.items():
        lines += _wrap(text, width, first=f"  {label:<{_LABEL}}", rest=" " * (_LABEL + 2))
    return "\n".join(lines)


def _table(chosen: Sequence[Clause], width: int) -> str:
    titles = ("clause", "level", "status", "rule")
    rows = [titles[:3], *((entry.id, entry.level, entry.status) for entry in chosen)]
    columns = [max(map(len, column)) for column in zip(*rows)]

    def cells(*texts: str) -> str:
        return "  ".join(f"{text:<{size}}" for text, size in zip(texts, columns)) + "  "

    rest = " " * len(cells("", "", ""))
    lines = [cells(*titles[:3]) + titles[3], "-" * width]
    for entry in chosen:
        lines += _wrap(entry.rule, width, first=cells(entry.id, entry.level, entry.status), rest=rest)
    checked = sum(entry.status == "checked" for entry in chosen)
    noun = "clause" if len(chosen) == 1 else "clauses"
    lines += ["-" * width, f"{len(chosen)} {noun}: {checked} checked, {len(chosen) - checked} planned"]
    return "\n".join(lines)


def _wrap(text: str, width: int, *, first: str, rest: str) -> list[str]:
    # Ids, tags and code stay whole: they are there to be copied.
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
