"""Profiles: which checks a certificate of one protocol version stands on, frozen and with a digest.

A profile never changes once it is released: new checks join the next one. Its data and its digest stand in
``profile_data``, and a file that does not match its digest is not used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..protocol import Refusal
from .model import Check

DEFAULT_PROFILE = "2026.1"
"""The profile that is used when none is named."""

_DATA = Path(__file__).parent / "profile_data"


@dataclass(frozen=True, slots=True)
class ProfileCheck:
    """One check of a profile: its id, clauses, level and the capability word it is about (or None)."""

    id: str
    clauses: tuple[str, ...]
    level: str
    capability: str | None


@dataclass(frozen=True, slots=True)
class Profile:
    """A frozen set of checks.

    Args:
        id: ``2026.1``: year and number of the protocol version.
        title: What it is for, in one sentence.
        checks: The checks, in order.
        words: Other spellings of capability words that it accepts, with the word each stands for.
        tags: Other spellings of tags that it accepts, with the spelling each stands for.
        digest: ``sha256:`` of the profile's canonical data.
    """

    id: str
    title: str
    checks: tuple[ProfileCheck, ...]
    words: Mapping[str, str]
    tags: Mapping[str, str]
    digest: str

    @property
    def levels(self) -> dict[str, str]:
        """Every check id with its level, in order."""
        return {check.id: check.level for check in self.checks}

    def accepted(self) -> list[str]:
        """Say in words which other spellings the profile accepts; empty for a plain one."""
        words = [f"the capability word {word!r} for {stands!r}" for word, stands in sorted(self.words.items())]
        return words + [f"tags spelled {tag!r} for {stands!r}" for tag, stands in sorted(self.tags.items())]


def profile_ids() -> tuple[str, ...]:
    """Return the ids of all profiles, oldest first."""
    return tuple(sorted(path.stem for path in _DATA.glob("*.json")))


def get_profile(profile_id: str) -> Profile:
    """Return a profile by its id.

    Raises ``kit_profile_unknown``; also when the profile's data was altered, since then it is no longer that profile.
    """
    if profile_id not in profile_ids():
        raise Refusal(
            "kit_profile_unknown",
            f"There is no profile {profile_id!r}.",
            remedy=f"Use one of {', '.join(profile_ids())}.",
            profile=profile_id,
        )
    data = json.loads((_DATA / f"{profile_id}.json").read_text(encoding="utf-8"))
    stated = data.pop("digest", None)
    if stated != profile_digest(data):
        raise Refusal(
            "kit_profile_unknown",
            f"The data of profile {profile_id!r} does not match its digest.",
            remedy="Reinstall torchlens-conformance; a released profile is never edited.",
            profile=profile_id,
            digest=stated,
        )
    return Profile(
        id=data["id"],
        title=data["title"],
        checks=tuple(
            ProfileCheck(item["id"], tuple(item["clauses"]), item["level"], item["capability"])
            for item in data["checks"]
        ),
        words=dict(data["accepts"]["words"]),
        tags=dict(data["accepts"]["tags"]),
        digest=stated,
    )


def profile_digest(data: Mapping[str, Any]) -> str:
    """Return ``sha256:`` of the canonical JSON of a profile's data, its digest left out."""
    plain = {key: value for key, value in data.items() if key != "digest"}
    text = json.dumps(plain, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode("ascii")).hexdigest()


def profile_data(
    profile_id: str,
    checks: Iterable[Check],
    *,
    title: str,
    words: Mapping[str, str] | None = None,
    tags: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the data of a new profile over ``checks``, with its digest, ready to be written as JSON."""
    data: dict[str, Any] = {
        "id": profile_id,
        "title": title,
        "accepts": {"words": dict(words or {}), "tags": dict(tags or {})},
        "checks": [
            {"id": check.id, "clauses": list(check.clauses), "level": check.level, "capability": check.capability}
            for check in checks
        ],
    }
    return {**data, "digest": profile_digest(data)}


def freeze(checks: Iterable[Check]) -> None:
    """Write the data of this protocol version's profiles; done once, before their first release."""
    known = tuple(checks)
    plain = profile_data("2026.1", known, title="Sinks of the TorchLens tracker protocol, version 2026.1.")
    spelled = profile_data(
        "2026.1-torchlens",
        known,
        title="The same checks; the spellings of torchlens 2.36 are accepted, and the certificate says so.",
        words={"embedding": "embedding_module"},
        tags={"nonfinite/nan/<leaf>": "nonfinite/<family>_nan/<leaf>"},
    )
    for data in (plain, spelled):
        text = json.dumps(data, indent=2, ensure_ascii=True) + "\n"
        (_DATA / f"{data['id']}.json").write_text(text, encoding="utf-8")
