"""Trains a small GPT-2 on its own source text and watches it into TensorBoard, wandb (offline) and a JSONL file.

Runs on a CPU in seconds: ``python watch_gpt2.py FOLDER``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import wandb
from transformers import GPT2Config, GPT2LMHeadModel

import torchlens_conformance.trackers as trk

TEXT = Path(__file__).read_bytes()


def make_model() -> GPT2LMHeadModel:
    """Return a GPT-2 of two layers over bytes, from scratch."""
    torch.manual_seed(0)
    shape = {"n_layer": 2, "n_head": 2, "n_embd": 32, "n_positions": 32, "vocab_size": 256}
    return GPT2LMHeadModel(GPT2Config(bos_token_id=0, eos_token_id=0, **shape))


def batches(count: int) -> list[torch.Tensor]:
    """Return batches of eight windows of 32 bytes."""
    text = torch.frombuffer(bytearray(TEXT), dtype=torch.uint8).long()
    generator = torch.Generator().manual_seed(1)
    starts = torch.randint(len(text) - 32, (count, 8), generator=generator)
    return [torch.stack([text[start : start + 32] for start in row]) for row in starts.tolist()]


def train(folder: Path, *, first_step: int = 1000, steps: int = 21) -> trk.CloseReport:
    """Train, and return the close report; the stores lie in ``folder``."""
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    run = wandb.init(mode="offline", dir=folder, project="watch", settings=wandb.Settings(silent=True, console="off"))
    sinks = [trk.TensorBoardSink(folder / "tensorboard"), trk.WandbSink(run), trk.JSONLSink(folder / "run.jsonl")]
    with trk.watch(
        model,
        to=sinks,
        signals=("gradients", "updates"),
        select=("transformer.wte", "transformer.h.0.attn", "transformer.h.1.attn"),
        optimizer=optimizer,
        every=5,
        hist_every=10,
    ) as watch:
        print(watch.plan_report())
        for step, batch in enumerate(batches(steps), start=first_step):
            with watch.step(step, scaler=scaler):
                optimizer.zero_grad(set_to_none=True)
                loss = model(input_ids=batch, labels=batch).loss
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
    run.finish()
    return watch.close()


if __name__ == "__main__":
    print(train(Path(sys.argv[1])).format())
