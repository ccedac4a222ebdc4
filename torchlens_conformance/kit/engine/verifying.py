"""What a report of an engine has to hold: the laws of this version, and a verdict that follows from its results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..profiles import Profile
from ..report import control_from_document, result_from_document
from ..verify import profile_problems
from .judging import judge
from .profile import PROFILE_ID, engine_profile


def content_problems(document: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a report of an engine that matches its schema."""
    identity = document["profile"]["id"]
    if identity != PROFILE_ID:
        return [f"profile {identity!r} is not known to this version of the kit"]
    return profile_problems(document, engine_profile(), _verdict_that_follows)


def _verdict_that_follows(document: Mapping[str, Any], profile: Profile) -> str:
    verdict, _ = judge(
        list(document["subject"]["undeclared"]),
        [result_from_document(row) for row in document["results"]],
        [control_from_document(row) for row in document["controls"]],
        partial_run=document["profile"]["chosen"] is not None,
    )
    return verdict
