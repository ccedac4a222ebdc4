"""What watching outputs costs in the forward, tier by tier: observed forwards against plain ones, taking turns.

The model has distilgpt2's architecture with eager attention, weights from a seed, 4 times 64 tokens, gradients
on. Only the forward is timed, on a step that is sampled; the unit is the plain forward of the same run. Nothing here is
a test; run it on a quiet machine:

    OMP_WAIT_POLICY=passive python benchmarks/op_grain_cost.py --json op-grain.json
    python benchmarks/op_grain_cost.py --quick
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import metadata, util
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import torchlens_conformance.trackers as trk

Scope = Callable[[int], Any]
"""The scope of one sampled step."""


class Dropped(trk.MemorySink):  # type: ignore[misc]
    """Takes points and keeps none."""

    def _keep(self, point: Any, kept: list[Any]) -> None:
        del point, kept


def model_and_batch(*, quick: bool) -> tuple[GPT2LMHeadModel, dict[str, torch.Tensor]]:
    """Return distilgpt2's architecture, or a narrow one, and a batch."""
    torch.manual_seed(0)
    config = GPT2Config(n_layer=6, n_head=12, n_embd=96 if quick else 768, attn_implementation="eager", use_cache=False)
    ids = torch.randint(0, config.vocab_size, (4, 64))
    return GPT2LMHeadModel(config).train(), {"input_ids": ids}


def ours(stack: ExitStack, model: Any, inputs: Any, **options: Any) -> Scope:
    """Attach our watch; return its scopes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", trk.WatchOpGrainCostWarning)
        watch = trk.watch(model, Dropped(), signals=("activations",), inputs=inputs, every=2, **options)
    stack.callback(watch.close)
    return watch.step


def torchlens_trace(stack: ExitStack, model: Any, inputs: Any) -> Scope:
    """Return scopes in which torchlens traces the whole forward; in them the model's forward is that trace."""
    import torchlens

    def traced(**given: Any) -> None:
        torchlens.trace(model, [], input_kwargs=given)

    @contextmanager
    def step(n: int) -> Iterator[None]:
        if n % 2 == 0:
            model.timed_forward = traced
        try:
            yield
        finally:
            model.__dict__.pop("timed_forward", None)

    del stack, inputs
    return step


def cases() -> Iterator[tuple[str, Callable[[ExitStack, Any, Any], Scope]]]:
    """Yield every watcher by name."""
    softmax = trk.func("softmax")
    op: dict[str, Any] = {"grain": "op", "allow_forward_wrap": True}
    attention = tuple(f"transformer.h.{layer}.attn" for layer in range(6))
    heads = {"facets": {softmax: trk.split_heads(12, dim=1)}}
    for name, options in (
        ("tier M, outputs of the 6 attentions", {"select": attention}),
        ("tier O, 6 softmax", {**op, "select": softmax}),
        ("tier O, 6 softmax, histograms", {**op, "select": softmax, "hist_every": 2}),
        ("tier O, 6 softmax in 12 heads", {**op, "select": softmax, **heads}),
        ("tier O, 6 softmax in 12 heads, histograms", {**op, "select": softmax, **heads, "hist_every": 2}),
        ("tier O, every operation of the 6 blocks", {**op, "select": "transformer.h"}),
    ):
        yield name, lambda stack, model, inputs, options=options: ours(stack, model, inputs, **options)
    if util.find_spec("torchlens"):
        yield f"torchlens {metadata.version('torchlens')}, trace of the whole forward", torchlens_trace


@contextmanager
def timed(times: list[float]) -> Iterator[None]:
    """Append the seconds of the block."""
    start = time.perf_counter()
    yield
    times.append(time.perf_counter() - start)


def measure(*, runs: int, quick: bool) -> dict[str, Any]:
    """Return the ratios of every case: in each turn one plain and one observed forward of each."""
    rows = []
    for name, attach in cases():
        plain: list[float] = []
        observed: list[float] = []
        unsampled: list[float] = []
        try:
            with ExitStack() as stack:
                model, inputs = model_and_batch(quick=quick)
                step = attach(stack, model, inputs)
                for turn in range(runs + 1):  # The first turn compiles and allocates, and does not count.
                    with step(2 * turn), timed(observed):
                        getattr(model, "timed_forward", model)(**inputs)
                    with step(2 * turn + 1), timed(unsampled):
                        model(**inputs)
                    with timed(plain):
                        model(**inputs)
        except Exception as error:  # A peer that cannot do this is a row, not the end of the run.
            rows.append({"name": name, "missing": f"{type(error).__name__}: {error}"})
            continue
        ratios = [after / before for before, after in zip(plain[1:], observed[1:])]
        rows.append(
            {
                "name": name,
                "ratio": statistics.median(ratios),
                "lowest": min(ratios),
                "highest": max(ratios),
                "plain_seconds": statistics.median(plain[1:]),
                "not_sampled": statistics.median(a / b for b, a in zip(plain[1:], unsampled[1:])),
            }
        )
    return {"rows": rows, "runs": runs, "threads": torch.get_num_threads(), "quick": quick}


def table(result: dict[str, Any]) -> str:
    """Return the result as a Markdown table."""
    lines = [
        "| | sampled forward, in plain ones | lowest to highest | forward of a step that is not sampled |",
        "|---|---|---|---|",
    ]
    for row in result["rows"]:
        if "missing" in row:
            lines.append(f"| {row['name']} | not measured: {row['missing']} | | |")
        else:
            span = f"{row['lowest']:.2f} to {row['highest']:.2f}"
            lines.append(f"| {row['name']} | {row['ratio']:.2f} | {span} | {row['not_sampled']:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=15, help="turns that count")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads for torch and for us")
    parser.add_argument("--quick", action="store_true", help="a narrow model and few turns: shows that it works")
    parser.add_argument("--json", type=Path, help="write everything that was measured to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    load = os.getloadavg()[0]
    result = measure(runs=3 if arguments.quick else arguments.runs, quick=arguments.quick)
    result |= {"load_before": load, "load_after": os.getloadavg()[0], "python": platform.python_version()}
    result["versions"] = {name: metadata.version(name) for name in ("torch", "transformers")}
    print(table(result))
    print(f"\nload average {result['load_before']:.1f} before, {result['load_after']:.1f} after")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
