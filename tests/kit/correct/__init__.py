"""Correct sinks of different design: what the kit must not call wrong."""
