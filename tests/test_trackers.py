"""The face: the names of torchlens.trackers, light to import, and the first example of the specification."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import torchlens_conformance.trackers as trk

from .watch.programs import SHOWN_IMPORTS

ROOT = Path(__file__).parents[1]


def test_importing_the_face_imports_nothing_heavy() -> None:
    """Neither torch nor a tracker is imported before it is needed (PROT-1)."""
    finished = subprocess.run(
        [sys.executable, "-c", SHOWN_IMPORTS],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert finished.returncode == 0, finished.stderr
    told = json.loads(finished.stdout)
    assert told["before"] == [] and told["after"] == []
    assert told["names"] == sorted(trk.__all__)


@pytest.mark.parametrize("name", trk.__all__)
def test_every_name_is_there(name: str) -> None:
    """Each public name can be had (STEP-1)."""
    pytest.importorskip("torch")
    assert getattr(trk, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A name that does not exist is refused as Python does it (STEP-1)."""
    with pytest.raises(AttributeError, match="no attribute 'Sink'"):
        _ = trk.Sink  # type: ignore[attr-defined]


def test_the_first_example_runs_as_it_stands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """TensorBoard and JSONL, a real scaler, and a close report that is printed (STEP-1, AMP-2, CLOSE-1)."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("tensorboard")
    from reference_sinks.readers import read_jsonl, read_tensorboard

    class Model(torch.nn.Module):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.body = torch.nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            return type("Output", (), {"loss": self.body(x).square().mean()})

    torch.manual_seed(0)
    model = Model()
    opt = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cpu")
    loader = [{"x": torch.randn(5, 4)} for _ in range(120)]
    start_step = 1000
    sink = [trk.TensorBoardSink(tmp_path / "exp1"), trk.JSONLSink(tmp_path / "exp1.jsonl")]

    with trk.watch(model, to=sink, signals=("gradients", "updates"), optimizer=opt, every=50, hist_every=200) as watch:
        for global_step, batch in enumerate(loader, start=start_step):
            with watch.step(global_step, scaler=scaler):
                opt.zero_grad(set_to_none=True)
                loss = model(**batch).loss
                scaler.scale(loss).backward()
                scaler.step(opt)
                scaler.update()
    print(watch.close().format())

    printed = capsys.readouterr().out
    assert "120 seen (1000 to 1119), 4 sampled" in printed and "TensorBoardSink" in printed and "JSONLSink" in printed
    rows = list(read_jsonl(tmp_path / "exp1.jsonl"))
    steps = {point.step for point in rows if getattr(point, "tag", "") == "gradients/norm/body.weight"}
    assert steps == {1000, 1050, 1100, 1119}
    assert {point.step for point in rows if isinstance(point, trk.HistogramPoint)} == {1000}
    shown = list(read_tensorboard(tmp_path / "exp1"))
    assert len(shown) == len(rows)
