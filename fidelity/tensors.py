"""Where the tensors come from: distilgpt2's gradients, with an honest line about the source (FID-4)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchlens_conformance.protocol import Refusal

if TYPE_CHECKING:
    from torch import Tensor

STEPS = (100, 102, 104)
"""The caller's steps (FID-5)."""

PARAMETER_TENSORS = 76
"""Parameter tensors of distilgpt2, its tied output weight counted once (FID-4)."""

PARAMETERS = 81_912_576
"""Elements of these tensors (FID-4)."""

DEFAULT_SEED = 20261129
"""Seed of the default source."""

_BATCH, _LENGTH, _LEARNING_RATE = 2, 128, 0.05
_TEXT = Path(__file__).parent / "data" / "text.txt"


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the tensors of one run come from.

    Args:
        source: ``checkpoint``, ``hub-cache``, ``hub`` or ``seeded``.
        description: One honest sentence for the table.
        seed: The seed of the initial weights and the dropout masks.
    """

    source: str
    description: str
    seed: int


def find_source(*, checkpoint: Path | None = None, download: bool = False, seed: int = DEFAULT_SEED) -> Provenance:
    """Choose the source in the order of FID-4, without loading anything.

    Args:
        checkpoint: A folder with ``config.json`` and weights of distilgpt2.
        download: Whether the hub may be asked over the network.
        seed: For the initial weights where no checkpoint is found, and for dropout.

    Raises ``fidelity_checkpoint_invalid`` when ``checkpoint`` is no such folder. Clause: FID-4.
    """
    steps = "gradients of real training steps on the Gettysburg Address, read as bytes"
    if checkpoint is not None:
        if not (checkpoint / "config.json").is_file():
            raise _invalid_checkpoint(checkpoint, "there is no config.json in it")
        return Provenance("checkpoint", f"the distilgpt2 checkpoint given by path; {steps}", seed)
    if _hub_cache_folder() is not None:
        return Provenance("hub-cache", f"distilgpt2 from the local cache of the hub; {steps}", seed)
    if download:
        return Provenance("hub", f"distilgpt2 downloaded from the hub; {steps}", seed)
    return Provenance(
        "seeded",
        f"not the published weights: distilgpt2's exact architecture with weights drawn from seed {seed}; {steps}",
        seed,
    )


def gradient_snapshots(
    provenance: Provenance, *, checkpoint: Path | None = None
) -> Iterator[tuple[int, Mapping[str, Tensor]]]:
    """Train a few real steps and yield ``(step, gradients)`` at each of :data:`STEPS`.

    The mapping holds the 76 float32 gradients by parameter name, in the model's order; it is overwritten by the next
    step. Raises ``fidelity_checkpoint_invalid`` for a model of another shape. Clause: FID-4, FID-5.
    """
    import torch

    model = _load_model(provenance, checkpoint)
    parameters = dict(model.named_parameters())
    elements = sum(parameter.numel() for parameter in parameters.values())
    if (len(parameters), elements) != (PARAMETER_TENSORS, PARAMETERS):
        raise _invalid_checkpoint(checkpoint, f"it has {len(parameters)} tensors with {elements} elements")
    tokens = _byte_tokens(_TEXT.read_bytes())
    optimizer = torch.optim.SGD(parameters.values(), lr=_LEARNING_RATE)
    generator = torch.Generator().manual_seed(provenance.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(provenance.seed + 1)
        model.train()
        for step in range(STEPS[0], STEPS[-1] + 1):
            starts = torch.randint(0, len(tokens) - _LENGTH, (_BATCH,), generator=generator)
            batch = torch.stack([tokens[start : start + _LENGTH] for start in starts.tolist()])
            optimizer.zero_grad(set_to_none=True)
            model(input_ids=batch, labels=batch).loss.backward()
            if step in STEPS:
                yield step, {name: parameter.grad for name, parameter in parameters.items()}
            optimizer.step()


class TensorDigest:
    """A SHA-256 over names, shapes and bytes of tensors, in the order they are added."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, name: str, tensor: Tensor) -> None:
        """Add one contiguous CPU tensor."""
        self._hash.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        self._hash.update(tensor.detach().contiguous().reshape(-1).numpy().data)

    def hexdigest(self) -> str:
        """The digest so far."""
        return self._hash.hexdigest()


def _load_model(provenance: Provenance, checkpoint: Path | None) -> Any:
    if provenance.source != "hub":
        # Decided before transformers is imported: it reads these once, at import.
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if provenance.source == "seeded":
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(provenance.seed)
            return GPT2LMHeadModel(GPT2Config(n_layer=6, n_head=12, n_embd=768, vocab_size=50257, n_positions=1024))
    place = str(checkpoint or _hub_cache_folder() or "distilbert/distilgpt2")
    try:
        return GPT2LMHeadModel.from_pretrained(place, dtype=torch.float32)
    except (OSError, ValueError, KeyError) as error:
        raise _invalid_checkpoint(checkpoint, str(error).splitlines()[0]) from error


def _byte_tokens(text: bytes) -> Tensor:
    """Return GPT-2 token ids of single bytes: its first 256 tokens, printable characters first."""
    import torch

    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    order = printable + [byte for byte in range(256) if byte not in set(printable)]
    identifier = {byte: index for index, byte in enumerate(order)}
    return torch.tensor([identifier[byte] for byte in text])


def _hub_cache_folder() -> Path | None:
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    hub = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    for name in ("models--distilbert--distilgpt2", "models--distilgpt2"):
        for config in sorted((hub / name / "snapshots").glob("*/config.json")):
            if any(config.parent.glob("*.safetensors")) or any(config.parent.glob("*.bin")):
                return config.parent
    return None


def _invalid_checkpoint(checkpoint: Path | None, why: str) -> Refusal:
    return Refusal(
        "fidelity_checkpoint_invalid",
        f"This is no distilgpt2 checkpoint: {why}.",
        remedy="Give a folder with config.json and model.safetensors of distilgpt2, or leave --checkpoint out.",
        checkpoint=str(checkpoint),
    )
