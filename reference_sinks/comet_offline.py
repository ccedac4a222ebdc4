"""An offline experiment of Comet that records nothing but what is logged to it, and dials nobody (COMET-1).

CometSink takes any experiment; this is how the certificate and the fidelity route make theirs.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from types import MappingProxyType
from typing import Any

from .packages import require_package

QUIET: Mapping[str, str] = MappingProxyType(
    {
        # Otherwise importing Comet sets up a reporter of its errors to its makers, offline as well.
        "COMET_ERROR_TRACKING_ENABLE": "false",
        "COMET_DISABLE_ANNOUNCEMENT": "true",
        "COMET_INTERNAL_REPORTING": "false",
        "COMET_LOGGING_CONSOLE": "ERROR",
        # Otherwise importing Comet puts a finder of its own before Python's.
        "COMET_DISABLE_AUTO_LOGGING": "1",
    }
)
"""Environment variables for a quiet Comet that stays off the network; Comet reads some of them when it is imported."""

MONITORS_OFF = (
    *("log_code", "log_graph", "auto_param_logging", "auto_metric_logging", "parse_args", "auto_output_logging"),
    *("log_env_details", "log_git_metadata", "log_git_patch", "auto_log_co2"),
)
"""What an experiment records by itself, to be given as False."""


def import_comet() -> Any:
    """Import and return ``comet_ml`` under :data:`QUIET`, and undo what importing it does to the process.

    It puts a hook before ``sys.excepthook`` and filters before those of ``warnings``. Raises
    ``tracker_sink_unavailable``. Clause: COMET-1.
    """
    os.environ.update(QUIET)
    hook = sys.excepthook
    try:
        with warnings.catch_warnings():
            return require_package("comet_ml", extra="comet")
    finally:
        sys.excepthook = hook


def start_offline_experiment(place: Path, *, continued: str | None = None) -> Any:
    """Start an OfflineExperiment whose archive and whose temporary folder both lie in ``place``.

    Every automatic logging is off. Whoever calls it ends the experiment. Raises ``tracker_sink_unavailable`` and what
    Comet raises. Clause: COMET-1.

    Args:
        place: An existing folder.
        continued: The key of an experiment to go on with, as an ExistingOfflineExperiment; None starts a new one.
    """
    comet = import_comet()
    kind = comet.OfflineExperiment if continued is None else comet.ExistingOfflineExperiment
    # A new experiment takes every monitor, some in its **kwargs; one that is continued knows a part of them.
    known = signature(kind).parameters
    settings: dict[str, Any] = {name: False for name in MONITORS_OFF if {name, "kwargs"} & known.keys()}
    if continued is not None:
        settings["experiment_key"] = continued
    with _temporary_files_in(place):
        return kind(offline_directory=str(place), display_summary_level=0, **settings)


@contextmanager
def _temporary_files_in(place: Path) -> Iterator[None]:
    # Comet takes a folder for temporary files from Python; what a killed process leaves is then found beside the rest.
    before = tempfile.tempdir
    tempfile.tempdir = str(place)
    try:
        yield
    finally:
        tempfile.tempdir = before
