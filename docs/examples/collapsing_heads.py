"""Trains a small GPT-2 in which two heads are driven into collapse on purpose, and draws what op grain shows of them.

``python docs/examples/collapsing_heads.py [PICTURE]`` prints a line a head and, with PICTURE, draws all of them.

A softmax row that spreads evenly over n places has the sum of squares 1/n. The norm of a head's attention weights,
which a watch emits per head, therefore tells over how many places it looks: rows / norm**2.
"""

from __future__ import annotations

import sys
import warnings
from collections import defaultdict
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import torchlens_conformance.trackers as trk

HEADS, LENGTH, BATCH = 12, 32, 4

SPOILED = ((0, 3), (1, 7))
"""(layer, head) whose query weights grow by a quarter on every step: what a run-away head does, only faster."""


def small_gpt2() -> GPT2LMHeadModel:
    """Return a GPT-2 of two layers with twelve heads, whose attention is computed step by step."""
    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=2,
        n_head=HEADS,
        n_embd=96,
        vocab_size=256,
        n_positions=LENGTH,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation="eager",
    )
    return GPT2LMHeadModel(config)


def spoil(model: GPT2LMHeadModel) -> None:
    """Let the queries of two heads grow."""
    with torch.no_grad():
        for layer, head in SPOILED:
            width = 96 // HEADS
            model.transformer.h[layer].attn.c_attn.weight[:, head * width : (head + 1) * width] *= 1.25


def batch(step: int) -> dict[str, torch.Tensor]:
    """Return bytes of this file, as the model wants them."""
    text = torch.tensor(list(Path(__file__).read_bytes()[:2000]))
    starts = torch.randint(0, len(text) - LENGTH, (BATCH,), generator=torch.Generator().manual_seed(step))
    rows = torch.stack([text[start : start + LENGTH] for start in starts])
    return {"input_ids": rows, "labels": rows}


def train(*, steps: int = 40, every: int = 4) -> tuple[trk.WatchSession, trk.MemorySink]:
    """Train, and watch every head of every softmax; return the closed session and its rows."""
    model, sink = small_gpt2(), trk.MemorySink()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", trk.WatchOpGrainCostWarning)  # The plan says it as well.
        watch = trk.watch(
            model,
            to=sink,
            signals=("activations",),
            grain="op",
            select=trk.func("softmax"),
            facets={trk.func("softmax"): trk.split_heads(HEADS, dim=1)},
            inputs=batch(0),
            allow_forward_wrap=True,
            optimizer=optimizer,
            every=every,
        )
    with watch:
        for n in range(steps):
            with watch.step(n):
                optimizer.zero_grad()
                model(**batch(n)).loss.backward()
                optimizer.step()
            spoil(model)
    return watch, sink


def places(sink: trk.MemorySink) -> dict[str, dict[int, float]]:
    """Return, for each head as ``softmax_1_38/head_3``, over how many places it looks, by step."""
    rows = BATCH * LENGTH
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for point in sink.scalars:
        if point.tag.startswith("activations/norm/") and "/head_" in point.tag:
            found[point.tag.removeprefix("activations/norm/")][point.step] = rows / point.value**2
    return dict(found)


def draw(found: dict[str, dict[int, float]], picture: Path) -> None:
    """Draw one panel a softmax, one curve a head; those that end below 1.5 places stand out."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "heads", "svg.fonttype": "none"})
    from matplotlib import pyplot

    labels = sorted({name.split("/")[0] for name in found})
    figure, panels = pyplot.subplots(1, len(labels), figsize=(9, 3.4), sharey=True, layout="constrained")
    for axes, label in zip(panels, labels):
        for name, curve in found.items():
            if name.startswith(f"{label}/"):
                collapsed = list(curve.values())[-1] < 1.5
                axes.plot(
                    list(curve), list(curve.values()), color="#cc3311" if collapsed else "#bbbbbb", zorder=collapsed + 1
                )
                if collapsed:
                    axes.annotate(name.split("/")[1], (list(curve)[-1], list(curve.values())[-1]), color="#cc3311")
        axes.set_title(label)
        axes.set_xlabel("step")
    panels[0].set_ylabel("places that a head looks at")
    figure.savefig(picture, metadata={"Date": None})
    pyplot.close(figure)


def main() -> None:
    """Train, print, and draw where a file is named."""
    watch, sink = train()
    print(watch.plan_report())
    found = places(sink)
    for name, curve in found.items():
        first, last = curve[min(curve)], curve[max(curve)]
        print(f"{name:<24}{first:6.2f} -> {last:6.2f} places{'  collapsed' if last < 1.5 else ''}")
    if len(sys.argv) > 1:
        draw(found, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
