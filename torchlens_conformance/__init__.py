"""TorchLens tracker protocol: conformance harness and reference implementation.

The packages are, from the ground up: ``spec`` (the clause catalogue), ``protocol`` (points, words, refusals) and
``statistics`` (tensor to numbers). Nothing heavy is imported here.
"""

from __future__ import annotations

__version__ = "0.1.0"
