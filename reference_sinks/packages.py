"""Importing a tracker's package, or refusing by name of the extra to install."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

from torchlens_conformance.protocol import Refusal


def require_installed(*modules: str, extra: str) -> None:
    """Refuse ``tracker_sink_unavailable`` unless every module can be found; none is imported. Clause: PROT-9."""
    for module in modules:
        if find_spec(module) is None:
            raise _unavailable(module, extra, "it is not installed")


def require_package(module: str, *, extra: str) -> Any:
    """Import and return ``module``.

    Args:
        module: A dotted module name.
        extra: The extra of this distribution that brings the module.

    Raises ``tracker_sink_unavailable`` when it cannot be imported. Clause: PROT-9.
    """
    try:
        # Not importlib.import_module: ClearML finds out about TensorBoard by a hook in __import__, and would miss this.
        __import__(module)
        return sys.modules[module]
    except ImportError as error:
        raise _unavailable(module, extra, str(error)) from error


def _unavailable(module: str, extra: str, why: str) -> Refusal:
    return Refusal(
        "tracker_sink_unavailable",
        f"{module} cannot be imported: {why}.",
        remedy=f"Install the extra: python -m pip install 'torchlens-conformance[{extra}]'.",
        module=module,
        extra=extra,
    )
