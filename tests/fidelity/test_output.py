"""Files that a run writes: whole or not at all, and only where they belong."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fidelity.commands import fidelity
from fidelity.output import folder_places, prepare, prepare_files, project_places, project_root, write, write_texts
from fidelity.report import README_END, README_START, fidelity_page
from fidelity.results import load_results
from fidelity.run import Measurement
from fidelity.verdicts import ROWS, RULES
from torchlens_conformance.protocol import Refusal

pytest.importorskip("jsonschema")
pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    """The committed result."""
    return load_results()


def _checkout(folder: Path) -> Path:
    (folder / "pyproject.toml").write_text('[project]\nname = "torchlens-conformance"\n')
    (folder / "README.md").write_text(f"before\n{README_START}\nold\n{README_END}\nafter\n")
    return folder


def test_a_checkout_is_recognised_by_its_name(tmp_path: Path) -> None:
    """The project's own files are touched in the project's own checkout only."""
    assert project_root(tmp_path) is None
    (tmp_path / "pyproject.toml").write_bytes(b'[project]\nname = "an\xffother"\n')
    assert project_places(tmp_path) is None
    assert project_root(_checkout(tmp_path)) == tmp_path


def test_results_page_and_readme_are_written_together(tmp_path: Path, result: dict[str, Any]) -> None:
    """A run in a checkout renews results, page and the README's block, and nothing else of the README (FID-2)."""
    places = project_places(_checkout(tmp_path))
    assert places is not None
    prepare(places)
    written = write(Measurement(result, {}), places)
    assert set(written) == {places.results, places.page, places.readme}
    readme = (tmp_path / "README.md").read_text()
    assert readme.startswith(f"before\n{README_START}\n") and readme.endswith(f"\n{README_END}\nafter\n")
    assert "old" not in readme and "wandb relay" in readme
    assert load_results(places.results) == result


def test_a_picture_is_drawn_for_each_route_and_is_the_same_twice(tmp_path: Path, result: dict[str, Any]) -> None:
    """The same data draw the same bytes, so that a repeated run changes no picture (FID-1)."""
    panel = {
        "counts": [1, 5, 2],
        "edges": [0.0, 1.0, 2.0, 3.0],
        "received": [1.0, 4.0, 3.0],
        "heights": None,
        "buckets": 3,
        "seen": {"chart": "bars", "heights": [1, 4, 3], "edges": [0.0, 1.0, 2.0, 3.0], "labels": None, "step": "0"},
    }
    heights = {**panel, "received": None, "heights": [1.0, 2.0]}
    nothing = {**panel, "received": None}
    panels = {"uniform-64": panel, "uniform-600": heights, "signed-log2-497": nothing, "signed-log2-513": panel}
    drawn = []
    for name in ("one", "two"):
        places = folder_places(tmp_path / name)
        prepare(places)
        write(Measurement(result, {"wandb": panels}), places)
        for picture in ("fidelity-wandb.svg", "fidelity-seen-wandb.svg"):
            drawn.append((places.pictures / picture).read_bytes())
            assert picture in places.page.read_text()
    assert drawn[:2] == drawn[2:]
    page = (tmp_path / "one" / "fidelity.md").read_text()
    assert page.index("## What a person sees") < page.index("## The table")


def test_a_full_disk_leaves_the_old_files(
    tmp_path: Path, result: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a file cannot be written, the ones that stood there stay, and no partial file is left (FID-3)."""
    places = folder_places(tmp_path)
    prepare(places)
    places.results.write_text("old results")
    real, calls = Path.write_bytes, []

    def full(target: Path, content: bytes) -> int:
        calls.append(target)
        if len(calls) > 1:
            raise OSError(28, "No space left on device", str(target))
        return real(target, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(Refusal) as caught:
        write(Measurement(result, {}), places)
    assert caught.value.code == "fidelity_output_invalid"
    assert places.results.read_text() == "old results"
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize(
    "command", [["run", "--output"], ["wires", "--output"], ["version", "tensorboard", "--output"]]
)
def test_no_command_measures_for_a_place_that_cannot_be_written(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command that measures tries its place first (FID-3)."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    for name in ("fidelity.run.measure_routes", "fidelity.run.build_points", "fidelity.wires.measure_routes"):
        monkeypatch.setattr(name, lambda *_, **__: pytest.fail("something was measured"))
    (tmp_path / "file").write_text("", encoding="utf-8")
    done = CliRunner().invoke(fidelity, [*command, str(tmp_path / "file" / "below")], standalone_mode=False)
    assert isinstance(done.exception, Refusal) and done.exception.code == "fidelity_output_invalid"


def test_a_folder_that_has_the_name_of_the_file_is_refused(tmp_path: Path) -> None:
    """What is no file is never replaced by one, and that is known before the work (FID-3)."""
    with pytest.raises(Refusal) as caught:
        prepare_files(tmp_path / "new" / "x.json", tmp_path)
    assert (caught.value.code, caught.value.fields["path"]) == ("fidelity_output_invalid", str(tmp_path))


def test_texts_are_written_together_or_not_at_all(tmp_path: Path) -> None:
    """When one of several texts has no place, the others stay as they were (FID-3)."""
    old, taken = tmp_path / "old.json", tmp_path / "file" / "below.md"
    old.write_text("old")
    (tmp_path / "file").write_text("")
    with pytest.raises(Refusal) as caught:
        write_texts({old: "new", taken: "new"})
    assert caught.value.code == "fidelity_output_invalid"
    assert old.read_text() == "old"
    assert not list(tmp_path.rglob("*.partial"))
    assert write_texts({old: "new"}) == [old]
    assert old.read_text() == "new"


def test_the_page_shows_rows_rules_numbers_and_both_tables(result: dict[str, Any]) -> None:
    """The page holds every row, every rule, the published text of each differing cell and its explanation (FID-2)."""
    page = fidelity_page(result, drawn=["wandb"], picture_folder="pictures")
    for row in ROWS:
        assert f"**{row}**" in page
        assert all(rule.meaning in page for rule in RULES[row])
    for route in result["routes"]:
        for cell in route["rows"]:
            if cell["differs"]:
                assert f"published *{cell['published']['text']}*" in page
    assert "Not explained yet" not in page


def test_void_and_incomplete_results_say_so_first(result: dict[str, Any]) -> None:
    """A page of a void or incomplete result opens with that (FID-7)."""
    void = copy.deepcopy(result)
    void.update(void=True, void_reasons=["the exact control has 'rounded' in scalars"])
    assert "**This table is void.**" in fidelity_page(void, drawn=[], picture_folder="pictures")
    incomplete = copy.deepcopy(result)
    incomplete["incomplete"] = ["wandb crashed: exit code 1"]
    assert "**This table is incomplete:**" in fidelity_page(incomplete, drawn=[], picture_folder="pictures")


@pytest.mark.trackers
def test_check_names_the_changed_cell_and_exits_with_one(tmp_path: Path) -> None:
    """A committed word that is not measured again fails the check by cell, old word and new word (FID-3)."""
    import subprocess
    import sys

    for package in ("tensorboard", "torch"):
        pytest.importorskip(package)
    document = json.loads((Path(__file__).parents[2] / "fidelity" / "results" / "measured.json").read_text())
    (route,) = [route for route in document["routes"] if route["id"] == "tensorboard"]
    (row,) = [row for row in route["rows"] if row["id"] == "scalars"]
    row["verdict"] = "exact"
    baseline = tmp_path / "measured.json"
    baseline.write_text(json.dumps(document))
    command = [sys.executable, "-m", "torchlens_conformance", "fidelity", "check", "--route", "tensorboard"]
    done = subprocess.run(
        [*command, "--baseline", str(baseline)], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 1, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("CHANGED")]
    assert line == "CHANGED tensorboard, scalars: 'exact' is now 'faithful (float32)'"
    same = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert same.returncode == 0, same.stdout
