"""ClearMLSink over a real offline task, read back after the task is closed."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from reference_sinks.readers import ReadResult, read_clearml
from torchlens_conformance.protocol import DEFAULT_DESCRIPTOR, HistogramPoint, ScalarPoint, TextPoint
from torchlens_conformance.protocol.compare import same_value

from .clearml_tasks import (
    CHANGED,
    CONTINUED,
    CONTINUED_RELAY,
    FULL,
    FULL_ARTIFACT,
    KILLED,
    NO_PLACE,
    NUMBERS,
    START,
    STORED,
    TAGS,
    TEXTS,
)
from .conftest import Finished, run_program

# Not importorskip: importing clearml reads settings of the user, and some versions dial their server.
if find_spec("clearml") is None:
    pytest.skip("clearml is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return what the program that stores one of everything tells."""
    sent = repr((NUMBERS, CHANGED, TEXTS, TAGS)).replace("nan", "math.nan").replace("inf", "math.inf")
    return run_program(START + STORED, sent, home=tmp_path_factory.mktemp("stored")).printed


@pytest.fixture(scope="module")
def result(told: Any) -> ReadResult:
    """Return what the reader finds in the stored session."""
    return read_clearml(told["folder"])


def scalars(result: ReadResult, tag: str) -> list[tuple[int, int | float]]:
    """Return step and value of one series."""
    return [(point.step, point.value) for point in result if isinstance(point, ScalarPoint) and point.tag == tag]


def texts(result: ReadResult, tag: str) -> list[tuple[int, str]]:
    """Return step and text of one series."""
    return [(point.step, point.text) for point in result if isinstance(point, TextPoint) and point.tag == tag]


def codes(entries: list[Any]) -> list[str | None]:
    """Return the codes of refusals, None for what was taken."""
    return [entry and entry[0] for entry in entries]


def test_numbers_return_exactly(result: ReadResult) -> None:
    """Every number that a float64 holds survives with its step and sign (CLEARML-1, POINT-3)."""
    got = scalars(result, "numbers/all")
    assert [step for step, _ in got] == list(range(100, 100 + len(NUMBERS)))
    assert all(same_value(float(sent), there) for sent, (_, there) in zip(NUMBERS, got))


def test_numbers_that_clearml_would_change_are_refused(told: Any, result: ReadResult) -> None:
    """NaN, the infinities and integers that no float holds refuse by name, and nothing of them is stored (POINT-3)."""
    assert codes(told["changed"]) == ["tracker_value_unsupported"] * len(CHANGED)
    assert scalars(result, "changed/all") == []


def test_texts_return_exactly(result: ReadResult) -> None:
    """Texts survive whatever they hold: no end of line is changed, and NaN stays a text (CLEARML-1)."""
    assert texts(result, "texts/all") == list(enumerate(TEXTS, 120))


def test_histograms_return_whole(result: ReadResult) -> None:
    """Counts beyond 64 bits, every edge, -0.0 and a summary with NaN return exactly (CLEARML-1, POINT-2)."""
    got = {point.tag: point for point in result if isinstance(point, HistogramPoint) and point.step == 210}
    counts = [(index * 7919) % 1000 for index in range(513)]
    counts[3], counts[4] = 2**60 + 1, 2**70
    grid = got["p/hist/grid"]
    assert (grid.counts, grid.edges) == (tuple(counts), DEFAULT_DESCRIPTOR.edges)
    assert {key: grid.summary[key] for key in ("min", "max", "num", "sum_squares")} == {
        "min": -1.0,
        "max": 5e-324,
        "num": 3,
        "sum_squares": math.inf,
    }
    assert math.isnan(grid.summary["sum"])
    assert math.copysign(1.0, got["p/hist/zero"].edges[1]) == -1.0
    assert got["p/hist/wide"].edges == tuple(index / 7 for index in range(5001))


def test_no_two_tags_are_brought_together(told: Any, result: ReadResult) -> None:
    """Tags that a cut at a slash might confuse come back unchanged, each with its own points (TAG-3)."""
    assert told["tags-preflight"] is None
    for index, tag in enumerate(TAGS):
        assert scalars(result, tag)[-1] == (200, index + 0.5)
        assert texts(result, tag) == [(200, str(index))]
        assert [p.counts for p in result if isinstance(p, HistogramPoint) and p.tag == tag] == [(index,)]
    assert codes(told["surrogates"]) == ["tracker_tag_unsafe"] * 3


def test_steps_keep_value_and_order(result: ReadResult) -> None:
    """Repeated, falling and huge steps stay the caller's, in the order of emission (POINT-3, STEP-1)."""
    steps = [9, 5, 5, 2**31 - 1, 2**31 + 5, 2**53 + 1, 2**63 - 1, 0]
    assert scalars(result, "steps/all") == [(step, step / 3) for step in steps]
    assert texts(result, "steps/all") == [(step, str(step)) for step in steps]


def test_what_others_report_is_left_alone(result: ReadResult) -> None:
    """What the caller reports by hand stands beside the sink's, and a foreign artifact is named (CLEARML-1)."""
    assert scalars(result, "by/hand") == [(3, 0.5)]
    assert [item.content["key"] for item in result.unplaced if item.reason == "an artifact"] == ["facts"]


def test_a_shifted_task_is_refused(told: Any, result: ReadResult) -> None:
    """A task that adds an offset to steps is refused when the sink is made and at every emit (CLEARML-1, STEP-1)."""
    assert told["shifted"] == [["tracker_step_shifted", {"offset": "101"}]] * 3
    assert not [point for point in result if getattr(point, "tag", "").startswith("shifted/")]


def test_the_state_claims_no_more_than_was_seen(told: Any) -> None:
    """Before a flush nothing was seen on disk, after it everything (PROT-8)."""
    assert told["words"] == ["raw_histogram", "scalar", "text_manifest"]
    assert told["state-before"] == "computed"
    assert ", 0 of them were seen" in told["unseen"]
    handed = told["state"][1].split()[0]
    assert told["state"][0] == "emitted" and f", {handed} of them were seen" in told["state"][1]


def test_the_task_tells_its_last_step(told: Any) -> None:
    """The hook reads the session: none in a fresh one, else the largest step (PROT-11)."""
    assert (told["last-before"], told["last"]) == (None, 2**63 - 1)


def test_a_second_sink_on_one_task_is_whole(result: ReadResult) -> None:
    """Two sinks on one task take different names for their artifacts (PROT-10)."""
    assert texts(result, "second/sink") == [(300, "another")] and scalars(result, "second/sink") == [(300, 1.0)]


def test_a_forked_child_writes_nothing(told: Any, result: ReadResult) -> None:
    """The child's emit and flush refuse, its close is silent, and the parent goes on (PROT-10)."""
    assert told["child"] == 0
    assert scalars(result, "child/x") == []
    assert texts(result, "before/close") == [(400, "still there")] and scalars(result, "before/close") == [(400, 0.25)]


def test_a_closed_sink_or_task_takes_nothing(told: Any, result: ReadResult) -> None:
    """After the sink's close, and after the task's, everything refuses; so does a loss at close (PROT-6, PROT-11)."""
    assert codes(told["closed"]) == ["tracker_sink_closed"] * 2
    assert codes(told["finished"]) == ["tracker_sink_closed"] * 3
    assert scalars(result, "closed/x") == scalars(result, "late/x") == [] == texts(result, "too/late")


def test_another_object_is_no_task(told: Any) -> None:
    """Only a task is taken (CLEARML-1)."""
    assert codes(told["no-task"]) == ["tracker_sink_settings_invalid"] * 2


def test_what_was_flushed_survives_a_kill(program: Callable[..., Finished]) -> None:
    """After flush everything is readable although the process was killed (PROT-10)."""
    result = read_clearml(program(START + KILLED, may_fail=True).printed["folder"])
    assert scalars(result, "s/x") == [(step, step / 3) for step in range(50)]
    assert texts(result, "t/x") == [(step, str(step)) for step in range(50)]


def test_a_full_disk_is_told_and_latched(program: Callable[..., Finished]) -> None:
    """ClearML's reporter dies without a word to the caller: flush refuses, and so does everything after (PROT-10)."""
    told = program(START + FULL).printed
    assert told["full"][0] == "tracker_sink_write_failed" and told["full"][1]["first"].startswith("s/x at step 1:")
    assert codes(told["again"]) == ["tracker_sink_write_failed"] * 3 + [None]
    result = read_clearml(told["folder"], allow_torn=True)
    assert scalars(result, "s/x")[0] == (0, 0.5) and texts(result, "t/x") == [(0, "before")]
    assert result.torn is not None and "metrics.jsonl" in result.torn


def test_an_artifact_without_room_is_told_and_latched(program: Callable[..., Finished]) -> None:
    """An artifact that the disk does not take whole is refused by name, with how many points it held (PROT-10)."""
    told = program(START + FULL_ARTIFACT).printed
    assert told["full"][0] == told["again"][0] == "tracker_sink_write_failed"
    assert told["full"][1]["points"] == "1"


@pytest.mark.parametrize("place", ["gone", "elsewhere"])
def test_an_artifact_that_is_not_in_the_session_is_told(program: Callable[..., Finished], place: str) -> None:
    """ClearML takes an artifact that it cannot store, or stores elsewhere: the sink looks, and refuses (PROT-10)."""
    told = program(START + NO_PLACE, place).printed
    assert told["said"][0] == told["again"][0] == "tracker_sink_write_failed"
    assert list(read_clearml(told["folder"])) == []


def test_a_continued_task_is_refused_or_keeps_the_steps(program: Callable[..., Finished]) -> None:
    """Report 24: a continued task shifts steps; the sink refuses the shift, and without it keeps them (CLEARML-1)."""
    told = program(START + CONTINUED).printed
    assert told["offsets"] == {"True": 1, "0": 0, "7": 7}
    assert codes([told["True"], told["0"], told["7"]]) == ["tracker_step_shifted", None, "tracker_step_shifted"]
    result = read_clearml(told["folder"])
    # What ClearML itself makes of step 100, and what arrives through the sink.
    for name, offset in told["offsets"].items():
        assert scalars(result, f"hand/{name}") == [(100 + offset, 0.5)]
        assert scalars(result, f"sink/{name}") == [(100, 0.5)]
        assert texts(result, f"text/{name}") == [(100, name)]
    assert told["last-True"] == 101


@pytest.mark.trackers
def test_the_relay_of_a_continued_task_keeps_the_steps(program: Callable[..., Finished]) -> None:
    """Report 24: the TensorBoard relay takes the offset off again, so the writer's own steps arrive (CLEARML-1)."""
    if find_spec("torch") is None or find_spec("tensorboard") is None:
        pytest.skip("torch or tensorboard is not installed")
    told = program(START + CONTINUED_RELAY).printed
    assert told["offsets"] == {"False": 0, "True": 1, "200": 200, "0": 0}
    result = read_clearml(told["folder"])
    for name in told["offsets"]:
        steps = [0, 50, 100] if name == "False" else [100, 150, 300]
        assert scalars(result, f"relay/{name}") == [(step, 0.5) for step in steps]


def test_the_package_is_named_when_it_is_missing(program: Callable[..., Finished], tmp_path: Path) -> None:
    """Without clearml the sink refuses and names the extra (CLEARML-1, PROT-9)."""
    (tmp_path / "clearml.py").write_text("raise ImportError('not here')\n")
    told = program(
        "import json, sys; sys.path.insert(0, '.')\n"
        "from reference_sinks import ClearMLSink\n"
        "from torchlens_conformance.protocol import Refusal\n"
        "try:\n    ClearMLSink(None)\nexcept Refusal as refusal:\n"
        "    print(json.dumps([refusal.code, refusal.fields['extra']]))\n"
    ).printed
    assert told == ["tracker_sink_unavailable", "clearml"]
