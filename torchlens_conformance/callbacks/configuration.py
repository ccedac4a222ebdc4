"""What a callback watches and how often, and where each setting came from (CB-1, CB-2, ENV-1).

An argument wins over the environment, the environment over what is derived from the framework, and that over the
default. No variable turns a callback on; these are read by one that was constructed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from ..protocol.ledger import Ledger
from ..watch.settings import require_module_inputs, require_op_signals
from .environment import (
    EVERY_VARIABLE,
    HIST_EVERY_VARIABLE,
    SELECT_VARIABLE,
    SIGNALS_VARIABLE,
    naming,
    read_period,
    read_period_or_none,
    read_signals,
    read_words,
)

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
        environment: The variables that decided a setting, with what they hold.

    Clause: CB-2.
    """

    signals: tuple[str, ...]
    select: tuple[Any, ...] | None
    every: int
    hist_every: int | None
    sources: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)

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
    used: dict[str, str] = {}

    def take(name: str, variable: str, parse: Callable[[str, str], Any], otherwise: Any, source: str) -> None:
        if not isinstance(arguments[name], Unset):
            found[name], sources[name] = arguments[name], "[argument]"
        elif variable in variables:
            used[variable] = variables[variable]
            found[name], sources[name] = parse(variable, variables[variable]), f"[env {variable}]"
        else:
            found[name], sources[name] = otherwise, source

    cadence = f"[derived: {derived.because}]" if derived else "[default]"
    take("signals", SIGNALS_VARIABLE, read_signals, ("gradients",), "[default]")
    take("select", SELECT_VARIABLE, read_words, None, "[default]")
    take("every", EVERY_VARIABLE, read_period, derived.every if derived else DEFAULT_EVERY, cadence)
    take("hist_every", HIST_EVERY_VARIABLE, read_period_or_none, None, "[default]")
    signals, select = _as_tuple(found["signals"]), found["select"]
    return CallbackSettings(
        signals or (),
        None if select is None else _as_tuple(select),
        found["every"],
        found["hist_every"],
        MappingProxyType(sources),
        MappingProxyType(used),
    )


def require_fitting(settings: CallbackSettings, to: object, keywords: Mapping[str, Any]) -> None:
    """Refuse, when a callback is made, what the environment asks for and ``watch()`` could not do.

    Args:
        settings: The resolved settings.
        to: The sink or the sinks.
        keywords: Further keywords of ``watch()``.

    Raises ``watch_tier_inputs_missing``, ``watch_tier_unavailable``, ``tracker_sink_capability_missing`` and
    ``tracker_sink_invalid``, with the variables named. Clause: CB-2.
    """
    used = settings.environment
    if SIGNALS_VARIABLE in used:
        inputs = keywords.get("inputs", keywords.get("example_input"))
        with naming({SIGNALS_VARIABLE: used[SIGNALS_VARIABLE]}):
            require_module_inputs(settings.signals, select=settings.select, inputs=inputs)
            if keywords.get("grain") == "op":
                require_op_signals(settings.signals)
    if HIST_EVERY_VARIABLE in used and settings.hist_every is not None:
        with naming({HIST_EVERY_VARIABLE: used[HIST_EVERY_VARIABLE]}):
            Ledger(to if isinstance(to, (list, tuple, set, frozenset)) else (to,)).require(("raw_histogram",))


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
