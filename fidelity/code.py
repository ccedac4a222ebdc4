"""A digest of the code that a measurement rests on, so that a result of older code can be told from a new one."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

MEASURING = (
    "fidelity.answers",
    "fidelity.grids",
    "fidelity.matching",
    "fidelity.measure",
    "fidelity.measure_runs",
    "fidelity.probes",
    "fidelity.received",
    "fidelity.verdicts",
    "torchlens_conformance.protocol.compare",
)
"""Modules that bear on the numbers and words of every route."""

_ROUTE_PACKAGES = ("fidelity.routes.", "reference_sinks.")


def route_modules() -> list[str]:
    """Return the modules of routes, sinks and readers that this process has imported (packages not among them)."""
    return sorted(
        name
        for name, module in list(sys.modules.items())
        if name.startswith(_ROUTE_PACKAGES) and not hasattr(module, "__path__")
    )


def code_digest(modules: Iterable[str]) -> str:
    """Return the SHA-256 (hex) of the sources of ``modules`` and of :data:`MEASURING`."""
    digest = hashlib.sha256()
    for name in sorted({*modules, *MEASURING}):
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise ValueError(f"{name} has no source")
        digest.update(name.encode() + b"\0" + Path(spec.origin).read_bytes() + b"\0")
    return digest.hexdigest()
