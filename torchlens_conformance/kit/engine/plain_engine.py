"""The plain engine as an adapter: its sessions, its callbacks, and in their place those of a planted defect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .adapter import Ask, Callback, CallbackAsk, Spellings
from .plain_session import PlainSession

if TYPE_CHECKING:
    from .plain_callbacks import PlainDriver


class PlainEngine:
    """The adapter of the plain engine, or of one planted defect of it.

    Args:
        name: For the report.
        session: The class of its sessions.
        lacks: The abilities that it does not have.
        driver: The class of what its callbacks do; the plain one when left out.
    """

    distribution: str | None = "torchlens-conformance"
    spellings = Spellings()

    def __init__(
        self,
        name: str = "plain",
        session: type[PlainSession] = PlainSession,
        *,
        lacks: Mapping[str, str] | None = None,
        driver: type[PlainDriver] | None = None,
    ) -> None:
        self.name, self.session, self.driver = name, session, driver
        self.lacks: Mapping[str, str] = dict(lacks or {})

    def attach(self, model: Any, sinks: Iterable[Any], ask: Ask) -> PlainSession:
        """Watch ``model``. Clause: ATTACH-6."""
        return self.session(model, sinks, ask)

    def callback(self, framework: str, sinks: Iterable[Any], ask: CallbackAsk) -> Callback:
        """Return a callback of a framework; its sessions are plain. Clause: CB-1."""
        from .plain_callbacks import PlainDriver, plain_callback

        return plain_callback(framework, (self.driver or PlainDriver)(sinks, ask))
