"""What changed between two versions, cell by cell, over handmade columns and over the committed measurement."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from fidelity.commands import fidelity
from fidelity.versions.changes import history, neighbours, version_step
from fidelity.versions.columns import MEASURED, cells_of
from fidelity.versions.page import versions_page
from fidelity.versions.significant import cell_changes, significant
from fidelity.versions.store import load_columns
from torchlens_conformance.protocol import Refusal

from .version_examples import cell, column

_NAN = float("nan")


def test_a_changed_word_and_a_changed_number_are_both_told() -> None:
    """A cell changes by its word or by a number that says something about the data (FID-3)."""
    before = [cell("scalars", value_error=0.0), cell("tags", word="rewritten", unchanged=3), cell("text")]
    after = [
        cell("scalars", word="rounded", value_error=0.01),
        cell("tags", word="rewritten", unchanged=2),
        cell("text"),
    ]
    assert [str(change) for change in cell_changes("wandb", before, after)] == [
        "wandb, scalars: exact -> rounded; value_error 0 -> 0.01",
        "wandb, tags: rewritten; unchanged 3 -> 2",
    ]


def test_noise_is_no_change() -> None:
    """Counts of log lines and the last bits of a float are no change; NaN equals itself (FID-3)."""
    before = [cell(value_error=0.1, notices=1, step_map={"100": [100]}, odd=_NAN)]
    after = [cell(value_error=0.1 * (1 + 1e-13), notices=7, step_map={"100": [100]}, odd=_NAN)]
    assert cell_changes("wandb", before, after) == []
    assert significant({"notices": 3, "value_error": 0.12345678}) == {"value_error": 0.123457}


def test_which_rows_a_scattered_step_hit_is_no_change() -> None:
    """That each event got a row of its own is a fact; the numbers of the rows are chance (FID-1)."""
    first = cell("scalar-steps", word="rewritten", step_map={"100": [0, 1, 2, 3, 100]}, steps_kept=1)
    again = cell("scalar-steps", word="rewritten", step_map={"100": [5, 6, 7, 8]}, steps_kept=0)
    merged = cell("scalar-steps", word="rewritten", step_map={"100": [0]}, steps_kept=0)
    assert cell_changes("wandb-relay", [first], [again]) == []
    (change,) = cell_changes("wandb-relay", [first], [merged])
    assert dict(change.numbers)["step_map"] == ({"100": "many"}, {"100": [0]})


def test_a_cell_that_one_side_lacks_is_a_change() -> None:
    """A cell that came or went is told with the word absent (FID-3)."""
    changes = cell_changes("wandb", [cell("scalars")], [cell("text")])
    assert [str(change) for change in changes] == ["wandb, text: absent -> exact", "wandb, scalars: exact -> absent"]


def test_an_unmeasured_version_is_refused_with_its_neighbours() -> None:
    """A version that is not measured refuses and names the nearest ones; so does a tracker that is not (FID-3)."""
    columns = [column("0.28.2"), column("0.29.0", status="crashed", detail="x"), column("0.31.0")]
    assert version_step(columns, "wandb", "0.28.2", "0.31.0").changes == []
    with pytest.raises(Refusal) as caught:
        version_step(columns, "wandb", "0.28.2", "0.29.0")
    assert caught.value.code == "fidelity_version_unmeasured"
    assert (caught.value.fields["below"], caught.value.fields["above"]) == ("0.28.2", "0.31.0")
    with pytest.raises(Refusal) as caught:
        version_step(columns, "wand", "0.28.2", "0.31.0")
    assert caught.value.code == "fidelity_tracker_unknown"


@pytest.mark.parametrize(
    ("version", "nearest"),
    [
        ("0.29.0", ("0.28.2", "0.30.0")),
        ("0.28.2", (None, "0.30.0")),
        ("1.0", ("0.30.0", None)),
        ("0.1", (None, "0.28.2")),
    ],
)
def test_neighbours_are_the_nearest_on_either_side(version: str, nearest: tuple[str | None, str | None]) -> None:
    """The version itself is no neighbour of itself (FID-3)."""
    assert neighbours(["0.30.0", "0.28.2"], version) == nearest


def test_the_history_walks_from_version_to_version() -> None:
    """Versions are compared with the one before, in their order (FID-3)."""
    columns = [column("0.31.0"), column("0.28.2", cell(word="rounded")), column("0.30.0")]
    steps = [(step.old, step.new, len(step.changes)) for step in history(columns, "wandb")]
    assert steps == [("0.28.2", "0.30.0", 1), ("0.30.0", "0.31.0", 0)]


def test_a_route_that_one_version_lacks_is_told() -> None:
    """What only one of two versions has measured is no change and no sameness, and is named (FID-3)."""
    crashed = column("0.31.0", route="wandb", status="crashed", detail="x")
    columns = [column("0.30.0"), column("0.30.0", route="wandb"), column("0.31.0"), crashed]
    step = version_step(columns, "wandb", "0.30.0", "0.31.0")
    assert (step.changes, step.shared) == ([], ["wandb-relay"])
    assert step.remarks() == ["wandb could not be compared: it is not measured in 0.31.0."]
    assert "**0.30.0 to 0.31.0**: nothing. wandb could not be compared" in versions_page(columns)


def test_two_versions_without_a_common_route_are_refused() -> None:
    """Two versions of which no route is measured in both are refused, not called the same (FID-3)."""
    columns = [column("0.30.0"), column("0.31.0", route="wandb")]
    with pytest.raises(Refusal) as caught:
        version_step(columns, "wandb", "0.30.0", "0.31.0")
    assert caught.value.code == "fidelity_not_comparable"
    assert caught.value.fields["unmeasured"] == {"wandb-relay": "0.31.0", "wandb": "0.30.0"}
    assert "**0.30.0 to 0.31.0**: unknown." in versions_page(columns)


def test_the_command_says_what_wandbs_relay_did_to_steps() -> None:
    """Between wandb 0.19.11 and 0.28.2 the relay's steps changed; it is told in words, once for all grids (FID-3)."""
    done = CliRunner().invoke(fidelity, ["changes", "wandb", "0.19.11", "0.28.2"], standalone_mode=False)
    assert done.return_value == 1
    for place, things in (("scalar-steps", "scalars"), ("histogram-steps on every grid", "histograms")):
        (line,) = [line for line in done.output.splitlines() if f", {place}: " in line]
        before, now = line.split("; now: ")
        assert before.startswith(f"wandb-relay (sync_tensorboard), {place}: before: the steps you give to {things}")
        assert "every event gets a row of its own" in before
        assert "100 becomes 0" in now and "own" not in now
    assert "step_map" not in done.output and "{" not in done.output


def test_the_numbers_behind_a_sentence_are_shown_on_demand() -> None:
    """With --numbers the words and numbers of the table follow each sentence (FID-3)."""
    arguments = ["changes", "wandb", "0.19.11", "0.28.2", "--numbers"]
    done = CliRunner().invoke(fidelity, arguments, standalone_mode=False)
    for change in version_step(load_columns(), "wandb", "0.19.11", "0.28.2").changes:
        assert change.difference in done.output
    assert done.output.count("every event gets a row of its own") == 2


def test_the_command_says_when_nothing_changed() -> None:
    """Two versions that do the same are said to, with the routes that were compared, and exit with 0 (FID-3)."""
    done = CliRunner().invoke(fidelity, ["changes", "wandb", "0.28.2", "0.28.2"], standalone_mode=False)
    assert done.return_value == 0
    assert "Nothing changed for a user of wandb between 0.28.2 and 0.28.2 (wandb, wandb-relay)." in done.output


def test_the_committed_table_holds_the_versions_of_the_matrix() -> None:
    """At least fourteen versions of five trackers are measured, each by what its package reports (FID-3)."""
    columns = [c for c in load_columns() if c["status"] == MEASURED]
    versions = {(c["tracker"], c["version"]) for c in columns}
    assert len(versions) >= 14
    assert len({tracker for tracker, _ in versions}) >= 5
    assert {c["package"]["reported"] for c in columns} == {version for _, version in versions}
    assert len({c["sent_digest"] for c in columns}) == 1
    assert not any(c["stale"] for c in columns)
    assert cells_of(columns, "wandb", "0.30.0").keys() >= {"wandb", "wandb-relay"}
