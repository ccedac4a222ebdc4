"""What a fused optimizer on an accelerator leaves out itself: read late, in one transfer, and never by waiting (AMP-8).

There is no accelerator here; ``is_near`` says that every tensor lies far away, and what is read is seen from below.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torchlens_conformance.trackers as trk  # noqa: E402
from torchlens_conformance.watch import amp as amp_module  # noqa: E402
from torchlens_conformance.watch import drain as drain_module  # noqa: E402

from ..statistics.dispatch import Watcher  # noqa: E402
from .helpers import by_tag, data_rows, small_model, train_step  # noqa: E402


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let every tensor be far away; give how many values each packed read brought."""
    counts: list[int] = []
    read_all = amp_module.read_all

    def counting(values: Any) -> list[float]:
        if values:
            counts.append(len(values))
        return read_all(values)

    for module in (amp_module, drain_module):
        monkeypatch.setattr(module, "is_near", lambda value: False)
    monkeypatch.setattr(drain_module, "read_all", counting)
    return counts


def loop(watch: Any, model: Any, optimizer: Any, overflowing: set[int], steps: range) -> list[list[str]]:
    """Train; return, step by step, which operations waited for a value while the optimizer stepped or the scope ended.

    A scaler on the CPU reads its own tensors in ``step`` and ``update``; a fused optimizer is stepped by hand here, the
    way the scaler does it, so that only our reads are seen.
    """
    waits = []
    for n in steps:
        with Watcher() as seen, watch.step(n):
            train_step(model, Carrying(optimizer, n in overflowing), n, scale=1.0)
        waits.append(seen.waits)
    return waits


class Carrying:
    """A fused optimizer under a scaler: it carries the scale and the found infinity at its boundary."""

    def __init__(self, optimizer: Any, overflow: bool) -> None:
        self.optimizer = optimizer
        self.overflow = overflow

    def zero_grad(self, *, set_to_none: bool) -> None:
        """Drop gradients."""
        self.optimizer.zero_grad(set_to_none=set_to_none)

    def step(self) -> None:
        """Step with what a scaler would have put there."""
        self.optimizer.grad_scale = torch.tensor(1.0)
        self.optimizer.found_inf = torch.tensor(float(self.overflow))
        self.optimizer.step()
        del self.optimizer.grad_scale, self.optimizer.found_inf


def start(**options: Any) -> tuple[Any, Any, trk.MemorySink, Any]:
    """Attach a watch to a small model with a fused optimizer."""
    model = small_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
    sink = trk.MemorySink()
    return model, optimizer, sink, trk.watch(model, sink, optimizer=optimizer, **options)


@pytest.mark.usefixtures("in_sight")
def test_nothing_is_read_on_unsampled_steps(reads: list[int]) -> None:
    """Between sampled steps nothing waits; the next sampled step reads all of them at once (AMP-8, XFER-1)."""
    model, optimizer, sink, watch = start(every=10)
    with watch:
        waits = loop(watch, model, optimizer, {3, 4, 9}, range(11))
        assert all(not each for n, each in enumerate(waits) if n % 10)
        assert reads == [9]
    skips = [(skip.name, skip.step) for skip in watch.close().named_skips]
    assert skips == [("amp_skipped", 3), ("amp_skipped", 4), ("amp_skipped", 9)]
    assert sorted(by_tag(sink)["gradients/norm/0.weight"]) == [0, 10]


def test_close_reads_what_is_left(reads: list[int]) -> None:
    """A last step that was left out is found at close, and gives no final sample (AMP-8, STEP-4)."""
    for last, steps in ((False, [0, 4]), (True, [0])):
        model, optimizer, sink, watch = start(every=1000, signals=("gradients", "parameters"))
        reads.clear()
        with watch:
            loop(watch, model, optimizer, {4} if last else {2}, range(5))
            assert reads == []
        report = watch.close()
        assert reads == [4]
        assert [skip.step for skip in report.named_skips if skip.name == "amp_skipped"] == ([4] if last else [2])
        assert sorted({point.step for point in data_rows(sink)}) == steps
        assert report.forced_final is not last


def test_a_sampled_step_that_was_left_out_has_no_rows(reads: list[int]) -> None:
    """On a sampled step it is looked at before rows go out, and the first eligible step moves on (AMP-7, STEP-4)."""
    model, optimizer, sink, watch = start(every=1000, signals=("gradients", "updates"))
    with watch:
        loop(watch, model, optimizer, {0}, range(3))
    assert sorted({point.step for point in data_rows(sink)})[0] == 1
    assert watch.close().skip_counts["amp_skipped"] == 1
    assert sum(reads) == 1  # Step 2; steps 0 and 1 were sampled.


def test_an_error_drops_nothing_that_was_deferred(reads: list[int]) -> None:
    """When the loop raises, close still names what was left out before (AMP-8, TAG-4)."""
    model, optimizer, _, watch = start(every=1000)
    with pytest.raises(ZeroDivisionError), watch:
        loop(watch, model, optimizer, {1}, range(3))
        raise ZeroDivisionError
    assert [skip.step for skip in watch.close().named_skips if skip.name == "amp_skipped"] == [1]
    assert reads == [2]


def test_values_of_several_devices_keep_their_order() -> None:
    """A packed read gives values in the order asked, whatever their dtype and shape (AMP-8)."""
    values = [torch.tensor(1.0), torch.tensor([0.0]), torch.tensor(2.0, dtype=torch.float64)]
    assert amp_module.read_all(values) == [1.0, 0.0, 2.0] and amp_module.read_all([]) == []
