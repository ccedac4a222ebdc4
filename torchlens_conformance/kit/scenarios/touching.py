"""Scenarios of the surface: capabilities, methods, hooks; and of points that the sink must leave alone."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import Any

from ...protocol import (
    CAPABILITY_METHODS,
    DEFAULT_DESCRIPTOR,
    WANDB_SAFE_DESCRIPTOR,
    FrozenMapping,
    GridDescriptor,
    Point,
    RelayState,
)
from ..checks.showing import point_key, shown_point
from ..corpus import odd_tags, ordinary_points
from ..model import Transcript
from .driving import Driver, Setting, called, drive
from .ending import late_points

UNADVERTISED = "not advertised"
"""Note of an emit of a kind that the sink does not advertise."""


def surface(setting: Setting) -> Transcript:
    """Ask a sink for its words, methods and hooks, and offer it points of kinds that it does not advertise.

    Facts: ``own_words`` (the sink's own, as texts), ``words_type``, ``words_again``, ``methods`` (names that can be
    called), ``hooks`` (names), ``grid``, ``relay``, ``last_step``, each as text. Clause: PROT-1, PROT-2, PROT-7.
    """
    place = setting.place()

    def work(driver: Driver) -> None:
        sink = driver.open(place)
        if sink is None:
            return
        words = driver.attempt("capabilities", lambda: sink.capabilities())
        own = called("capabilities", lambda: sorted(str(word) for word in words))[1]
        again = called("capabilities", lambda: sorted(str(word) for word in sink.capabilities()))[1]
        methods = [name for name in (*CAPABILITY_METHODS.values(), "flush", "close") if _has(sink, name)]
        hooks = [name for name in HOOKS if _has(sink, name)]
        driver.tell(own_words=own, words_type=type(words).__name__, words_again=again, methods=methods, hooks=hooks)
        _ask_hooks(driver, sink, hooks)
        for point in late_points(setting.nonce):
            method = CAPABILITY_METHODS[point.capability]
            if own is not None and point.capability not in own and method in methods:
                driver.attempt(method, partial(getattr(sink, method), point), note=UNADVERTISED)
        driver.call(sink, "flush")
        driver.call(sink, "close")

    return drive("surface", setting, ordinary_points(setting.nonce), work)


HOOKS = ("preflight_histograms", "preflight_tags", "default_histogram_descriptor", "relay_state", "last_step")
"""The optional hooks (PROT-7, PROT-11)."""

HUGE_GRID = GridDescriptor(bins_per_octave=64)
"""A grid of 8193 buckets, more than capped stores carry."""


def _ask_hooks(driver: Driver, sink: Any, hooks: list[str]) -> None:
    if "preflight_histograms" in hooks:
        for note, grid in (("497", WANDB_SAFE_DESCRIPTOR), ("513", DEFAULT_DESCRIPTOR), ("8193", HUGE_GRID)):
            driver.attempt("preflight_histograms", partial(sink.preflight_histograms, grid), note=note)
    if "preflight_tags" in hooks:
        tags = odd_tags(driver.setting.nonce)
        for tag in tags:
            driver.attempt("preflight_tags", partial(sink.preflight_tags, [tag]), note=tag)
    if "default_histogram_descriptor" in hooks:
        grid = driver.attempt("default_histogram_descriptor", lambda: sink.default_histogram_descriptor())
        driver.tell(grid=type(grid).__name__)
        if isinstance(grid, GridDescriptor) and "preflight_histograms" in hooks:
            driver.attempt("preflight_histograms", lambda: sink.preflight_histograms(grid), note="its own grid")
    if "relay_state" in hooks:
        state = driver.attempt("relay_state", lambda: sink.relay_state())
        driver.tell(relay=state.state if isinstance(state, RelayState) else f"a {type(state).__name__}")
    if "last_step" in hooks:
        step = driver.attempt("last_step", lambda: sink.last_step())
        driver.tell(last_step=step if step is None or type(step) is int else f"a {type(step).__name__}")


def _has(sink: Any, name: str) -> bool:
    return bool(called(name, lambda: callable(getattr(sink, name, None)))[1])


def aliasing(setting: Setting) -> Transcript:
    """Emit points made from data that is changed right after, one short-lived object a point.

    Every point is made anew from lists, dictionaries and byte arrays, which are overwritten when the emit has
    returned; then the point is dropped, so that the next one may stand at the same address in memory. What the sink
    gave as its capabilities is emptied.
    Facts: ``mutated``, (index, before, after) of points that the sink changed; ``words_before`` and ``words_after``.
    Clause: POINT-1.
    """
    place = setting.place()

    def work(driver: Driver) -> None:
        sink = driver.open(place)
        if sink is None:
            return
        before = called("capabilities", lambda: sorted(map(str, sink.capabilities())))[1]
        called("capabilities", lambda: sink.capabilities().clear())
        after = called("capabilities", lambda: sorted(map(str, sink.capabilities())))[1]
        mutated = []
        for index, point in enumerate(driver.sent):
            sources = {field.name: _loose(getattr(point, field.name)) for field in fields(point)}
            driver.sent[index] = own = type(point)(**sources)
            key, shown = point_key(own), shown_point(own)
            driver.emit(sink, index)
            if point_key(own) != key:
                mutated.append((index, shown, shown_point(own)))
            for value in sources.values():
                _overwrite(value)
            driver.sent[index] = point
            del own, sources
        driver.tell(mutated=mutated, words_before=before, words_after=after)
        driver.call(sink, "flush")
        driver.call(sink, "close")
        driver.read_back(place)

    return drive("aliasing", setting, _aliasing_points(setting.nonce), work, read=place)


def _aliasing_points(nonce: str) -> tuple[Point, ...]:
    return ordinary_points(nonce)


def _loose(value: Any) -> Any:
    if isinstance(value, FrozenMapping):
        return {key: _loose(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_loose(item) for item in value]
    return bytearray(value) if isinstance(value, bytes) else value


def _overwrite(value: Any) -> None:
    if isinstance(value, dict):
        for item in value.values():
            _overwrite(item)
        value.clear()
    elif isinstance(value, bytearray):
        value[:] = b"\x7f" * len(value)
    elif isinstance(value, list):
        for item in value:
            _overwrite(item)
        value.clear()
