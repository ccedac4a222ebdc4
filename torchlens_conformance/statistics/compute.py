"""From tensors to statistics: checks, reading order, choice of the backend (STAT-1..3, GRID-2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from ..protocol.grid import GridDescriptor
from ..protocol.refusals import Refusal
from .moments import RESCUE_EXPONENT, Tally, finish, join_tallies, repeat_tally, unscale_moments
from .result import TensorStatistics

if TYPE_CHECKING:
    import torch

    from .layout import Dense
    from .plain_device import Started

Backend = Literal["auto", "compiled", "torch"]
"""``compiled`` needs numba and a CPU tensor, ``torch`` runs anywhere, ``auto`` is the first where it can run."""

_Reduce = Callable[[Sequence["torch.Tensor"], "GridDescriptor | None"], list[Tally]]


class Pending:
    """Statistics that were reduced and not fetched yet; see :func:`start_many`.

    Args:
        descriptor: The grid.
        repeats: How often every element of each tensor counts.
        tallies: What is known already, by the tensor's place.
        started: What still lies on devices, or None.
        places: The places of the tensors in ``started``.
    """

    __slots__ = ("_descriptor", "_places", "_repeats", "_tallies", "started")

    def __init__(
        self,
        descriptor: GridDescriptor | None,
        *,
        repeats: list[int],
        tallies: dict[int, Tally],
        started: Started | None,
        places: list[int],
    ) -> None:
        self._descriptor = descriptor
        self._repeats = repeats
        self._tallies = tallies
        self._places = places
        self.started = started

    @property
    def bytes(self) -> int:
        """Bytes that :func:`collect` will move from devices for it. Clause: XFER-1."""
        return 0 if self.started is None else self.started.bytes

    def finish(self, fetched: Sequence[Tally]) -> list[TensorStatistics]:
        """Return the statistics, with what was fetched of ``started`` in its order."""
        tallies = {**self._tallies, **dict(zip(self._places, fetched))}
        return [
            finish(tallies[index] if times == 1 else repeat_tally(tallies[index], times), self._descriptor)
            for index, times in enumerate(self._repeats)
        ]


def compute(
    tensor: torch.Tensor, *, descriptor: GridDescriptor | None = None, backend: Backend = "auto"
) -> TensorStatistics:
    """Return the statistics of one tensor; it is not modified.

    Args:
        tensor: float64, float32, float16 or bfloat16; any shape and strides, any device.
        descriptor: The grid of the histogram; None for no histogram.
        backend: See :data:`Backend`. Counts, minimum and maximum are the same bit for bit with each; sums agree within
            float64 rounding.

    Raises ``statistics_dtype_unsupported``, ``statistics_layout_unsupported`` and ``statistics_backend_unavailable``.

    Clause: STAT-1, STAT-2, STAT-3, GRID-2.
    """
    return compute_many((tensor,), descriptor=descriptor, backend=backend)[0]


def compute_many(
    tensors: Iterable[torch.Tensor], *, descriptor: GridDescriptor | None = None, backend: Backend = "auto"
) -> list[TensorStatistics]:
    """Return the statistics of several tensors in their order; faster than one call for each.

    Arguments and refusals are those of :func:`compute`. If one tensor is refused, nothing is computed.

    Clause: STAT-1, STAT-2, STAT-3, GRID-2.
    """
    return collect([start_many(tensors, descriptor=descriptor, backend=backend)])[0]


def start_many(
    tensors: Iterable[torch.Tensor], *, descriptor: GridDescriptor | None = None, backend: Backend = "auto"
) -> Pending:
    """Reduce several tensors where they lie; :func:`collect` gives their statistics.

    The tensors may change or go as soon as this returns. On a CPU all is done then; on another device the work is
    queued, and nothing waits for it. Arguments and refusals are those of :func:`compute_many`. Clause: XFER-1.
    """
    from . import layout

    found = [layout.densify(layout.require_supported(tensor)) for tensor in tensors]
    by_reducer: dict[_Reduce | None, list[int]] = {}
    reducers = {device: _reducer(backend, device) for device in {dense.tensor.device for dense in found}}
    for index, dense in enumerate(found):
        by_reducer.setdefault(reducers[dense.tensor.device], []).append(index)
    places = by_reducer.pop(None, [])
    tallies: dict[int, Tally] = {}
    for reduce, indices in by_reducer.items():
        assert reduce is not None
        tallies.update(zip(indices, _reduced([found[index] for index in indices], descriptor, reduce)))
    started = None
    if places:
        from . import plain_device

        started = plain_device.start([found[index] for index in places], descriptor)
    return Pending(
        descriptor, repeats=[dense.repeats for dense in found], tallies=tallies, started=started, places=places
    )


def collect(pending: Sequence[Pending]) -> list[list[TensorStatistics]]:
    """Return the statistics of everything that was started; one transfer a device for all of it. Clause: XFER-1."""
    started = [each.started for each in pending if each.started is not None]
    fetched: list[list[Tally]] = []
    if started:
        from . import plain_device

        fetched = plain_device.fetch(started)
    parts = iter(fetched)
    return [each.finish(() if each.started is None else next(parts)) for each in pending]


def compiled_available() -> bool:
    """Return whether the compiled backend can run in this process: numba imports and is not switched off."""
    return _compiled_reduce() is not None


@lru_cache(maxsize=1)
def _compiled_reduce() -> _Reduce | None:
    try:
        import numba
    except Exception:  # A numba that does not fit its numpy fails in many ways; plain torch gives the same numbers.
        return None
    if numba.config.DISABLE_JIT:
        return None
    from . import compiled

    return compiled.reduce


def _reducer(backend: str, device: torch.device) -> _Reduce | None:
    """Return the reducing function of a backend for CPU tensors; None for tensors on ``device`` that stay there."""
    on_cpu = device.type == "cpu"
    if backend == "compiled" or (backend == "auto" and on_cpu):
        reduce = _compiled_reduce() if on_cpu else None
        if reduce is not None:
            return reduce
    if backend in ("auto", "torch"):
        from . import plain_cpu

        return plain_cpu.reduce if on_cpu else None
    raise Refusal(
        "statistics_backend_unavailable",
        f"The statistics backend {backend!r} cannot run here.",
        remedy='Use backend="auto", or install numba (the engine extra) and give CPU tensors.',
        backend=backend,
        device=str(device),
    )


def _reduced(found: Sequence[Dense], descriptor: GridDescriptor | None, reduce: _Reduce) -> list[Tally]:
    """Return the tallies of CPU tensors; those with gaps are copied piece by piece."""
    from . import layout

    flats = [dense.flat for dense in found if dense.flat is not None]
    whole = iter(reduce(flats, descriptor) if flats else ())
    tallies = []
    for dense in found:
        if dense.flat is not None:
            tally = next(whole)
        else:
            tally = join_tallies([reduce([piece], descriptor)[0] for piece in layout.pieces(dense.tensor)])
        tallies.append(_rescued(tally, dense.tensor, reduce) if tally.moments.overflowed else tally)
    return tallies


def _rescued(tally: Tally, tensor: torch.Tensor, reduce: _Reduce) -> Tally:
    """Return the tally with moments from scaled values, where a sum of float64 values left its range."""
    from . import layout

    scaled = [piece.detach() * 2.0**-RESCUE_EXPONENT for piece in layout.pieces(tensor)]
    moments = join_tallies(reduce(scaled, None)).moments
    return tally._replace(moments=unscale_moments(tally.moments, moments))
