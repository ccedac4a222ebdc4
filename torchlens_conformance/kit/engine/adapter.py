"""What the kit asks of an engine, spelled generically: attach, step, close, report.

An adapter is one module-level object. What its engine cannot do stands in ``lacks`` with a reason: laws about it are
*not declared*. A law that this machine cannot ask (a torch without ``torch.distributed``, say) is *not applicable*, and
one that was asked and gave no answer *could not run*. The three are never mixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from .observation import CloseFacts

ABILITIES: Mapping[str, str] = {
    "parameters": "watches parameters",
    "updates": "watches measured updates",
    "histograms": "emits histograms",
    "step-callable": "takes the step from a callable",
    "new-segment": "starts a new segment on request",
    "amp": "takes a gradient scaler in the step scope",
    "fused": "tells the truth about optimizers that unscale inside their own step",
    "closure": "watches optimizers that evaluate a closure",
    "several-optimizers": "takes a list of optimizers",
    "names": "takes name= and namespace=",
    "plan": "states the bytes that a sampled step moves off the device",
    "activations": "watches outputs of modules, by select= and inputs=",
    "activation-grads": "watches gradients of outputs of modules",
    "compiled": "watches a model under torch.compile",
    "data-parallel": "watches a DistributedDataParallel run",
    "disable": "is turned off by TORCHLENS_WATCH_DISABLE=1",
    "operations": "watches single operations of a forward, with consent",
    "hf-callback": "watches a transformers.Trainer through a callback",
    "lightning-callback": "watches a lightning Trainer through a callback",
}
"""The closed words of what an engine may lack, with what each means."""

CALLBACKS = ("hf-callback", "lightning-callback")
"""The abilities about callbacks; an adapter without a method ``callback`` lacks them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What one session asks of the engine; the defaults are the specification's (SPEC.md, section 15).

    Args:
        signals: What to watch.
        optimizer: One optimizer, a list of them, or None.
        every: Cadence of scalars.
        hist_every: Cadence of histograms, or None.
        step: A callable that gives the step, or None.
        select: Prefixes, or None.
        name: The session's name, or None.
        namespace: The session's namespace, or None.
        inputs: An example of the model's inputs, for outputs of modules, or None.
        budgets: Hard budgets, or None.
        allow_missing_phases: Whether a scope without its boundary is a named skip.
        grain: ``op`` for single operations, or None.
        allow_forward_wrap: Consent to op grain, or None.
        functions: Functions whose operations are watched, or None.
        facets: By function, into how many parts which axis of its outputs is split, or None.
    """

    signals: Sequence[str] = ("gradients",)
    optimizer: Any = None
    every: int = 1
    hist_every: int | None = None
    step: Callable[[], int] | None = None
    select: Sequence[str] | None = None
    name: str | None = None
    namespace: str | None = None
    inputs: Any = None
    budgets: Mapping[str, int] | None = None
    allow_missing_phases: bool = False
    grain: str | None = None
    allow_forward_wrap: bool | None = None
    functions: Sequence[str] | None = None
    facets: Mapping[str, tuple[int, int]] | None = None

    def keywords(self) -> dict[str, Any]:
        """Return the keywords of ``watch()``; what is None is left out."""
        given = {key: getattr(self, key) for key in self.__slots__}
        return {key: value for key, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackAsk:
    """What one callback of a framework is asked; None leaves the choice to the environment and the framework.

    Args:
        signals: What to watch.
        every: Cadence of scalars.
        hist_every: Cadence of histograms.
        select: Prefixes.
    """

    signals: Sequence[str] | None = None
    every: int | None = None
    hist_every: int | None = None
    select: Sequence[str] | None = None

    def keywords(self) -> dict[str, Any]:
        """Return the keywords of the callback; what is None is left out."""
        given = {key: getattr(self, key) for key in self.__slots__}
        return {key: value for key, value in given.items() if value is not None}


class Callback(Protocol):
    """One callback of a framework, made by an engine.

    Attributes:
        hook: What the framework's trainer takes in its list of callbacks.
    """

    hook: Any

    def around(self) -> AbstractContextManager[Any]:
        """Return what training runs in, where the engine asks for that; otherwise a context that does nothing.

        Clause: CB-1.
        """


class Session(Protocol):
    """One watch of one model."""

    def step(self, n: Any, *, scaler: Any = None, new_segment: bool = False) -> AbstractContextManager[Any]:
        """Return the scope of one step. Clause: STEP-1."""

    def close(self) -> CloseFacts:
        """End the watch and return what its report says. Clause: CLOSE-1."""

    def planned_bytes(self) -> int | None:
        """Return the bytes that a sampled step moves off the device, as the plan states them. Clause: XFER-1.

        Not called when the engine lacks ``plan``.
        """


@dataclass(frozen=True, slots=True)
class Spellings:
    """Other spellings that a profile accepts, with the protocol's own.

    Args:
        codes: Refusal codes.
        tags: Beginnings of tags.
    """

    codes: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)

    def code(self, given: str | None) -> str | None:
        """Return a code as the protocol spells it."""
        return None if given is None else self.codes.get(given, given)

    def tag(self, given: str) -> str:
        """Return a tag as the protocol spells it."""
        for start, stands in self.tags.items():
            if given.startswith(start):
                return stands + given[len(start) :]
        return given

    def accepted(self) -> list[str]:
        """Say in words which spellings are accepted; empty for a plain profile."""
        said = [f"the code {code!r} for {stands!r}" for code, stands in sorted(self.codes.items())]
        return said + [f"tags that begin with {tag!r} for {stands!r}" for tag, stands in sorted(self.tags.items())]


class Engine(Protocol):
    """An engine as the kit sees it.

    Attributes:
        name: For the report.
        distribution: The distribution that holds it, or None.
        lacks: The abilities of :data:`ABILITIES` that it does not have, each with a reason.
        spellings: What the profile accepts.
    """

    name: str
    distribution: str | None
    lacks: Mapping[str, str]
    spellings: Spellings

    def attach(self, model: Any, sinks: Iterable[Any], ask: Ask) -> Session:
        """Watch ``model`` and give the points to ``sinks``; refuse with a code before any side effect."""


class CallbackMaker(Protocol):
    """An engine that has callbacks; an adapter of one has this method as well."""

    def callback(self, framework: str, sinks: Iterable[Any], ask: CallbackAsk) -> Callback:
        """Return a new callback of ``framework``: ``hf`` or ``lightning``. Clause: CB-1."""


def lacks_of(engine: Engine) -> Mapping[str, str]:
    """Return the abilities that an engine lacks, those included that its adapter has no method for."""
    silent = () if hasattr(engine, "callback") else CALLBACKS
    return {**dict.fromkeys(silent, "the adapter has no callback()"), **engine.lacks}


def code_of(error: BaseException) -> str | None:
    """Return the code of a refusal: its ``code``, or ``fields["code"]`` as torchlens spells it (PROT-9)."""
    code = getattr(error, "code", None)
    if isinstance(code, str):
        return code
    fields = getattr(error, "fields", None)
    try:
        code = fields["code"] if fields is not None else None
    except (KeyError, TypeError):
        return None
    return code if isinstance(code, str) else None
