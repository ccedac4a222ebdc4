"""The Trainer's own TensorBoard log and ours, read side by side: the same axis, and the same norms on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import torchlens_conformance.trackers as trk
from tests.callbacks.huggingface_runs import STEPS, logged, quiet, total_norm, train

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")

LARGE = 1e6
"""The Trainer logs the norm of all gradients before it clips them; with this limit that is what the step sees."""


def side_by_side(folder: Path, *, resume: Any = None, **arguments: Any) -> dict[int, float]:
    """Train with both logs and return the norms that the Trainer logged by step."""
    callback = quiet(trk.TensorBoardSink(folder / "ours"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENSORBOARD_LOGGING_DIR", str(folder / "own"))
        train(folder, [callback], resume=resume, max_grad_norm=LARGE, report_to="tensorboard", **arguments)
    return logged(folder / "own", "train/grad_norm")


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [
        ({}, [2, 4, 6, 8]),
        ({"logging_steps": 0.3}, [3, 6]),
        ({"logging_steps": 1, "max_steps": 5}, [1, 2, 3, 4, 5]),
        ({"logging_steps": 2, "max_steps": 5}, [2, 4]),
        ({"gradient_accumulation_steps": 1, "logging_steps": 5}, [5, 10]),
        ({"eval_strategy": "steps", "eval_steps": 3}, [2, 4, 6, 8]),
        ({"bf16": True}, [2, 4, 6, 8]),
    ],
    ids=["accumulation", "ratio", "max-steps", "max-steps-off-cadence", "no-accumulation", "evaluation", "bf16"],
)
def test_rows_lie_on_the_log_axis(tmp_path: Path, arguments: dict[str, Any], steps: list[int]) -> None:
    """Each step that the Trainer logged has our rows, and they give the norm that it logged there (CB-1, STEP-9)."""
    own = side_by_side(tmp_path, **arguments)
    ours = logged(tmp_path / "ours", "gradients/norm/head.bias")
    assert list(own) == list(logged(tmp_path / "own", "train/loss")) == steps
    # The first step is sampled always. The Trainer frees gradients after a step, so none is forced at close.
    assert list(ours) == sorted({1, *steps})
    assert [total_norm(tmp_path / "ours", step) for step in own] == pytest.approx(list(own.values()), rel=1e-5)
    if "eval_steps" in arguments:
        assert list(logged(tmp_path / "own", "eval/loss")) == [3, 6, STEPS] and 3 not in ours


def test_a_resumed_run_lies_on_the_log_axis(tmp_path: Path) -> None:
    """After a resume both logs go on at the same steps with the same norms (Report 33, CB-1, STEP-9)."""
    # The Trainer goes on with the cadence that stands in the checkpoint.
    train(tmp_path, [], save_strategy="steps", save_steps=3, max_steps=4, logging_steps=1)
    own = side_by_side(tmp_path, resume=str(tmp_path / "checkpoint-3"), logging_steps=2)
    assert list(own) == list(logged(tmp_path / "ours", "gradients/norm/head.bias")) == [4, 5, 6, 7, 8]
    assert [total_norm(tmp_path / "ours", step) for step in own] == pytest.approx(list(own.values()), rel=1e-5)
