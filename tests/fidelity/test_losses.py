"""What a measured cell means for a person: which items, what our sink does, and what the tracker itself does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from fidelity.answers import NOT_ASKED, SAME, TAKES, raised_answer, stored_answer
from fidelity.losses import losses
from fidelity.measure import measure
from fidelity.measure_runs import measure_resume
from fidelity.probes import PRECISION, all_probes, item_name, resume_points, tag_probe
from fidelity.received import FEW_ITEMS, Received, Refused, from_points
from fidelity.verdicts import judge
from fidelity.versions.significant import significant
from torchlens_conformance.protocol import GraphPoint, HistogramPoint, Point, ScalarPoint

from .small_stimulus import small_data, small_stimulus

_WORDS = frozenset({"scalar", "raw_histogram", "text_manifest", "graph"})


def _told(received: Received, row: str, *, route: str = "clearml") -> list[str]:
    """Return the sentences for one row of the small stimulus."""
    cells = measure(small_stimulus(), received, capabilities=_WORDS)
    return _sentences([cell for cell in cells if cell.row == row], route)


def _sentences(cells: Sequence[Any], route: str) -> list[str]:
    rows = [{"id": c.row, "grid": c.grid, "verdict": judge(c.row, c.numbers), "numbers": c.numbers} for c in cells]
    return losses(rows, route=route)


def _refusing(answers: Mapping[str, str], points: Sequence[Point] | None = None) -> Received:
    """A perfect store but for the points that are named, which were refused; each with the tracker's own answer."""
    sent = small_stimulus() if points is None else points
    gone = [point for point in sent if item_name(point) in answers]
    refused = [
        Refused(p.tag, p.step, p.capability, "Refusal", itself=answers[item_name(p)])  # type: ignore[union-attr]
        for p in gone
    ]
    return replace(from_points([point for point in sent if point not in gone]), refused=tuple(refused))


def test_a_refusal_of_our_sink_is_told_from_what_the_tracker_does() -> None:
    """Which numbers our sink refuses, what the tracker makes of each by hand, and that nothing says so (FID-2)."""
    lost = _refusing({"nan": "stores 0.0", "posinf": "stores 0.0", "neginf": "stores 0.0"})
    assert _told(lost, "nonfinite") == [
        "nonfinite: our ClearMLSink refuses nan, inf, -inf; ClearML itself stores 0.0 for each, and nothing says so"
    ]


def test_only_what_is_refused_is_named() -> None:
    """Of NaN and the infinities only those that are refused stand there, each with its own answer (FID-2)."""
    lost = _refusing({"posinf": "stores 1.8e+308", "neginf": "stores -1.8e+308"})
    assert _told(lost, "nonfinite", route="mlflow") == [
        "nonfinite: our MLflowSink refuses inf, -inf; MLflow itself stores 1.8e+308 for inf, -1.8e+308 for -inf, "
        "and nothing says so"
    ]


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        (SAME, "ClearML itself stores the same"),
        (TAKES, "ClearML itself takes it"),
        ("raises ValueError", "ClearML itself raises ValueError"),
        ("stores 0.0, with a warning", "ClearML itself stores 0.0, with a warning"),
        ("stores nothing", "ClearML itself stores nothing, and nothing says so"),
    ],
)
def test_silence_is_told_only_where_something_was_changed_in_silence(answer: str, end: str) -> None:
    """What is stored as it is, raised, or warned about is not called silent (FID-2)."""
    assert _told(_refusing({"nan": answer}), "nonfinite") == [f"nonfinite: our ClearMLSink refuses nan; {end}"]


def test_a_line_that_the_tracker_wrote_is_not_called_silence() -> None:
    """Where a line about the refused points was logged, nothing says so is not claimed (FID-2)."""
    lost = replace(_refusing({"nan": "stores 0.0"}), logged=("probe/nonfinite/nan is no number",))
    assert _told(lost, "nonfinite") == ["nonfinite: our ClearMLSink refuses nan; ClearML itself stores 0.0"]


def test_a_tracker_that_was_not_asked_has_no_answer() -> None:
    """A refusal without an answer is told as ours alone (FID-2)."""
    assert _told(_refusing({"nan": NOT_ASKED}), "nonfinite") == ["nonfinite: our ClearMLSink refuses nan"]
    assert _told(_refusing({"nan": NOT_ASKED}), "nonfinite", route="other") == ["nonfinite: our sink refuses nan"]


def test_cells_of_older_tables_still_have_a_sentence() -> None:
    """Numbers without the tracker's answer give the general words (FID-2)."""
    cell = {"id": "nonfinite", "grid": None, "verdict": "refused", "numbers": {"sent": 9, "arrived": 6}}
    assert losses([cell], route="clearml") == ["nonfinite: NaN and the infinities are refused with an error"]


def test_many_refused_histograms_are_counted() -> None:
    """Hundreds of refused points are one entry of the numbers, and grids of one fate share a sentence (FID-2)."""
    points = [replace(p, tag=f"{p.tag}/{n}") for p in small_data() if isinstance(p, HistogramPoint) for n in range(3)]
    gone = [p for p in points if len(p.counts) in (513, 600)]
    refused = tuple(Refused(p.tag, p.step, p.capability, "R", itself="raises ValueError") for p in gone)
    received = replace(from_points([p for p in points if p not in gone]), refused=refused)
    cells = [c for c in measure(points, received, capabilities=_WORDS) if c.row == "histogram-counts"]
    assert len(gone) > 2 * FEW_ITEMS
    assert [c.numbers.get("itself") for c in cells] == [
        None if c.grid in ("uniform-64", "signed-log2-497") else {"18 histograms": "raises ValueError"} for c in cells
    ]
    assert _sentences(cells, "wandb") == [
        "histogram-counts: on uniform-600, signed-log2-513 our WandbSink refuses 18 histograms; "
        "wandb itself raises ValueError for each"
    ]


def _changed(row: str, **changes: Any) -> Received:
    """A store that changes the scalars of a row whose name is a key."""
    received = from_points(small_stimulus())
    scalars = [
        replace(s, value=changes[s.tag.split("/")[-1]])
        if s.tag.startswith(f"probe/{row}/") and s.tag.split("/")[-1] in changes and s.step in (204, 210)
        else s
        for s in received.scalars
    ]
    return replace(received, scalars=tuple(scalars))


def test_what_arrives_changed_is_named_with_what_it_became() -> None:
    """One NaN of nine points that becomes 0.0 is no loss of all infinities (FID-2)."""
    assert _told(_changed("nonfinite", nan=0.0), "nonfinite") == ["nonfinite: nan arrives as 0.0"]
    assert _told(_changed("nonfinite", posinf=1e9, neginf=1e9), "nonfinite") == [
        "nonfinite: inf, -inf arrive as 1000000000.0"
    ]
    assert _told(_changed("precision", **{"1e300": inf, "-0.0": 0.0}), "precision") == [
        "precision: 1e300 arrives as inf; -0.0 arrives as 0.0"
    ]


def test_what_does_not_arrive_is_named() -> None:
    """A missing number is named, with whether a line says so (FID-2)."""
    lost = from_points([p for p in small_stimulus() if item_name(p) != "neginf"])
    assert _told(lost, "nonfinite") == ["nonfinite: -inf does not arrive, and nothing says so"]
    said = replace(lost, logged=("dropped probe/nonfinite/neginf",))
    assert _told(said, "nonfinite") == ["nonfinite: -inf does not arrive, and only a line in a log says so"]
    some = _changed("nonfinite", nan=0.0)
    both = replace(some, scalars=tuple(s for s in some.scalars if s.value != inf))
    assert _told(both, "nonfinite") == ["nonfinite: nan arrives as 0.0; inf does not arrive, and nothing says so"]


def test_renamed_tags_are_named_in_quotes() -> None:
    """Every changed tag stands there; of many one is shown as it arrived (FID-2)."""
    received = from_points(small_stimulus())
    cut = replace(received, scalars=tuple(replace(s, tag=s.tag.rstrip("/")) for s in received.scalars))
    assert _told(cut, "tags") == ["tags: 'trailing/' arrives as 'probe/tags/trailing'"]
    every = replace(received, scalars=tuple(replace(s, tag=s.tag.replace("/", "_")) for s in received.scalars))
    (told,) = _told(every, "tags")
    assert all(repr(item_name(point)) in told for point in tag_probe())
    assert told.endswith("arrive changed, 'with space' as 'probe_tags_with space'")


def test_a_continued_run_names_the_steps_of_both_sides() -> None:
    """What our sink refuses after the continuing, and where the tracker itself puts it (FID-2, FID-8)."""
    before, after = resume_points()
    answers = {"step 101": "stores step 102", "step 150": "stores step 151", "histogram at step 200": NOT_ASKED}
    cell = measure_resume(before, after, _refusing(answers, [*before, *after]), capabilities=_WORDS)
    assert cell.numbers["itself"] == answers
    assert _sentences([cell], "clearml") == [
        "resume: our ClearMLSink refuses step 101, step 150, histogram at step 200; "
        "ClearML itself stores step 102 for step 101, step 151 for step 150, and nothing says so"
    ]
    gone = measure_resume(before, after, from_points([*before, *after[1:]]), capabilities=_WORDS)
    assert _sentences([gone], "clearml") == ["resume: step 101 does not arrive, and nothing says so"]


def test_every_item_of_a_row_has_a_name_of_its_own() -> None:
    """No two points that can stand in one cell are named alike, and no name is long (FID-2)."""
    before, after = resume_points()
    for points in (all_probes(), [*before, *after]):
        rows: dict[str, list[str]] = {}
        for point in points:
            row = "graph" if isinstance(point, GraphPoint) else point.tag.split("/")[1]
            rows.setdefault(row, []).append(item_name(point))
        assert all(len(set(names)) == len(names) for names in rows.values())
        assert all(len(name) <= 80 for names in rows.values() for name in names)


def test_an_answer_says_which_field_became_what() -> None:
    """Value, step and name each have their own words; messages are left out, as they name tags and paths (FID-1)."""
    sent = ScalarPoint("a", 1, inf)
    assert stored_answer(sent, sent) == SAME
    assert stored_answer(sent, None, warned=True) == "stores nothing, with a warning"
    assert stored_answer(sent, ScalarPoint("a", 2, 0.0)) == "stores 0.0 and step 2"
    assert stored_answer(ScalarPoint("a", 1, -0.0), ScalarPoint("a", 1, 0.0)) == "stores 0.0"
    assert stored_answer(sent, ScalarPoint("b", 1, inf), warned=True) == "stores the name 'b', with a warning"
    assert raised_answer(ValueError("/a/path")) == "raises ValueError"


def test_a_refused_number_is_no_exact_cell() -> None:
    """A store that refuses -0.0 and keeps the rest is refused, not exact (FID-1)."""
    lost = _refusing({"-0.0": "stores 0.0"})
    assert len(PRECISION) == 5
    assert _told(lost, "precision", route="mlflow") == [
        "precision: our MLflowSink refuses -0.0; MLflow itself stores 0.0, and nothing says so"
    ]


def test_another_answer_of_the_tracker_is_a_change_between_versions() -> None:
    """The answers are facts about the data, compared between versions like other numbers (FID-3)."""
    cells = measure(small_stimulus(), _refusing({"nan": "stores 0.0"}), capabilities=_WORDS)
    (numbers,) = [cell.numbers for cell in cells if cell.row == "nonfinite"]
    assert significant(numbers)["itself"] == {"nan": "stores 0.0"}
