"""Our own work with tensors, which the caller's modes do not see (ATTACH-6).

A mode of torch hands every operation that runs under it to somebody: to a counter of operations, to a log, or to the
cache of selective activation checkpointing, which knows an operation of the recomputation by how often its function was
called before. An operation of ours in between would be counted, and there it would change what is trained.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext

import torch
from torch.utils import _python_dispatch


def unseen() -> AbstractContextManager[object]:
    """Return a context in which modes of functions and of dispatch are off, and everything else is as it was.

    A tensor that has a dispatch of its own keeps it: a fake one stays fake. torch has no public way of this. A torch
    that lacks the private one switches that dispatch off too.
    """
    in_functions = torch._C._len_torch_function_stack() > 0
    in_dispatch = torch._C._len_torch_dispatch_stack() > 0
    if not in_functions and not in_dispatch:
        return nullcontext()
    stack = ExitStack()
    if in_functions:
        stack.enter_context(torch._C.DisableTorchFunction())
    if in_dispatch:
        stack.enter_context(_dispatch_modes_off())
    return stack


def _dispatch_modes_off() -> AbstractContextManager[object]:
    off = getattr(_python_dispatch, "_disable_current_modes", None)
    if off is not None:
        context: AbstractContextManager[object] = off()
        return context
    return torch._C._DisableTorchDispatch()
