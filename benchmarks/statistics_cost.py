"""What statistics of a set of gradients cost, in read passes over the same tensors.

A read pass is ``torch.sum`` over every tensor, measured in the same process, interleaved with the others, with the same
number of threads. Nothing here is a test; run it on a quiet machine:

    python benchmarks/statistics_cost.py --shapes distilgpt2
    python benchmarks/statistics_cost.py --shapes small --json cost.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics as descriptive
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata, util
from pathlib import Path
from typing import Any

import torch

from torchlens_conformance.protocol import DEFAULT_DESCRIPTOR, GridDescriptor
from torchlens_conformance.statistics import compiled_available, compute, compute_many

Case = tuple[str, Callable[[], object]]

FIRST_CALL = """
import time, torch
from torchlens_conformance.protocol import DEFAULT_DESCRIPTOR
from torchlens_conformance.statistics import compute
x = torch.ones(4, dtype=torch.{dtype})
start = time.perf_counter()
compute(x, descriptor=DEFAULT_DESCRIPTOR)
print(time.perf_counter() - start)
"""


def gpt2_shapes(*, layers: int, width: int, vocabulary: int, positions: int) -> list[tuple[int, ...]]:
    """Return the shapes of a GPT-2's parameters in the order of ``named_parameters()``."""
    norm = [(width,), (width,)]
    block = [
        *norm,
        (width, 3 * width),
        (3 * width,),
        (width, width),
        (width,),
        *norm,
        (width, 4 * width),
        (4 * width,),
        (4 * width, width),
        (width,),
    ]
    return [(vocabulary, width), (positions, width), *block * layers, *norm]


SHAPES = {
    "distilgpt2": gpt2_shapes(layers=6, width=768, vocabulary=50257, positions=1024),
    "small": gpt2_shapes(layers=6, width=64, vocabulary=512, positions=128),
}


def gradients(shapes: list[tuple[int, ...]], *, dtype: torch.dtype, seed: int) -> list[torch.Tensor]:
    """Return values like gradients: normal, with a scale of its own in every row and tensor, and rows of zeros."""
    generator = torch.Generator().manual_seed(seed)
    tensors = []
    for shape in shapes:
        rows = (shape[0], *(1 for _ in shape[1:]))
        scale = torch.exp(2 * torch.randn(rows, generator=generator) - 9 + 2 * torch.randn((), generator=generator))
        if len(shape) > 1:
            scale *= torch.rand(rows, generator=generator) > 0.1
        tensors.append((torch.randn(shape, generator=generator) * scale).to(dtype))
    return tensors


def cases(tensors: list[torch.Tensor], grid: GridDescriptor) -> list[Case]:
    """Return everything that is timed; the read pass is the first."""
    found: list[Case] = [("read pass (torch.sum)", lambda: [tensor.sum() for tensor in tensors])]
    if compiled_available():
        found += [
            ("compiled: scalars", lambda: compute_many(tensors, backend="compiled")),
            ("compiled: scalars and histograms", lambda: compute_many(tensors, descriptor=grid, backend="compiled")),
            ("compiled: the same, one call a tensor", lambda: [compute(tensor, descriptor=grid) for tensor in tensors]),
        ]
    found += [
        ("plain torch: scalars", lambda: compute_many(tensors, backend="torch")),
        ("plain torch: scalars and histograms", lambda: compute_many(tensors, descriptor=grid, backend="torch")),
        ("peer: torch.histc, 513 uniform bins", lambda: [histc(tensor, grid.bucket_count) for tensor in tensors]),
    ]
    if importable("tensorboard"):
        from torch.utils.tensorboard import summary

        histogram: Callable[..., object] = summary.histogram
        bins = tensorboard_bins()
        found.append(("peer: TensorBoard add_histogram", lambda: [histogram("tag", t.float(), bins) for t in tensors]))
    if importable("wandb"):
        import wandb

        found.append(("peer: wandb.Histogram", lambda: [wandb.Histogram(t.float().numpy()) for t in tensors]))
    return found


def histc(tensor: torch.Tensor, bins: int) -> torch.Tensor:
    """Count over a uniform grid between the extremes, as torch itself offers it."""
    values = tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()
    return torch.histc(values, bins=bins)


def tensorboard_bins() -> list[float]:
    """Return the default bins of ``SummaryWriter.add_histogram``: steps of 10 percent from 1e-12 to 1e20."""
    side = [1e-12]
    while side[-1] * 1.1 < 1e20:
        side.append(side[-1] * 1.1)
    return [*(-edge for edge in reversed(side)), 0.0, *side]


def importable(name: str) -> bool:
    """Return whether a package is installed."""
    return util.find_spec(name) is not None


def measure(found: list[Case], *, runs: int, budget: float) -> dict[str, list[float]]:
    """Return seconds of every run; cases take turns, and one that used up its budget sits out."""
    seconds: dict[str, list[float]] = {name: [] for name, _ in found}
    for _, work in found[:5]:
        work()  # Compile, allocate, start threads.
    for turn in range(runs):
        for name, work in found:
            if sum(seconds[name]) > budget:
                continue
            progress(f"{turn + 1}/{runs} {name}")
            start = time.perf_counter()
            work()
            seconds[name].append(time.perf_counter() - start)
    progress("")
    return seconds


def progress(text: str) -> None:
    """Show what is running, to people only."""
    if sys.stderr.isatty():
        print(f"\r{text:<60}", end="" if text else "\r", file=sys.stderr, flush=True)


def first_calls(dtype: str) -> dict[str, float]:
    """Return the seconds of the first call in a fresh process: nothing cached on disk, and everything cached."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("compiling", "from the disk cache"):
            environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
            command = [sys.executable, "-c", FIRST_CALL.format(dtype=dtype)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            found[name] = float(done.stdout)
    return found


def versions() -> dict[str, str]:
    """Return the versions that the figures depend on."""
    names = ("torch", "numpy", "numba", "tensorboard", "wandb")
    installed = {name: metadata.version(name) for name in names if importable(name)}
    return {"python": platform.python_version(), **installed}


def report(result: dict[str, Any]) -> str:
    """Return the figures as a table for people."""
    lines = [
        f"{result['shapes']}: {result['tensors']} tensors, {result['elements']:,} {result['dtype']} elements, "
        f"{result['threads']} threads, grid of {result['buckets']} buckets",
        "",
        f"{'':<45}{'seconds':>12}{'read passes':>14}{'us a tensor':>14}{'runs':>6}",
    ]
    for row in result["rows"]:
        lines.append(
            f"{row['name']:<45}{row['seconds']:>12.6f}{row['read_passes']:>14.2f}"
            f"{row['seconds'] / result['tensors'] * 1e6:>14.1f}{row['runs']:>6}"
        )
    for name, seconds in result["first_call_seconds"].items():
        lines.append(f"first call in a process, {name}: {seconds:.2f} s")
    return "\n".join(lines)


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--shapes", choices=sorted(SHAPES), default="distilgpt2", help="which set of tensors")
    parser.add_argument("--dtype", choices=["float32", "float64", "float16", "bfloat16"], default="float32")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads for torch and for us")
    parser.add_argument("--runs", type=int, default=15, help="at most so many runs of each, in turns; medians count")
    parser.add_argument("--budget", type=float, default=4.0, help="seconds after which a case is not run again")
    parser.add_argument("--seed", type=int, default=0, help="seed of the values")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures to this file as well")
    parser.add_argument("--first-call", action="store_true", help="time compilation in fresh processes, too")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    tensors = gradients(SHAPES[arguments.shapes], dtype=getattr(torch, arguments.dtype), seed=arguments.seed)
    found = cases(tensors, DEFAULT_DESCRIPTOR)
    seconds = measure(found, runs=arguments.runs, budget=arguments.budget)
    read_pass = descriptive.median(seconds[found[0][0]])
    rows = [
        {
            "name": name,
            "seconds": descriptive.median(values),
            "best_seconds": min(values),
            "read_passes": descriptive.median(values) / read_pass,
            "runs": len(values),
        }
        for name, values in seconds.items()
    ]
    result = {
        "shapes": arguments.shapes,
        "tensors": len(tensors),
        "elements": sum(tensor.numel() for tensor in tensors),
        "dtype": arguments.dtype,
        "threads": arguments.threads,
        "buckets": DEFAULT_DESCRIPTOR.bucket_count,
        "versions": versions(),
        "rows": rows,
        "first_call_seconds": first_calls(arguments.dtype) if arguments.first_call and compiled_available() else {},
    }
    print(report(result))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
