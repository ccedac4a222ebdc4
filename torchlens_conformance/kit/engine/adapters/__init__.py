"""The adapters that the kit brings, and how the command line finds one.

``ours`` is the engine of this project, ``torchlens`` the installed torchlens by its public interface, ``plain`` the
kit's own plain engine; everything else is ``PKG.MOD:OBJECT``.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import cast

from ....protocol import Refusal
from ..adapter import ABILITIES, Engine

KNOWN: Mapping[str, str] = {
    "ours": "torchlens_conformance.kit.engine.adapters.ours:OURS",
    "plain": "torchlens_conformance.kit.engine.adapters.plain:PLAIN",
    "torchlens": "torchlens_conformance.kit.engine.adapters.torchlens:TORCHLENS",
}
"""Short names of adapters."""


def find_engine(target: str) -> Engine:
    """Return the adapter that ``target`` names: a short name or ``PKG.MOD:OBJECT``.

    Raises ``kit_subject_not_found`` when it cannot be imported and ``kit_subject_invalid`` when it is no adapter.
    """
    module, _, name = KNOWN.get(target, target).partition(":")
    try:
        found = getattr(import_module(module), name) if name else None
    except (ImportError, AttributeError, ValueError) as error:
        raise Refusal(
            "kit_subject_not_found",
            f"{target} cannot be imported: {type(error).__name__}: {error}.",
            remedy=f"Name one of {', '.join(KNOWN)}, or an adapter as PKG.MOD:OBJECT that can be imported from here.",
            target=target,
        ) from error
    return require_engine(target, found)


def require_engine(target: str, found: object) -> Engine:
    """Return ``found`` when it is an adapter; refuse ``kit_subject_invalid`` otherwise."""
    wrong = [name for name in ("name", "distribution", "lacks", "spellings", "attach") if not hasattr(found, name)]
    unknown = [] if wrong else [word for word in getattr(found, "lacks", ()) if word not in ABILITIES]
    if found is None or wrong or unknown:
        raise Refusal(
            "kit_subject_invalid",
            f"{target} is no adapter of an engine.",
            remedy="Give an object with name, distribution, lacks, spellings and attach(model, sinks, ask).",
            target=target,
            missing=wrong,
            unknown=unknown,
        )
    return cast(Engine, found)
