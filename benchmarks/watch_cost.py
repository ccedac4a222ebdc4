"""What a watcher costs in training, side by side: extra time over the bare optimizer step, in read passes.

A read pass is ``torch.sum`` over every parameter tensor, measured in the same run and taking turns with the rest. Every
watcher looks at every gradient on every step. Two clocks run: wall time, and processor time of all our threads, which
other work on the machine lengthens far less. Threads that wait should sleep, or their waiting counts as work. Nothing
here is a test; run it on a quiet machine:

    OMP_WAIT_POLICY=passive python benchmarks/watch_cost.py --json cost.json --picture cost.svg
    python benchmarks/watch_cost.py --quick
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics as descriptive
import sys
import tempfile
import time
from contextlib import ExitStack
from importlib import metadata, util
from pathlib import Path
from typing import Any

import torch

import torchlens_conformance.trackers as trk
from torchlens_conformance.statistics import compiled_available, compute

sys.path.insert(0, str(Path(__file__).parent))
from statistics_cost import SHAPES
from watch_cases import (
    BARE,
    BARE_BACKWARD,
    BASELINES,
    READ,
    Cases,
    Clock,
    Parameters,
    PointsOnly,
    Step,
    build,
    gradient_of,
)


def measure_all(steps: dict[str, Step], cases: Cases, *, runs: int, budget: float) -> dict[str, list[Clock]]:
    """Return the clocks of every run; cases take turns, and one that used up its budget or failed sits out."""
    clocks: dict[str, list[Clock]] = {name: [] for name in steps}
    for turn in range(-1, runs):  # The first turn compiles and allocates, and does not count.
        for name, step in steps.items():
            if name in cases.missing or sum(clock.wall for clock in clocks[name]) > budget:
                continue
            clock = Clock()
            try:
                step(turn + 1, clock)
            except Exception as error:  # A peer that cannot do this is a row, not the end of the run.
                cases.missing[name] = f"raised {type(error).__name__}: {error}"
                continue
            if turn >= 0:
                clocks[name].append(clock)
    return {name: found for name, found in clocks.items() if found and name not in cases.missing}


def same_counts(model: Parameters) -> bool | None:
    """Return whether compiled and plain counts, minima and maxima agree in every bit; None without the kernel."""
    if not compiled_available():
        return None
    for parameter in model.parameters():
        one, other = (
            compute(gradient_of(parameter), descriptor=trk.DEFAULT_DESCRIPTOR, backend=backend)
            for backend in ("compiled", "torch")
        )
        fields = ("counts", "finite", "zeros", "nan", "posinf", "neginf", "overflow", "minimum", "maximum")
        if any(getattr(one, field) != getattr(other, field) for field in fields):
            return False
    return True


def rows_of(clocks: dict[str, list[Clock]]) -> list[dict[str, Any]]:
    """Return one row a case, with what it adds to the bare step in read passes, by either clock."""
    rows = []
    for name, found in clocks.items():
        row: dict[str, Any] = {"name": name, "runs": len(found)}
        bare = BASELINES.get(name, BARE)
        for kind in ("wall", "processor"):
            medians = {each: descriptive.median(getattr(clock, kind) for clock in clocks[each]) for each in clocks}
            row[f"{kind}_seconds"] = medians[name]
            if name not in (READ, BARE, BARE_BACKWARD):
                row[f"{kind}_extra_seconds"] = medians[name] - medians[bare]
                row[f"{kind}_extra_read_passes"] = (medians[name] - medians[bare]) / medians[READ]
        rows.append(row)
    return rows


def unsampled_microseconds(cases: Cases, *, runs: int) -> float:
    """Return what an unsampled scope adds: the scope and the hooks around an optimizer step that does nothing."""

    class Nothing(torch.optim.Optimizer):
        def step(self, closure: object = None) -> None:  # type: ignore[override]
            """Do nothing."""

    optimizer = Nothing(cases.model.parameters(), {})
    watch = trk.watch(cases.model, PointsOnly(), optimizer=optimizer, every=1_000_003, allow_missing_phases=True)
    watched, bare = [], []
    with watch:
        for step in range(runs + 1):
            begin = time.perf_counter()
            with watch.step(step):
                optimizer.step()
            watched.append(time.perf_counter() - begin)
    for _ in range(runs):
        begin = time.perf_counter()
        optimizer.step()
        bare.append(time.perf_counter() - begin)
    return (descriptive.median(watched[1:]) - descriptive.median(bare)) * 1e6


def report(result: dict[str, Any]) -> str:
    """Return the figures as a table for people."""
    lines = [
        f"{result['shapes']}: {result['tensors']} tensors, {result['elements']:,} float32 elements, "
        f"{result['threads']} threads, gradients on every step",
        f"load average {result['load_before']:.1f} before, {result['load_after']:.1f} after; medians",
        "",
        f"{'':<46}{'wall ms':>10}{'extra, in read passes: wall':>29}{'processor':>11}{'runs':>6}",
    ]
    for row in result["rows"]:
        extra = f"{'':>29}{'':>11}"
        if "wall_extra_seconds" in row:
            extra = f"{row['wall_extra_read_passes']:>29.2f}{row['processor_extra_read_passes']:>11.2f}"
        lines.append(f"{row['name']:<46}{row['wall_seconds'] * 1e3:>10.3f}{extra}{row['runs']:>6}")
    lines += ["", f"an unsampled step: {result['unsampled_microseconds']:.1f} microseconds of ours"]
    same = result["same_counts"]
    lines.append(
        f"counts of the compiled kernel and of plain torch, bit for bit: {same if same is not None else 'n/a'}"
    )
    lines += [f"not measured: {name}: {why}" for name, why in result["missing"].items()]
    return "\n".join(lines)


def draw(result: dict[str, Any], path: Path, *, clock: str = "processor") -> None:
    """Draw the extra read passes of one clock as bars."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "watch-cost", "svg.fonttype": "none"})
    from matplotlib import pyplot

    # What an unsampled step adds is too little to be seen beside an optimizer step; it is told in microseconds.
    rows = [row for row in result["rows"] if "wall_extra_seconds" in row and row["name"] != "ours, not sampled"][::-1]
    figure, axes = pyplot.subplots(figsize=(8, 0.45 * len(rows) + 1.2), layout="constrained")
    extra = [max(row[f"{clock}_extra_read_passes"], 0.01) for row in rows]
    colours = ["#4477aa" if row["name"].startswith("ours") else "#bbbbbb" for row in rows]
    bars = axes.barh([row["name"] for row in rows], extra, color=colours)
    axes.bar_label(bars, [f"{row[f'{clock}_extra_read_passes']:.1f}" for row in rows], padding=3)
    axes.set_xscale("log")
    axes.set_xlabel(f"extra {clock} time, in read passes over the same tensors")
    axes.set_title(f"{result['shapes']}: {result['tensors']} tensors, {result['elements'] / 1e6:.1f} M elements")
    axes.margins(x=0.15)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--shapes", choices=sorted(SHAPES), default="distilgpt2", help="which set of tensors")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads for torch and for us")
    parser.add_argument("--runs", type=int, default=15, help="at most so many runs of each, in turns; medians count")
    parser.add_argument("--budget", type=float, default=10.0, help="seconds after which a case is not run again")
    parser.add_argument("--seed", type=int, default=0, help="seed of the values")
    parser.add_argument("--quick", action="store_true", help="small shapes and few runs: shows that it works")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures to this file as well")
    parser.add_argument("--picture", type=Path, metavar="PATH", help="draw them as an SVG")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.shapes, arguments.runs, arguments.budget = "small", 3, 1.0
    os.environ.setdefault("WANDB_SILENT", "true")
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        model = Parameters(SHAPES[arguments.shapes], seed=arguments.seed)
        cases = Cases(model, Path(folder), stack)
        same = same_counts(model)
        load_before = os.getloadavg()[0]
        rows = rows_of(measure_all(build(cases), cases, runs=arguments.runs, budget=arguments.budget))
        names = ("torch", "numpy", "numba", "tensorboard", "wandb", "torchlens")
        installed = {name: metadata.version(name) for name in names if util.find_spec(name) is not None}
        tensors = list(model.parameters())
        result = {
            "shapes": arguments.shapes,
            "tensors": len(tensors),
            "elements": sum(tensor.numel() for tensor in tensors),
            "threads": arguments.threads,
            "versions": {"python": platform.python_version(), **installed},
            "same_counts": same,
            "load_before": load_before,
            "load_after": os.getloadavg()[0],
            "unsampled_microseconds": unsampled_microseconds(cases, runs=200 if arguments.quick else 2000),
            "rows": rows,
            "missing": cases.missing,
        }
    print(report(result))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if arguments.picture is not None:
        draw(result, arguments.picture)
    if same is False:
        sys.exit("The compiled kernel and plain torch disagree.")


if __name__ == "__main__":
    main()
