"""Files that cannot be read, and places that cannot be written, when many files are merged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fidelity.commands import fidelity
from fidelity.results import dump_results, results_schema
from fidelity.versions.inputs import read_inputs
from fidelity.versions.merge import merge_columns
from fidelity.versions.store import dump_columns, load_columns, versions_schema
from torchlens_conformance.protocol import Refusal

from .version_examples import cell, column, measured_file

pytest.importorskip("jsonschema")


def _good_and_broken(folder: Path, *broken: str) -> list[str]:
    """A good file and broken ones, the broken ones first."""
    paths = [folder / f"broken{number}.json" for number in range(len(broken))]
    for path, text in zip(paths, broken):
        path.write_text(text, encoding="utf-8")
    good = folder / "good.json"
    good.write_text(dump_results(measured_file("0.30.0")), encoding="utf-8")
    return [*map(str, paths), str(good)]


_BROKEN = (
    "",
    "[" * 100_000,
    '{"include": [{"environment": "x", "tracker": "wand", "version": "1"}]}',
    '{"include": [{"environment": "x", "tracker": "wandb", "version": 3}]}',
    json.dumps({**measured_file("0.31.0"), "date": "2026-11-31"}),
    json.dumps({**measured_file("0.31.0"), "kit_version": "\ud800"}),
)


def test_a_file_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What can be read is merged and written, each other file is named with its refusal, and the exit is 2 (FID-3)."""
    monkeypatch.chdir(tmp_path)
    paths = [*_good_and_broken(tmp_path, *_BROKEN), "missing.json"]
    done = CliRunner().invoke(
        fidelity, ["merge", "--output", "out", *paths], standalone_mode=False, catch_exceptions=False
    )
    assert done.return_value == 2
    assert [c["version"] for c in load_columns(tmp_path / "out" / "versions.json")] == ["0.30.0"]
    assert (tmp_path / "out" / "fidelity-versions.md").is_file()
    lines = [line for line in done.output.splitlines() if line.startswith("NOT MERGED ")]
    for path in paths:
        told = [line for line in lines if line.startswith(f"NOT MERGED {path}: [fidelity_")]
        assert len(told) == (not path.endswith("good.json")), path


def test_files_of_which_none_can_be_read_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a readable file nothing is written (FID-3)."""
    monkeypatch.chdir(tmp_path)
    paths = _good_and_broken(tmp_path, "", "{")[:-1]
    done = CliRunner().invoke(fidelity, ["merge", "--output", "out", *paths], standalone_mode=False)
    assert isinstance(done.exception, Refusal) and done.exception.code == "fidelity_result_invalid"
    assert not (tmp_path / "out").exists()


def test_a_broken_table_of_a_checkout_is_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table that would be renewed is refused when it cannot be read, since what it holds would be lost (FID-3)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('name = "torchlens-conformance"\n', encoding="utf-8")
    table = tmp_path / "fidelity" / "results" / "versions.json"
    table.parent.mkdir(parents=True)
    table.write_text("{", encoding="utf-8")
    done = CliRunner().invoke(fidelity, ["merge", *_good_and_broken(tmp_path)], standalone_mode=False)
    assert isinstance(done.exception, Refusal) and done.exception.fields["path"] == str(table)
    assert table.read_text(encoding="utf-8") == "{"


def test_a_version_whose_file_is_broken_says_so(tmp_path: Path) -> None:
    """The column of an environment whose own file cannot be read does not say that there is none (FID-3)."""
    jobs = {"include": [{"environment": "broken0", "tracker": "wandb", "version": "0.31.0"}]}
    (tmp_path / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    inputs = read_inputs(map(Path, [*_good_and_broken(tmp_path, ""), str(tmp_path / "jobs.json")]))
    merged = merge_columns(inputs.columns, expected=inputs.expected)
    assert {c["version"]: c["detail"] for c in merged if c["route"] == "wandb-relay"} == {
        "0.30.0": "",
        "0.31.0": "the environment broken0 left a file that cannot be read",
    }


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """A merge refuses a place that cannot be written, and a folder that has the name of a file (FID-3)."""
    (good,) = _good_and_broken(tmp_path)
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "taken" / "versions.json").mkdir(parents=True)
    for place in ("file/below", "taken"):
        done = CliRunner().invoke(fidelity, ["merge", "--output", str(tmp_path / place), good], standalone_mode=False)
        assert isinstance(done.exception, Refusal) and done.exception.code == "fidelity_output_invalid"
        assert str(tmp_path / place.split("/")[0]) in str(done.exception.fields["path"])


@pytest.mark.parametrize(
    "numbers",
    [
        {"step_map": [1]},
        {"step_map": {"100": 7}},
        {"histogram_step_map": {"100": ["x"]}},
        {"variants": {"again": 3}},
        {"mass_kept_median": "all"},
        {"arrived": "many"},
        {"itself": {"nan": 0.0}},
        {"changed": ["nan"]},
        {"missing": {"nan": 1}},
    ],
    ids=lambda numbers: next(iter(numbers)),
)
def test_numbers_that_sentences_are_made_of_are_validated(numbers: dict[str, Any], tmp_path: Path) -> None:
    """A hand-made result whose numbers are of another kind is refused, as a result and in a table (FID-3)."""
    result, table = tmp_path / "result.json", tmp_path / "table.json"
    result.write_text(dump_results(measured_file("0.30.0", cell(**numbers))), encoding="utf-8")
    table.write_text(dump_columns([column("0.30.0", cell(**numbers))]), encoding="utf-8")
    for path in (result, table):
        with pytest.raises(Refusal) as caught:
            load_columns(path)
        assert caught.value.code == "fidelity_result_invalid"


def test_both_schemas_say_the_same_of_numbers() -> None:
    """Each schema stands for itself, and a cell's numbers are the same in both (FID-3)."""
    assert results_schema()["$defs"]["numbers"] == versions_schema()["$defs"]["numbers"]
