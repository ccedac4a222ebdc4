"""Steps: which integers are taken, and what is refused though it looks like one."""

from __future__ import annotations

import enum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchlens_conformance.protocol import LARGEST_STEP, Refusal, ScalarPoint, as_step


class Step(enum.IntEnum):
    """An integer by another name."""

    TEN = 10


class Sized:
    """An integer whose ``shape`` is nonsense."""

    shape = None

    def __index__(self) -> int:
        return 1


class Failing:
    """An object that fails in every way when it is asked for an integer or a text."""

    def __index__(self) -> int:
        raise RuntimeError("no data")

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def refusal_of(value: object) -> Refusal:
    """Return the refusal of ``value`` as a step."""
    with pytest.raises(Refusal) as caught:
        as_step(value)
    assert caught.value.code == "point_step_invalid"
    return caught.value


@settings(deadline=None)
@given(st.integers(0, LARGEST_STEP))
def test_python_integers_are_taken(step: int) -> None:
    """Every integer from 0 to 2**63-1 is a step (POINT-3)."""
    assert as_step(step) == step
    assert ScalarPoint("a", step, 0).step == step


@settings(deadline=None)
@given(st.integers(max_value=-1) | st.integers(min_value=2**63))
def test_integers_out_of_range_are_refused(step: int) -> None:
    """Negative integers, and those from 2**63 on, are refused (POINT-3)."""
    assert "out of range" in str(refusal_of(step))


@pytest.mark.parametrize(
    "dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "longlong", "intp"]
)
def test_numpy_integers_are_taken(dtype: str) -> None:
    """Numpy integers, alone or as 0-d arrays, become Python integers (POINT-3)."""
    numpy = pytest.importorskip("numpy")
    for value in (0, 100, int(numpy.iinfo(dtype).max)):
        for given_step in (numpy.dtype(dtype).type(value), numpy.array(value, dtype=dtype)):
            if value <= LARGEST_STEP:
                assert as_step(given_step) == value and type(as_step(given_step)) is int
            else:
                refusal_of(given_step)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_tensor_integers_are_taken(dtype: str) -> None:
    """0-d integer tensors become Python integers, also past 2**53 (POINT-3)."""
    torch = pytest.importorskip("torch")
    largest = min(torch.iinfo(getattr(torch, dtype)).max, LARGEST_STEP)
    for value in (0, 100, largest):
        given_step = torch.tensor(value, dtype=getattr(torch, dtype))
        assert as_step(given_step) == value and type(as_step(given_step)) is int


def test_an_integer_enumeration_is_an_integer() -> None:
    """A member of an integer enumeration becomes a Python integer (POINT-3)."""
    assert as_step(Step.TEN) == 10 and type(as_step(Step.TEN)) is int


@pytest.mark.parametrize("value", [True, False])
def test_truth_values_are_refused(value: Any) -> None:
    """Truth values of Python, numpy and torch are no steps, whatever they hold (POINT-3)."""
    assert "truth value" in str(refusal_of(value))
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    for truth in (numpy.bool_(value), numpy.array(value), torch.tensor(value)):
        assert "truth value" in str(refusal_of(truth))


@pytest.mark.parametrize(
    "value", [0.0, 1.0, float("nan"), "1", b"1", None, 1j, [1], (1,), object(), Sized(), Failing()]
)
def test_other_objects_are_refused(value: object) -> None:
    """Floats, texts, sequences and objects that fail when asked are refused, never raised through (POINT-3)."""
    assert "is not an integer" in str(refusal_of(value))


def test_floats_of_array_libraries_are_refused() -> None:
    """Array floats are no steps though they hold whole numbers, and times are none either (POINT-3)."""
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    for value in (numpy.float64(1), numpy.float32(1), numpy.array(1.0), numpy.timedelta64(1), torch.tensor(1.0)):
        refusal_of(value)


def test_anything_with_a_dimension_is_refused() -> None:
    """A tensor or array with one element and a dimension is no step (POINT-3)."""
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    for value in (torch.tensor([1]), torch.tensor([[1]]), numpy.array([1]), numpy.array([[1]])):
        assert "has a dimension" in str(refusal_of(value))


def test_a_tensor_without_data_is_refused() -> None:
    """A 0-d tensor that holds no number is refused, not an error of its library (POINT-3, PROT-9)."""
    torch = pytest.importorskip("torch")
    refusal_of(torch.empty((), dtype=torch.int64, device="meta"))


def test_an_integer_too_long_to_show_is_refused() -> None:
    """A refusal does not fail over the text of what it refuses (PROT-9)."""
    assert "int that cannot be shown" in str(refusal_of(10**5000))
