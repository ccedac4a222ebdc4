"""Which steps are sampled beside the cadence, so that no optimizer is sampled never (CB-1). A plain rule, no torch."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

REMEMBERED = 4
"""How many distances between steps of an optimizer are remembered."""

WIDEST = 20
"""Doublings after which a window is as wide as it gets: a million steps."""


@dataclass(slots=True)
class Account:
    """What is known about one optimizer. Steps of the run are counted from 1; that it steps in each is a first guess.

    Attributes:
        every: The cadence.
        stepped: Where it stepped last.
        taken: Where it was sampled last; None for never.
        distances: Between its latest steps.
        misses: How often it stepped unsampled since it is owed; the first guess counts as one.
    """

    every: int
    stepped: int = 0
    taken: int | None = None
    distances: list[int] = field(default_factory=lambda: [1])
    misses: int = 1

    def is_owed(self, now: int) -> bool:
        """Return whether a cadence went by since it was sampled."""
        return self.taken is None or now - self.taken >= self.every

    def note(self, now: int, *, sampled: bool, taken: bool) -> None:
        """Note that it stepped in step ``now``."""
        if taken:
            self.taken, self.misses = now, 0
        elif self.is_owed(now) and not sampled:
            self.misses = min(self.misses + 1, WIDEST)
        self.distances = [*self.distances, now - self.stepped][-REMEMBERED:]
        self.stepped = now

    def wants(self, step: int) -> bool:
        """Return whether ``step`` has to be sampled for its sake: it is owed, and may step there."""
        width = (1 << self.misses) >> 1
        foreseen = (self.stepped + distance for distance in self.distances)
        return self.is_owed(step) and any(abs(step - each) <= width for each in foreseen)


class Debts:
    """What is owed to the optimizers of a run, of which some do not step in each of its steps.

    A cadence alone may fall between an optimizer's steps for ever. So an optimizer is owed a sample when none of its
    steps was sampled for a whole cadence, and a debt ends only when it is paid. Where an owed optimizer steps next is
    foreseen from the distances between its latest steps: there, and only there, a step is sampled beside the cadence.
    Each time that it stepped unsampled, the windows around what is foreseen double, until one holds its step.

    So an optimizer that steps in every n-th step is sampled within ``every + n`` steps, once three of its steps were
    seen, at the price of one further sampled step. One without a rhythm, whose steps lie at most n apart, is sampled
    within ``every`` steps and about log2(n) steps of its own, at the price of about n further sampled ones.

    Args:
        every: The cadence.

    Clause: CB-1, STEP-11.
    """

    def __init__(self, every: int) -> None:
        self._every = every
        self._now = 0
        self._accounts: dict[int, Account] = {}

    def settle(
        self, optimizers: Collection[int], *, stepped: Collection[int], sampled: bool, taken: Collection[int]
    ) -> bool:
        """Take what one step of the run did; return whether the next one has to be sampled.

        Args:
            optimizers: All of them, by id.
            stepped: Those that stepped.
            sampled: Whether the step was sampled.
            taken: Those of which it was.
        """
        self._now += 1
        accounts = {each: self._accounts.setdefault(each, Account(self._every)) for each in optimizers}
        for key, account in accounts.items():
            if key in stepped or key in taken:
                account.note(self._now, sampled=sampled, taken=key in taken)
        step = self._now + 1
        if sampled and not stepped and any(account.is_owed(step) for account in accounts.values()):
            return True  # Nothing stepped, so nothing was measured: waiting costs nothing.
        return any(account.wants(step) for account in accounts.values())
