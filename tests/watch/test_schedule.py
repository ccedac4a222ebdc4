"""The step law as a plain state machine, against a model of it that keeps every step."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from torchlens_conformance.protocol import Refusal
from torchlens_conformance.watch.schedule import StepLaw

STEPS = st.integers(0, 40)
PERIODS = st.integers(1, 7)


class LawMachine(RuleBasedStateMachine):
    """Drives a law and a list of what happened (STEP-2, STEP-3, STEP-4, STEP-5)."""

    def __init__(self) -> None:
        super().__init__()
        self.law: StepLaw | None = None
        self.history: list[int] = []
        self.open = False
        self.produced = False
        self.every, self.hist_every = 1, None

    @precondition(lambda self: self.law is None)
    @rule(every=PERIODS, hist_every=st.none() | PERIODS, held=st.none() | STEPS)
    def start(self, every: int, hist_every: int | None, held: int | None) -> None:
        """Make a law, over a store that may hold steps already."""
        self.law = StepLaw(every=every, hist_every=hist_every, last_step=held)
        self.every, self.hist_every = every, hist_every  # type: ignore[assignment]
        self.history = [] if held is None else [held]

    @precondition(lambda self: self.law is not None)
    @rule(step=STEPS, new_segment=st.booleans())
    def enter(self, step: int, new_segment: bool) -> None:
        """Open a step, or be refused without a trace."""
        assert self.law is not None
        before = (self.law.opened, self.law.last, self.law.segment, self.law.current)
        if self.open:
            expected = "watch_step_conflict"
        elif self.history and step <= self.history[-1] and not new_segment:
            expected = "watch_step_regression"
        else:
            due = self.law.open(step, new_segment=new_segment)
            first = not self.produced
            histograms = self.hist_every is not None and (first or step % self.hist_every == 0)
            assert (due.step, due.histograms) == (step, histograms)
            assert due.scalars == (histograms or first or step % self.every == 0)
            self.history.append(step)
            self.open = True
            return
        with pytest.raises(Refusal) as caught:
            self.law.open(step, new_segment=new_segment)
        assert caught.value.code == expected
        assert before == (self.law.opened, self.law.last, self.law.segment, self.law.current)

    @precondition(lambda self: self.open)
    @rule(produced=st.booleans())
    def leave(self, produced: bool) -> None:
        """Close a step that gave data, or none."""
        assert self.law is not None
        self.law.close(produced=produced)
        self.open, self.produced = False, self.produced or produced

    @precondition(lambda self: self.law is not None)
    @rule(step=st.sampled_from([-1, 2**63, 1.0, "3", True, None]))
    def enter_nonsense(self, step: object) -> None:
        """What is no step is refused, and changes nothing."""
        assert self.law is not None
        with pytest.raises(Refusal) as caught:
            self.law.open(step)
        assert caught.value.code == ("watch_step_conflict" if self.open else "watch_step_invalid")

    @invariant()
    def last_is_last(self) -> None:
        """The law's last step is the last one that opened."""
        if self.law is not None and self.law.opened:
            assert self.law.last == self.history[-1]


LawMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestStepLaw = LawMachine.TestCase
TestStepLaw.__doc__ = (
    "Any order of opening, nesting, repeating, going back and closing follows the law (STEP-2, STEP-3)."
)


@settings(deadline=None, max_examples=100)
@given(PERIODS, st.none() | PERIODS, st.lists(STEPS, unique=True, min_size=1).map(sorted))
def test_sampling_depends_on_the_callers_step_alone(every: int, hist_every: int | None, steps: list[int]) -> None:
    """After the first step, whether one is sampled follows from its number, not from how many came (STEP-4, STEP-5)."""
    law = StepLaw(every=every, hist_every=hist_every)
    for index, step in enumerate(steps):
        due = law.open(step)
        law.close(produced=True)
        histograms = hist_every is not None and (index == 0 or step % hist_every == 0)
        assert due.histograms == histograms
        assert due.scalars == (histograms or index == 0 or step % every == 0)


def test_the_first_eligible_step_waits_for_data() -> None:
    """As long as no step produced data, every step is due (STEP-4)."""
    law = StepLaw(every=100, hist_every=100)
    for step in (1, 2, 3):
        assert law.open(step).histograms
        law.close(produced=step == 3)
    assert not law.open(4).scalars


def test_a_segment_may_begin_anywhere() -> None:
    """A declared segment may go back, and from there on steps increase again (STEP-2)."""
    law = StepLaw(every=1, last_step=120)
    with pytest.raises(Refusal) as caught:
        law.open(100)
    assert caught.value.fields["last_step"] == 120
    assert law.open(100, new_segment=True).step == 100 and law.segment == 1
    law.close(produced=True)
    with pytest.raises(Refusal):
        law.open(100)
    assert law.open(101).step == 101 and law.segment == 1
