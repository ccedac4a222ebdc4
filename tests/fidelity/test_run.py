"""A whole run with real processes: what happens when a route crashes, hangs, is stopped or lacks its tracker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fidelity import run as fidelity_run
from fidelity.processes import ProcessFailed, ProcessGroup
from fidelity.results import SCHEMA, changed_cells, dump_results, load_results
from fidelity.run import Measurement, Options, measure_routes
from fidelity.stimulus import SentData
from fidelity.tensors import Provenance
from fidelity.verdicts import NOT_MEASURED
from torchlens_conformance.protocol import Refusal

from .small_stimulus import small_data

pytest.importorskip("jsonschema")


def _data() -> SentData:
    return SentData(tuple(small_data()), Provenance("seeded", "a small stimulus", 1), "0" * 64)


def _measure(*routes: str, group: ProcessGroup | None = None, timeout: float = 100.0) -> Measurement:
    return measure_routes(_data(), Options(routes=routes, timeout=timeout, jobs=2), replayed=True, group=group)


def _words(measurement: Measurement, route: str) -> set[str]:
    (found,) = [r for r in measurement.result["routes"] if r["id"] == route]
    return {row["verdict"] for row in found["rows"]}


@pytest.fixture(scope="module")
def controls() -> Measurement:
    """A run of the two controls alone, over the small stimulus."""
    return _measure()


def test_a_short_stimulus_is_void_even_when_the_controls_hold(controls: Measurement) -> None:
    """Fewer scalars than 1,596 make the table void (FID-6)."""
    (reason,) = controls.result["void_reasons"]
    assert "1596" in reason
    assert controls.result["void"]
    assert controls.exit_code == 2


def test_a_real_result_validates_and_reads_back(controls: Measurement, tmp_path: Path) -> None:
    """What a run writes matches the schema in the wheel and reads back equal, infinities included (FID-7)."""
    path = tmp_path / "measured.json"
    path.write_text(dump_results(controls.result))
    assert load_results(path) == controls.result
    assert controls.result["schema"] == SCHEMA


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"schema": "torchlens-conformance.fidelity.v9"}',
        '{"schema": "torchlens-conformance.fidelity.v1"}',
    ],
)
def test_other_files_are_refused_as_results(text: str, tmp_path: Path) -> None:
    """An empty, broken, foreign or later file is refused by name (FID-1)."""
    path = tmp_path / "measured.json"
    path.write_text(text)
    with pytest.raises(Refusal) as caught:
        load_results(path)
    assert caught.value.code == "fidelity_result_invalid"


def test_changed_cells_names_cell_old_and_new(controls: Measurement) -> None:
    """A word that differs from the baseline is named with its cell, old and new word (FID-3)."""
    import copy

    other = copy.deepcopy(controls.result)
    other["routes"][0]["rows"][3]["verdict"] = "rounded"
    row = other["routes"][0]["rows"][3]
    assert changed_cells(controls.result, controls.result) == []
    assert changed_cells(controls.result, other) == [
        (
            other["routes"][0]["id"],
            row["id"],
            row["grid"],
            controls.result["routes"][0]["rows"][3]["verdict"],
            "rounded",
        )
    ]


def test_a_hung_route_is_marked_and_leaves_nothing() -> None:
    """A route that does not end within its time has cells that say so, and the table is incomplete (FID-3)."""
    measurement = _measure(timeout=0.01)
    assert _words(measurement, "jsonl") == {NOT_MEASURED}
    assert measurement.exit_code == 2
    assert any("timed out" in line for line in measurement.result["incomplete"])


def test_a_crashed_route_is_marked_and_the_others_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """A route whose process fails says what it printed last, and the others are measured (FID-3)."""
    pytest.importorskip("tensorboard")
    real = fidelity_run.get_route

    def broken(route_id: str) -> object:
        route = real(route_id)
        if route_id == "tensorboard":
            from dataclasses import replace

            return replace(route, id="no-such-route")
        return route

    monkeypatch.setattr(fidelity_run, "get_route", broken)
    measurement = _measure("tensorboard")
    assert _words(measurement, "no-such-route") == {NOT_MEASURED}
    (line,) = measurement.result["incomplete"]
    assert "crashed" in line and "fidelity_route_unknown" in line
    assert NOT_MEASURED not in _words(measurement, "jsonl")


def test_a_missing_tracker_is_marked_with_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracker that is not installed leaves cells that say what to install (FID-3)."""
    monkeypatch.setattr(fidelity_run, "installed_version", lambda name: None)
    measurement = _measure("wandb")
    assert _words(measurement, "wandb") == {NOT_MEASURED}
    assert any("torchlens-conformance[wandb]" in line for line in measurement.result["incomplete"])


def test_an_interrupt_marks_what_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends every child, marks the routes that were not done and returns what there is (FID-3)."""

    def interrupted(futures: object, group: ProcessGroup) -> None:
        group.interrupt()

    monkeypatch.setattr(fidelity_run, "_wait", interrupted)
    measurement = _measure()
    assert _words(measurement, "jsonl") == {NOT_MEASURED}
    assert {route["status"] for route in measurement.result["routes"]} == {"interrupted"}
    assert measurement.exit_code == 2


def test_an_unknown_route_is_refused_before_anything_starts() -> None:
    """A route id that does not exist is refused by name (FID-3)."""
    with pytest.raises(Refusal) as caught:
        _measure("tensorbored")
    assert caught.value.code == "fidelity_route_unknown"


def test_a_child_that_fails_leaves_its_last_words(tmp_path: Path) -> None:
    """The last lines of a crashed child stand in the failure."""
    with pytest.raises(ProcessFailed) as caught:
        ProcessGroup().run(["no-such-step"], output=tmp_path / "out", timeout=60, cwd=tmp_path, environment={})
    assert caught.value.reason == "crashed"
    assert "no-such-step" in caught.value.detail


def test_tracker_settings_of_the_caller_do_not_reach_a_child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The caller's own keys and settings stay out of a measurement."""
    from fidelity.processes import _inherited

    monkeypatch.setenv("WANDB_API_KEY", "secret")
    monkeypatch.setenv("CLEARML_API_ACCESS_KEY", "secret")
    assert not {"WANDB_API_KEY", "CLEARML_API_ACCESS_KEY"} & _inherited().keys()


def test_progress_tells_each_step_of_each_route() -> None:
    """A person sees what every route is doing."""
    seen: list[tuple[str, str]] = []
    lock = threading.Lock()

    def progress(route: str, doing: str) -> None:
        with lock:
            seen.append((route, doing))

    report: Callable[[str, str], None] = progress
    measure_routes(_data(), Options(routes=(), jobs=2), replayed=True, progress=report)
    assert {("jsonl", "sending"), ("jsonl", "reading back"), ("jsonl", "measured")} <= set(seen)
