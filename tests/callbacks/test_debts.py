"""The rule by which an optimizer that rests in some steps of a run is sampled: never never, and at a bound cost."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchlens_conformance.callbacks.debts import Debts

OFTEN, SELDOM = 1, 2
LENGTH = 400


def sampled_steps(seldom: Collection[int], every: int, length: int = LENGTH) -> tuple[list[int], list[int]]:
    """Return which steps are sampled, and in which of them the seldom optimizer steps; another steps in each."""
    debts, owed = Debts(every), False
    sampled: list[int] = []
    for step in range(length):
        taken = {OFTEN, SELDOM} if step in seldom else {OFTEN}
        now = owed or step % every == 0
        if now:
            sampled.append(step)
        owed = debts.settle([OFTEN, SELDOM], stepped=taken, sampled=now, taken=taken if now else ())
    return sampled, [step for step in sampled if step in seldom]


@settings(max_examples=150, deadline=None)
@given(period=st.integers(2, 20), offset=st.integers(0, 19), every=st.integers(1, 50))
def test_an_optimizer_with_a_rhythm(period: int, offset: int, every: int) -> None:
    """Report 32: every n-th step, whatever the offset, is sampled within a cadence and its own period (CB-1)."""
    steps = range(offset % period, LENGTH, period)
    sampled, seldom = sampled_steps(steps, every)
    third = steps[2]
    assert seldom and seldom[0] <= third
    later = [step for step in seldom if step >= third]
    assert all(after - before < every + period for before, after in pairwise([third - period, *later, LENGTH]))
    # The other one keeps its cadence, and there is one further sample for each of these, once the rhythm is known.
    beside = [step for step in sampled if step % every and step > third + period]
    assert set(range(0, LENGTH, every)) <= set(sampled) and len(beside) <= 2 * len(seldom) + period


@settings(max_examples=150, deadline=None)
@given(distances=st.lists(st.integers(1, 20), min_size=40, max_size=60), every=st.integers(1, 30))
def test_an_optimizer_without_a_rhythm(distances: list[int], every: int) -> None:
    """Report 32: one that steps again and again, however unevenly, is never left out for long (CB-1)."""
    steps = {sum(distances[: count + 1]) for count in range(len(distances))}
    end = max(steps) + 1
    _, seldom = sampled_steps(steps, every, end)
    # Windows double with each step that is missed: five are as wide as the largest distance.
    patience = every + 7 * max(distances)
    assert all(after - before <= patience for before, after in pairwise([0, *seldom, end]))


def test_a_debt_is_kept_while_nothing_is_seen_of_it() -> None:
    """Report 32: an optimizer that rests for long is sampled soon after it began, and is free meanwhile (CB-1)."""
    resting, end = 300, LENGTH
    sampled, seldom = sampled_steps(range(resting, end, 5), 10, end)
    assert seldom[0] <= resting + 15
    assert len([step for step in sampled if step < resting and step % 10]) <= 2


def test_a_rhythm_that_changes_is_followed() -> None:
    """Report 32: a hundred steps of one, then five, as the first generator steps of a WGAN have it (CB-1)."""
    steps = [*range(99, 500, 100), *range(504, 900, 5)]
    _, seldom = sampled_steps(steps, 20, 900)
    late = [step for step in seldom if step >= 504]
    assert late[0] <= 499 + 25 and all(after - before < 25 for before, after in pairwise(late))


def test_a_sampled_step_in_which_nothing_stepped_is_made_up() -> None:
    """Report 32: waiting for a step in which nothing steps costs nothing, and goes on until one does (CB-1)."""
    debts = Debts(4)
    assert debts.settle([OFTEN], stepped=(), sampled=True, taken=())
    assert debts.settle([OFTEN], stepped=(), sampled=True, taken=())
    assert not debts.settle([OFTEN], stepped={OFTEN}, sampled=True, taken={OFTEN})
    # One that stepped, and whose update the scaler left out, gave nothing either.
    unsampled = [debts.settle([OFTEN], stepped={OFTEN}, sampled=False, taken=()) for _ in range(3)]
    assert unsampled == [False, False, True]
    assert debts.settle([OFTEN], stepped={OFTEN}, sampled=True, taken=())


@pytest.mark.parametrize("every", [1, 5])
def test_an_optimizer_that_steps_always_costs_nothing(every: int) -> None:
    """One that steps in each step is sampled by the cadence alone (CB-1, STEP-4)."""
    assert sampled_steps(range(LENGTH), every)[0] == list(range(0, LENGTH, every))
