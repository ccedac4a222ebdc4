"""The kinds of reports: of a sink, and of an engine. What is written beside a report is made by one code for both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .profiles import DEFAULT_PROFILE


@dataclass(frozen=True, slots=True)
class ReportKind:
    """What differs between reports.

    Args:
        format: The document's ``format``.
        version: The version of that format.
        schema: The file of its schema, in ``schemas``.
        subject: What is examined, in one word.
        one: It with its article.
        unit: What it is asked, in one word.
        title: What its profile is about.
    """

    format: str
    version: int
    schema: str
    subject: str
    one: str
    unit: str
    title: str


SINK = ReportKind(
    format="torchlens-conformance.report",
    version=1,
    schema="report.schema.json",
    subject="sink",
    one="a sink",
    unit="check",
    title="TorchLens tracker protocol",
)
"""Reports of ``torchlens-conformance certify``."""

ENGINE = ReportKind(
    format="torchlens-conformance.engine-report",
    version=1,
    schema="engine_report.schema.json",
    subject="engine",
    one="an engine",
    unit="law",
    title="Laws of a watching engine",
)
"""Reports of ``torchlens-conformance engine``."""

KINDS = (SINK, ENGINE)
"""Every kind."""


def kind_of(document: Any) -> ReportKind:
    """Return the kind that a document says it is; what names none is judged as a report of a sink."""
    named = document.get("format") if isinstance(document, Mapping) else None
    return next((kind for kind in KINDS if kind.format == named), SINK)


def reproduction(document: Mapping[str, Any], check: str) -> str:
    """Return the one command that asks ``check`` again."""
    reference = document["subject"]["reference"]
    if reference is None:
        return f"torchlens-conformance explain {check}"
    if kind_of(document) is ENGINE:
        return f"torchlens-conformance engine {reference['target']} --laws {check}"
    reader = f" --reader {reference['reader']}" if reference["reader"] else ""
    profile = document["profile"]["id"]
    named = "" if profile == DEFAULT_PROFILE else f" --profile {profile}"
    return f"torchlens-conformance certify {reference['target']}{reader}{named} --check {check}"
