"""How tags and artifacts are named in a ClearML task, and the way back (CLEARML-1).

ClearML has no tags: a series of scalars has a title (its plot) and a name within that plot. A tag is cut at its last
slash, and joining the two with a slash gives it back.
"""

from __future__ import annotations

ARTIFACT_PREFIX = "torchlens-points-"
"""What the name of every artifact starts with that holds points."""

ARTIFACT_SUFFIX = ".jsonl"
"""What the file of such an artifact ends with; it is a whole file in the format of JSONLSink."""

NO_SERIES = "/"
"""The series of a tag that has no text on both sides of its last slash; no other tag has a slash in its series."""


def title_and_series(tag: str) -> tuple[str, str]:
    """Return title and series under which a scalar's tag is stored; no two tags share a pair. Clause: TAG-3."""
    title, _, series = tag.rpartition("/")
    return (title, series) if title and series else (tag, NO_SERIES)


def tag_of(title: str, series: str) -> str:
    """Return the tag that is stored under a title and a series. Clause: TAG-3."""
    return title if series == NO_SERIES else f"{title}/{series}"


def artifact_name(token: str, number: int, step: int) -> str:
    """Return the name of an artifact; names sort in the order in which one sink wrote them.

    Args:
        token: Of the sink; no two sinks of one task share it.
        number: How many artifacts the sink wrote before.
        step: The step of the points in it.
    """
    return f"{ARTIFACT_PREFIX}{token}-{number:08d}-step_{step:010d}"
