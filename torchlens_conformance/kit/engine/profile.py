"""All laws as a profile: the ids, clauses and levels that a report stands on, with their digest."""

from __future__ import annotations

from ..profiles import Profile, ProfileCheck, profile_digest
from .laws import LAWS

PROFILE_ID = "engine-2026.1"
"""The laws of this protocol version; they may grow until its first release, and the digest says which they are."""

_TITLE = "Engines of the TorchLens tracker protocol, version 2026.1."


def engine_profile() -> Profile:
    """Return the profile."""
    laws = [{"id": law.id, "clauses": list(law.clauses), "level": law.level} for law in LAWS]
    digest = profile_digest({"id": PROFILE_ID, "title": _TITLE, "laws": laws})
    checks = tuple(ProfileCheck(law.id, law.clauses, law.level, None) for law in LAWS)
    return Profile(PROFILE_ID, _TITLE, checks, {}, {}, digest)
