"""From tensors to numbers: moments, exact special counts and exact signed-log2 histograms.

:func:`compute` and :func:`compute_many` read every element once, in blocks that stay in the cache, with a compiled
kernel where numba is installed and with plain torch elsewhere; both give the same counts bit for bit. On an accelerator
:func:`start_many` and :func:`collect` do the same in two halves, so that a whole step is fetched at once. Importing
this package imports neither torch nor numba.
"""

from __future__ import annotations

from .compute import Backend, Pending, collect, compiled_available, compute, compute_many, start_many
from .moments import merge
from .points import histogram_point, scalar_points
from .result import TensorStatistics

__all__ = [
    "Backend",
    "Pending",
    "TensorStatistics",
    "collect",
    "compiled_available",
    "compute",
    "compute_many",
    "histogram_point",
    "merge",
    "scalar_points",
    "start_many",
]
