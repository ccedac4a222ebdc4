"""How histograms and scalars are put on TensorBoard's wire; a variable, so that every form can be measured."""

from __future__ import annotations

import os
from typing import Any

HISTOGRAM_VARIABLE = "TORCHLENS_FIDELITY_HISTOGRAM_WIRE"
SCALAR_VARIABLE = "TORCHLENS_FIDELITY_SCALAR_FORM"


def sink_settings() -> dict[str, Any]:
    """Return the TensorBoardSink keywords that the environment asks for; none means the sink's own defaults."""
    settings = {}
    if os.environ.get(HISTOGRAM_VARIABLE):
        settings["histogram_wire"] = os.environ[HISTOGRAM_VARIABLE]
    if os.environ.get(SCALAR_VARIABLE):
        settings["scalar_form"] = os.environ[SCALAR_VARIABLE]
    return settings
