"""What stands in a forward's place leaves no trace."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from torchlens_conformance.watch.op_grain.wrap import ForwardWrap  # noqa: E402


def counted(log: list[str], name: str) -> Any:
    """Return something that notes a call and runs the plain forward."""

    def around(plain: Any, args: Any, kwargs: Any) -> Any:
        log.append(name)
        return plain(*args, **kwargs)

    return around


def test_the_forward_is_the_very_method_again() -> None:
    """Nothing is left in the instance, and calls come by only while it is there (TIER-3, CLOSE-3)."""
    model, log = nn.Linear(2, 2), []  # type: ignore[var-annotated]
    before = dict(vars(model))
    wrap = ForwardWrap(model, counted(log, "a"))
    wrap.install()
    wrap.install()
    x = torch.ones(1, 2)
    expected = nn.functional.linear(x, model.weight, model.bias)
    assert wrap.installed and torch.equal(model(x), expected) and torch.equal(model.forward(input=x), expected)
    assert list(inspect.signature(model.forward).parameters) == ["input"]
    wrap.remove()
    wrap.remove()
    assert not wrap.installed and vars(model) == before and log == ["a", "a"]
    assert model.forward.__func__ is nn.Linear.forward  # type: ignore[attr-defined]


@pytest.mark.parametrize("first_out", ["a", "b"])
def test_two_may_leave_in_any_order(first_out: str) -> None:
    """Whoever goes first, the other one still works, and the last one leaves nothing (TIER-3)."""
    model, log = nn.Linear(2, 2), []  # type: ignore[var-annotated]
    wraps = {name: ForwardWrap(model, counted(log, name)) for name in "ab"}
    for wrap in wraps.values():
        wrap.install()
    model(torch.ones(1, 2))
    assert log == ["b", "a"]
    wraps.pop(first_out).remove()
    model(torch.ones(1, 2))
    assert log[2:] == list(wraps)
    next(iter(wraps.values())).remove()
    assert "forward" not in vars(model)


def test_a_forward_of_the_instance_comes_back() -> None:
    """What somebody else put there before is there again, and what was put over it stays and runs (TIER-3)."""
    model, log = nn.Linear(2, 2), []  # type: ignore[var-annotated]
    model.forward = own = lambda x: x + 1  # type: ignore[method-assign, assignment, misc]
    wrap = ForwardWrap(model, counted(log, "a"))
    wrap.install()
    assert model(torch.ones(1)).item() == 2
    wrap.remove()
    assert model.forward is own and log == ["a"]
    wrap.install()
    below = model.forward
    model.forward = over = lambda x: below(x) * 10  # type: ignore[method-assign, assignment, misc]
    wrap.remove()
    assert model.forward is over and model(torch.ones(1)).item() == 20 and log == ["a"]


def save_and_load(model: Any) -> Any:
    """Return the model through torch.save."""
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), save_and_load])
def test_a_copy_has_the_plain_forward(duplicate: Any) -> None:
    """A model copied or saved meanwhile is free of it, and computes with its own weights (TIER-3)."""
    model, log = nn.Linear(2, 2), []  # type: ignore[var-annotated]
    wrap = ForwardWrap(model, counted(log, "a"))
    wrap.install()
    other = duplicate(model)
    with torch.no_grad():
        other.weight.zero_()
        other.bias.fill_(3)
    assert other(torch.ones(1, 2)).tolist() == [[3, 3]] and log == []
    wrap.remove()
    assert other(torch.ones(1, 2)).tolist() == [[3, 3]]
