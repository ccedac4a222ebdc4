"""Op grain, tier O: single operations inside a forward, observed with consent (TIER-2, TIER-3).

Importing this package imports no torch.
"""

from .selection import FunctionSelector, HeadSplit, func, split_heads

__all__ = ["FunctionSelector", "HeadSplit", "func", "split_heads"]
