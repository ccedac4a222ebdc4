"""Verifying a report: its digest, its schema, its counts and its verdict, from the file alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..protocol import Refusal
from .profiles import Profile, get_profile, profile_ids
from .report import canonical, control_from_document, document_digest, result_from_document
from .report_kinds import ENGINE, KINDS, kind_of
from .verdict import Evidence, count_outcomes, judge

_SCHEMAS = Path(__file__).parent / "schemas"
_MOST_NAMED = 5


def load_report(path: Path) -> dict[str, Any]:
    """Read ``report.json`` and return its document once nothing is wrong with it.

    Raises ``kit_report_invalid``, which names everything that is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise _invalid(path, [f"it cannot be read ({type(error).__name__}: {error})"]) from None
    problems = problems_of(document, text)
    if problems:
        raise _invalid(path, problems)
    found: dict[str, Any] = document
    return found


def problems_of(document: Any, text: str | None = None) -> list[str]:
    """Return what is wrong with a report document, a sentence each; empty when it holds.

    Args:
        document: The parsed document.
        text: The text of the file; its canonical form is demanded when it is given.
    """
    wrong_schema = _schema_problems(document)
    if wrong_schema:
        return wrong_schema
    problems = []
    if document_digest(document) != document["digest"]:
        problems.append("its digest does not match its content, so it was altered")
    elif text is not None and canonical(document) != text:
        problems.append("its text is not the canonical form of its content, so the file was altered")
    if kind_of(document) is ENGINE:
        from .engine.verifying import content_problems

        return problems + content_problems(document)
    return problems + _content_problems(document)


def _schema_problems(document: Any) -> list[str]:
    from jsonschema import Draft202012Validator
    from referencing import Registry
    from referencing.jsonschema import DRAFT202012

    # The schema of one kind may refer to parts of another's.
    schemas = {kind.schema: json.loads((_SCHEMAS / kind.schema).read_text(encoding="utf-8")) for kind in KINDS}
    pairs = [(name, DRAFT202012.create_resource(schema)) for name, schema in schemas.items()]
    registry: Registry[Any] = Registry().with_resources(pairs)
    validator = Draft202012Validator(schemas[kind_of(document).schema], registry=registry)
    errors = sorted(validator.iter_errors(document), key=lambda error: error.json_path)
    shown = [f"it does not match its schema at {error.json_path}: {error.message[:200]}" for error in errors]
    return shown[:_MOST_NAMED]


def _content_problems(document: Mapping[str, Any]) -> list[str]:
    identity = document["profile"]["id"]
    if identity not in profile_ids():
        return [f"profile {identity!r} is not known to this version of the kit"]
    profile = get_profile(identity)
    return profile_problems(document, profile, _verdict_that_follows)


def profile_problems(
    document: Mapping[str, Any], profile: Profile, verdict_of: Callable[[Mapping[str, Any], Profile], str]
) -> list[str]:
    """Return what does not follow from the results of a document of whatever kind.

    Args:
        document: The document; it matches its schema.
        profile: The profile that it names.
        verdict_of: Returns the verdict that follows from its results.
    """
    problems = []
    if document["profile"]["digest"] != profile.digest:
        problems.append(f"the digest of its profile is not the one of profile {profile.id}")
    checks = [row["check"] for row in document["results"]]
    if len(set(checks)) != len(checks) or not set(checks) <= set(profile.levels):
        problems.append(f"its {kind_of(document).unit}s are not those of its profile")
        return problems
    results = [result_from_document(row) for row in document["results"]]
    frozen = {check.id: check for check in profile.checks}
    for row in document["results"]:
        if (row["level"], tuple(row["clauses"])) != (frozen[row["check"]].level, frozen[row["check"]].clauses):
            problems.append(f"level or clauses of {row['check']} are not those of its profile")
    if count_outcomes(profile.levels, results) != document["checks"]:
        problems.append("its counts do not follow from its results")
    verdict = verdict_of(document, profile)
    if verdict != document["verdict"]:
        problems.append(f"its verdict is {document['verdict']}, but {verdict} follows from its results")
    return problems


def _verdict_that_follows(document: Mapping[str, Any], profile: Profile) -> str:
    results = [result_from_document(row) for row in document["results"]]
    subject = document["subject"]
    verdict, _ = judge(
        Evidence(
            levels=profile.levels,
            results=results,
            controls=[control_from_document(row) for row in document["controls"]],
            declared=subject["declared"],
            deviation_problems=document["deviations"]["problems"],
            in_process_read=subject["in_process_read"],
            partial=document["profile"]["chosen"] is not None,
        )
    )
    return verdict


def _invalid(path: Path, problems: list[str]) -> Refusal:
    return Refusal(
        "kit_report_invalid",
        f"{path.name} is no report that can be relied on: " + "; ".join(problems) + ".",
        remedy="Use the report.json as the kit wrote it, or certify again.",
        path=str(path),
        problems=problems,
    )
