"""Seeing whether another tracker relays what a TensorBoard writer writes (TB-1, ATTACH-4).

Nothing is imported to find out: a relay that is on has its modules loaded already.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Relay:
    """A relay that was found.

    Args:
        name: ``wandb``, ``clearml``, or the module that rebound the writer.
        evidence: What was seen.
        native_sink: The sink that carries the same numbers without the relay.
        finding: What the relay does to histograms.
    """

    name: str
    evidence: str
    native_sink: str
    finding: str


_WANDB_FINDING = (
    "with wandb 0.30.0 the relay replaces the step by a row counter, drops min, max, num, sum and sum_squares, re-bins "
    "what has more than 512 buckets into 512 equal ones with fractional counts, and without a leading edge bucket "
    "loses an empty outermost bucket"
)
_CLEARML_FINDING = (
    "with clearml 2.1.12 the relay samples 48 heights at even distances and puts them at iteration 0: of distilgpt2's "
    "gradients 64 uniform buckets keep a third of the mass in the median, 600 keep 3%, the signed-log2 grids nothing"
)


def detect_relays(file_writer: object | None) -> tuple[Relay, ...]:
    """Return the relays that listen in this process.

    Args:
        file_writer: The FileWriter below a SummaryWriter, or None when there is none at the moment.

    Clause: TB-1.
    """
    found = (_wandb_relay(file_writer), _rebound_writer(file_writer))
    return tuple(relay for relay in found if relay is not None)


def wandb_relay_is_on() -> bool:
    """Whether wandb has patched TensorBoard's writers in this process."""
    patched = getattr(sys.modules.get("wandb"), "patched", None)
    return bool(patched.get("tensorboard")) if isinstance(patched, dict) else False


def _wandb_relay(file_writer: object | None) -> Relay | None:
    if not wandb_relay_is_on():
        return None
    evidence = 'wandb.patched["tensorboard"] is not empty'
    event_writer = getattr(file_writer, "event_writer", None)
    if event_writer is not None and not _comes_from(type(event_writer), "wandb"):
        evidence += "; this writer was opened before that, so the relay may see nothing of it"
    return Relay("wandb", evidence, "WandbSink(run)", _WANDB_FINDING)


def _rebound_writer(file_writer: object | None) -> Relay | None:
    add_event = getattr(file_writer, "add_event", None)
    if add_event is None:
        # No writer is open, so its class is looked at instead, if it was ever imported.
        module = sys.modules.get("torch.utils.tensorboard.writer")
        add_event = getattr(getattr(module, "FileWriter", None), "add_event", None)
    home = getattr(add_event, "__module__", None)
    if home is None or home.split(".")[0] in ("torch", "tensorboardX"):
        return None
    evidence = f"the writer's add_event was rebound by {home}"
    if home.split(".")[0] != "clearml":
        return Relay(home, evidence, "the native sink of that tracker", "nothing is known about this relay")
    if not _clearml_task_is_live():
        return None
    return Relay("clearml", f"{evidence}, and a task is live", "ClearMLSink(task)", _CLEARML_FINDING)


def _clearml_task_is_live() -> bool:
    binding = sys.modules.get("clearml.binding.frameworks.tensorflow_bind")
    patch: Any = getattr(binding, "PatchSummaryToEventTransformer", None)
    # Unknown internals count as live: a relay that is suspected is named.
    return patch is None or getattr(patch, "_current_task", True) is not None


def _comes_from(kind: type, package: str) -> bool:
    return any(base.__module__.split(".")[0] == package for base in kind.__mro__)
