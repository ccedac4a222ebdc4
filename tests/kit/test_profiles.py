"""Profiles: frozen, digested, and in step with the checks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchlens_conformance.kit import profiles
from torchlens_conformance.kit.checks import CHECKS
from torchlens_conformance.protocol import Refusal


def test_ids() -> None:
    """The plain profile and the one for torchlens's spellings exist (PROT-2)."""
    assert profiles.profile_ids() == ("2026.1", "2026.1-torchlens")


@pytest.mark.parametrize("profile_id", profiles.profile_ids())
def test_frozen_checks_are_as_frozen(profile_id: str) -> None:
    """Every check of a profile still exists with the clauses, level and capability it was frozen with (PROT-1)."""
    known = {check.id: (check.clauses, check.level, check.capability) for check in CHECKS}
    frozen = profiles.get_profile(profile_id).checks
    assert {check.id: (check.clauses, check.level, check.capability) for check in frozen} == {
        check.id: known.get(check.id) for check in frozen
    }
    assert frozen


def test_only_the_spellings_differ() -> None:
    """The profile for torchlens asks the same checks, accepts two spellings and says so (PROT-2, TAG-5)."""
    plain, spelled = map(profiles.get_profile, profiles.profile_ids())
    assert plain.checks == spelled.checks
    assert plain.accepted() == []
    assert any("'embedding'" in text for text in spelled.accepted())
    assert any("nonfinite/nan" in text for text in spelled.accepted())
    assert plain.digest != spelled.digest


def test_altered_data_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile whose data was edited no longer is that profile (PROT-1)."""
    data = json.loads((Path(profiles.__file__).parent / "profile_data" / "2026.1.json").read_text())
    data["checks"].pop()
    (tmp_path / "2026.1.json").write_text(json.dumps(data))
    monkeypatch.setattr(profiles, "_DATA", tmp_path)
    with pytest.raises(Refusal, match="digest") as refused:
        profiles.get_profile("2026.1")
    assert refused.value.code == "kit_profile_unknown"


def test_unknown_profile() -> None:
    """An unknown profile is refused, and the remedy names those that exist (PROT-9)."""
    with pytest.raises(Refusal) as refused:
        profiles.get_profile("1999.1")
    assert refused.value.code == "kit_profile_unknown"
    assert "2026.1-torchlens" in refused.value.remedy
