"""Two measured files, cell by cell; other points are refused."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from click.testing import CliRunner

from fidelity.commands import fidelity
from fidelity.results import Result, dump_results
from fidelity.versions.changes import compare_results
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
    changes, remarks = compare_results(measured_file(), more)
    assert (changes, remarks) == ([], ["wandb is in one file only"])
