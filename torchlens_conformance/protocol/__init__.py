"""The ground floor: points, capability words, tags, grid, refusals, ledger, comparison.

No torch, no numpy, no tracker and no input or output. Importing it takes some 40 milliseconds, most of them for the
standard library's ``dataclasses``.
"""

from __future__ import annotations

from .capabilities import (
    CAPABILITY_METHODS,
    advertised_capabilities,
    require_capabilities,
    require_capability,
)
from .delivery import DELIVERY_STATES, RelayState
from .encoding import (
    NONFINITE_ENCODING,
    ROW_KINDS,
    decode_value,
    encode_value,
    point_to_row,
    row_to_point,
)
from .frozen import Frozen, FrozenMapping, freeze
from .grid import DEFAULT_DESCRIPTOR, WANDB_SAFE_DESCRIPTOR, GridDescriptor, require_same_grid
from .ledger import Ledger, LedgerRow, SinkFailure
from .points import (
    LARGEST_STEP,
    POINT_CLASSES,
    SUMMARY_FIELDS,
    EmbeddingPoint,
    EventPoint,
    GraphPoint,
    HistogramPoint,
    ImagePoint,
    MetadataPoint,
    Point,
    ScalarPoint,
    TextPoint,
    as_step,
)
from .refusals import REFUSAL_CODES, Refusal
from .sink import KnowsLastStep, OffersGrid, PreflightsHistograms, PreflightsTags, ReportsRelay, Sink
from .tags import (
    CHECK_OUTCOMES,
    FAMILIES,
    NONFINITE_KINDS,
    RESERVED_ROOT,
    STATISTICS,
    check_tag,
    histogram_tag,
    meta_tag,
    nonfinite_tag,
    overflow_tag,
    require_safe_tag,
    run_tag,
    scalar_tag,
    unsafe_reason,
)

__all__ = [
    "CAPABILITY_METHODS",
    "CHECK_OUTCOMES",
    "DEFAULT_DESCRIPTOR",
    "DELIVERY_STATES",
    "FAMILIES",
    "LARGEST_STEP",
    "NONFINITE_ENCODING",
    "NONFINITE_KINDS",
    "POINT_CLASSES",
    "REFUSAL_CODES",
    "RESERVED_ROOT",
    "ROW_KINDS",
    "STATISTICS",
    "SUMMARY_FIELDS",
    "WANDB_SAFE_DESCRIPTOR",
    "EmbeddingPoint",
    "EventPoint",
    "Frozen",
    "FrozenMapping",
    "GraphPoint",
    "GridDescriptor",
    "HistogramPoint",
    "ImagePoint",
    "KnowsLastStep",
    "Ledger",
    "LedgerRow",
    "MetadataPoint",
    "OffersGrid",
    "Point",
    "PreflightsHistograms",
    "PreflightsTags",
    "Refusal",
    "RelayState",
    "ReportsRelay",
    "ScalarPoint",
    "Sink",
    "SinkFailure",
    "TextPoint",
    "advertised_capabilities",
    "as_step",
    "check_tag",
    "decode_value",
    "encode_value",
    "freeze",
    "histogram_tag",
    "meta_tag",
    "nonfinite_tag",
    "overflow_tag",
    "point_to_row",
    "require_capabilities",
    "require_capability",
    "require_safe_tag",
    "require_same_grid",
    "row_to_point",
    "run_tag",
    "scalar_tag",
    "unsafe_reason",
]
