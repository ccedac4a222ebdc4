"""CometSink as a subject: an offline experiment and its archive, with the limits of Comet (COMET-1)."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from reference_sinks import CometSink
from reference_sinks.comet_offline import import_comet, start_offline_experiment

from ...protocol import Refusal
from ..subject import Subject
from .readers import read_comet_place

with suppress(Refusal):
    # Once here, and not again in every process that opens a sink; a missing package is refused when one is opened.
    import_comet()


class ExperimentOwner(CometSink):
    """A CometSink together with the offline experiment that it logs to: close ends the experiment as well.

    CometSink itself neither starts nor ends experiments, so a certificate of it needs a caller that does.
    """

    def __init__(self, place: Path) -> None:
        try:
            experiment = start_offline_experiment(Path(place))
        except OSError as error:
            message = f"Comet could not make its files: {error.strerror}."
            remedy = "Give OfflineExperiment(offline_directory=...) a folder that can be written."
            raise Refusal("tracker_sink_write_failed", message, remedy=remedy, path=str(place)) from error
        super().__init__(experiment)
        self._owner = os.getpid()

    def close(self) -> None:
        """Close the sink and end the experiment, which packs its archive; a forked child closes the sink alone."""
        try:
            super().close()
        finally:
            if os.getpid() == self._owner:
                self._experiment.end()


def open_comet(place: Path) -> ExperimentOwner:
    """Start an offline experiment in ``place`` and open a CometSink on it."""
    return ExperimentOwner(place)


COMET = Subject(
    name="CometSink",
    open=open_comet,
    read=read_comet_place,
    distribution="torchlens-conformance",
    undeclared={
        "embedding_module": "Comet's embeddings are files of its projector, which keep no raw vectors of a given type",
        "graph": "Comet takes a graph as one text a run",
        "image": "Comet keeps images as files beside the metrics; the sink does not write them",
        "raw_histogram": "Comet's histograms have one kind of grid, which holds 4 of the 514 edges of ours bit by bit",
        "run_metadata": "facts about the run belong into the experiment's parameters, which the caller owns",
        "structured_event": "Comet has no place for a payload but text",
    },
    deviations=Path(__file__).with_name("comet.toml"),
)
"""Comet's offline archive through a live experiment."""
