"""The signed-log2 histogram grid with exact edges (GRID-1..3)."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from math import ldexp

from .points import register_edges
from .refusals import Refusal

MOST_BINS_PER_OCTAVE = 1024
"""Beyond this a grid is a mistake, and its edges would take minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridDescriptor:
    """A grid that is the same for every tensor, step and run, so that counts add up.

    Args:
        bins_per_octave: Bins between two powers of two, 1 to :data:`MOST_BINS_PER_OCTAVE`.
        lo_exp: The innermost side edge is ``2**lo_exp``; below it lies the centre band.
        hi_exp: The outermost side edge is ``2**hi_exp``; at and beyond it lies overflow.

    Raises ``grid_invalid``. Clause: GRID-1.
    """

    bins_per_octave: int = 4
    lo_exp: int = -48
    hi_exp: int = 16

    def __post_init__(self) -> None:
        fields = asdict(self)
        integers = all(type(value) is int for value in fields.values())
        if (
            not integers
            or not 1 <= self.bins_per_octave <= MOST_BINS_PER_OCTAVE
            or not -1074 <= self.lo_exp < self.hi_exp <= 1023
        ):
            raise Refusal(
                "grid_invalid",
                "The grid descriptor is malformed.",
                remedy="Give integers with 1 <= bins_per_octave <= 1024 and -1074 <= lo_exp < hi_exp <= 1023.",
                **fields,
            )

    @property
    def bins_per_side(self) -> int:
        """Bins on the positive side, and as many on the negative one."""
        return (self.hi_exp - self.lo_exp) * self.bins_per_octave

    @property
    def bucket_count(self) -> int:
        """Buckets of the signed render: both sides and the centre band. Clause: GRID-1."""
        return 2 * self.bins_per_side + 1

    @property
    def side_edges(self) -> tuple[float, ...]:
        """The positive edges ``2**(lo_exp + i/bins_per_octave)``, each the float64 nearest to the true power."""
        return _side_edges(self)

    @property
    def edges(self) -> tuple[float, ...]:
        """The edges of the signed render: mirrored, centre, positive; one shared tuple for equal descriptors."""
        return _signed_edges(self)

    def as_dict(self) -> dict[str, int | bool]:
        """The descriptor as plain values, with the constants of GRID-1 spelled out."""
        return {"base": 2, **asdict(self), "signed": True, "dense": True}


@lru_cache(maxsize=32)
def _side_edges(descriptor: GridDescriptor) -> tuple[float, ...]:
    per_octave = descriptor.bins_per_octave
    edges = []
    for index in range(descriptor.bins_per_side + 1):
        octave, part = divmod(index, per_octave)
        exponent = descriptor.lo_exp + octave
        # Below 2**-1022 float64 has fewer bits; rounding to 52 first and to those bits afterwards would round twice.
        bits = min(52, exponent + 1074)
        edges.append(ldexp(_nearest_root(part, per_octave, bits), exponent - bits))
    if any(low >= high for low, high in itertools.pairwise(edges)):
        raise Refusal(
            "grid_invalid",
            "Two edges of the grid fall on one float64.",
            remedy="Raise lo_exp or lower bins_per_octave.",
            **asdict(descriptor),
        )
    return tuple(edges)


@lru_cache(maxsize=1024)
def _nearest_root(part: int, per_octave: int, bits: int) -> int:
    """Return ``2**(bits + part/per_octave)`` rounded to the nearest integer, in integers alone.

    The platform's ``pow`` need not be correctly rounded; an integer root is, everywhere.
    """
    # Find the largest r with (2r - 1)**n <= 2**(n*(bits + 1) + part); then r - 1/2 <= 2**(bits + part/n) < r + 1/2.
    target = 1 << (per_octave * (bits + 1) + part)
    low, high = 1 << bits, (1 << (bits + 1)) + 1
    while high - low > 1:
        middle = (low + high) // 2
        if (2 * middle - 1) ** per_octave <= target:
            low = middle
        else:
            high = middle
    return low


# Without a bound, since registered edges live for good: equal descriptors must go on sharing one tuple.
@cache
def _signed_edges(descriptor: GridDescriptor) -> tuple[float, ...]:
    side = _side_edges(descriptor)
    return register_edges(tuple(-edge for edge in reversed(side)) + side)


DEFAULT_DESCRIPTOR = GridDescriptor()
"""513 buckets from 2**-48 to 2**16 on both sides (GRID-1)."""

WANDB_SAFE_DESCRIPTOR = GridDescriptor(lo_exp=-46)
"""497 buckets: the default grid cut to fit under wandb's cap of 512 (GRID-1)."""


def require_same_grid(first: GridDescriptor, second: GridDescriptor) -> None:
    """Refuse ``grid_mismatch`` unless both descriptors are equal; there is no re-binning. Clause: GRID-3."""
    if first != second:
        raise Refusal(
            "grid_mismatch",
            "Histograms over different grids cannot be merged.",
            remedy="Count both over one descriptor.",
            first=first.as_dict(),
            second=second.as_dict(),
        )
