"""The four variables that a callback reads: what they may hold, and refusals that name them (CB-2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ..protocol.refusals import Refusal, short_repr
from ..watch.settings import SIGNALS, require_signals

SIGNALS_VARIABLE = "TORCHLENS_WATCH_SIGNALS"
"""Signals, separated by commas."""

SELECT_VARIABLE = "TORCHLENS_WATCH_SELECT"
"""Prefixes of names, separated by commas."""

EVERY_VARIABLE = "TORCHLENS_WATCH_EVERY"
"""A positive integer: steps that it divides are sampled."""

HIST_EVERY_VARIABLE = "TORCHLENS_WATCH_HIST_EVERY"
"""A positive integer, or ``none``: the same for histograms."""

LARGEST = 2**63 - 1
"""The largest step, and so the largest number of steps from one sample to the next."""


def read_words(variable: str, text: str) -> tuple[str, ...]:
    """Return the words between the commas, or refuse ``watch_env_config_invalid`` when one is empty."""
    words = _words(text)
    if not all(words):
        raise _malformed(variable, text, "names separated by commas, such as encoder.0,head")
    return words


def read_signals(variable: str, text: str) -> tuple[str, ...]:
    """Return the signals, or refuse ``watch_env_config_invalid`` when one is empty, unknown or repeated."""
    words = _words(text)
    try:
        require_signals(words)
    except Refusal:
        wanted = f"one or more of {', '.join(SIGNALS)}, each once, separated by commas"
        raise _malformed(variable, text, wanted) from None
    return words


def read_period(variable: str, text: str) -> int:
    """Return an integer in 1 .. :data:`LARGEST`, or refuse ``watch_env_config_invalid``."""
    return _period(variable, text, f"an integer in 1 .. {LARGEST}")


def read_period_or_none(variable: str, text: str) -> int | None:
    """Return the same, and None for ``none``."""
    if text.strip().lower() == "none":
        return None
    return _period(variable, text, f"an integer in 1 .. {LARGEST}, or none")


@contextmanager
def naming(variables: Mapping[str, str]) -> Iterator[None]:
    """Let refusals inside name the ``variables`` that decided a setting, with what they hold and the way out."""
    try:
        yield
    except Refusal as refusal:
        if not variables:
            raise
        told = ", ".join(f"{variable}={short_repr(text)}" for variable, text in variables.items())
        remedy = f"{refusal.remedy} {told} came from the environment: change or unset what does not fit."
        fields = {**refusal.fields, "environment": dict(variables)}
        raise Refusal(refusal.code, refusal.message, remedy=remedy, **fields) from refusal


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))


def _period(variable: str, text: str, wanted: str) -> int:
    digits = text.strip().lstrip("0")
    # The number of digits is looked at first: Python reads no number of thousands of them.
    if not digits.isascii() or not digits.isdigit() or len(digits) > len(str(LARGEST)) or int(digits) > LARGEST:
        raise _malformed(variable, text, wanted)
    return int(digits)


def _malformed(variable: str, text: str, wanted: str) -> Refusal:
    return Refusal(
        "watch_env_config_invalid",
        f"The environment variable {variable} is malformed.",
        remedy=f"Set {variable} to {wanted}, or unset it.",
        variable=variable,
        value=short_repr(text),
    )
