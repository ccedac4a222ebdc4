"""What a callback watches and how often, and where each setting came from (CB-1, CB-2, ENV-1).

An argument wins over the environment, the environment over what is derived from the framework, and that over the
default. No variable turns a callback on; these are read by one that was constructed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from ..protocol.refusals import Refusal, short_repr

SIGNALS_VARIABLE = "TORCHLENS_WATCH_SIGNALS"
"""Signals, separated by commas."""

SELECT_VARIABLE = "TORCHLENS_WATCH_SELECT"
"""Prefixes of names, separated by commas."""

EVERY_VARIABLE = "TORCHLENS_WATCH_EVERY"
"""A positive integer: steps that it divides are sampled."""

HIST_EVERY_VARIABLE = "TORCHLENS_WATCH_HIST_EVERY"
"""A positive integer, or ``none``: the same for histograms."""

DEFAULT_EVERY = 50
"""Steps between samples when neither logging nor the length of the run is known."""

POINTS_OF_A_RUN = 100
"""About how many samples a run of known length gets when no logging cadence is known."""


class Unset:
    """Marks an argument that was left out, where None means something."""

    def __repr__(self) -> str:
        return "<left out>"


UNSET: Final = Unset()
"""The argument was left out."""


@dataclass(frozen=True, slots=True)
class CallbackSettings:
    """The resolved settings of a callback.

    Attributes:
        signals: What is watched.
        select: Prefixes of names or selectors of operations, or None for all parameters.
        every: Steps that it divides are sampled.
        hist_every: The same for histograms; None for none.
        sources: By setting, where it came from: ``[argument]``, ``[env NAME]``, ``[derived: ...]``, ``[default]``.

    Clause: CB-2.
    """

    signals: tuple[str, ...]
    select: tuple[Any, ...] | None
    every: int
    hist_every: int | None
    sources: Mapping[str, str]

    def lines(self) -> list[str]:
        """Return one line a setting, with its source."""
        return [f"watch {name} = {_shown(getattr(self, name))} {source}" for name, source in self.sources.items()]


@dataclass(frozen=True, slots=True)
class Cadence:
    """A number of steps, and the framework's setting that it follows."""

    every: int
    because: str


def resolve_settings(
    arguments: Mapping[str, Any], derived: Cadence | None, *, environment: Mapping[str, str] | None = None
) -> CallbackSettings:
    """Return the settings of a callback with their sources.

    Args:
        arguments: ``signals``, ``select``, ``every``, ``hist_every`` as given; :data:`UNSET` where left out.
        derived: What the framework's cadence gives, None when it has none.
        environment: The environment variables; those of this process when left out.

    Raises ``watch_env_config_invalid`` for a malformed variable, by its name. Clause: CB-1, CB-2.
    """
    variables = os.environ if environment is None else environment
    found: dict[str, Any] = {}
    sources: dict[str, str] = {}

    def take(name: str, variable: str, parse: Callable[[str, str], Any], otherwise: Any, source: str) -> None:
        if not isinstance(arguments[name], Unset):
            found[name], sources[name] = arguments[name], "[argument]"
        elif variable in variables:
            found[name], sources[name] = parse(variable, variables[variable]), f"[env {variable}]"
        else:
            found[name], sources[name] = otherwise, source

    cadence = f"[derived: {derived.because}]" if derived else "[default]"
    take("signals", SIGNALS_VARIABLE, _words, ("gradients",), "[default]")
    take("select", SELECT_VARIABLE, _words, None, "[default]")
    take("every", EVERY_VARIABLE, _period, derived.every if derived else DEFAULT_EVERY, cadence)
    take("hist_every", HIST_EVERY_VARIABLE, _period_or_none, None, "[default]")
    signals, select = _as_tuple(found["signals"]), found["select"]
    return CallbackSettings(
        signals or (),
        None if select is None else _as_tuple(select),
        found["every"],
        found["hist_every"],
        MappingProxyType(sources),
    )


def derive_cadence(logging_every: int | None, name: str, run_length: int | None) -> Cadence | None:
    """Return the cadence that follows from the framework: its logging, else about 100 points of the run's length.

    Clause: CB-1.
    """
    if logging_every is not None and logging_every >= 1:
        return Cadence(logging_every, f"{name}={logging_every}")
    if run_length is not None and run_length >= 1:
        every = max(1, run_length // POINTS_OF_A_RUN)
        return Cadence(every, f"about {POINTS_OF_A_RUN} points of {run_length} steps")
    return None


def _as_tuple(value: Any) -> tuple[Any, ...]:
    """Return several as they are, and one as a tuple: a word, or a selector of operations."""
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _words(variable: str, text: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(","))
    if not all(words):
        raise _malformed(variable, text, "names separated by commas, such as gradients,updates")
    return words


def _period(variable: str, text: str) -> int:
    if not text.strip().isascii() or not text.strip().isdigit() or int(text) < 1:
        raise _malformed(variable, text, "a positive integer")
    return int(text)


def _period_or_none(variable: str, text: str) -> int | None:
    if text.strip().lower() == "none":
        return None
    try:
        return _period(variable, text)
    except Refusal:
        raise _malformed(variable, text, "a positive integer, or none") from None


def _malformed(variable: str, text: str, wanted: str) -> Refusal:
    return Refusal(
        "watch_env_config_invalid",
        f"The environment variable {variable} is malformed.",
        remedy=f"Set {variable} to {wanted}, or unset it.",
        variable=variable,
        value=short_repr(text),
    )
