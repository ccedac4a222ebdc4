"""Changes of cells in sentences, over handmade cells."""

from __future__ import annotations

from typing import Any

import pytest

from fidelity.grids import GRIDS
from fidelity.verdicts import WORDS
from fidelity.versions.significant import cell_changes
from fidelity.versions.told import meaning, told

from .version_examples import cell


def _sentences(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[str]:
    return [change.sentence for change in told(cell_changes("wandb-relay", before, after))]


def test_a_cell_without_a_loss_is_kept() -> None:
    """A change from or to a lossless cell says that it is kept (FID-3)."""
    kept, lost = cell("tags", word="preserved"), cell("tags", word="dropped silently")
    assert _sentences([kept], [lost]) == [
        "wandb-relay (sync_tensorboard), tags: before: kept; now: odd tags do not arrive, and nothing says so"
    ]
    assert _sentences([lost], [kept]) == [
        "wandb-relay (sync_tensorboard), tags: before: odd tags do not arrive, and nothing says so; now: kept"
    ]


def test_grids_that_changed_alike_are_told_once() -> None:
    """Four grids with one fate are one sentence; a grid with another fate has its own (FID-3)."""
    before = [cell("summary", word="preserved", grid=grid) for grid in GRIDS]
    alike = [cell("summary", word="dropped silently", grid=grid) for grid in GRIDS]
    (sentence,) = _sentences(before, alike)
    assert ", summary on every grid: before: kept; now: " in sentence
    other = [*alike[:-1], cell("summary", word="rounded", grid=GRIDS[-1])]
    first, last = _sentences(before, other)
    assert f", summary on {', '.join(GRIDS[:-1])}: before: kept; now: " in first
    assert f", summary on {GRIDS[-1]}: before: kept; now: " in last
    assert not any(grid in sentence.split(": ", 1)[1] for sentence in (first, last) for grid in GRIDS)


def test_numbers_that_differ_under_the_same_words_are_named() -> None:
    """Where the words are the same, the sentence says which numbers differ, and how steps moved (FID-3)."""
    before = cell("resume", word="rewritten", histogram_step_map={"100": [3]}, shift=None, value_error=0.5)
    after = cell("resume", word="rewritten", histogram_step_map={"100": [2, 4]}, shift=7, value_error=0.25)
    (sentence,) = _sentences([before], [after])
    assert sentence.startswith("wandb-relay (sync_tensorboard), resume: as before, points of a run that you continue")
    assert "steps of histograms: before 100 becomes 3, now 100 becomes 2/4" in sentence
    assert "shift: before null, now 7" in sentence
    assert "largest error of a value: before 0.5, now 0.25" in sentence


def test_a_cell_that_one_side_lacks_was_not_measured() -> None:
    """A row that came, went, or could not be measured is told as not measured (FID-3)."""
    unmeasured = {**cell("text", word="not measured"), "numbers": {}}
    for before, after in (([], [cell("text")]), ([unmeasured], [cell("text")])):
        assert _sentences(before, after) == ["wandb-relay (sync_tensorboard), text: before: not measured; now: kept"]
    assert _sentences([cell("text")], []) == ["wandb-relay (sync_tensorboard), text: before: kept; now: not measured"]


@pytest.mark.parametrize("word", WORDS)
def test_every_word_has_a_meaning(word: str) -> None:
    """No word of the table is without a meaning for a person, and none names its row or grid again (FID-3)."""
    told_word = meaning(cell("text", word=word, grid="uniform-64"), route="wandb")
    assert told_word and "text: " not in told_word and "uniform-64" not in told_word


def test_a_sentence_names_the_sink_of_its_route() -> None:
    """What our sink refuses is told by the names of the route's sink and tracker (FID-3)."""
    before = cell("large-steps", word="preserved")
    after = cell("large-steps", word="refused", itself={"2**63-1": "raises OverflowError"})
    (change,) = told(cell_changes("mlflow", [before], [after]))
    assert "before: kept; now: our MLflowSink refuses 2**63-1; MLflow itself raises" in change.sentence


def test_the_numbers_of_grids_that_changed_alike_stand_once() -> None:
    """The words and numbers behind a sentence are those of the table, once when all grids have the same (FID-3)."""
    before = [cell("summary", word="rewritten", grid=grid, value_error=0.5) for grid in GRIDS]
    after = [cell("summary", word="preserved", grid=grid, value_error=0.0) for grid in GRIDS]
    (change,) = told(cell_changes("wandb-relay", before, after))
    assert change.numbers == ["rewritten -> preserved; value_error 0.5 -> 0"]
    after[0]["numbers"]["value_error"] = 0.25
    (change,) = told(cell_changes("wandb-relay", before, after))
    assert len(change.numbers) == len(GRIDS)
    assert change.numbers[0] == f"wandb-relay, summary ({GRIDS[0]}): rewritten -> preserved; value_error 0.5 -> 0.25"
