"""The fixed corpus: what every certification sends, the same each time but for a nonce in tags and texts."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import zip_longest
from math import inf, nan
from typing import Any

from ..protocol import (
    CAPABILITY_METHODS,
    DEFAULT_DESCRIPTOR,
    WANDB_SAFE_DESCRIPTOR,
    EmbeddingPoint,
    EventPoint,
    GraphPoint,
    HistogramPoint,
    ImagePoint,
    MetadataPoint,
    Point,
    ScalarPoint,
    TextPoint,
)

SMALL, FULL = "small", "full"
"""The two sizes: small for the controls of every run, full for a certificate."""

LARGE_STEPS = (2**31, 2**53 + 1, 2**63 - 1)
"""Steps beyond 32 bits, beyond what a float64 holds, and the largest (POINT-3)."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One point of the corpus.

    Args:
        point: What is sent.
        ordinary: Whether a sink that advertises the point's capability must take it. Every other point is legal as
            well, but a store that cannot carry it may refuse it with a code.
    """

    point: Point
    ordinary: bool


@lru_cache(maxsize=4)
def corpus(nonce: str, size: str = SMALL) -> tuple[Entry, ...]:
    """Return the corpus of all capabilities, in the order it is sent.

    Ordinary points come first, then what is hard to carry, then the largest steps: steps never fall, so that a store
    which wants rising steps, and a sink which refuses everything after its first refusal, still get every ordinary
    point. Series of all kinds are interleaved, and every series has several steps.

    Args:
        nonce: A text of letters and digits that stands in every tag and text.
        size: ``small`` or ``full``; full adds large texts and all of Unicode.

    Clause: POINT-1, POINT-2, POINT-3.
    """
    ordinary = [list(_ORDINARY[word](nonce)) for word in CAPABILITY_METHODS]
    hard = [list(_HARD[word](nonce, size)) for word in CAPABILITY_METHODS]
    return (
        *(Entry(point, True) for point in _by_step(_interleaved(ordinary))),
        *(Entry(point, False) for point in _by_step(_interleaved(hard))),
        *(Entry(point, False) for point in large_steps(nonce)),
    )


def ordinary_points(nonce: str) -> tuple[Point, ...]:
    """Return the ordinary points of all capabilities, interleaved, steps never falling."""
    return tuple(entry.point for entry in corpus(nonce, SMALL) if entry.ordinary)


def large_steps(nonce: str) -> Iterator[Point]:
    """Yield points of every kind that has a step, at :data:`LARGE_STEPS`."""
    for index, step in enumerate(LARGE_STEPS):
        yield ScalarPoint(f"parameters/mean/{nonce}.large", step, 0.5 + index)
        yield histogram(f"parameters/hist/{nonce}.large", step, 8)
        yield TextPoint(f"torchlens/meta/{nonce}.large", step, f"{nonce} at step {step}")
        yield image(f"images/{nonce}.large", step, 3 + index)
        yield MetadataPoint(f"torchlens/meta/{nonce}.large-facts", step, {"step": step})
        yield EventPoint(f"events/{nonce}.large", step, "reached", {"step": step})
        yield embedding(f"embeddings/{nonce}.large", step, 2 + index)


def moved(point: Point, *, tag: str, step: int) -> Point:
    """Return the same point under another tag and step; a graph, which has neither, as it is."""
    if not hasattr(point, "tag"):
        return point
    values: dict[str, Any] = {field.name: getattr(point, field.name) for field in fields(point)}
    make: Any = type(point)
    made: Point = make(**{**values, "tag": tag, "step": step})
    return made


def _interleaved(series: list[list[Point]]) -> Iterator[Point]:
    for row in zip_longest(*series):
        yield from (point for point in row if point is not None)


def _by_step(points: Iterator[Point]) -> list[Point]:
    """Put points in the order of their steps across kinds; what has no step keeps its place between its neighbours."""
    latest, ordered = 0, []
    for point in points:
        latest = getattr(point, "step", latest)
        ordered.append((latest, point))
    return [point for _, point in sorted(ordered, key=lambda pair: pair[0])]


def scattered(seed: str, length: int) -> bytes:
    """Return ``length`` bytes that no compressor makes shorter, the same for the same seed."""
    return hashlib.shake_128(seed.encode()).digest(length)


def histogram(tag: str, step: int, buckets: int, *, summary: Mapping[str, object] | None = None) -> HistogramPoint:
    """Return a histogram of uniform buckets whose edges have no short decimal or binary form."""
    low, width = -1.1, 2.3 / buckets
    edges = [low + index * width for index in range(buckets + 1)]
    counts = [(7 * index + step) % 97 for index in range(buckets)]
    full = {"min": -1.0 / 3.0, "max": 2.0 / 3.0, "num": sum(counts), "sum": 0.1 + step % 1000, "sum_squares": 1.0 / 7.0}
    return HistogramPoint(tag, step, counts, edges, full if summary is None else summary)  # type: ignore[arg-type]


def image(tag: str, step: int, width: int) -> ImagePoint:
    """Return a small image of three channels of bytes."""
    return ImagePoint(tag, step, scattered(f"image {step} {width}", 2 * width * 3), (2, width, 3), "uint8")


def embedding(tag: str, step: int, vectors: int, *, labels: bool = True) -> EmbeddingPoint:
    """Return a small table of float32 vectors of width 2."""
    values = [(index + step % 1000) / 3.0 for index in range(2 * vectors)]
    names = tuple(f"row {index}" for index in range(vectors)) if labels else None
    return EmbeddingPoint(tag, step, struct.pack(f"<{2 * vectors}f", *values), (vectors, 2), "float32", names)


def _scalars(nonce: str) -> Iterator[Point]:
    leaves = ("mean", "norm", "std")
    for step in range(10):
        for index, leaf in enumerate(leaves):
            value = (step + 1) / (3 + index) if (step + index) % 4 else 10 * step + index
            yield ScalarPoint(f"gradients/{leaf}/{nonce}.block.{index}.weight", step, value)


def _hard_scalars(nonce: str, size: str) -> Iterator[Point]:
    tag = f"activations/mean/{nonce}.hard"
    values: tuple[int | float, ...] = (
        0.1,
        -0.0,
        0.0,
        5e-324,
        2.2250738585072009e-308,
        1e300,
        -1e300,
        1.7976931348623157e308,
        1.0 + 2.0**-52,
        nan,
        inf,
        -inf,
        2**53 + 1,
        -(2**53) - 1,
        2**62 + 1,
        2**63 - 1,
    )
    for index, value in enumerate(values):
        yield ScalarPoint(tag, 100 + index, value)


def _histograms(nonce: str) -> Iterator[Point]:
    for step in range(0, 12, 2):
        yield histogram(f"gradients/hist/{nonce}.block.0.weight", step, 64)
        yield histogram(f"parameters/hist/{nonce}.block.0.weight", step, 16)


def _hard_histograms(nonce: str, size: str) -> Iterator[Point]:
    tag = f"activations/hist/{nonce}.hard"
    yield histogram(tag, 100, 1)
    for step, descriptor in enumerate((WANDB_SAFE_DESCRIPTOR, DEFAULT_DESCRIPTOR), 101):
        counts = [index % 5 for index in range(descriptor.bucket_count)]
        yield HistogramPoint(tag, step, counts, descriptor.edges, {"num": sum(counts)})  # type: ignore[arg-type]
    yield histogram(tag, 103, 2048)
    past = (2**53 + 1, 0, 2**62 + 1, 1, 2**63 - 1)
    yield HistogramPoint(tag, 104, past, (-2.0, -1.0, 0.0, 0.1, 0.3, 2.0), {"num": sum(past)})
    yield HistogramPoint(tag, 105, (0,) * 8, tuple(index / 3.0 for index in range(9)), {"num": 0})
    edges = (-1.7976931348623157e308, -1e300, -5e-324, 0.0, 5e-324, 0.1, 1e300)
    yield HistogramPoint(tag, 106, (1, 2, 3, 4, 5, 6), edges, {"min": -1e300, "max": inf, "sum": nan})
    yield histogram(tag, 107, 4, summary={})
    yield histogram(tag, 108, 4, summary={"min": -0.0, "max": 0.1})
    yield histogram(tag, 109, 4, summary={"num": 2**53 + 1, "sum_squares": 1e300})


def _texts(nonce: str) -> Iterator[Point]:
    for step in range(0, 12, 3):
        yield TextPoint(f"torchlens/meta/{nonce}.notes", step, f"{nonce}: notes of step {step}, plain and short.")
        yield TextPoint(f"torchlens/meta/{nonce}.manifest", step, f'{{"nonce": "{nonce}", "step": {step}}}')


def _hard_texts(nonce: str, size: str) -> Iterator[Point]:
    tag = f"torchlens/meta/{nonce}.hard"
    texts = [
        "",
        " ",
        f"{nonce}\nlines\r\nof\rall\x0bkinds\x85\u2028\u2029end\n",
        f"  {nonce} spaces around\t ",
        '{"$float": "NaN"}',
        "".join(map(chr, range(0x250))),
        "\ufeffmark \u202eright to left\u202c e\u0301 \u1f469\u200d\U0001f52c \U0001f600 \U0010ffff",
        "".join(chr(code) for plane in range(17) for code in _plane_sample(plane)),
    ]
    if size == FULL:
        texts += [unicode_plane(plane) for plane in range(17)]
        texts.append((f"{nonce} 0123456789 abcdefghijklmnopqrstuvwxyz\n" * (2**20 // 40))[: 2**20])
    for index, text in enumerate(texts):
        yield TextPoint(tag, 100 + index, text)


def unicode_plane(plane: int) -> str:
    """Return every character of one of the 17 planes of Unicode; surrogates are no characters."""
    codes = range(plane << 16, (plane + 1) << 16)
    return "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000)


def _plane_sample(plane: int) -> Iterator[int]:
    base = plane << 16
    yield from (base, base + 1, base + 0x2603, base + 0xD7FF, base + 0xFFFD, base + 0xFFFE, base + 0xFFFF)


def _images(nonce: str) -> Iterator[Point]:
    for step in range(1, 10, 3):
        yield image(f"images/{nonce}.sample", step, 4)


def _hard_images(nonce: str, size: str) -> Iterator[Point]:
    tag = f"images/{nonce}.hard"
    yield ImagePoint(tag, 100, b"\x00", (1, 1), "uint8")
    yield ImagePoint(tag, 101, struct.pack("<6f", 0.1, nan, inf, -0.0, 5e-324, 1.0), (2, 3), "float32")
    yield ImagePoint(tag, 102, scattered("16 bits", 2 * 2 * 4 * 2), (2, 2, 4), "uint16")
    yield ImagePoint(tag, 103, bytes(range(256)), (16, 16, 1), "uint8")
    if size == FULL:
        yield ImagePoint(tag, 104, scattered("large", 128 * 128 * 3), (128, 128, 3), "uint8")


def _graphs(nonce: str) -> Iterator[Point]:
    nodes = [
        {"name": f"{nonce}/x", "op": "input", "inputs": []},
        {"name": f"{nonce}/w", "op": "parameter", "inputs": []},
        {"name": f"{nonce}/y", "op": "matmul", "inputs": [f"{nonce}/x", f"{nonce}/w"]},
    ]
    yield GraphPoint({"nodes": nodes})


def _hard_graphs(nonce: str, size: str) -> Iterator[Point]:
    count = 200 if size == FULL else 12
    nodes = [
        {"name": f"{nonce}/n{index}", "op": "add", "inputs": [f"{nonce}/n{i}" for i in range(max(0, index - 2), index)]}
        for index in range(count)
    ]
    yield GraphPoint({"nodes": nodes, "label": nonce, "seconds": [0.1, 1e-9], "device": None})


def _metadata(nonce: str) -> Iterator[Point]:
    for step in range(0, 9, 4):
        facts = {"nonce": nonce, "rate": (step + 1) / 30.0, "layers": step, "tied": True, "names": ["a", "b"]}
        yield MetadataPoint(f"torchlens/meta/{nonce}.facts", step, facts)


def _hard_metadata(nonce: str, size: str) -> Iterator[Point]:
    for step, facts in enumerate(_hard_mappings(nonce), 100):
        yield MetadataPoint(f"torchlens/meta/{nonce}.hard-facts", step, facts)


def _events(nonce: str) -> Iterator[Point]:
    for step in range(2, 11, 4):
        payload = {"nonce": nonce, "loss": (step + 1) / 7.0, "reason": "interval", "ranks": [0, 1]}
        yield EventPoint(f"events/{nonce}.saved", step, "checkpoint", payload)


def _hard_events(nonce: str, size: str) -> Iterator[Point]:
    for step, payload in enumerate(_hard_mappings(nonce), 100):
        yield EventPoint(f"events/{nonce}.hard", step, "odd kind / \u00e9", payload)


def _hard_mappings(nonce: str) -> Iterator[dict[str, object]]:
    yield {}
    yield {"nan": nan, "inf": [inf, -inf], "zero": -0.0, "small": 5e-324, "large": 2**53 + 1}
    yield {"$float": "NaN", "": nonce, "deep": {"deeper": [{"deepest": None}, [], {}]}, "\u00e9\U0001f600": "\x00\n"}


def _embeddings(nonce: str) -> Iterator[Point]:
    for step in range(3, 10, 3):
        yield embedding(f"embeddings/{nonce}.tokens", step, 4)


def _hard_embeddings(nonce: str, size: str) -> Iterator[Point]:
    tag = f"embeddings/{nonce}.hard"
    yield embedding(tag, 100, 3, labels=False)
    data = struct.pack("<4d", 0.1, nan, -0.0, 1e300)
    yield EmbeddingPoint(tag, 101, data, (2, 2), "float64", ("\u00e9\t\n", ""))


_ORDINARY: Mapping[str, Callable[[str], Iterator[Point]]] = {
    "scalar": _scalars,
    "raw_histogram": _histograms,
    "text_manifest": _texts,
    "image": _images,
    "graph": _graphs,
    "run_metadata": _metadata,
    "structured_event": _events,
    "embedding_module": _embeddings,
}

_HARD: Mapping[str, Callable[[str, str], Iterator[Point]]] = {
    "scalar": _hard_scalars,
    "raw_histogram": _hard_histograms,
    "text_manifest": _hard_texts,
    "image": _hard_images,
    "graph": _hard_graphs,
    "run_metadata": _hard_metadata,
    "structured_event": _hard_events,
    "embedding_module": _hard_embeddings,
}


def odd_tags(nonce: str) -> tuple[str, ...]:
    """Return tags that a store might be tempted to rewrite, the safe ones of TAG-3 first.

    Clause: TAG-3.
    """
    safe = (
        f"parameters/mean/{nonce}.weight",
        f"parameters/mean/{nonce}.WEIGHT",
        f"parameters/mean/{nonce} with spaces",
        f"parameters/mean/{nonce}:0",
        f"parameters/mean/{nonce}-dash_and.dot",
        f"parameters/mean/{nonce}(1)[2]{{3}}",
        f"parameters/mean/{nonce}+=,;!@$^&*~",
        f"{nonce}",
        f"{nonce}/a/b/c/d/e/f/g/h",
        f"parameters/mean/{nonce}." + "long" * 60,
    )
    unsafe = (
        f"unsafe/{nonce}?#%",
        f"unsafe/{nonce}\"'`\\",
        f"unsafe/{nonce}<a|b>",
        f"unsafe/{nonce}/../up",
        f"unsafe/./{nonce}",
        f"/unsafe/{nonce}",
        f"unsafe//{nonce}/",
        f"unsafe/{nonce} ",
        f"unsafe/{nonce}\t\n",
        f"unsafe/{nonce}/\u00e9\u0301\U0001f600",
    )
    return safe + unsafe
