"""Two measured files, cell by cell; other points are refused."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fidelity.commands import fidelity
from fidelity.fixture import load_fixture
from fidelity.results import Result, dump_results
from fidelity.versions.compare import compare_results
from torchlens_conformance.protocol import Refusal

from .version_examples import cell, measured_file

pytest.importorskip("jsonschema")


def _write(folder: Path, *results: Result) -> list[str]:
    paths = [folder / f"{number}.json" for number in range(len(results))]
    for path, result in zip(paths, results):
        path.write_text(dump_results(result), encoding="utf-8")
    return [str(path) for path in paths]


def test_other_points_are_refused() -> None:
    """Two files that did not send the same points cannot be compared (FID-6)."""
    with pytest.raises(Refusal) as caught:
        compare_results(measured_file(), measured_file(sent="b" * 64))
    assert caught.value.code == "fidelity_not_comparable"
    assert caught.value.fields["sent_digests"] == ["a" * 64, "b" * 64]


def test_each_cell_that_differs_is_named(tmp_path: Path) -> None:
    """A word or number that differs is named, and the command exits with 1 (FID-6)."""
    paths = _write(tmp_path, measured_file("0.28.2"), measured_file("0.30.0", cell(word="rounded")))
    done = CliRunner().invoke(fidelity, ["compare", *paths], standalone_mode=False)
    assert done.return_value == 1
    assert done.output == "wandb-relay: 0.28.2 against 0.30.0\nDIFFERS wandb-relay, scalars: exact -> rounded\n"


def test_equal_files_are_equal_whatever_the_machine(tmp_path: Path) -> None:
    """Date, platform and seconds are no difference, and the command exits with 0 (FID-6)."""
    other = measured_file(moment="2027-01-01T00:00:00+00:00")
    other["environment"]["platform"] = "Darwin arm64"
    other["routes"][0]["seconds"] = 99.0
    done = CliRunner().invoke(fidelity, ["compare", *_write(tmp_path, measured_file(), other)], standalone_mode=False)
    assert done.return_value == 0
    assert "the same" in done.output


def test_a_route_in_one_file_only_is_told() -> None:
    """What only one file has is no difference of a cell, but it is said (FID-6)."""
    more = measured_file()
    more["routes"].append({**copy.deepcopy(more["routes"][0]), "id": "wandb"})
    found = compare_results(measured_file(), more)
    assert (found.changes, found.remarks, found.cells) == ([], ["wandb is in the second file only"], 1)


def _with_controls(result: Result) -> Result:
    control = {**copy.deepcopy(result["routes"][0]), "id": "exact", "tracker": None, "package": None}
    return {**result, "routes": [*result["routes"], control]}


def test_files_of_two_trackers_are_not_called_equal(tmp_path: Path) -> None:
    """Two files that share their controls alone are refused, and what each has measured is named (FID-6)."""
    one = _with_controls(measured_file())
    other = _with_controls(measured_file("2.21.0", tracker="tensorboard", route="tensorboard"))
    with pytest.raises(Refusal) as caught:
        compare_results(one, other)
    assert caught.value.code == "fidelity_not_comparable"
    assert caught.value.fields["measured"] == [["wandb-relay"], ["tensorboard"]]
    assert isinstance(CliRunner().invoke(fidelity, ["compare", *_write(tmp_path, one, other)]).exception, Refusal)


def _not_measured(row: str = "scalars") -> dict[str, Any]:
    return {**cell(row, word="not measured"), "numbers": {}}


@pytest.mark.parametrize(
    "crashed",
    [
        _with_controls(measured_file("0.30.0", _not_measured(), status="crashed", detail="exit code 1")),
        measured_file("0.30.0", cell(), status="crashed", detail="exit code 1"),
        measured_file("0.30.0", _not_measured()),
    ],
)
def test_what_was_not_measured_is_not_equal_to_itself(crashed: Result) -> None:
    """A file whose routes all crashed says nothing, not even beside itself (FID-6)."""
    for pair in ((crashed, crashed), (crashed, measured_file()), (measured_file(), crashed)):
        with pytest.raises(Refusal) as caught:
            compare_results(*pair)
        assert caught.value.code == "fidelity_not_comparable"
        assert "not measured" in str(caught.value.fields["remarks"])


def test_a_route_and_a_row_that_were_not_measured_are_named(tmp_path: Path) -> None:
    """What one file could not measure is named with the reason, and is no difference of a cell (FID-6)."""
    one = measured_file("0.30.0", cell(), cell("resume", word="rewritten"))
    other = measured_file("0.30.0", cell(), _not_measured("resume"))
    for result, status, detail in ((one, "measured", ""), (other, "crashed", "exit code 1")):
        route = {**copy.deepcopy(result["routes"][0]), "id": "wandb", "status": status, "detail": detail}
        result["routes"].append(route)
    a, b = paths = _write(tmp_path, one, other)
    done = CliRunner().invoke(fidelity, ["compare", *paths], standalone_mode=False)
    assert done.return_value == 0
    assert done.output.splitlines() == [
        f"wandb-relay, resume is not measured in {b}",
        f"wandb is not measured in {b}, crashed: exit code 1",
        f"Every cell that both have measured is the same (1 cell, points {'a' * 16}).",
    ]
    assert a != b


@pytest.mark.parametrize("place", [0, 1])
def test_a_void_file_is_refused(place: int) -> None:
    """A void file is compared with nothing, whatever stands in its cells (FID-7)."""
    pair = [measured_file(), measured_file()]
    pair[place] |= {"void": True, "void_reasons": ["the exact control did not run"]}
    with pytest.raises(Refusal) as caught:
        compare_results(*pair)
    assert caught.value.code == "fidelity_not_comparable"
    assert caught.value.fields["file"] == ("the first file", "the second file")[place]
    assert caught.value.fields["void_reasons"] == ["the exact control did not run"]


@pytest.mark.parametrize(
    ("digest", "settings"),
    [(None, {"void": True, "void_reasons": ["no control"]}), ("b" * 64, {})],
)
def test_a_baseline_that_says_nothing_is_refused_before_measuring(
    digest: str | None, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A void baseline, and one of other points, are refused before a check measures anything (FID-3)."""
    monkeypatch.setattr("fidelity.commands.measure", lambda *_, **__: pytest.fail("something was measured"))
    (path,) = _write(tmp_path, measured_file(sent=digest or load_fixture().digest) | settings)
    done = CliRunner().invoke(fidelity, ["check", "--baseline", path])
    assert isinstance(done.exception, Refusal)
    assert done.exception.code == "fidelity_not_comparable"
    assert ("void_reasons" if settings else "sent_digests") in done.exception.fields
