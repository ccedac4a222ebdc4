"""What a watcher costs in training, side by side: extra time over the bare optimizer step, in read passes.

A read pass is ``torch.sum`` over every parameter tensor, measured in the same run and taking turns with the rest. Every
watcher looks at every gradient on every step. Nothing here is a test; run it on a quiet machine:

    python benchmarks/watch_cost.py --json cost.json --picture cost.svg
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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module, metadata, util
from pathlib import Path
from typing import Any

import torch
from torch import nn

import torchlens_conformance.trackers as trk
from torchlens_conformance.statistics import compiled_available, compute, compute_many

sys.path.insert(0, str(Path(__file__).parent))
from statistics_cost import SHAPES, gradients

BARE, READ = "bare optimizer step (SGD)", "read pass (torch.sum)"
Step = Callable[[int], None]


class Parameters(nn.Module):
    """Parameters of given shapes, whose gradients are the same on every step."""

    def __init__(self, shapes: list[tuple[int, ...]], *, seed: int) -> None:
        super().__init__()
        values = gradients(shapes, dtype=torch.float32, seed=seed)
        self.parameters_of = nn.ParameterList(nn.Parameter(torch.zeros_like(value)) for value in values)
        for parameter, value in zip(self.parameters_of, values):
            parameter.grad = value

    def forward(self) -> torch.Tensor:
        """Return the first element of every parameter, summed: a forward that costs nothing."""
        return torch.stack([parameter.view(-1)[0] for parameter in self.parameters_of]).sum()


def gradient_of(parameter: torch.Tensor) -> torch.Tensor:
    """Return the gradient, which is there in every case that is timed."""
    assert parameter.grad is not None
    return parameter.grad


class PointsOnly:
    """Takes points and keeps none, so that no store is timed."""

    def capabilities(self) -> frozenset[str]:
        """Return what a watch emits."""
        return frozenset({"scalar", "raw_histogram", "text_manifest"})

    def emit_scalar(self, point: Any) -> None:
        """Drop it."""

    def emit_histogram(self, point: Any) -> None:
        """Drop it."""

    def emit_text(self, point: Any) -> None:
        """Drop it."""

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


@contextmanager
def plain_torch() -> Iterator[None]:
    """Let the engine compute with plain torch, as where numba is missing."""
    measure: Any = import_module("torchlens_conformance.watch.measure")
    kept = measure.compute_many
    measure.compute_many = partial(compute_many, backend="torch")
    try:
        yield
    finally:
        measure.compute_many = kept


class Cases:
    """Everything that is timed, by name; each entry runs one step.

    Args:
        model: The model.
        folder: Where stores are written.
        stack: Takes what has to be undone at the end.
    """

    def __init__(self, model: Parameters, folder: Path, stack: ExitStack) -> None:
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        self._folder = folder
        self._stack = stack
        self.missing: dict[str, str] = {}

    def bare(self, step: int) -> None:
        """Step without a watcher."""
        del step
        self.optimizer.step()

    def read(self, step: int) -> None:
        """Read every tensor once."""
        del step
        for parameter in self.model.parameters():
            gradient_of(parameter).sum()

    def ours(self, *, histograms: bool, every: int = 1, plain: bool = False) -> Step:
        """Attach our watch for one step at a time, so that cases do not meet; attach and close are not timed."""
        model, optimizer = self.model, self.optimizer

        def one(step: int) -> float:
            watch = trk.watch(
                model, PointsOnly(), optimizer=optimizer, every=every, hist_every=1 if histograms else None
            )
            try:
                if every > 1:  # The first step is always sampled; what is timed is a later one.
                    with watch.step(0):
                        optimizer.step()
                with plain_torch() if plain else ExitStack():
                    begin = time.perf_counter()
                    with watch.step(step + 1):
                        optimizer.step()
                    return time.perf_counter() - begin
            finally:
                watch.close()

        return one  # type: ignore[return-value]

    def tensorboard(self) -> Step:
        """Return the usual loop over ``add_histogram``."""
        from torch.utils.tensorboard import SummaryWriter

        writer = self._stack.enter_context(SummaryWriter(str(self._folder / "tensorboard")))

        def one(step: int) -> None:
            self.optimizer.step()
            for index, parameter in enumerate(self.model.parameters()):
                writer.add_histogram(f"gradients/{index}", parameter.grad, step)

        return one

    def wandb(self) -> Step:
        """Return a step under ``wandb.watch``: its gradient hooks are fired as a backward would fire them."""
        import wandb

        settings = wandb.Settings(silent=True, console="off")
        run = wandb.init(mode="offline", dir=self._folder, project="cost", settings=settings)
        self._stack.callback(run.finish)
        gradients_now = [gradient_of(parameter) for parameter in self.model.parameters()]

        def one(step: int) -> float:
            run.watch(self.model, log="gradients", log_freq=1)
            try:
                for parameter in self.model.parameters():
                    parameter.grad = None
                parts = [(p * g).sum() if p.dim() else p * g for p, g in zip(self.model.parameters(), gradients_now)]
                loss = torch.stack(parts).sum()
                begin = time.perf_counter()
                loss.backward()  # type: ignore[no-untyped-call]
                self.optimizer.step()
                run.log({"step": step})
                return time.perf_counter() - begin
            finally:
                run.unwatch(self.model)
                for parameter, gradient in zip(self.model.parameters(), gradients_now):
                    parameter.grad = gradient

        return one  # type: ignore[return-value]

    def bare_backward(self) -> Step:
        """Return the step that ``wandb.watch`` has to be compared with: the same backward without it."""
        gradients_now = [gradient_of(parameter) for parameter in self.model.parameters()]

        def one(step: int) -> float:
            del step
            for parameter in self.model.parameters():
                parameter.grad = None
            parts = [(p * g).sum() if p.dim() else p * g for p, g in zip(self.model.parameters(), gradients_now)]
            loss = torch.stack(parts).sum()
            begin = time.perf_counter()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            spent = time.perf_counter() - begin
            for parameter, gradient in zip(self.model.parameters(), gradients_now):
                parameter.grad = gradient
            return spent

        return one  # type: ignore[return-value]

    def torchlens(self, *, histograms: bool) -> Step:
        """Return a step under torchlens's own watch, by its public interface."""
        theirs: Any = import_module("torchlens.trackers")

        def one(step: int) -> float:
            options = {"hist_every": 1} if histograms else {}
            sink = theirs.MemorySink() if hasattr(theirs, "MemorySink") else PointsOnly()
            watch = theirs.watch(
                self.model, to=sink, signals=("gradients",), optimizer=self.optimizer, every=1, **options
            )
            try:
                begin = time.perf_counter()
                with watch.step(step + 1):
                    self.optimizer.step()
                return time.perf_counter() - begin
            finally:
                watch.close()

        return one  # type: ignore[return-value]


BASELINES = {"wandb.watch, offline": "the same with a backward"}
"""Cases that are compared with another bare step than the usual one."""


def build(cases: Cases) -> dict[str, Step]:
    """Return the steps by name; what is not installed is named in ``cases.missing``."""
    found: dict[str, Step] = {READ: cases.read, BARE: cases.bare, "the same with a backward": cases.bare_backward()}
    found["ours, not sampled"] = cases.ours(histograms=False, every=1_000_003)
    if compiled_available():
        found["ours, compiled: scalars"] = cases.ours(histograms=False)
        found["ours, compiled: scalars and histograms"] = cases.ours(histograms=True)
    else:
        cases.missing["compiled kernel"] = "numba is not installed"
    found["ours, plain torch: scalars"] = cases.ours(histograms=False, plain=True)
    found["ours, plain torch: scalars and histograms"] = cases.ours(histograms=True, plain=True)
    optional: list[tuple[str, str, Callable[[], Step]]] = [
        ("torchlens", "torchlens: scalars", lambda: cases.torchlens(histograms=False)),
        ("torchlens", "torchlens: scalars and histograms", lambda: cases.torchlens(histograms=True)),
        ("tensorboard", "TensorBoard add_histogram", cases.tensorboard),
        ("wandb", "wandb.watch, offline", cases.wandb),
    ]
    for package, name, make in optional:
        if util.find_spec(package) is None:
            cases.missing[name] = f"{package} is not installed"
        else:
            found[name] = make()
    return found


def measure_all(steps: dict[str, Step], cases: Cases, *, runs: int, budget: float) -> dict[str, list[float]]:
    """Return seconds of every run; cases take turns, and one that used up its budget or failed sits out."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(-1, runs):  # The first turn compiles and allocates, and does not count.
        for name, step in steps.items():
            if name in cases.missing or sum(seconds[name]) > budget:
                continue
            begin = time.perf_counter()
            try:
                told = step(turn + 1)
            except Exception as error:  # A peer that cannot do this is a row, not the end of the run.
                cases.missing[name] = f"raised {type(error).__name__}: {error}"
                continue
            if turn >= 0:
                seconds[name].append(told if isinstance(told, float) else time.perf_counter() - begin)
    return {name: values for name, values in seconds.items() if values and name not in cases.missing}


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


def rows_of(seconds: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Return one row a case, with what it adds to the bare step in read passes."""
    medians = {name: descriptive.median(values) for name, values in seconds.items()}
    rows = []
    for name, median in medians.items():
        row: dict[str, Any] = {"name": name, "seconds": median, "runs": len(seconds[name])}
        if name not in (READ, BARE, *BASELINES.values()):
            row["extra_seconds"] = median - medians[BASELINES.get(name, BARE)]
            row["extra_read_passes"] = row["extra_seconds"] / medians[READ]
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
        "",
        f"{'':<46}{'ms':>10}{'extra ms':>11}{'extra read passes':>19}{'runs':>6}",
    ]
    for row in result["rows"]:
        extra = f"{'':>11}{'':>19}"
        if "extra_seconds" in row:
            extra = f"{row['extra_seconds'] * 1e3:>11.3f}{row['extra_read_passes']:>19.2f}"
        lines.append(f"{row['name']:<46}{row['seconds'] * 1e3:>10.3f}{extra}{row['runs']:>6}")
    lines += ["", f"an unsampled step: {result['unsampled_microseconds']:.1f} microseconds of ours"]
    same = result["same_counts"]
    lines.append(
        f"counts of the compiled kernel and of plain torch, bit for bit: {same if same is not None else 'n/a'}"
    )
    lines += [f"not measured: {name}: {why}" for name, why in result["missing"].items()]
    return "\n".join(lines)


def draw(result: dict[str, Any], path: Path) -> None:
    """Draw the extra read passes as bars."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "watch-cost", "svg.fonttype": "none"})
    from matplotlib import pyplot

    rows = [row for row in result["rows"] if "extra_seconds" in row][::-1]
    figure, axes = pyplot.subplots(figsize=(8, 0.45 * len(rows) + 1.2), layout="constrained")
    extra = [max(row["extra_read_passes"], 0.01) for row in rows]
    colours = ["#4477aa" if row["name"].startswith("ours") else "#bbbbbb" for row in rows]
    bars = axes.barh([row["name"] for row in rows], extra, color=colours)
    axes.bar_label(bars, [f"{row['extra_read_passes']:.1f}" for row in rows], padding=3)
    axes.set_xscale("log")
    axes.set_xlabel("extra over the bare optimizer step, in read passes over the same tensors")
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
