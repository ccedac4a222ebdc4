"""Known deviations: what the file may hold, and how entries are held to account."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from tests.kit.report_examples import PROFILE, results
from torchlens_conformance.kit.deviations import Deviation, excused, read_deviations
from torchlens_conformance.kit.model import FAILED, NOT_DECLARED
from torchlens_conformance.protocol import Refusal

TODAY = date(2026, 12, 1)
ENTRY = '[[deviation]]\ncheck = "values.scalar"\nkind = "deviation"\nreason = "float32"\n'


def problems(*entries: Deviation, version: str | None = "2.5", partial: bool = False, **outcomes: str) -> list[str]:
    """Return what is wrong with a list of entries."""
    seen = results(**outcomes)
    return excused(seen, entries, version=version, profile=PROFILE.levels, today=TODAY, partial=partial)[1]


def entry(check: str = "values.scalar", kind: str = "deviation", **fields: object) -> Deviation:
    """Return an entry."""
    return Deviation(check=check, kind=kind, reason="float32", **fields)  # type: ignore[arg-type]


def test_read(tmp_path: Path) -> None:
    """A file gives its entries, optional fields and all (PROT-1)."""
    path = tmp_path / "deviations.toml"
    path.write_text(f'version = 1\n{ENTRY}link = "https://example.org"\nversions = ">=2,<3"\nexpires = 2027-01-31\n')
    (found,) = read_deviations(path)
    assert found == entry(link="https://example.org", versions=">=2,<3", expires=date(2027, 1, 31))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version = 2\n",
        "version = 1\nother = 3\n",
        "version = 1\ndeviation = 3\n",
        "version = 1\n[[deviation]]\n",
        f"version = 1\n{ENTRY}why = 'typo'\n",
        "version = 1\n" + ENTRY.replace('"deviation"', '"feature"'),
        "version = 1\n" + ENTRY.replace('"float32"', '" "'),
        "version = 1\n" + ENTRY.replace('"float32"', "3"),
        f"version = 1\n{ENTRY}versions = 'two'\n",
        "not toml",
    ],
)
def test_malformed(tmp_path: Path, text: str) -> None:
    """A malformed file is refused by name (PROT-9)."""
    path = tmp_path / "deviations.toml"
    path.write_text(text)
    with pytest.raises(Refusal) as refused:
        read_deviations(path)
    assert refused.value.code == "kit_deviations_invalid"


def test_missing_file(tmp_path: Path) -> None:
    """A file that is not there is refused by name (PROT-9)."""
    with pytest.raises(Refusal) as refused:
        read_deviations(tmp_path / "none.toml")
    assert refused.value.code == "kit_deviations_invalid"


def test_marks_the_failure() -> None:
    """The failure is marked with kind and reason, others are not (PROT-1)."""
    failed = results(values_scalar=FAILED, values_text=FAILED)
    marked, wrong = excused(failed, [entry()], version=None, profile=PROFILE.levels, today=TODAY)
    assert not wrong
    assert {result.check: result.deviation for result in marked if result.outcome == FAILED} == {
        "values.scalar": "deviation: float32",
        "values.text": None,
    }


def test_stale() -> None:
    """An entry whose check passed is stale; a flaky one is not (PROT-1)."""
    assert "stale" in problems(entry())[0]
    assert problems(entry(kind="flaky")) == []


def test_unmatched() -> None:
    """An entry about no check of the profile, or about one that was not asked, is an error (PROT-1)."""
    assert "no check" in problems(entry("values.colour"))[0]
    assert "matches nothing" in problems(entry("values.image"), values_image=NOT_DECLARED)[0]


def test_duplicate() -> None:
    """Two entries about one check are an error (PROT-1)."""
    assert "twice" in problems(entry(), entry(kind="flaky"), values_scalar=FAILED)[0]


def test_expired() -> None:
    """An entry holds on its last day and is an error after it, and then excuses nothing (PROT-1)."""
    assert problems(entry(expires=TODAY), values_scalar=FAILED) == []
    late = entry(expires=date(2026, 11, 30))
    assert "expired" in problems(late, values_scalar=FAILED)[0]
    marked, _ = excused(results(values_scalar=FAILED), [late], version=None, profile=PROFILE.levels, today=TODAY)
    assert all(result.deviation is None for result in marked)


def test_other_versions() -> None:
    """An entry about other versions of the subject does not apply (PROT-1)."""
    old = entry(versions="<2")
    assert problems(old) == []
    marked, _ = excused(results(values_scalar=FAILED), [old], version="2.5", profile=PROFILE.levels, today=TODAY)
    assert all(result.deviation is None for result in marked)


def test_reader_is_never_excused() -> None:
    """No entry may excuse a reader that does not read (FID-1)."""
    assert "cannot be" in problems(entry("reader.sees-changes"), reader_sees_changes=FAILED)[0]


def test_partial_run() -> None:
    """In a run of chosen checks an entry about another check is not stale (PROT-1)."""
    some = [result for result in results() if result.check == "values.text"]
    _, wrong = excused(some, [entry()], version=None, profile=PROFILE.levels, today=TODAY, partial=True)
    assert wrong == []
