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

Backend = Literal["auto", "compiled", "torch"]
"""``compiled`` needs numba and a CPU tensor, ``torch`` runs anywhere, ``auto`` is the first where it can run."""

_Reduce = Callable[[Sequence["torch.Tensor"], "GridDescriptor | None"], list[Tally]]


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
    from . import layout

    found = [layout.densify(layout.require_supported(tensor)) for tensor in tensors]
    reducers = [_reducer(backend, dense.tensor.device) for dense in found]
    tallies: dict[int, Tally] = {}
    for reduce in dict.fromkeys(reducers):
        flats = {
            index: dense.flat
            for index, dense in enumerate(found)
            if reducers[index] is reduce and dense.flat is not None
        }
        if flats:
            tallies.update(zip(flats, reduce(list(flats.values()), descriptor)))
    results = []
    for index, (dense, reduce) in enumerate(zip(found, reducers)):
        tally = tallies.get(index)
        if tally is None:
            tally = join_tallies([reduce([piece], descriptor)[0] for piece in layout.pieces(dense.tensor)])
        if tally.moments.overflowed:
            tally = _rescued(tally, dense.tensor, reduce)
        if dense.repeats != 1:
            tally = repeat_tally(tally, dense.repeats)
        results.append(finish(tally, descriptor))
    return results


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


def _reducer(backend: str, device: torch.device) -> _Reduce:
    """Return the reducing function of a backend for tensors on ``device``."""
    on_cpu = device.type == "cpu"
    if backend == "compiled" or (backend == "auto" and on_cpu):
        reduce = _compiled_reduce() if on_cpu else None
        if reduce is not None:
            return reduce
    if backend in ("auto", "torch"):
        from . import plain

        return plain.reduce
    raise Refusal(
        "statistics_backend_unavailable",
        f"The statistics backend {backend!r} cannot run here.",
        remedy='Use backend="auto", or install numba (the engine extra) and give CPU tensors.',
        backend=backend,
        device=str(device),
    )


def _rescued(tally: Tally, tensor: torch.Tensor, reduce: _Reduce) -> Tally:
    """Return the tally with moments from scaled values, where a sum of float64 values left its range."""
    from . import layout

    scaled = [piece.detach() * 2.0**-RESCUE_EXPONENT for piece in layout.pieces(tensor)]
    moments = join_tallies(reduce(scaled, None)).moments
    return tally._replace(moments=unscale_moments(tally.moments, moments))
