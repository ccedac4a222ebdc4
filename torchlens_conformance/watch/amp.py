"""What a loss scaler did, read and never guessed (AMP-1..8).

How a skipped step is seen (AMP-8). ``GradScaler`` keeps one record an optimizer (stage and found infinities) in a
dictionary, and ``update()`` replaces that dictionary by a new one. A scope keeps a reference to the dictionary that was
there when it opened, and to those that it meets at boundaries. When the scope closes, a record that came to the stage
STEPPED, while the optimizer's hooks did not fire, is a step that the scaler left out. Nothing is patched, nothing is
written, no tensor is read: there is nothing to undo but to drop the reference.

An optimizer that unscales inside its own step (fused ones) fires its hooks in every case. At its boundary the scaler
has given it ``grad_scale`` and ``found_inf``; these are the factor still in the gradients, and the reason for a skip.

Values are read from an accelerator on sampled steps only, whose statistics wait for the device anyway: the scale when
the scope opens and at each boundary. On other steps nothing is read; what a fused optimizer found is looked at with the
next sampled step, or at close.

With ``step=`` alone there is no scaler to look at. Then a step left out by the scaler is no boundary and does not exist
for the watch; only what a fused optimizer carries at its boundary is seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

from ..protocol.refusals import Refusal
from .unscale import scale_exponent

if TYPE_CHECKING:
    import torch
    from torch.optim import Optimizer

Unscaled = Literal["yes", "no", "unknown"]
"""Whether gradients carry no scale any more at the boundary."""


@dataclass(frozen=True, slots=True)
class ScaleFact:
    """What is known about the scale in the gradients of one optimizer at its boundary.

    Attributes:
        unscaled: None when there is no scaler: nothing is claimed.
        scale: The scaler's scale, or None when it could not be read or there is none.
        exponent: Binary logarithm of the factor that is still in the gradients; 0 unless ``unscaled`` is "no".
        usable: False when the factor is no power of two: numbers stay as measured.
    """

    unscaled: Unscaled | None
    scale: float | None = None
    exponent: int = 0
    usable: bool = True

    @property
    def derived(self) -> bool:
        """Whether statistics have to be corrected in closed form."""
        return self.unscaled == "no"


NO_SCALER = ScaleFact(None)
"""Nothing is claimed. Clause: AMP-5."""


class ScalerView:
    """What one step scope sees of its scaler.

    Args:
        scaler: The object given to ``step(n, scaler=...)``, or None.
        due: Whether the step is sampled; only then a value is fetched from an accelerator.

    Raises ``tracker_scale_invalid``. Clause: AMP-1..8.
    """

    __slots__ = ("_before", "_enabled", "_readable", "_records", "_scale_at_entry", "scaler")

    def __init__(self, scaler: Any, *, due: bool) -> None:
        self.scaler = scaler
        self._enabled = scaler is not None and _is_enabled(scaler)
        self._records: list[Mapping[int, Any]] = []
        self._before: set[int] = set()
        self._scale_at_entry: float | None = None
        self._readable = self._enabled and isinstance(getattr(scaler, "_per_optimizer_states", None), Mapping)
        if not self._enabled:
            return
        if self._readable:
            records = self.scaler._per_optimizer_states
            self._records.append(records)
            # A loop that updates at the start of the next iteration enters with the records of the last one.
            self._before = {id(record) for record in records.values() if _stage_of(record) == "STEPPED"}
        if due or _is_free_to_read(scaler):
            self._scale_at_entry = _scale_of(scaler)
            if self._readable:
                _require_power_of_two(self._scale_at_entry)

    @property
    def disabled(self) -> bool:
        """Whether there is a scaler and it is switched off: a factor of 1.0 was observed. Clause: AMP-5."""
        return self.scaler is not None and not self._enabled

    @property
    def scale_at_entry(self) -> float | None:
        """The scale when the scope opened: the one that a skipped step used. Clause: AMP-7."""
        return 1.0 if self.disabled else self._scale_at_entry

    def fact(self, optimizer: Optimizer, kwargs: Mapping[str, Any]) -> ScaleFact:
        """Read scale and stage at the boundary of ``optimizer``, before its step. Clause: AMP-1..5, AMP-7."""
        carried = carried_scale(optimizer)
        if carried is not None:
            return _still_scaled(float(carried), None if self.scaler is None else _scale_of(self.scaler))
        if self.scaler is None:
            return NO_SCALER
        if self.disabled:
            return ScaleFact("yes", 1.0)
        scale = _scale_of(self.scaler)
        if not self._readable or "grad_scaler" in kwargs:
            return ScaleFact("unknown", scale)
        stage = _stage_of(self._note_records().get(id(optimizer)))
        if stage == "READY":
            # Before the first scale() there is no scale tensor, and so nothing can have been scaled.
            never = getattr(self.scaler, "_scale", None) is None
            return ScaleFact("yes", scale) if never or scale is None else _still_scaled(scale, scale)
        return ScaleFact("yes" if stage == "UNSCALED" else "unknown", scale)

    def surely_unscaled(self, optimizer: Optimizer) -> bool:
        """Return whether nothing is scaled at this boundary, as far as that can be told without reading a value."""
        if carried_scale(optimizer) is not None:
            return False
        if self.scaler is None or self.disabled:
            return True
        return self._readable and _stage_of(self._note_records().get(id(optimizer))) == "UNSCALED"

    def gradient_scale(self) -> float | None:
        """Return the factor that gradients carry during backward, as far as it is known. Clause: AMP-3."""
        return 1.0 if self.disabled else self._scale_at_entry if self._readable else None

    def left_out(self, optimizers: list[Optimizer]) -> bool | None:
        """Say whether the scaler left out the step of one of ``optimizers``, none of which fired its hooks.

        With no optimizer named, any record counts. None when it cannot be told. Clause: AMP-8, STEP-7.
        """
        if not self._readable:
            return False if self.scaler is None or not self._enabled else None
        known = self._records[-1]
        seen = {id(optimizer) for optimizer in optimizers}
        latest = self._note_records()
        found = [
            key
            for records in self._records
            for key, record in records.items()
            if _stage_of(record) == "STEPPED" and id(record) not in self._before
        ]
        if any(key in seen for key in found) or (found and not seen):
            return True
        # Records of other optimizers, then an update: a second update may have taken ours along unseen.
        return None if found and latest is not known else False

    def look(self) -> None:
        """Keep the scaler's present records, before an update puts new ones in their place. Clause: AMP-8."""
        if self._readable:
            self._note_records()

    def _note_records(self) -> Mapping[int, Any]:
        records: Mapping[int, Any] = self.scaler._per_optimizer_states
        if not any(records is known for known in self._records):
            self._records.append(records)
        return records


def carried_scale(optimizer: Optimizer) -> torch.Tensor | float | None:
    """Return the factor that ``optimizer`` is about to divide its gradients by itself, or None. Clause: AMP-7."""
    if not getattr(optimizer, "_step_supports_amp_scaling", False):
        return None
    carried: torch.Tensor | float | None = getattr(optimizer, "grad_scale", None)
    return carried


def found_infinities(optimizer: Optimizer) -> torch.Tensor | None:
    """Return the tensor that is not zero when ``optimizer`` is about to leave its own step out. Clause: AMP-7."""
    if not getattr(optimizer, "_step_supports_amp_scaling", False):
        return None
    found: torch.Tensor | None = getattr(optimizer, "found_inf", None)
    return found


def is_near(value: torch.Tensor) -> bool:
    """Return whether reading ``value`` waits for no device."""
    return value.device.type == "cpu"


def read_all(values: Sequence[torch.Tensor]) -> list[float]:
    """Return the numbers in tensors of one element each, by one transfer a device. Clause: AMP-8, XFER-1."""
    import torch

    found: dict[int, float] = {}
    for device in dict.fromkeys(value.device for value in values):
        indices = [index for index, value in enumerate(values) if value.device == device]
        together = torch.stack([values[index].detach().reshape(()).float() for index in indices])
        found.update(zip(indices, together.tolist()))
    return [found[index] for index in range(len(values))]


def _still_scaled(factor: float, scale: float | None) -> ScaleFact:
    exponent = scale_exponent(factor)
    shown = factor if scale is None else scale
    if exponent is None:
        return ScaleFact("unknown", shown, usable=False)
    return ScaleFact("no", shown, exponent)


def _is_enabled(scaler: object) -> bool:
    asked = getattr(scaler, "is_enabled", None)
    return bool(asked()) if callable(asked) else True


def _stage_of(record: Any) -> str:
    """Return the name of a record's stage; no record is READY."""
    if record is None:
        return "READY"
    stage = record.get("stage") if isinstance(record, Mapping) else None
    return str(getattr(stage, "name", "UNREADABLE"))


def _is_free_to_read(scaler: object) -> bool:
    tensor = getattr(scaler, "_scale", None)
    return tensor is None or (hasattr(tensor, "device") and is_near(tensor))


def _scale_of(scaler: object) -> float | None:
    """Return the scale, or None for an object that does not tell it."""
    try:
        tensor = getattr(scaler, "_scale", None)
        value = float(tensor) if tensor is not None else float(scaler.get_scale())  # type: ignore[attr-defined]
    except Exception:  # A duck-typed scaler may do anything; what it does not tell is not known.
        return None
    return value


def _require_power_of_two(scale: float | None) -> None:
    if scale is not None and scale_exponent(scale) is None:
        raise Refusal(
            "tracker_scale_invalid",
            "The loss scale is no power of two, so statistics cannot be corrected exactly.",
            remedy="Use a GradScaler whose init_scale, growth_factor and backoff_factor are powers of two.",
            scale=scale if isfinite(scale) else repr(scale),
        )
