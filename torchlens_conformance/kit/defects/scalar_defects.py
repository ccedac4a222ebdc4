"""Defects of scalars and steps: numbers that come back as other numbers (POINT-3)."""

from __future__ import annotations

import struct
import sys
from collections import Counter
from dataclasses import replace
from math import copysign, isfinite, isinf, isnan
from pathlib import Path

from torchlens_conformance.protocol import LARGEST_STEP, GraphPoint, Point, ScalarPoint
from torchlens_conformance.protocol.compare import as_float32

from .base import Defect, PlainSink, planted


class AlteringSink(PlainSink):
    """A plain sink that alters each point before it writes it."""

    def emit(self, point: Point) -> None:
        """Write what :meth:`alter` makes of ``point``."""
        super().emit(self.alter(point))

    def alter(self, point: Point) -> Point:
        """Return what is written in place of ``point``."""
        raise NotImplementedError


class ScalarSink(AlteringSink):
    """A plain sink that alters the value of each scalar."""

    def alter(self, point: Point) -> Point:
        """Return a scalar with another value, and every other point as it is."""
        return replace(point, value=self.value(point.value)) if isinstance(point, ScalarPoint) else point

    def value(self, value: int | float) -> int | float:
        """Return what is written in place of ``value``."""
        raise NotImplementedError


class Float32Cast(ScalarSink):
    """Scalars are stored as float32."""

    def value(self, value: int | float) -> int | float:
        """Round to 24 bits."""
        return as_float32(value)


class Bfloat16Cast(ScalarSink):
    """Scalars are stored as bfloat16."""

    def value(self, value: int | float) -> int | float:
        """Cut the float32 to its upper half."""
        (bits,) = struct.unpack("<I", struct.pack("<f", as_float32(value)))
        (cut,) = struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))
        return float(cut) if not isnan(value) else value


class SixDigits(ScalarSink):
    """Scalars are stored as text of six digits."""

    def value(self, value: int | float) -> int | float:
        """Lose every digit behind the sixth."""
        return float(f"{value:.6g}")


class IntegersAsFloats(ScalarSink):
    """Whole numbers are stored as float64."""

    def value(self, value: int | float) -> int | float:
        """Lose what lies beyond 53 bits."""
        return float(value)


class NanToZero(ScalarSink):
    """NaN is stored as 0."""

    def value(self, value: int | float) -> int | float:
        """Replace NaN."""
        return 0.0 if isnan(value) else value


class InfinityToLargest(ScalarSink):
    """The infinities are stored as the largest finite numbers."""

    def value(self, value: int | float) -> int | float:
        """Replace the infinities."""
        return copysign(sys.float_info.max, value) if isinf(value) else value


class MinusZeroToZero(ScalarSink):
    """The sign of zero is lost."""

    def value(self, value: int | float) -> int | float:
        """Adding 0.0 keeps every float but -0.0."""
        return value + 0.0 if isinstance(value, float) else value


class SubnormalsToZero(ScalarSink):
    """Subnormal numbers are flushed to zero."""

    def value(self, value: int | float) -> int | float:
        """Replace what is smaller than the smallest normal number."""
        return copysign(0.0, value) if abs(value) < sys.float_info.min else value


class NonfiniteFiltered(PlainSink):
    """Scalars that are NaN or infinite are left out."""

    def emit(self, point: Point) -> None:
        """Skip what is not finite."""
        if not isinstance(point, ScalarPoint) or isinstance(point.value, int) or isfinite(point.value):
            super().emit(point)


class StepOffByOne(AlteringSink):
    """Steps are counted from 1."""

    def alter(self, point: Point) -> Point:
        """Add one, as far as a step can go."""
        return point if isinstance(point, GraphPoint) else replace(point, step=min(point.step + 1, LARGEST_STEP))


class OwnStepCounter(AlteringSink):
    """Each series gets steps of the sink's own counting."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._next: Counter[tuple[type, str]] = Counter()

    def alter(self, point: Point) -> Point:
        """Replace the step by how many points the series had before."""
        if isinstance(point, GraphPoint):
            return point
        series = (type(point), point.tag)
        self._next[series] += 1
        return replace(point, step=self._next[series] - 1)


class StepAsFloat(AlteringSink):
    """Steps are stored as float64."""

    def alter(self, point: Point) -> Point:
        """Lose what lies beyond 53 bits."""
        if isinstance(point, GraphPoint):
            return point
        return replace(point, step=min(int(float(point.step)), LARGEST_STEP))


class StepIn32Bits(AlteringSink):
    """Steps are stored in 32 bits."""

    def alter(self, point: Point) -> Point:
        """Lose the upper half."""
        return point if isinstance(point, GraphPoint) else replace(point, step=point.step % 2**32)


SCALAR_DEFECTS: tuple[Defect, ...] = (
    planted("float32-cast", "values.scalar", sink=Float32Cast),
    planted("bfloat16-cast", "values.scalar", sink=Bfloat16Cast),
    planted("six-digits", "values.scalar", sink=SixDigits),
    planted("integers-as-floats", "values.scalar", sink=IntegersAsFloats),
    planted("nan-to-zero", "values.scalar", sink=NanToZero),
    planted("infinity-to-largest", "values.scalar", sink=InfinityToLargest),
    planted("minus-zero-to-zero", "values.scalar", sink=MinusZeroToZero),
    planted("subnormals-to-zero", "values.scalar", sink=SubnormalsToZero),
    planted("nonfinite-filtered", "delivery.nothing-lost", sink=NonfiniteFiltered),
    planted("step-off-by-one", "values.steps", sink=StepOffByOne),
    planted("own-step-counter", "values.steps", sink=OwnStepCounter),
    planted("step-as-float", "values.steps", sink=StepAsFloat),
    planted("step-in-32-bits", "values.steps", sink=StepIn32Bits),
)
"""Numbers that come back as other numbers."""
