"""The operations of a forward as they ran: one mechanism for op grain and for graphs (TIER-2, TIER-3, GRAPH-1)."""

from .model import HOST_TIME, TRACE_MODES, Operation, OperationTrace, Read, Source, TensorFacts
from .recorder import OperationRecorder, record_forward

__all__ = [
    "HOST_TIME",
    "TRACE_MODES",
    "Operation",
    "OperationRecorder",
    "OperationTrace",
    "Read",
    "Source",
    "TensorFacts",
    "record_forward",
]
