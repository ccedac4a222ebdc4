"""The table of a report's page that says what its subject declares, and what it lacks and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from ..protocol import CAPABILITY_METHODS
from .html_parts import TONE, table
from .model import COULD_NOT_RUN, FAILED, PASSED
from .report_kinds import ENGINE, kind_of


def declared_table(document: Mapping[str, Any]) -> str:
    """Return the capabilities of a sink, or the abilities of an engine, with what the report says about each."""
    if kind_of(document) is not ENGINE:
        return _capabilities(document)
    from .engine.adapter import ABILITIES

    undeclared = document["subject"]["undeclared"]
    rows = [
        f"<tr><td><code>{word}</code></td><td>{escape(meaning)}</td>"
        + (_state(f"not declared: {undeclared[word]}", "none") if word in undeclared else _state("declared", "good"))
        + "</tr>"
        for word, meaning in ABILITIES.items()
    ]
    return table("Abilities", ("word", "the engine", "the adapter says"), rows)


def _state(text: str, tone: str) -> str:
    return f'<td><span class="dot {tone}"></span>{escape(text)}</td>'


def _capabilities(document: Mapping[str, Any]) -> str:
    subject = document["subject"]
    rows = []
    for word, method in CAPABILITY_METHODS.items():
        if word in subject["declared"]:
            state, tone = _worst(document["results"], word)
        else:
            reason = subject["undeclared"].get(word, "no reason given")
            state, tone = f"not declared: {reason}", "none"
        rows.append(f"<tr><td><code>{word}</code></td><td><code>{method}</code></td>{_state(state, tone)}</tr>")
    return table("Capabilities", ("word", "method", "what the checks say"), rows)


_TOPIC = {
    "scalar": ("values.scalar", "values.steps"),
    "raw_histogram": ("values.histogram", "values.summary"),
    "text_manifest": ("values.text",),
    "image": ("values.image",),
    "graph": ("values.graph",),
    "run_metadata": ("values.metadata",),
    "structured_event": ("values.event",),
    "embedding_module": ("values.embedding",),
}


def _worst(results: Iterable[Mapping[str, Any]], word: str) -> tuple[str, str]:
    mine = [row for row in results if row["check"] in _TOPIC[word]]
    for outcome in (FAILED, COULD_NOT_RUN):
        found = [row for row in mine if row["outcome"] == outcome]
        if found:
            names = ", ".join(row["check"] for row in found)
            known = all(row["deviation"] for row in found)
            word_shown = "known deviation" if known and outcome == FAILED else outcome
            return f"{word_shown}: {names}", "warn" if known else TONE[outcome]
    return ("kept", "good") if any(row["outcome"] == PASSED for row in mine) else ("not checked", "none")
