"""The run that is ended and continued, in real processes with the installed trackers, and when it fails."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fidelity.measure import Cell
from fidelity.processes import ProcessFailed, ProcessGroup
from fidelity.received import Received, Refused
from fidelity.resume_run import (
    AFTER,
    BEFORE,
    REFUSED_FILE,
    ResumeUnmeasured,
    resume_cell,
    send_part,
    send_resume,
)
from fidelity.routes import get_route
from fidelity.routes.resuming import NotContinued, NotOffered, Resume, Way, continue_run
from fidelity.run import Options, measure_routes
from fidelity.stimulus import SentData
from fidelity.tensors import Provenance
from fidelity.verdicts import NOT_MEASURED, judge
from fidelity.worker import _received, output_name
from torchlens_conformance.protocol import Point

from .small_stimulus import small_data

KEPT = {"0": [0], "50": [50], "100": [100], "101": [101], "150": [150], "200": [200]}
DEFAULT, NO_OFFSET, SERVERS = "continue_last_task=<task id>", "continue_last_task=0", "continue_last_task=101"


def _cell(route_id: str, place: Path) -> Cell:
    """Send the run through a route in processes of its own and read it back here."""
    route = get_route(route_id)

    def send(run: str, folder: Path, way: int) -> None:
        (folder / "tmp").mkdir(parents=True, exist_ok=True)
        ProcessGroup().run(
            ["send", "--points", "none", "--route", route_id, "--run", run, "--way", str(way), "--place", str(folder)],
            output=folder / output_name(run),
            timeout=100,
            cwd=folder / "tmp",
            environment={"HOME": str(folder), "TMPDIR": str(folder / "tmp"), **route.environment(folder / "store")},
        )

    send_resume(route, place, send)
    return resume_cell(route, place, _received)


@pytest.mark.parametrize(
    ("route_id", "package"),
    [
        ("jsonl", "json"),
        pytest.param("tensorboard", "tensorboard", marks=pytest.mark.trackers),
        pytest.param("wandb", "wandb", marks=pytest.mark.trackers),
        pytest.param("comet", "comet_ml", marks=pytest.mark.trackers),
        pytest.param("mlflow", "mlflow", marks=pytest.mark.trackers),
        pytest.param("trailer", "trailer", marks=pytest.mark.trackers),
    ],
)
def test_a_continued_run_keeps_the_steps(route_id: str, package: str, tmp_path: Path) -> None:
    """Scalars and histograms of both processes stand in the store of one run, at the caller's steps (FID-8)."""
    pytest.importorskip(package)
    cell = _cell(route_id, tmp_path)
    assert judge(cell.row, cell.numbers) == "preserved", cell
    assert cell.numbers["step_map"] == KEPT
    assert (cell.numbers["sent"], cell.numbers["arrived"]) == (8, 8)


@pytest.mark.trackers
def test_report_24_a_continued_task_is_refused_and_what_clearml_does_is_told(tmp_path: Path) -> None:
    """Natively the sink refuses the shift; by hand 101 becomes 102, or 202; without an offset all is kept (FID-8)."""
    pytest.importorskip("clearml")
    cell = _cell("clearml", tmp_path)
    assert judge(cell.row, cell.numbers) == "refused"
    assert (cell.numbers["before"], cell.numbers["after"]) == ([4, 4], [0, 4])
    assert "ClearML itself stores step 102; ours: Refusal: [tracker_step_shifted]" in cell.evidence[0]
    histogram = {"histogram at step 200": "not asked"}
    moved = {f"step {step}": f"stores step {step + 1}" for step in (101, 150, 200)}
    assert cell.numbers["itself"] == moved | histogram
    variants = cell.numbers["variants"]
    assert judge(cell.row, variants[NO_OFFSET]) == "preserved" and variants[NO_OFFSET]["step_map"] == KEPT
    assert judge(cell.row, variants[SERVERS]) == "refused"
    further = {f"step {step}": f"stores step {step + 101}" for step in (101, 150, 200)}
    assert variants[SERVERS]["itself"] == further | histogram
    assert any(line.startswith(SERVERS) and "stores step 202" in line for line in cell.evidence)
    assert "offline-" not in str(cell.evidence)


@pytest.mark.trackers
def test_report_24_the_relay_of_a_continued_task_keeps_the_steps(tmp_path: Path) -> None:
    """Through the relay scalars keep their steps, and the surface of a histogram moves by the offset (FID-8)."""
    for package in ("clearml", "tensorboard", "torch"):
        pytest.importorskip(package)
    cell = _cell("clearml-relay", tmp_path)
    assert judge(cell.row, cell.numbers) == judge(cell.row, cell.numbers["variants"][NO_OFFSET]) == "preserved"
    assert cell.numbers["step_map"] == KEPT
    assert cell.numbers["histogram_step_map"] == {"100": [0], "200": [1]}
    assert cell.numbers["variants"][NO_OFFSET]["histogram_step_map"] == {"100": [0], "200": [0]}


@pytest.mark.trackers
def test_the_relay_of_wandb_counts_from_zero_again(tmp_path: Path) -> None:
    """The rows of the second process lie on those of the first (FID-8)."""
    for package in ("wandb", "tensorboard", "torch"):
        pytest.importorskip(package)
    cell = _cell("wandb-relay", tmp_path)
    assert judge(cell.row, cell.numbers) == "rewritten"
    assert cell.numbers["step_map"] == {"0": [0], "50": [1], "100": [2], "101": [0], "150": [1], "200": [2]}
    assert cell.numbers["overlaps"] == 3
    assert any("`resume` will be ignored" in line and "<run>" in line for line in cell.evidence)


def _resume(*sends: Any) -> Resume:
    ways = tuple(Way(f"way {index}", send) for index, send in enumerate(sends))
    return Resume(lambda points, place: [], ways, lambda place: Received())


def _raising(error: Exception) -> Any:
    def start() -> object:
        raise error

    def send(points: Sequence[Point], place: Path) -> list[Refused]:
        continue_run(start)
        return []

    return send


def _send_here(resume: Resume, place: Path) -> Cell:
    """Send both parts in this process, and return the cell of the exact route's twin that is continued so."""
    route = replace(get_route("jsonl"), resume=resume)

    def send(run: str, folder: Path, way: int) -> None:
        (folder / "store").mkdir(exist_ok=True)
        send_part(resume, route.capabilities, run, folder, folder / "store", way)

    send_resume(route, place, send)
    return resume_cell(route, place, _received)


@pytest.mark.parametrize(
    "missing",
    [AttributeError("no init"), ImportError("no module"), TypeError("unexpected keyword argument 'resume'")],
)
def test_a_missing_function_or_argument_is_not_applicable_with_its_reason(missing: Exception, tmp_path: Path) -> None:
    """An older tracker without this way of continuing has a cell that says so (FID-8)."""
    cell = _send_here(_resume(_raising(missing)), tmp_path)
    assert judge(cell.row, cell.numbers) == "not applicable"
    assert cell.evidence == (f"way 0 is not offered: {type(missing).__name__}: {missing}",)


def test_another_way_that_is_not_offered_is_told_beside_the_cell(tmp_path: Path) -> None:
    """A variant that is missing costs its numbers alone (FID-8)."""
    cell = _send_here(_resume(lambda points, place: [], _raising(TypeError("no offset"))), tmp_path)
    assert judge(cell.row, cell.numbers) == "dropped silently"
    assert "way 1: way 1 is not offered: TypeError: no offset" in cell.evidence


def test_a_tracker_that_raises_when_it_is_asked_to_continue_refuses_all_that_follows(tmp_path: Path) -> None:
    """Its own words stand in every refusal (FID-8)."""
    with pytest.raises(NotContinued):
        continue_run(lambda: int("x"))
    _send_here(_resume(_raising(ValueError("the run is finished"))), tmp_path)
    refused = pickle.loads((tmp_path / "resume" / "0" / REFUSED_FILE).read_bytes())
    assert {item.step for item in refused} == {101, 150, 200} and len(refused) == 4
    assert {item.reason for item in refused} == {"ValueError: the run is finished"}
    with pytest.raises(NotOffered):
        continue_run(lambda: getattr(object(), "no_such_function"))  # noqa: B009


def test_each_way_continues_a_copy_of_what_was_begun(tmp_path: Path) -> None:
    """The ways do not see each other's points, and what was begun is there for all of them (FID-8)."""
    seen = []

    def begin(points: Sequence[Point], place: Path) -> list[Refused]:
        (place / "log").write_text("begun")
        return []

    def go_on(points: Sequence[Point], place: Path) -> list[Refused]:
        seen.append((place / "log").read_text())
        (place / "log").write_text("continued")
        return []

    resume = Resume(begin, (Way("one", go_on), Way("other", go_on)), lambda place: Received())
    _send_here(resume, tmp_path)
    assert seen == ["begun", "begun"]


def test_a_failed_process_is_noted_and_an_interrupt_is_not(tmp_path: Path) -> None:
    """Only the way that failed is not measured; Ctrl-C ends the route (FID-3)."""
    route = replace(get_route("jsonl"), resume=_resume(lambda points, place: [], lambda points, place: []))

    def failing(reason: str, at: str) -> Any:
        def send(run: str, folder: Path, way: int) -> None:
            if run == at and way == 0:
                raise ProcessFailed(reason, "exit code 3")
            (folder / REFUSED_FILE).write_bytes(pickle.dumps([]))

        return send

    for at in (BEFORE, AFTER):
        place = tmp_path / at
        send_resume(route, place, failing("crashed", at))
        with pytest.raises(ResumeUnmeasured, match="crashed: exit code 3"):
            resume_cell(route, place, _received)
        assert (place / "resume" / "1" / REFUSED_FILE).exists() is (at == AFTER)
    with pytest.raises(ProcessFailed):
        send_resume(route, tmp_path / "stopped", failing("interrupted", BEFORE))


def test_a_store_that_cannot_be_read_is_not_measured(tmp_path: Path) -> None:
    """A refusing reader costs this row alone (FID-3)."""

    def unreadable(place: Path) -> Received:
        raise ValueError("two runs")

    resume = replace(_resume(lambda points, place: []), read=unreadable)
    with pytest.raises(ResumeUnmeasured, match="reading back: ValueError: two runs"):
        _send_here(resume, tmp_path)


@pytest.mark.trackers
def test_a_run_that_asks_for_no_continuing_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """The routes continue no run and have no row for it; the controls do as always (FID-7, FID-8)."""
    pytest.importorskip("tensorboard")
    real, ran = ProcessGroup.run, []

    def run(self: ProcessGroup, arguments: Sequence[str], **settings: Any) -> None:
        ran.append(arguments)
        real(self, arguments, **settings)

    monkeypatch.setattr(ProcessGroup, "run", run)
    data = SentData(tuple(small_data()), Provenance("seeded", "a small stimulus", 1), "0" * 64)
    options = Options(routes=("tensorboard",), jobs=2, resume=False)
    result = measure_routes(data, options, replayed=True).result
    resumed = {route["id"]: any(row["id"] == "resume" for row in route["rows"]) for route in result["routes"]}
    assert resumed == {"tensorboard": False, "jsonl": True, "sabotage": True}
    assert not any(BEFORE in arguments and "tensorboard" in arguments for arguments in ran)
    assert result["incomplete"] == []


def test_a_failed_resume_run_leaves_the_other_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cell is not measured with the reason, the table is incomplete, and every other cell stands (FID-3)."""
    real = ProcessGroup.run

    def run(self: ProcessGroup, arguments: Sequence[str], **settings: Any) -> None:
        if AFTER in arguments and "jsonl" in arguments:
            raise ProcessFailed("timed out", "no end after 1 seconds")
        real(self, arguments, **settings)

    monkeypatch.setattr(ProcessGroup, "run", run)
    data = SentData(tuple(small_data()), Provenance("seeded", "a small stimulus", 1), "0" * 64)
    result = measure_routes(data, Options(routes=(), jobs=2), replayed=True).result
    exact, sabotage = result["routes"]
    assert [row["id"] for row in exact["rows"] if row["verdict"] == NOT_MEASURED] == ["resume"]
    assert exact["rows"][-1]["evidence"] == ["timed out: no end after 1 seconds"]
    assert result["incomplete"] == ["jsonl resume timed out: no end after 1 seconds"]
    assert NOT_MEASURED not in {row["verdict"] for row in sabotage["rows"]}
    # The exact control has to be lossless in this row as well.
    assert any("'not measured' in resume" in reason for reason in result["void_reasons"])
