"""The close report, what refuses at close, and sinks that fail."""

from __future__ import annotations

import gc
import json
import time
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torchlens_conformance.trackers as trk  # noqa: E402
from reference_sinks.readers import read_jsonl  # noqa: E402
from torchlens_conformance.watch import registry  # noqa: E402

from .helpers import (  # noqa: E402
    FailingSink,
    batch,
    by_tag,
    data_rows,
    hook_census,
    loss_of,
    refused,
    small_model,
    train_step,
)


def make(**options: Any) -> tuple[Any, Any, trk.WatchSession]:
    """Return a model, its optimizer, and a watch that samples every step."""
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, optimizer, trk.watch(model, options.pop("to"), optimizer=optimizer, **{"every": 1, **options})


def test_the_report_tells_what_happened() -> None:
    """Signals, sites, steps, counts and a row a sink stand in the report, as values and as text (CLOSE-1)."""
    sink, failing = trk.MemorySink(), FailingSink(at=10)
    model, optimizer, watch = make(to=[sink, failing], signals=("updates", "gradients"), hist_every=2)
    with watch:
        for n in range(4, 7):
            with watch.step(n):
                train_step(model, optimizer, n)
    report = watch.close()
    assert report.signals == ("gradients", "updates") and report.matched_sites == 4
    assert (report.steps_seen, report.sampled_steps, report.first_step, report.last_step) == (3, 3, 4, 6)
    assert not report.forced_final and report.disabled_by is None and report.missing_phases == ()
    assert report.computed["scalars"] == len(sink.scalars) and report.computed["histograms"] == len(sink.histograms)
    assert report.computed["data_points"] == len(data_rows(sink)) == report.sinks[0].data_points
    whole, broken = report.sinks
    assert (whole.scalars, whole.histograms, whole.texts, whole.failed) == (
        len(sink.scalars),
        len(sink.histograms),
        len(sink.texts),
        None,
    )
    assert whole.relay_state == "emitted" and broken.scalars + broken.histograms + broken.texts == 9
    assert broken.failed is not None and "the store is gone" in broken.failed
    told = report.as_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    text = report.format()
    assert str(report) == text and "FAILED" in text and "gradients, updates at 4 sites" in text
    assert "3 seen (4 to 6), 3 sampled" in text


def test_a_run_without_data_is_refused_and_the_error_holds_the_report() -> None:
    """When no point arrived anywhere, close refuses after closing the sinks, and once (CLOSE-2, CLOSE-4)."""
    sink = FailingSink(at=1)
    model, optimizer, watch = make(to=sink)
    with watch.step(0):
        train_step(model, optimizer, 0)
    refusal = refused(watch.close)
    assert refusal.code == "watch_close_empty" and "the store is gone" in str(refusal.fields["failed_sinks"])
    report = refusal.report  # type: ignore[attr-defined]
    assert watch.close() is report and report.sinks[0].failed is not None
    assert refused(sink.flush).code == "tracker_sink_closed"
    assert len(optimizer._optimizer_step_pre_hooks) == 0


def test_heartbeat_manifest_and_checks_are_no_data() -> None:
    """A run with none but such rows is empty (CLOSE-2, TAG-1)."""
    sink = trk.MemorySink()
    model, _, watch = make(to=sink, signals=("activations",), select="0", inputs=batch(0))

    def forgetful() -> None:
        with watch.step(0):
            model[3](torch.ones(2, 6))

    assert refused(forgetful).code == "watch_phase_missing"
    watch.emit_check("loss_is_finite", "warn", 0)
    assert refused(watch.close).code == "watch_close_empty"
    assert {point.tag for point in sink.points} == {
        "torchlens/run/attached",
        "torchlens/meta/manifest",
        "torchlens/run/last_step",
        "torchlens/check/loss_is_finite",
    }


def test_a_session_without_steps_closes_quietly() -> None:
    """No step seen is no empty run (CLOSE-2)."""
    _, _, watch = make(to=trk.MemorySink())
    assert watch.close().steps_seen == 0


def test_an_empty_run_does_not_mask_the_loops_exception() -> None:
    """While the loop's exception unwinds, close refuses nothing (CLOSE-2, TAG-4)."""
    model, _, watch = make(to=FailingSink(at=1))
    with pytest.raises(ZeroDivisionError), watch, watch.step(0):
        loss_of(model, 0).backward()
        _ = 1 // 0
    assert watch.close().sampled_steps == 0


def test_closing_again_gives_the_same_report() -> None:
    """Inside the with-block, after it, twice: one report, and nothing more is taken (CLOSE-4)."""
    model, optimizer, watch = make(to=trk.MemorySink())
    with watch:
        with watch.step(0):
            train_step(model, optimizer, 0)
        report = watch.close()
    assert watch.close() is report and watch.closed
    for call in (lambda: watch.step(1).__enter__(), lambda: watch.emit_check("a", "pass"), watch.__enter__):
        assert refused(call).code == "watch_session_closed"
    train_step(model, optimizer, 1)


def test_closing_inside_a_step_is_named() -> None:
    """A session that is closed inside a scope drops the step by name, and the scope ends quietly (CLOSE-4)."""
    model, optimizer, watch = make(to=trk.MemorySink(), allow_missing_phases=True)
    with watch.step(0):
        train_step(model, optimizer, 0)
    with watch.step(1):
        report = watch.close()
    assert report.skip_counts == {"closed_inside_step": 1}


def test_checks_have_three_outcomes() -> None:
    """A check row is 0, 1 or 2 at its step; anything else is refused (TAG-1)."""
    sink = trk.MemorySink()
    model, optimizer, watch = make(to=sink, name="gen")
    with watch.step(3):
        train_step(model, optimizer, 3)
    for index, outcome in enumerate(("pass", "warn", "fail")):
        watch.emit_check("loss", outcome, 10 + index)
    watch.emit_check("last", "pass")
    assert by_tag(sink)["torchlens/check/gen/loss"] == {10: 0, 11: 1, 12: 2}
    assert by_tag(sink)["torchlens/check/gen/last"] == {3: 0}
    for name, outcome in (("loss", "ok"), ("", "pass"), ("a/b", "pass"), ("a?", "pass")):
        assert refused(lambda name=name, outcome=outcome: watch.emit_check(name, outcome)).code == "watch_check_invalid"
    assert refused(lambda: watch.emit_check("loss", "pass", -1)).code == "watch_step_invalid"
    watch.close()


def test_hooks_are_gone_after_every_cycle() -> None:
    """Twenty times attach, run and close leave as many hooks as there were (CLOSE-3, ATTACH-2)."""
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = hook_census(model, [optimizer])
    for cycle in range(20):
        options: dict[str, Any] = {"signals": ("gradients", "activations", "activation_grads")}
        options |= {"select": ("0", "3"), "inputs": batch(0), "optimizer": None if cycle % 2 else optimizer}
        step = {"step": lambda cycle=cycle: cycle} if cycle % 3 == 0 else {}
        with trk.watch(model, trk.MemorySink(), every=1, **options, **step) as watch:
            assert hook_census(model, [optimizer]) != before
            if step:
                train_step(model, optimizer, cycle)
            else:
                with watch.step(cycle):
                    train_step(model, optimizer, cycle)
        watch.close()
        assert hook_census(model, [optimizer]) == before


def test_hooks_are_gone_after_an_interrupt() -> None:
    """Ctrl-C inside a step passes, and leaves nothing (CLOSE-3, PROT-5)."""
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = hook_census(model, [optimizer])
    watch = trk.watch(model, trk.MemorySink(), optimizer=optimizer)
    with pytest.raises(KeyboardInterrupt), watch, watch.step(0):
        loss_of(model, 0).backward()
        raise KeyboardInterrupt
    assert hook_census(model, [optimizer]) == before


def test_an_interrupt_inside_a_sink_passes_and_the_session_goes_on() -> None:
    """Ctrl-C in the middle of an emission reaches the caller, and the next step is ordinary (PROT-5, STEP-3)."""
    for at in (1, 2, 10):
        sink = FailingSink(at=at, error=KeyboardInterrupt())
        model, optimizer, watch = make(to=sink)
        with pytest.raises(KeyboardInterrupt), watch.step(0):
            train_step(model, optimizer, 0)
        with watch, watch.step(1):
            train_step(model, optimizer, 1)
        assert watch.close().sampled_steps >= 1 and 1 in by_tag(sink)["gradients/norm/0.weight"]


def test_a_dropped_session_takes_its_hooks_along() -> None:
    """Collected without close, a session warns by name, and leaves no hook and no registration (CLOSE-3)."""
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = hook_census(model, [optimizer])
    sink = trk.MemorySink()
    watch = trk.watch(
        model, sink, optimizer=optimizer, signals=("gradients", "activations"), select="0", inputs=batch(0)
    )
    with watch.step(0):
        train_step(model, optimizer, 0)
    with pytest.warns(trk.WatchUnclosedWarning, match="never closed"):
        del watch
        gc.collect()
    assert hook_census(model, [optimizer]) == before and not registry.is_held(sink)
    train_step(model, optimizer, 1)
    trk.watch(model, sink, optimizer=optimizer).close()


def test_a_closed_session_is_collected_quietly() -> None:
    """After close nothing warns (CLOSE-3)."""
    _, _, watch = make(to=trk.MemorySink())
    watch.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del watch
        gc.collect()


class Slow(trk.MemorySink):  # type: ignore[misc, unused-ignore]
    """A sink that blocks for a second at its twentieth point."""

    def _keep(self, point: Any, kept: list[Any]) -> None:
        if len(self.points) == 20:
            end = time.monotonic() + 1.0
            while time.monotonic() < end:
                pass
        super()._keep(point, kept)


@pytest.mark.parametrize("bad", [*(f"fail {n}" for n in (1, 2, 3, 5, 20, 60)), "refuse", "slow", "flush", "close"])
def test_one_bad_sink_changes_nothing_for_the_others(tmp_path: Any, bad: str) -> None:
    """A sink that raises, blocks, or fails to flush or close leaves rows and training alone (PROT-5, PROT-6)."""

    class Unflushable(trk.MemorySink):  # type: ignore[misc, unused-ignore]
        def flush(self) -> None:
            raise OSError("no flush")

    class Uncloseable(trk.MemorySink):  # type: ignore[misc, unused-ignore]
        def close(self) -> None:
            raise OSError("no close")

    def run(extra: list[Any], name: str) -> tuple[list[Any], list[Any], trk.CloseReport]:
        memory = trk.MemorySink()
        model = small_model()
        optimizer = torch.optim.AdamW(model.parameters())
        sinks = [trk.JSONLSink(tmp_path / name), *extra, memory]
        settings = trk.WatchSettings(run_id="same")
        with trk.watch(model, sinks, optimizer=optimizer, every=1, hist_every=2, settings=settings) as watch:
            for n in range(3):
                with watch.step(n):
                    train_step(model, optimizer, n)
        assert [point for point in read_jsonl(tmp_path / name)] == memory.points
        rows = [point for point in memory.points if getattr(point, "tag", "") != "torchlens/meta/manifest"]
        return rows, [parameter.detach().clone() for parameter in model.parameters()], watch.close()

    kinds = {"slow": Slow, "flush": Unflushable, "close": Uncloseable}
    refusal = trk.Refusal("tracker_value_unsupported", "No.", remedy="None.")
    if bad.startswith("fail"):
        sink: Any = FailingSink(at=int(bad.split()[1]))
    else:
        sink = FailingSink(at=7, error=refusal) if bad == "refuse" else kinds[bad]()
    rows, parameters, _ = run([], "alone.jsonl")
    rows_beside, parameters_beside, report = run([sink], "beside.jsonl")
    assert rows == rows_beside and all(map(torch.equal, parameters, parameters_beside))
    failed = report.sinks[1].failed
    assert (failed is None) == (bad == "slow")
    assert report.sinks[1].failed_code == ("tracker_value_unsupported" if bad == "refuse" else None)


def test_an_event_stream_is_told_and_may_fail() -> None:
    """Events are points of the protocol; a stream that raises is given up, by name (CLOSE-1, PROT-5)."""
    events: list[Any] = []
    model, optimizer, watch = make(to=trk.MemorySink(), event_stream=events.append)
    with watch, watch.step(2):
        train_step(model, optimizer, 2)
    assert [(event.kind, event.step) for event in events] == [("attached", 2), ("sampled", 2), ("closed", 2)]

    def broken(event: Any) -> None:
        raise ArithmeticError(event.kind)

    model, optimizer, watch = make(to=trk.MemorySink(), event_stream=broken)
    with watch, watch.step(2):
        train_step(model, optimizer, 2)
    assert any("ArithmeticError: attached" in note for note in watch.close().notes)


def test_the_kill_switch_only_turns_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disabled, there is no hook and one row that says so; any other value changes nothing (ENV-1)."""
    for value, disabled in (("1", True), ("0", False), ("", False)):
        monkeypatch.setenv("TORCHLENS_WATCH_DISABLE", value)
        sink = trk.MemorySink()
        model, optimizer, watch = make(to=sink)
        assert (len(optimizer._optimizer_step_pre_hooks) == 0) == disabled
        with watch:
            for n in (5, 6):
                with watch.step(n):
                    train_step(model, optimizer, n)
        report = watch.close()
        assert (report.disabled_by is not None) == disabled
        if disabled:
            assert [(point.tag, point.step) for point in sink.points] == [("torchlens/run/disabled", 5)]
            assert "TORCHLENS_WATCH_DISABLE=1" in report.format()
        else:
            assert len(data_rows(sink)) > 20
    monkeypatch.setenv("TORCHLENS_WATCH_DISABLE", "1")
    sink = trk.MemorySink()
    make(to=sink, step=lambda: 3)[2].close()
    assert [(point.tag, point.step) for point in sink.points] == [("torchlens/run/disabled", 0)]
    monkeypatch.delenv("TORCHLENS_WATCH_DISABLE")
    monkeypatch.setenv("TORCHLENS_WATCH_SIGNALS", "parameters")
    watch = make(to=trk.MemorySink())[2]
    assert watch.plan_report().families[0].signal == "gradients"
    watch.close()


def test_what_is_kept_of_skips_is_bounded() -> None:
    """All skips are counted, the first ones are kept whole (CLOSE-1)."""
    model, optimizer, watch = make(
        to=trk.MemorySink(), allow_missing_phases=True, settings=trk.WatchSettings(retention=2)
    )
    with watch:
        for n in range(5):
            with watch.step(n):
                pass
        with watch.step(5):
            train_step(model, optimizer, 5)
    report = watch.close()
    assert report.skip_counts == {"phase_missing": 5} and len(report.named_skips) == len(report.missing_phases) == 2


@pytest.mark.parametrize("bad", [{"retention": -1}, {"retention": 1.0}, {"run_id": ""}, {"descriptor": None}])
def test_settings_are_checked(bad: dict[str, Any]) -> None:
    """Settings that make no sense are refused where they are made (CLOSE-1, ATTACH-4)."""
    assert refused(lambda: trk.WatchSettings(**bad)).code == "watch_settings_invalid"
