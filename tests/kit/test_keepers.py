"""Keepers run jobs side by side, and nothing that a job started outlives them; patience is bounded."""

from __future__ import annotations

import os
import signal
from functools import partial

from torchlens_conformance.kit.keepers import Fault, children_of, in_keeper, side_by_side
from torchlens_conformance.kit.patience import MOST, SHORT, Patience
from torchlens_conformance.kit.processes import NOT_STARTED, Channel, Limits, run_child


def _square(number: int) -> int:
    return number * number


def _fails() -> int:
    raise ValueError("no")


def _dies() -> int:
    os._exit(3)


def test_values_come_in_order() -> None:
    """Every job gives its value or its fault, in the order of the jobs (PROT-10)."""
    jobs = [partial(_square, number) for number in range(20)]
    assert side_by_side([*jobs, _fails, partial(lambda: open)], workers=3)[:20] == [n * n for n in range(20)]
    assert side_by_side([_fails]) == [Fault("ValueError: no")]


def test_a_dead_keeper_is_a_fault() -> None:
    """A job that takes its keeper with it gives a fault, and so does a value that cannot be sent (PROT-10)."""
    assert isinstance(side_by_side([_dies], workers=1)[0], Fault)
    assert isinstance(side_by_side([lambda: lambda: None], workers=1)[0], Fault)


def test_keepers_know_themselves() -> None:
    """A keeper runs further jobs itself and starts no keepers (PROT-10)."""
    assert not in_keeper()
    assert side_by_side([in_keeper]) == [True]
    assert side_by_side([lambda: side_by_side([os.getpid])[0] == os.getpid()]) == [True]


def _leaves_a_daemon() -> int:
    pid = os.fork()
    if pid == 0:
        os.setsid()
        while True:
            signal.pause()
    return pid


def test_a_keeper_ends_what_is_left() -> None:
    """A process in a session of its own ends with the keeper (PROT-10)."""
    before = children_of(os.getpid())
    (pid,) = side_by_side([_leaves_a_daemon])
    assert not os.path.exists(f"/proc/{pid}")
    assert children_of(os.getpid()) == before


def test_patience() -> None:
    """Patience is full until something hangs, short then, longer for a slow subject, and ends (PROT-10)."""
    patience = Patience()
    assert patience.seconds(20.0) == 20.0
    patience.note(0.1)
    patience.note(20.0, hung=True)
    assert patience.seconds(20.0) == SHORT
    patience.note(4.0)
    assert patience.seconds(20.0) == 12.0
    for _ in range(MOST - 1):
        assert patience.seconds(20.0) is not None
        patience.note(1.0, stopped=True)
    assert patience.seconds(20.0) is None


def _hangs(channel: Channel) -> None:
    while True:
        signal.pause()


def test_no_more_are_started() -> None:
    """Once too many processes of a subject hung, a further one is not started, and its outcome says so (PROT-10)."""
    limits = Limits(timeout=0.05)
    for _ in range(MOST):
        limits.patience.note(0.0, stopped=True)
    assert run_child(_hangs, limits=limits).ended.startswith(NOT_STARTED)


def test_where_it_hung() -> None:
    """The last line of what a hanging child printed names the call it hung in (PROT-10)."""
    outcome = run_child(_hangs, limits=Limits(timeout=1.0))
    assert outcome.ended == "timed out"
    assert outcome.output.strip().splitlines()[-1].startswith("It hung in _hangs (test_keepers.py, line ")
