"""Delivery states: no report claims more than its evidence."""

from __future__ import annotations

from typing import Any

import pytest

from torchlens_conformance.protocol import DELIVERY_STATES, Ledger, LedgerRow, Refusal, RelayState

from .test_ledger import Recorder, Unreadable, scalar


def row_of(relay_state: Any = None, *, taken: int = 0) -> LedgerRow:
    """Return the row of a sink that took ``taken`` points and has the hook ``relay_state``."""
    sink = Recorder()
    if relay_state is not None:
        sink.relay_state = relay_state  # type: ignore[attr-defined]
    ledger = Ledger([sink])
    for step in range(taken):
        ledger.deliver(scalar(step))
    return ledger.rows[0]


def test_without_a_hook_delivery_is_what_the_ledger_saw() -> None:
    """No point taken is ``computed``; points taken without an error are ``emitted`` (PROT-8)."""
    assert row_of().delivery.state == "computed"
    assert row_of(taken=3).delivery == RelayState("emitted", "points taken without an error: 3")


@pytest.mark.parametrize("state", DELIVERY_STATES)
def test_the_word_of_a_sink_counts_only_for_points_it_took(state: str) -> None:
    """A sink may claim what it has evidence for; of points it never took it can claim nothing (PROT-7, PROT-8)."""
    claim = RelayState(state, "seen on the other side")
    assert row_of(lambda: claim, taken=1).delivery == claim
    delivery = row_of(lambda: claim).delivery
    assert delivery.state == "computed" and "seen on the other side" in delivery.evidence


@pytest.mark.parametrize(
    "rubbish", [None, "relay_verified", ("relay_verified", "x"), {"state": "relay_verified"}, 5, object()]
)
def test_rubbish_from_a_hook_claims_nothing(rubbish: object) -> None:
    """Whatever is no delivery state leaves what the ledger saw itself (PROT-8)."""
    assert row_of(lambda: rubbish).delivery.state == "computed"
    assert row_of(lambda: rubbish, taken=1).delivery.state == "emitted"
    assert type(rubbish).__name__ in row_of(lambda: rubbish, taken=1).delivery.evidence


@pytest.mark.parametrize("error", [OSError("no route"), Unreadable(), Refusal("grid_invalid", "x", remedy="y")])
def test_a_raising_hook_claims_nothing(error: Exception) -> None:
    """An exception of the hook is named in the evidence and reaches nobody (PROT-5, PROT-8)."""

    def raising() -> None:
        raise error

    for taken, state in ((0, "computed"), (1, "emitted")):
        delivery = row_of(raising, taken=taken).delivery
        assert delivery.state == state and type(error).__name__ in delivery.evidence


def test_a_hook_that_is_no_method_is_ignored() -> None:
    """An attribute called ``relay_state`` is not the hook (PROT-7)."""
    assert row_of("relay_verified", taken=1).delivery.state == "emitted"


def test_delivery_states_are_closed_and_carry_evidence() -> None:
    """There are four states; another word, or a state without words for its evidence, is refused (PROT-8)."""
    assert DELIVERY_STATES == ("computed", "emitted", "relay_configured", "relay_verified")
    wrong: tuple[tuple[Any, Any], ...] = (
        ("delivered", "x"),
        ("", "x"),
        (None, "x"),
        (["emitted"], "x"),
        ("emitted", ""),
        ("emitted", "  \n"),
        ("emitted", None),
        ("emitted", 5),
    )
    for state, evidence in wrong:
        with pytest.raises(Refusal) as caught:
            RelayState(state, evidence)
        assert caught.value.code == "point_field_invalid"
