"""Steps in which something raises, or happens twice."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torchlens_conformance.trackers as trk  # noqa: E402

from .helpers import by_tag, loss_of, small_model, train_step  # noqa: E402
from .loops import start  # noqa: E402


def test_the_loops_exception_is_never_masked() -> None:
    """While the loop's exception unwinds, the missing boundary is a named skip (TAG-4, CLOSE-2)."""
    model, optimizer, _, watch = start()
    with pytest.raises(ZeroDivisionError), watch, watch.step(0):
        loss_of(model, 0).backward()
        _ = 1 // 0
    report = watch.close()
    assert [(skip.name, skip.detail) for skip in report.named_skips] == [("exception", "ZeroDivisionError")]
    assert len(optimizer._optimizer_step_pre_hooks) == 0


def test_what_was_complete_before_the_exception_is_emitted() -> None:
    """An exception behind the boundary takes no data away (TAG-4)."""
    model, optimizer, sink, watch = start()
    with pytest.raises(KeyboardInterrupt), watch, watch.step(0):
        train_step(model, optimizer, 0)
        raise KeyboardInterrupt
    assert by_tag(sink)["gradients/norm/0.weight"].keys() == {0}


def test_an_optimizer_that_raises_can_step_again() -> None:
    """A step that raised inside the optimizer, and was caught, is taken when it succeeds (STEP-7)."""

    class Unsteady(torch.optim.SGD):  # type: ignore[misc, unused-ignore]
        fail = True

        def step(self, closure: Any = None) -> Any:
            if self.fail:
                raise ArithmeticError("not now")
            return super().step(closure)

    model = small_model()
    optimizer = Unsteady(model.parameters(), lr=0.1)
    sink = trk.MemorySink()
    with trk.watch(model, sink, optimizer=optimizer, every=1, signals=("updates",)) as watch:
        with watch.step(0):
            with pytest.raises(ArithmeticError):
                train_step(model, optimizer, 0)
            optimizer.fail = False
            optimizer.step()
        optimizer.fail = True
        with watch.step(1), pytest.raises(ArithmeticError):
            train_step(model, optimizer, 1)
    assert sorted(by_tag(sink)["updates/norm/0.weight"]) == [0]
    assert watch.close().skip_counts == {"boundary_incomplete": 1}


def test_a_second_boundary_of_one_optimizer_is_named() -> None:
    """The row is that of the first boundary of the scope (STEP-7)."""
    model, optimizer, sink, watch = start()
    with watch, watch.step(0):
        train_step(model, optimizer, 0)
        first = float(model[0].weight.grad.double().norm())
        train_step(model, optimizer, 1)
    assert by_tag(sink)["gradients/norm/0.weight"][0] == pytest.approx(first, rel=1e-12)
    assert watch.close().skip_counts == {"boundary_repeated": 1}


@pytest.mark.parametrize(("unwinding", "name"), [(True, "drain_refused"), (False, "collection_failed")])
def test_a_refusal_in_the_drain_is_a_named_skip(unwinding: bool, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused while rows are made has a name, and the loop's own exception is what the caller sees (TAG-4)."""
    from torchlens_conformance.watch.writer import BlockWriter

    def refuse(*arguments: Any, **options: Any) -> int:
        raise trk.Refusal("tracker_tag_unsafe", "No.", remedy="Rename it.", tag="a?")

    model, optimizer, _, watch = start()
    monkeypatch.setattr(BlockWriter, "write", refuse)
    if unwinding:
        with pytest.raises(ZeroDivisionError), watch, watch.step(0):
            train_step(model, optimizer, 0)
            _ = 1 // 0
    else:
        with watch, watch.step(0):
            train_step(model, optimizer, 0)
    found = {skip.name: skip.detail for skip in watch.close().named_skips}
    assert "tracker_tag_unsafe" in found[name] and ("exception" in found) == unwinding
