"""What was found out about cells, in words: why one differs from the published table, or what its word does not say.

A sentence is tied to a route, a row and a measured word, so that it disappears when the measurement changes.
"""

from __future__ import annotations

from collections.abc import Mapping

_DIFFERENCES: Mapping[tuple[str, str, str], str] = {
    ("wandb", "scalars", "exact"): (
        "wandb keeps the JSON text of the float64 that was logged, so every bit survives; the published word is the "
        "weaker one."
    ),
    ("wandb-relay", "histogram-counts", "exact"): (
        "The relay passes up to 512 buckets through as they are, uniform or not. What it re-bins is what has more than "
        "512. Our sink puts the left edge on the wire, so not even an empty outer bucket is lost."
    ),
    ("wandb-relay", "histogram-edges", "exact"): (
        "Edges of up to 512 buckets arrive bit for bit, as text of float64; see the counts."
    ),
}

_REMARKS: Mapping[tuple[str, str, str], str] = {
    ("tensorboard", "precision", "rewritten"): "One float32 a scalar: 1e300 becomes infinity and 5e-324 becomes 0.",
    ("wandb", "delivered", "refused"): (
        "Everything under the cap of 512 buckets arrived; what is over it raised in wandb.Histogram's constructor."
    ),
    ("wandb", "summary", "dropped silently"): "wandb's histogram has edges and counts, and no place for a summary.",
    ("wandb-relay", "scalar-steps", "rewritten"): (
        "Each new step of the event file becomes the next row. The caller's step travels beside it as a value of the "
        "series global_step, which no chart uses by itself."
    ),
    ("wandb-relay", "graph", "not captured"): (
        "The event file itself is kept among the run's files and is synchronised with it, so wandb's TensorBoard tab "
        "can show the graph; no chart of the run does."
    ),
    ("wandb-relay", "text", "dropped silently"): (
        "Texts stand in the event file among the run's files, and in no row of the history."
    ),
    ("wandb-relay", "writer-first", "not captured"): (
        "A writer that was constructed before the relay is never followed; nothing says so."
    ),
    ("clearml-relay", "histogram-counts", "interpolated"): (
        "The relay samples 48 heights at even distances and draws them as a surface. All steps of a series share the "
        "range of the widest one, so that a gradient which shrinks tenfold after the first step is hit by two samples. "
        "The published share of about 75% of the mass belongs to one histogram of about 64 well-filled uniform "
        "buckets; with more buckets less is kept, with fewer mass is made up, and of a signed-log2 grid the samples "
        "miss nearly everything, so that an empty surface is shown."
    ),
    ("clearml-relay", "histogram-steps", "rewritten"): (
        "Every surface lies at iteration 0; the caller's steps stand on its axis as text, in long runs every fourth."
    ),
    ("clearml-relay", "histogram-edges", "rounded"): (
        "Positions are not stored. A quarter of the 48 columns carries a label with two decimals, which for gradients "
        "is 0.00 or -0.00."
    ),
    ("wandb", "resume", "preserved"): (
        "Offline, wandb ignores resume: every process writes a file of its own under the same id, and all of them are "
        "read here. What a server makes of two files with one id is not measured."
    ),
    ("wandb-relay", "resume", "rewritten"): (
        "The rows of the second process count from 0 again in a file of their own under the same id, so that they lie "
        "on rows that were there. The caller's steps stand beside them as global_step."
    ),
    ("clearml", "resume", "refused"): (
        "ClearML adds an offset to every iteration of a continued task: the last iteration that it knows of, plus one. "
        "A server keeps that number and an offline session does not, so the offset is 1 here; 101 is what a server "
        "would add to this run. The sink refuses such a task. With continue_last_task=0 nothing is lost."
    ),
    ("clearml-relay", "resume", "preserved"): (
        "The relay takes the offset off the steps of scalars again. The surface of a histogram, which lies at "
        "iteration 0 in the first run, is moved by it."
    ),
    ("comet", "resume", "preserved"): (
        "Offline, the continued experiment is a second archive under the same key; both are read here."
    ),
    ("clearml", "nonfinite", "refused"): (
        "ClearML itself stores 0.0 for NaN and both infinities; the sink refuses them."
    ),
    ("mlflow", "nonfinite", "refused"): (
        "MLflow stores the largest float in place of an infinity; the sink refuses it. NaN is kept."
    ),
    ("mlflow", "precision", "refused"): "MLflow's sqlite store makes 0.0 of -0.0; the sink refuses it.",
    ("mlflow", "tags", "refused"): "MLflow refuses these names itself.",
    ("comet", "tags", "refused"): "Comet itself cuts names at 100 characters; the sink refuses longer ones.",
    ("clearml-relay", "nonfinite", "rewritten"): (
        "NaN and both infinities become 0.0. The line that says so is below the default level of ClearML's logger."
    ),
    ("clearml-relay", "tags", "rewritten"): (
        "A tag is cut at its last slash into a metric and a variant, and the other slashes become underscores, so that "
        "a/b/c and a_b/c are one series afterwards."
    ),
    ("clearml-relay", "writer-first", "preserved"): (
        "ClearML patches the writer's class, so a writer that exists already is captured as well."
    ),
}


def finding(route: str, row: str, verdict: str) -> str:
    """Return why a cell differs from the published one, or a sentence that this is not explained."""
    return _DIFFERENCES.get((route, row, verdict), "Not explained yet.")


def remark(route: str, row: str, verdict: str) -> str | None:
    """Return what a cell's word does not say, or None."""
    return _REMARKS.get((route, row, verdict))
