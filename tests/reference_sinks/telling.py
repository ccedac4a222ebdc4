"""What programs in processes of their own share: emitting points, and telling what was refused as plain values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchlens_conformance.protocol import CAPABILITY_METHODS, Point, Refusal


def code(call: Callable[..., object], *arguments: object) -> list[Any] | None:
    """Return code and fields of the refusal that a call raises, the fields as texts; None when it raises none."""
    try:
        call(*arguments)
        return None
    except Refusal as refusal:
        fields = {name: str(value) for name, value in refusal.fields.items()}
        return [refusal.code, fields]


def emit(sink: object, *points: Point) -> None:
    """Emit points one after the other, each by the method of its kind."""
    for method, point in ((CAPABILITY_METHODS[point.capability], point) for point in points):
        getattr(sink, method)(point)
