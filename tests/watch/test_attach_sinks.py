"""Sinks at attach: one or several, shared by sessions, with a grid to offer or without texts."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import torchlens_conformance.trackers as trk  # noqa: E402
from torchlens_conformance.watch import registry  # noqa: E402

from .helpers import refused, small_model, train_step  # noqa: E402
from .judging_sinks import Capped  # noqa: E402


def test_the_same_sink_twice_is_refused_and_two_of_a_class_have_rows() -> None:
    """One object twice is a duplicate, two objects are ``MemorySink`` and ``MemorySink#2`` (ATTACH-1)."""
    model, sink = small_model(), trk.MemorySink()
    assert refused(lambda: trk.watch(model, [sink, sink])).code == "tracker_sink_duplicate"
    watch = trk.watch(model, [sink, trk.MemorySink()])
    assert [row.name for row in watch.close().sinks] == ["MemorySink", "MemorySink#2"]


def test_a_closed_sink_is_refused() -> None:
    """A sink that was closed is refused at attach (PROT-11)."""
    sink = trk.MemorySink()
    sink.close()
    assert refused(lambda: trk.watch(small_model(), sink)).code == "tracker_sink_closed"


def test_names_keep_sessions_apart() -> None:
    """Two sessions of one name collide, also over a wrapper; other names and namespaces do not (ATTACH-2, TAG-2)."""
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sink = trk.MemorySink()
    first = trk.watch(model, sink, optimizer=optimizer)
    for again in (model, nn.DataParallel(model), torch.compile(model, backend="eager")):
        assert refused(lambda again=again: trk.watch(again, trk.MemorySink())).code == "tracker_namespace_collision"
    second = trk.watch(model, sink, optimizer=optimizer, name="b")
    third = trk.watch(model, sink, optimizer=optimizer, namespace="c")
    with first.step(0), second.step(0), third.step(0):
        train_step(model, optimizer, 0)
    tags = [point.tag for point in sink.points]
    assert len(set(tags)) == len(tags)
    assert {"gradients/norm/0.bias", "gradients/b/norm/0.bias", "c/gradients/norm/0.bias"} <= set(tags)
    assert {"torchlens/run/attached", "torchlens/run/b/attached", "c/torchlens/run/attached"} <= set(tags)
    for session in (first, second, third):
        session.close()
    trk.watch(model, trk.MemorySink()).close()


def test_a_real_wandb_watch_collides(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hooks that wandb.watch itself sets are recognised, and a namespace lets both live (ATTACH-2)."""
    pytest.importorskip("wandb")
    from wandb.integration.torch import wandb_torch

    model = small_model()
    history = wandb_torch.TorchHistory()
    history.add_log_gradients_hook(model, prefix="", log_freq=1)
    assert refused(lambda: trk.watch(model, trk.MemorySink())).fields["watcher"] == "wandb.watch"
    trk.watch(model, trk.MemorySink(), namespace="ours").close()


def test_one_sink_serves_several_sessions() -> None:
    """Each close flushes the shared sink, the last one closes it; ``close_sinks=False`` leaves it (ATTACH-7)."""

    class Counting(trk.MemorySink):  # type: ignore[misc, unused-ignore]
        flushes = closes = 0

        def flush(self) -> None:
            self.flushes += 1
            super().flush()

        def close(self) -> None:
            self.closes += 1
            super().close()

    sink = Counting()
    models = [small_model(), small_model(seed=1)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    sessions = [
        trk.watch(model, sink, optimizer=optimizer, name=f"m{index}")
        for index, (model, optimizer) in enumerate(zip(models, optimizers))
    ]
    for session, model, optimizer in zip(sessions, models, optimizers):
        with session.step(0):
            train_step(model, optimizer, 0)
    flushes = sink.flushes
    sessions[0].close()
    assert (sink.flushes, sink.closes) == (flushes + 1, 0)
    with sessions[1].step(1):
        train_step(models[1], optimizers[1], 1)
    sessions[1].close()
    assert sink.closes == 1
    shared = trk.MemorySink()
    mixed = [trk.watch(model, shared, namespace="n") for model in models]
    notes = [[note for note in session.close().sinks[0].notes if "same names" in note] for session in mixed]
    assert [len(found) for found in notes] == [0, 1]
    kept = Counting()
    trk.watch(models[0], kept, close_sinks=False).close()
    assert (kept.closes, registry.is_held(kept)) == (0, False)
    kept.emit_scalar(trk.ScalarPoint("a", 0, 1))


def test_a_grid_of_the_first_sink_that_offers_one() -> None:
    """Offered by a sink, a grid serves all; the caller's own is kept and judged (ATTACH-4)."""
    assert trk.DEFAULT_DESCRIPTOR.bucket_count == 513
    for options, buckets in (
        ({}, 497),
        ({"descriptor": trk.GridDescriptor(bins_per_octave=2)}, 257),
        ({"settings": trk.WatchSettings(descriptor=trk.GridDescriptor(bins_per_octave=1))}, 129),
    ):
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        sinks = [trk.MemorySink(), Capped()]
        with trk.watch(model, sinks, optimizer=optimizer, hist_every=1, **options) as watch, watch.step(0):
            train_step(model, optimizer, 0)
        assert [len(sink.histograms[0].counts) for sink in sinks] == [buckets, buckets]
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sink = trk.MemorySink()
    with trk.watch(model, sink, optimizer=optimizer, hist_every=1) as watch, watch.step(0):
        train_step(model, optimizer, 0)
    assert len(sink.histograms[0].counts) == 513


def test_a_sink_without_texts_gets_a_note() -> None:
    """No refusal, but a note; and it gets the heartbeat (ATTACH-9)."""

    class Scalars(trk.MemorySink):  # type: ignore[misc, unused-ignore]
        def capabilities(self) -> frozenset[str]:
            return frozenset({"scalar"})

    sink, other = Scalars(), trk.MemorySink()
    watch = trk.watch(small_model(), [sink, other])
    rows = watch.close().sinks
    assert any("manifest" in note for note in rows[0].notes) and not any("manifest" in note for note in rows[1].notes)
    assert len(sink.scalars) == 1 and sink.texts == [] and len(other.texts) == 1
