"""What every part of a report's page is made of: the tone of a word, and a table."""

from __future__ import annotations

from collections.abc import Iterable

from .model import COULD_NOT_RUN, FAILED, NOT_APPLICABLE, NOT_DECLARED, PASSED

TONE = {
    "conformant": "good",
    "with-deviations": "warn",
    "nonconformant": "bad",
    "incomplete": "none",
    "void": "none",
    PASSED: "good",
    FAILED: "bad",
    NOT_APPLICABLE: "none",
    NOT_DECLARED: "none",
    COULD_NOT_RUN: "warn",
}
"""How a verdict or an outcome looks."""


def table(title: str, heads: Iterable[str], rows: Iterable[str]) -> str:
    """Return a table with its head; in a section of its own when it has a title."""
    head = "".join(f'<th scope="col">{text}</th>' for text in heads)
    shown = f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    return f"<section>\n<h2>{title}</h2>\n{shown}\n</section>" if title else shown
