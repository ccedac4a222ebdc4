"""Which tensors have statistics, and how any of them is read as flat, dense memory.

Statistics do not depend on the order of elements. So a permuted tensor is read in the order of its memory, and an
expanded one is read once and its counts are multiplied; only tensors with gaps or overlaps are copied, piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from ..protocol.refusals import Refusal

PIECE = 1 << 18
"""Elements of a piece of a tensor that has to be copied: scratch stays at 2 MiB or below."""

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
"""The dtypes that have statistics."""

_PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)


class Dense(NamedTuple):
    """A tensor whose memory holds every element once (``flat`` is then contiguous), or None where that is not so.

    ``tensor`` is the tensor without repetition, and every element of it counts ``repeats`` times.
    """

    tensor: torch.Tensor
    flat: torch.Tensor | None
    repeats: int


def require_supported(tensor: torch.Tensor) -> torch.Tensor:
    """Return a plain tensor over the same data, or refuse.

    Raises ``statistics_dtype_unsupported`` for anything but float64, float32, float16 and bfloat16, and
    ``statistics_layout_unsupported`` for what holds no dense data: sparse, nested, quantized and meta tensors, tensors
    whose storage was freed, wrappers of other tensors. Clause: STAT-1.
    """
    if not isinstance(tensor, torch.Tensor):
        raise _layout_refusal(tensor, f"is a {type(tensor).__name__}, not a tensor")
    if tensor.dtype not in DTYPES:
        raise Refusal(
            "statistics_dtype_unsupported",
            f"Statistics of {tensor.dtype} are not defined.",
            remedy="Convert the tensor to float64, float32, float16 or bfloat16 first.",
            dtype=str(tensor.dtype),
        )
    if tensor.layout is not torch.strided or tensor.is_nested:
        raise _layout_refusal(tensor, f"has the layout {'nested' if tensor.is_nested else tensor.layout}")
    if tensor.is_meta:
        raise _layout_refusal(tensor, "is on the meta device")
    if type(tensor) not in _PLAIN_TYPES:
        tensor = _unwrapped(tensor)
    if tensor.is_neg():  # The sign of such a view is a flag, not in the bits.
        tensor = tensor.detach().resolve_neg()
    if not _address(tensor) and tensor.numel() and tensor.device.type in ("cpu", "cuda"):
        raise _layout_refusal(tensor, "has no storage")
    return tensor


def _layout_refusal(tensor: object, why: str) -> Refusal:
    return Refusal(
        "statistics_layout_unsupported",
        f"The tensor {why}.",
        remedy="Give a dense, strided tensor that holds its data.",
        type=type(tensor).__name__,
    )


def _unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """Return a subclass that only changes functions as a plain tensor; one with its own dispatch holds no data."""
    if getattr(type(tensor), "__torch_dispatch__", None) is not torch.Tensor.__torch_dispatch__:
        raise _layout_refusal(tensor, f"is a wrapper of the type {type(tensor).__name__}")
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.detach().as_subclass(torch.Tensor)


def _address(tensor: torch.Tensor) -> int:
    try:
        return tensor.data_ptr()
    except RuntimeError:  # A transform's tensor, inside vmap or grad, say.
        raise _layout_refusal(tensor, "gives no access to its data") from None


def densify(tensor: torch.Tensor) -> Dense:
    """Return how the tensor lies in memory; nothing is copied."""
    if tensor.is_contiguous():
        return Dense(tensor, tensor, 1)
    tensor = tensor.detach()
    repeats = 1
    for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride())):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(axis, 0, 1)
            repeats *= size
    axes = sorted((stride, size) for size, stride in zip(tensor.shape, tensor.stride()) if size > 1)
    expected = 1
    for stride, size in axes:
        if stride != expected:
            return Dense(tensor, None, repeats)
        expected *= size
    return Dense(tensor, tensor.as_strided((expected,), (1,)), repeats)


def pieces(tensor: torch.Tensor, *, limit: int = PIECE) -> Iterator[torch.Tensor]:
    """Yield contiguous copies of parts of the tensor, each of ``limit`` elements at most, that cover it once."""
    if tensor.numel() <= limit:
        yield tensor.contiguous()
        return
    axis = max(range(tensor.dim()), key=lambda dimension: tensor.shape[dimension])
    size = max(1, tensor.shape[axis] * limit // tensor.numel())
    for part in torch.split(tensor, size, dim=axis):
        yield from pieces(part, limit=limit)
