"""WandbSink over a real offline run, read back after it has finished."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("wandb")

from reference_sinks.readers import ReadResult, read_wandb
from torchlens_conformance.protocol import WANDB_SAFE_DESCRIPTOR, HistogramPoint, ScalarPoint, TextPoint
from torchlens_conformance.protocol.compare import same_value


@pytest.fixture(scope="module")
def result(stored_run: Any) -> ReadResult:
    """Return what the reader finds in the stored run."""
    return read_wandb(stored_run.folder)


def scalars(result: ReadResult, tag: str) -> list[tuple[int, int | float]]:
    """Return step and value of one series."""
    return [(point.step, point.value) for point in result if isinstance(point, ScalarPoint) and point.tag == tag]


def test_numbers_return_exactly(result: ReadResult) -> None:
    """Floats, NaN, the infinities and integers of 64 bits survive with their steps (WANDB-1, POINT-3)."""
    sent = [0.1, 1e300, 16777217, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2.0**60]
    sent += [math.nan, math.inf, -math.inf, 5e-324, -0.0, 3.0, -1e-7]
    got = scalars(result, "numbers")
    assert [step for step, _ in got] == list(range(100, 100 + len(sent)))
    assert all(same_value(value, there) for value, (_, there) in zip(sent, got))
    # Integers beyond float64's exact range are there as integers.
    assert got[3][1] == 2**53 + 1 and type(got[3][1]) is int


def test_large_steps_return_exactly(result: ReadResult) -> None:
    """Steps past 2**31 and 2**53 survive (POINT-3)."""
    assert [step for step, _ in scalars(result, "far")] == [2**31 + 5, 2**53 + 1, 2**63 - 2]


def test_texts_return_exactly(result: ReadResult) -> None:
    """Texts survive; the text NaN is not taken for a number (WANDB-1)."""
    got = [point.text for point in result if isinstance(point, TextPoint) and point.tag == "texts"]
    assert got == ["text", "NaN", "", "a\0b\n\u2028", "\u00e9\U0001f600", "x" * 100_000, "{}", "1.5"]


def test_odd_tags_are_stored_unchanged(result: ReadResult) -> None:
    """Tags that other stores rewrite come back as they were sent (TAG-3)."""
    tags = {"a/b", "a.b", "a b", " a", "a/", "//a", "_private", "global_step", "\u00e9", "x" * 300, "a\\b", "a\0b"}
    assert {point.tag for point in result if isinstance(point, ScalarPoint) and point.step == 200} == tags


def test_histograms_keep_counts_and_edges_and_lose_the_summary(result: ReadResult) -> None:
    """497 buckets with a count past 2**53, and 512 buckets, return exactly; the summary is gone (WANDB-1)."""
    got = {point.tag: point for point in result if isinstance(point, HistogramPoint)}
    counts = [(index * 7919) % 1000 for index in range(497)]
    counts[3] = 2**60 + 1
    grid = got["p/hist/grid"]
    assert (grid.step, grid.counts, grid.edges) == (210, tuple(counts), WANDB_SAFE_DESCRIPTOR.edges)
    assert grid.summary == {}
    assert got["p/hist/cap"].edges == tuple(index / 512 for index in range(513))
    assert math.copysign(1.0, got["p/hist/zero"].edges[1]) == -1.0
    assert "p/hist/wide" not in got


def test_the_cap_is_refused_before_and_at_emission(stored_run: Any) -> None:
    """513 buckets refuse with cap and buckets, 497 pass, and the sink offers the grid that fits (WANDB-1, ATTACH-4)."""
    told = stored_run.printed
    for where in ("cap-preflight", "cap-emit"):
        assert told[where] == ["tracker_histogram_bucket_cap", {"cap": "512", "buckets": "513"}]
    assert told["cap-safe"] is None and told["grid"] is True and told["cap"] == 512


def test_reserved_and_impossible_tags_are_refused(stored_run: Any) -> None:
    """Keys that wandb drops or overwrites, and tags and texts without UTF-8 form, are refused by name (PROT-7)."""
    told = stored_run.printed
    assert [code for code, _ in told["reserved"]] == ["tracker_tag_unsafe"] * 5
    assert told["reserved-preflight"][0] == "tracker_tag_unsafe"
    assert [code for code, _ in told["surrogates"]] == ["tracker_tag_unsafe", "tracker_value_unsupported"]


def test_integers_that_would_be_rounded_are_refused(stored_run: Any, result: ReadResult) -> None:
    """An int beyond 64 bits that no float holds is refused, and nothing of it is stored (POINT-3)."""
    assert [code for code, _ in stored_run.printed["large"]] == ["tracker_value_unsupported"] * 3
    assert stored_run.printed["large-count"][0] == "tracker_value_unsupported"
    assert scalars(result, "large") == []


def test_rows_that_wandb_would_drop_are_refused(stored_run: Any, result: ReadResult) -> None:
    """A smaller step, a run overtaken elsewhere and a repeated tag refuse instead of vanishing (POINT-3, WANDB-1)."""
    told = stored_run.printed
    assert told["twice"][0] == "tracker_point_repeated"
    for where in ("smaller", "overtaken", "overtaken-inside"):
        assert told[where][0] == "tracker_step_regressed", where
    assert told["overtaken"][1] == {"tag": "overtaken", "step": "301", "current": "303"}
    assert scalars(result, "once") == [(300, 1)]
    assert not [point for point in result if isinstance(point, ScalarPoint) and point.tag in ("smaller", "second")]
    assert scalars(result, "after") == [(320, 1)]


def test_the_run_tells_its_last_step(stored_run: Any) -> None:
    """The hook gives the last step that can no longer be written, none for a fresh run (PROT-11)."""
    assert stored_run.printed["last-before"] is None
    assert stored_run.printed["last"] == 302


def test_a_forked_child_writes_nothing(stored_run: Any, result: ReadResult) -> None:
    """The child's emit and flush refuse, its close is silent, and no row of it is in the store (PROT-10)."""
    assert stored_run.printed["child"] == 0
    assert scalars(result, "child") == []


def test_a_closed_sink_or_a_finished_run_takes_nothing(stored_run: Any, result: ReadResult) -> None:
    """After close, and after the run has finished, everything refuses without a wait (PROT-6, PROT-11)."""
    told = stored_run.printed
    assert [entry[0] for entry in told["closed"]] == ["tracker_sink_closed"] * 2
    assert [entry and entry[0] for entry in told["finished"]] == ["tracker_sink_closed", "tracker_sink_closed", None]
    assert not [point for point in result if isinstance(point, ScalarPoint) and point.step == 2**63 - 1]


def test_an_object_that_takes_nothing_is_no_run(stored_run: Any) -> None:
    """Any other object, and a disabled run that drops everything, are refused (WANDB-1, PROT-8)."""
    assert [entry[0] for entry in stored_run.printed["no-run"]] == ["tracker_sink_settings_invalid"] * 2


def test_the_state_claims_no_more_than_emitted(stored_run: Any) -> None:
    """The sink says that it handed points over, not that they reached the disk (PROT-8)."""
    told = stored_run.printed
    assert told["state-before"] == "computed" and told["state"][0] == "emitted"
    assert "finished" in told["state"][1]
    assert told["words"] == ["raw_histogram", "scalar", "text_manifest"]


def test_under_the_relay_steps_are_refused_beforehand(relay_run: Any) -> None:
    """With wandb's relay on a native row loses its step: refused in the preflight, and told in the state (POINT-3)."""
    (code, _), evidence = relay_run.printed["native"]
    assert code == "tracker_relay_step_unsupported"
    assert "relay" in evidence
    # And so it is: 7 and 9 arrive as 0 and 1.
    assert scalars(read_wandb(relay_run.folder), "native") == [(0, 1), (1, 2)]


def test_a_killed_run_keeps_whole_blocks(killed_run: Any) -> None:
    """After kill -9 the rows on disk read in order; wandb's last 32 KiB are gone (PROT-10)."""
    result = read_wandb(killed_run.folder, allow_torn=True)
    got = scalars(result, "s")
    assert got == [(step, step) for step in range(len(got))]
    assert 100 < len(got) < 500 and result.closed is False


def test_what_the_service_could_not_write_is_refused_from_the_next_flush_on(program: Callable[..., Any]) -> None:
    """A record that wandb's service tells its log it lost refuses at flush, emit and close (PROT-10, PROT-5)."""
    finished = program(
        """
import json
import wandb
from reference_sinks import WandbSink
from torchlens_conformance.protocol import Refusal, ScalarPoint
run = wandb.init(project="conformance", dir=".", settings=wandb.Settings(
    silent=True, console="off", x_disable_stats=True, x_disable_meta=True))
def code(call, *arguments):
    try:
        call(*arguments)
    except Refusal as refusal:
        return refusal.code
sink = WandbSink(run)
told = [code(sink.emit_scalar, ScalarPoint("a", 0, 0.1)), code(sink.flush)]
# The line that 0.30.0 writes on a full disk, which needs a file system of its own to be had for real.
with open(run.settings.log_internal, "a") as log:
    log.write('{"level":"ERROR","msg":"writer: failed to save record: transactionlog: error writing: write f: no space '
              'left on device"}\\n')
told += [code(sink.emit_scalar, ScalarPoint("a", 1, 0.1)), code(sink.flush)]
told += [code(sink.emit_scalar, ScalarPoint("a", 2, 0.1)), code(sink.close), code(sink.flush), code(sink.close)]
run.finish()
print(json.dumps(told))
"""
    )
    lost, closed = "tracker_sink_write_failed", "tracker_sink_closed"
    assert finished.printed == [None, None, None, lost, lost, lost, closed, None]


def test_a_missing_package_names_its_extra(program: Callable[..., Any]) -> None:
    """Without wandb the sink refuses and names the extra; importing the module needs no wandb (WANDB-1, PROT-9)."""
    finished = program(
        """
import json, sys
import reference_sinks.wandb_sink
clean = "wandb" not in sys.modules
sys.modules["wandb"] = None
from torchlens_conformance.protocol import Refusal
try:
    reference_sinks.wandb_sink.WandbSink(object())
except Refusal as refusal:
    print(json.dumps([clean, refusal.code, refusal.fields["extra"]]))
"""
    )
    assert finished.printed == [True, "tracker_sink_unavailable", "wandb"]
