"""What each tracker itself does with the points that our sink refuses, asked of the installed trackers."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from fidelity.answers import RAISES
from fidelity.probes import item_name, nonfinite_probe, precision_probe, tag_probe
from fidelity.received import Received
from fidelity.routes.asked import hearing
from torchlens_conformance.protocol import HistogramPoint, Point, ScalarPoint

from .trip import trip

pytestmark = pytest.mark.trackers


def _answers(received: Received, points: list[Point]) -> dict[str, str]:
    """Return the tracker's own answer to each refused point by its name."""
    names = {(point.tag, point.step): item_name(point) for point in points}  # type: ignore[union-attr]
    return {names[item.tag, item.step]: item.itself for item in received.refused}


def test_mlflow_itself_changes_infinities_and_a_negative_zero_and_raises_for_names(tmp_path: Path) -> None:
    """By hand an infinity becomes the largest float and -0.0 becomes 0.0, in silence; odd names raise (MLFLOW-1)."""
    pytest.importorskip("mlflow")
    points: list[Point] = [*nonfinite_probe(), *precision_probe(), *tag_probe()]
    received = trip("mlflow", points, tmp_path)
    answers = _answers(received, points)
    assert {name: answer for name, answer in answers.items() if not answer.startswith(RAISES)} == {
        "posinf": "stores 1.7976931348623157e+308",
        "neginf": "stores -1.7976931348623157e+308",
        "-0.0": "stores 0.0",
    }
    raised = [name for name, answer in answers.items() if answer == "raises MlflowException"]
    assert len(raised) == 9 and "double//slash" in raised and "with space" not in raised


def test_comet_itself_cuts_a_name_and_warns(tmp_path: Path) -> None:
    """A name of more than 100 characters is cut; a line says so, unless Comet's console is turned down (COMET-1)."""
    pytest.importorskip("comet_ml")
    received = trip("comet", [*tag_probe()], tmp_path)
    assert _answers(received, [*tag_probe()]) == {
        "xxxxxxxxxx... (300 characters)": "stores the name 'probe/tags... (100 characters)', with a warning"
    }


def test_wandb_itself_raises_over_its_cap(tmp_path: Path) -> None:
    """513 buckets raise in wandb's own constructor as well (WANDB-1)."""
    pytest.importorskip("wandb")
    edges = tuple(float(edge) for edge in range(514))
    points: list[Point] = [HistogramPoint("h/x", 1, (1,) * 513, edges, {}), ScalarPoint("s", 1, 0.5)]
    assert _answers(trip("wandb", points, tmp_path), points) == {"h/x": "raises ValueError"}


def test_only_lines_that_are_shown_by_default_are_heard() -> None:
    """A warning of the tracker's or of a part of it counts, also where it is turned off; a line below not (FID-1)."""
    logger = logging.getLogger("a-tracker")
    logger.setLevel(logging.ERROR)
    with hearing("a-tracker") as heard:
        logging.getLogger("a-tracker.part").info("detail")
        assert not heard.anything
        logging.getLogger("a-tracker.part").warning("cut")
    assert heard.anything
    assert (logger.handlers, logger.level) == ([], logging.ERROR)
