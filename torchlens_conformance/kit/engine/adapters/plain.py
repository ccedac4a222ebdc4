"""The plain engine as an adapter that the command line can name."""

from __future__ import annotations

from ..plain_engine import PlainEngine

PLAIN = PlainEngine()
"""The perfect control."""
