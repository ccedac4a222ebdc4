"""What a step lacks: optimizers that did not step, forwards and backwards that did not come (STEP-7, STEP-11)."""

from __future__ import annotations

from .block import Block, OptimizerBoundary
from .owners import Owners
from .skips import Skips
from .watched import Watched


def missing_phases(
    watched: Watched,
    block: Block,
    owners: Owners,
    skips: Skips,
    *,
    accepted: list[OptimizerBoundary],
    left_out: list[OptimizerBoundary],
) -> list[str]:
    """Name what is only partly missing as skips, and return the phases that are missing as a whole.

    Args:
        watched: What is watched.
        block: The block that ends.
        owners: The optimizers of the session.
        skips: Takes the skips of whole optimizers.
        accepted: Boundaries whose update was accepted.
        left_out: Boundaries whose update a fused optimizer left out.

    Clause: STEP-7, STEP-11, AMP-8.
    """
    missing = []
    if watched.boundary_signals:
        if accepted or left_out:
            _name_absent(block, owners, skips, {id(boundary.optimizer) for boundary in (*accepted, *left_out)})
        else:
            skipped = block.view.left_out(owners.all())
            if skipped is not False:
                skips.add("amp_skipped" if skipped else "amp_skip_undetermined", block.due.step)
            elif not block.boundaries:
                missing.append("optimizer boundary")
        if not accepted:
            return missing
    if watched.module_signals and block.due.scalars:
        missing += _missing_outputs(watched, block)
    return missing


def _name_absent(block: Block, owners: Owners, skips: Skips, came: set[int]) -> None:
    absent = [each for each in owners.all() if id(each) not in came and id(each) not in block.boundaries]
    labels = owners.labels() if absent else {}
    for optimizer in absent:
        skipped = block.view.left_out([optimizer])
        skips.add("amp_skipped" if skipped else "optimizer_not_stepped", block.due.step, labels[id(optimizer)])


def _missing_outputs(watched: Watched, block: Block) -> list[str]:
    record = block.forward
    if record is None or not record.seen:
        return ["forward"]
    if record.blind:
        return []
    for site in watched.modules:
        if site.leaf not in record.seen and site.leaf in watched.outputs:
            block.report("activation_missing", "", site.leaf)
    for operation in watched.operations:
        if operation.label not in record.seen:
            block.report("operation_missing", "", operation.label)
    if "activation_grads" not in watched.signals:
        return []
    leaves = [leaf for module in sorted(record.seen) for leaf in watched.leaves_of(module)]
    without = [leaf for leaf in leaves if ("activation_grads", leaf) not in record.calls]
    if len(without) == len(leaves):
        return ["backward"]
    for leaf in without:
        block.report("activation_gradient_missing", "", leaf)
    return []
