"""CometSink over real offline experiments, read back from their archives and folders."""

from __future__ import annotations

import json
import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from reference_sinks.readers import ReadResult, read_comet
from torchlens_conformance.protocol import ScalarPoint, TextPoint
from torchlens_conformance.protocol.compare import same_value

from .conftest import run_program

# Not importorskip: importing comet_ml changes the process.
if find_spec("comet_ml") is None:
    pytest.skip("comet_ml is not installed", allow_module_level=True)

from .comet_experiments import LONG_TAG, NUMBERS, PROGRAM, STEPS, TAGS, TEXTS

CLOSED, FAILED = "tracker_sink_closed", "tracker_sink_write_failed"


def run(name: str, *arguments: str, home: Path, may_fail: bool = False) -> Any:
    """Run one program and return what it told."""
    return run_program(PROGRAM, name, *arguments, home=home, may_fail=may_fail).printed


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where one of everything is stored."""
    return tmp_path_factory.mktemp("stored")


@pytest.fixture(scope="module")
def told(place: Path) -> Any:
    """Return what the program that stores one of everything tells."""
    return run("stored", home=place)


@pytest.fixture(scope="module")
def result(place: Path, told: Any) -> ReadResult:
    """Return what the reader finds in the stored experiment."""
    return read_comet(place)


@pytest.fixture(scope="module")
def troubles(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return what the program in which things go wrong tells, and its place under ``place``."""
    place = tmp_path_factory.mktemp("troubles")
    return {**run("troubles", home=place), "place": place}


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return what the program that starts several experiments tells, and what their archives hold under ``read``."""
    place = tmp_path_factory.mktemp("several")
    told = run("replaced", "400", home=place)
    return {**told, "read": [read_comet(place / f"{key}.zip") for key in told["keys"]]}


@pytest.fixture(scope="module")
def useless(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return what the program that offers useless experiments tells."""
    return run("useless", home=tmp_path_factory.mktemp("useless"))


def scalars(result: ReadResult, tag: str) -> list[tuple[int, int | float]]:
    """Return step and value of one series."""
    return [(point.step, point.value) for point in result if isinstance(point, ScalarPoint) and point.tag == tag]


def codes(entries: list[Any]) -> list[str | None]:
    """Return the codes of refusals, None for what was taken."""
    return [entry and entry[0] for entry in entries]


def test_numbers_return_exactly(result: ReadResult) -> None:
    """Floats with their sign, NaN, the infinities and integers of any size survive with their types (COMET-1)."""
    got = scalars(result, "numbers")
    assert [step for step, _ in got] == list(range(100, 100 + len(NUMBERS)))
    for sent, (_, there) in zip(NUMBERS, got):
        assert same_value(sent, there) and type(sent) is type(there), sent


def test_steps_return_in_the_order_they_were_sent(result: ReadResult) -> None:
    """Large, falling and repeated steps survive, each with its value (POINT-3)."""
    assert scalars(result, "steps") == [(step, index / 3) for index, step in enumerate(STEPS)]


def test_texts_return_exactly(result: ReadResult) -> None:
    """Texts survive with their steps, and their tags are not cut (COMET-1)."""
    got = {
        tag: [(p.step, p.text) for p in result if isinstance(p, TextPoint) and p.tag == tag]
        for tag in ("texts", LONG_TAG)
    }
    assert got == {"texts": list(enumerate(TEXTS, 200)), LONG_TAG: [(1, "long")]}


def test_odd_tags_are_stored_unchanged(result: ReadResult) -> None:
    """Names up to 100 characters come back as they were sent (TAG-3)."""
    assert [point.tag for point in result if isinstance(point, ScalarPoint) and point.step == 300] == list(TAGS)


def test_a_context_of_comet_renames_nothing_of_the_sink(result: ReadResult) -> None:
    """Inside experiment.train() the sink's tags stay, while a metric logged by hand gets the prefix (COMET-1)."""
    assert scalars(result, "in-context") == [(1, 0.5)]
    assert [p.text for p in result if isinstance(p, TextPoint) and p.tag == "in-context"] == ["text"]
    assert scalars(result, "train_by-hand") == [(4, 2.5)]


def test_names_that_comet_changes_are_refused(told: Any, result: ReadResult) -> None:
    """More than 100 characters, and the metric that Comet adds, refuse at attach and at emit (PROT-7, TAG-3)."""
    for entries in (told["names"], told["preflight"]):
        assert codes(entries) == ["tracker_tag_unsafe"] * 2
        assert entries[0][2]["length"] == "101"
    assert not [point for point in result if isinstance(point, ScalarPoint) and point.tag.startswith("y")]


def test_what_would_break_the_file_is_refused(told: Any, result: ReadResult) -> None:
    """An integer that Python cannot print and a text without UTF-8 form are refused; nothing is stored (POINT-3)."""
    assert told["unprintable"][0] == told["surrogates"][0] == "tracker_value_unsupported"
    assert told["unprintable"][2]["bits"] == "16610"
    assert result.torn is None and not scalars(result, "unprintable")


def test_a_forked_child_writes_nothing(told: Any, result: ReadResult) -> None:
    """The child's emit and flush refuse, its close is silent, and no row of it is in the store (PROT-10)."""
    assert told["child"] == [0]
    assert scalars(result, "loss") == []


def test_a_closed_sink_and_an_ended_experiment_take_nothing(told: Any) -> None:
    """After close everything refuses, and so does a new sink on an ended experiment (PROT-6, PROT-11)."""
    assert codes(told["closed"]) == [CLOSED, CLOSED]
    assert told["after-end"][0] == CLOSED and told["after-end"][2]["reason"] == "ended"


def test_the_state_claims_no_more_than_emitted(told: Any) -> None:
    """The sink says that points stand in Comet's file, not that a server has them (PROT-8)."""
    assert told["words"] == ["scalar", "text_manifest"] and told["before"] == "computed"
    assert told["state"][0] == "emitted" and "experiment.end()" in told["state"][1]


def test_what_was_flushed_survives_a_kill(tmp_path: Path) -> None:
    """Killed right after a flush, everything is in the temporary folder (PROT-10)."""
    folder = run("killed", "300", home=tmp_path, may_fail=True)["folder"]
    result = read_comet(folder)
    assert scalars(result, "loss") == [(step, step / 7) for step in range(300)]
    assert [point.text for point in result if isinstance(point, TextPoint)] == ["x" * 50_000]
    assert result.closed is False and read_comet(tmp_path).points == result.points


def test_threads_share_a_sink(troubles: Any) -> None:
    """Eight threads emit at once, and each point comes back at its own step (PROT-10)."""
    result = read_comet(troubles["place"] / f"{troubles['threads'][0]}.zip")
    for number in range(8):
        assert scalars(result, f"thread-{number}") == [(step, step / 3) for step in range(40)]
    texts = {(p.tag, p.step, p.text) for p in result if isinstance(p, TextPoint)}
    assert texts == {(f"thread-{number}", number, f"text {number}") for number in range(8)}


def test_a_step_that_another_thread_moved_is_noticed(troubles: Any) -> None:
    """Where the experiment's step changes in between, the sink says what stands in the store, and latches (COMET-1)."""
    key, first, *later = troubles["moved"]
    assert first[0] == FAILED and first[1].endswith("it stands there with step 99 and value 0.2857142857142857.")
    assert codes(later) == [FAILED, FAILED, FAILED]
    assert scalars(read_comet(troubles["place"] / f"{key}.zip"), "loss") == [(0, 0.0), (1, 1 / 7), (99, 2 / 7)]


def test_a_full_disk_is_refused(troubles: Any) -> None:
    """The flush refuses with the point and what Comet said, and so does everything after it (PROT-10, PROT-5)."""
    key, first, *later = troubles["full_disk"]
    assert first[0] == FAILED and "File too large" in first[2]["said"] and first[2]["step"] == "5"
    assert codes(later) == [FAILED, FAILED, FAILED]
    assert later[0] == first and first[2]["lost"] == "1"
    result = read_comet(troubles["place"] / f"{key}.zip", allow_torn=True)
    assert scalars(result, "loss")[:5] == [(step, step / 7) for step in range(5)]
    assert any("File too large" in note for note in result.notes)


def test_errors_that_comet_swallows_are_noticed(troubles: Any) -> None:
    """Where Comet's call raises inside and only logs it, and where its writer has ended, the sink refuses (COMET-1)."""
    _, swallowed, ended = troubles["without_a_writer"]
    assert swallowed[0] == ended[0] == FAILED
    assert "took nothing" in swallowed[1] and "writer has ended" in ended[1]


def test_histograms_are_refused_by_name_at_attach(tmp_path: Path) -> None:
    """Asked for histograms the attach refuses and names sink and word; without, the watch runs (COMET-1, PROT-4)."""
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    told = run("attached", home=tmp_path)
    assert told["told"][0] == "tracker_sink_capability_missing"
    assert "CometSink" in told["told"][2].values() and "raw_histogram" in str(told["told"][2])
    ((name, state, detail, failed),) = told["rows"]
    assert (name, state, failed) == ("CometSink", "emitted", None) and "message file" in detail
    result = read_comet(tmp_path)
    assert [step for step, _ in scalars(result, "gradients/norm/weight")] == [3, 5]
    # Why: Comet multiplies its way from edge to edge, and has one at zero.
    assert (told["edges"], told["exact"], told["zero"]) == (514, 4, True)
    assert 4.7e-16 < told["off"] < 4.8e-16


def test_an_online_experiment_is_asked_by_its_interface() -> None:
    """Points go to log_metric and log_text, and a flush that Comet could not do is refused (COMET-1, PROT-6)."""
    from reference_sinks import CometSink
    from torchlens_conformance.protocol import Refusal

    class Interface:
        """What CometSink uses of an online experiment; a real one would dial out."""

        alive, ended, disabled, delivers = True, False, False, True

        def __init__(self) -> None:
            self.taken: list[Any] = []

        def log_metric(self, *arguments: Any, **named: Any) -> None:
            self.taken.append((arguments, named))

        log_text = log_metric

        def flush(self) -> bool:
            return self.delivers

    experiment = Interface()
    sink = CometSink(experiment)
    sink.emit_scalar(ScalarPoint("a/b", 3, 0.5))
    sink.emit_text(TextPoint("t", 4, "text"))
    assert experiment.taken == [
        (("a/b", 0.5), {"step": 3, "include_context": False}),
        (("text",), {"step": 4, "metadata": {"tag": "t"}}),
    ]
    sink.flush()
    assert sink.relay_state().state == "emitted"
    experiment.delivers = False
    with pytest.raises(Refusal) as caught:
        sink.flush()
    assert caught.value.code == FAILED
    experiment.alive, experiment.ended = False, True
    with pytest.raises(Refusal) as caught:
        sink.emit_scalar(ScalarPoint("a/b", 4, 0.5))
    assert caught.value.code == CLOSED
    sink.close()


def test_importing_comet_through_the_project_leaves_the_process_as_it_was(useless: Any) -> None:
    """No hook, no warning filter, no thread and no finder of Comet's stays behind (COMET-1)."""
    assert (useless["same"], useless["finders"]) == (True, [])


def test_a_missing_package_names_its_extra(tmp_path: Path) -> None:
    """Without comet_ml the sink refuses and names the extra; importing the sink needs no comet_ml (COMET-1, PROT-9)."""
    told = run("missing", home=tmp_path)
    assert told["clean"] is True
    for entry in (told["told"], told["told_offline"]):
        assert entry[0] == "tracker_sink_unavailable" and entry[2]["extra"] == "comet"


def test_an_experiment_that_logs_nothing_is_refused(useless: Any) -> None:
    """Report 35: disabled by argument or by environment, or unable to start: refused by name (COMET-1, PROT-8)."""
    assert codes(useless["told"]) == ["tracker_sink_settings_invalid"] * 5
    values = [entry[2]["value"] for entry in useless["told"]]
    assert values == ["disabled", "not alive", "disabled", "object", "type"]
    assert not [name for name in useless["files"] if name.endswith(".zip")]


def test_a_second_experiment_ends_the_first_and_loses_nothing_flushed(several: Any) -> None:
    """Report 35: the first sink refuses and says why; what it had flushed is in its archive (COMET-1, PROT-10)."""
    for entry in (several["late"], several["again"]):
        assert entry[0] == CLOSED and entry[2]["reason"] == "replaced" and "another one was started" in entry[1]
    assert several["flushed"] is None
    first, second, *_ = several["read"]
    assert scalars(first, "loss") == [(step, step / 7) for step in range(400)]
    assert [point.text for point in first if isinstance(point, TextPoint)] == ["first"]
    assert list(second) == [ScalarPoint("second", 1, 2.5)]


def test_what_a_second_experiment_throws_away_is_told(several: Any) -> None:
    """Report 35: points still on their way are counted in the refusal of emit and of close (COMET-1, PROT-5)."""
    assert scalars(several["read"][2], "loss") == [(step, step / 7) for step in range(10)]
    assert codes(several["lost"]) == [CLOSED, CLOSED]
    assert {entry[2]["lost"] for entry in several["lost"]} == {"20"}


def test_an_experiment_ended_too_early_is_named(several: Any) -> None:
    """Report 35: with end() before close the emit refuses, close is silent, and what was emitted is there (COMET-1)."""
    assert codes(several["ended"]) == [CLOSED, None, None, CLOSED]
    assert several["ended"][0][2]["reason"] == "ended"
    assert several["state"][0] == "emitted" and several["state"][1].startswith("4 of 4 points stand")
    expected = [*(ScalarPoint("loss", step, step / 7) for step in range(3)), TextPoint("texts", 3, "last")]
    assert list(several["read"][3]) == expected


def test_the_metrics_are_found_in_the_archive(place: Path, told: Any, result: ReadResult) -> None:
    """Report 35: each metric row of the zip, read by hand, is a point with its step (COMET-1, PROT-8)."""
    (archive,) = place.glob("*.zip")
    rows = [json.loads(line) for line in ZipFile(archive).read("messages.json").splitlines()]
    metrics = [row["payload"]["metric"] for row in rows if row["type"] == "metric_msg"]
    by_hand = [(m["step"], m["metricValue"]) for m in metrics if m["metricName"] == "steps"]
    assert by_hand == scalars(result, "steps")
    words = {m["metricValue"] for m in metrics if m["metricName"] == "numbers" and isinstance(m["metricValue"], str)}
    assert words == {"NaN", "Infinity", "-Infinity"}
    assert sum(isinstance(v, float) and not math.isfinite(v) for _, v in scalars(result, "numbers")) == 3
