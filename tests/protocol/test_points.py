"""Points: immutable, checked, free of tensors, and unaffected by what happens to the objects they were made from."""

from __future__ import annotations

import copy
import dataclasses
import enum
import math
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchlens_conformance.protocol import (
    CAPABILITY_METHODS,
    DEFAULT_DESCRIPTOR,
    LARGEST_STEP,
    POINT_CLASSES,
    SUMMARY_FIELDS,
    EmbeddingPoint,
    EventPoint,
    FrozenMapping,
    GraphPoint,
    HistogramPoint,
    ImagePoint,
    MetadataPoint,
    Point,
    Refusal,
    ScalarPoint,
    TextPoint,
)

from ..reference_sinks.jsonl_points import ONE_OF_EACH, anything


class Word(str, enum.Enum):
    """Texts that show themselves by another text."""

    LOSS = "loss"
    BYTES = "uint8"


class Number(enum.IntEnum):
    """Integers that show themselves by a text."""

    SEVEN = 7


def refused(make: Callable[[], object]) -> Refusal:
    """Return the refusal that ``make`` raises."""
    with pytest.raises(Refusal) as caught:
        make()
    return caught.value


def test_every_kind_of_point_has_its_own_capability() -> None:
    """The eight kinds of points stand for the eight capability words, one each (POINT-1, PROT-2)."""
    assert [kind.capability for kind in POINT_CLASSES] == [
        "scalar",
        "raw_histogram",
        "text_manifest",
        "graph",
        "image",
        "embedding_module",
        "structured_event",
        "run_metadata",
    ]
    assert {kind.capability for kind in POINT_CLASSES} == set(CAPABILITY_METHODS)
    assert {type(point) for point in ONE_OF_EACH} == set(POINT_CLASSES)


@pytest.mark.parametrize("point", ONE_OF_EACH, ids=lambda point: type(point).__name__)
def test_points_cannot_be_changed(point: Point) -> None:
    """No field of a point can be set or deleted, and no attribute added (POINT-1)."""
    before = repr(point)
    for item in dataclasses.fields(point):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(point, item.name, 1)
        with pytest.raises(dataclasses.FrozenInstanceError):
            delattr(point, item.name)
    # Python 3.11 raises TypeError here by a fault of its own.
    with pytest.raises((AttributeError, TypeError)):
        point.another = 1  # type: ignore[union-attr]
    assert repr(point) == before and not hasattr(point, "__dict__")


@settings(deadline=None, max_examples=60)
@given(anything)
def test_points_survive_pickling_and_copying(point: Point) -> None:
    """Pickled by every protocol or copied deeply, a point stays the same and keeps its hash (POINT-1, POINT-2)."""
    copies = [pickle.loads(pickle.dumps(point, protocol)) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)]
    for again in (*copies, copy.copy(point), copy.deepcopy(point)):
        assert type(again) is type(point)
        assert repr(again) == repr(point)
    for again in copies:
        hash(again)
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(again, dataclasses.fields(again)[0].name, 1)


def _plain_classes(value: object) -> set[type]:
    if isinstance(value, FrozenMapping):
        return {FrozenMapping}.union(*(_plain_classes(item) for pair in value.items() for item in pair))
    if type(value) is tuple:
        return {tuple}.union(*map(_plain_classes, value))
    return {type(value)}


@settings(deadline=None, max_examples=60)
@given(anything)
def test_points_hold_plain_values_only(point: Point) -> None:
    """Whatever a point was made from, it holds exact built-in values, tuples and frozen mappings (POINT-1, POINT-2)."""
    held: set[type] = set()
    for item in dataclasses.fields(point):
        held |= _plain_classes(getattr(point, item.name))
    assert held <= {bool, int, float, str, bytes, type(None), tuple, FrozenMapping}
    hash(point)


def test_later_changes_of_the_callers_objects_do_not_reach_a_point() -> None:
    """Lists, dictionaries and bytearrays may be changed after the point was made (POINT-1)."""
    counts, edges, summary = [1, 2], [0.0, 1.0, 2.0], {"num": 3}
    data, shape, labels = bytearray(b"\1\2"), [2, 1], ["a", "b"]
    payload: dict[str, Any] = {"list": [1, [2]], "deep": {"raw": bytearray(b"x")}}
    points = (
        HistogramPoint("h", 1, counts, edges, summary),  # type: ignore[arg-type]
        ImagePoint("i", 1, data, shape, "uint8"),  # type: ignore[arg-type]
        ImagePoint("i", 1, memoryview(data), shape, "uint8"),  # type: ignore[arg-type]
        EmbeddingPoint("e", 1, data, shape, "uint8", labels),  # type: ignore[arg-type]
        EventPoint("v", 1, "kind", payload),
        MetadataPoint("m", 1, payload),
        GraphPoint(payload),
    )
    before = [repr(point) for point in points]
    counts[0], edges[0], summary["num"], data[0], shape[0], labels[0] = 9, -9.0, 9, 9, 9, "z"
    payload["list"][1].append(3)
    payload["deep"]["raw"][0] = 0
    payload["new"] = 1
    assert [repr(point) for point in points] == before


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0, 5e-324, 2**70, -(2**70), 0])
def test_every_number_is_a_legal_value(value: float) -> None:
    """NaN, the infinities and integers of any size are kept with their type (POINT-3)."""
    point = ScalarPoint("a", 0, value)
    assert repr(point.value) == repr(value) and type(point.value) is type(value)


@pytest.mark.parametrize("value", [True, "1", None, 1j, [1], b"1"])
def test_other_values_are_refused(value: Any) -> None:
    """A value that is no number is refused with its point and field (POINT-3, PROT-9)."""
    refusal = refused(lambda: ScalarPoint("a", 0, value))
    assert refusal.code == "point_field_invalid"
    assert refusal.fields == {"point": "ScalarPoint", "field": "value", "value": repr(value)}


def test_numbers_of_array_libraries_are_no_values() -> None:
    """A numpy float64 is a Python float and is taken as one; other array numbers are refused (POINT-3)."""
    numpy = pytest.importorskip("numpy")
    assert type(ScalarPoint("a", 0, numpy.float64(0.1)).value) is float
    for value in (numpy.float32(0.1), numpy.int64(1), numpy.bool_(True), numpy.array(1.0)):
        assert refused(lambda value=value: ScalarPoint("a", 0, value)).code == "point_field_invalid"


def test_members_of_enumerations_become_plain_values() -> None:
    """A text enumeration gives its characters, not its name; an integer one its number (POINT-1)."""
    point = ScalarPoint(Word.LOSS, Number.SEVEN, Number.SEVEN)
    assert repr(point) == "ScalarPoint(tag='loss', step=7, value=7)"
    assert repr(EventPoint("v", 0, Word.LOSS, {Word.LOSS: Word.LOSS}).payload) == "FrozenMapping({'loss': 'loss'})"
    assert type(ImagePoint("i", 0, b"1", (1, 1), Word.BYTES).dtype) is str


@pytest.mark.parametrize("tag", [None, 1, b"a", ["a"]])
def test_tags_are_texts(tag: Any) -> None:
    """A tag that is no text is refused in every kind of point that has one (POINT-1)."""
    for make in (
        lambda: ScalarPoint(tag, 0, 1),
        lambda: HistogramPoint(tag, 0, (1,), (0.0, 1.0)),
        lambda: TextPoint(tag, 0, ""),
        lambda: ImagePoint(tag, 0, b"", (0,), "uint8"),
        lambda: EmbeddingPoint(tag, 0, b"", (0, 1), "uint8"),
        lambda: EventPoint(tag, 0, ""),
        lambda: MetadataPoint(tag, 0, {}),
    ):
        assert refused(make).fields["field"] == "tag"


@pytest.mark.parametrize("tag", ["", "//", "a?b", "\u00e9", "x" * 5000, "a\0b", "\ud800"])
def test_points_do_not_judge_tags(tag: str) -> None:
    """Unsafe tags are the engine's affair: a point keeps them as they are (TAG-3)."""
    assert ScalarPoint(tag, 0, 1).tag == tag


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: TextPoint("t", 0, None), "text"),
        (lambda: EventPoint("v", 0, 1), "kind"),
        (lambda: EventPoint("v", 0, "k", [1]), "payload"),
        (lambda: MetadataPoint("m", 0, "text"), "metadata"),
        (lambda: GraphPoint(None), "graph"),
        (lambda: ImagePoint("i", 0, "text", (1,), "uint8"), "data"),
        (lambda: ImagePoint("i", 0, b"12", (1,), "uint8"), "data"),
        (lambda: ImagePoint("i", 0, b"12", (1,), "float32"), "data"),
        (lambda: ImagePoint("i", 0, b"1", (1,), "complex64"), "dtype"),
        (lambda: ImagePoint("i", 0, b"1", (1,), []), "dtype"),
        (lambda: ImagePoint("i", 0, b"1", 1, "uint8"), "shape"),
        (lambda: ImagePoint("i", 0, b"1", "1", "uint8"), "shape"),
        (lambda: ImagePoint("i", 0, b"1", (True,), "uint8"), "shape"),
        (lambda: ImagePoint("i", 0, b"1", (-1, -1), "uint8"), "shape"),
        (lambda: EmbeddingPoint("e", 0, b"1", (1,), "uint8"), "shape"),
        (lambda: EmbeddingPoint("e", 0, b"1", (1, 1), "uint8", ("a", "b")), "labels"),
        (lambda: EmbeddingPoint("e", 0, b"1", (1, 1), "uint8", "a"), "labels"),
        (lambda: EmbeddingPoint("e", 0, b"1", (1, 1), "uint8", 5), "labels"),
        (lambda: EmbeddingPoint("e", 0, b"1", (1, 1), "uint8", (5,)), "labels"),
    ],
)
def test_wrong_fields_are_refused_by_name(make: Callable[[], object], field: str) -> None:
    """Every wrong field is refused with its name (POINT-1, PROT-9)."""
    refusal = refused(make)
    assert (refusal.code, refusal.fields["field"]) == ("point_field_invalid", field)


def test_tensors_inside_mappings_are_refused() -> None:
    """Arrays and tensors inside a payload are refused with their type (POINT-1, POINT-2)."""
    for library, make in (("numpy", "zeros"), ("torch", "zeros")):
        array = getattr(pytest.importorskip(library), make)(2)
        refusal = refused(lambda array=array: EventPoint("v", 0, "k", {"a": [array]}))
        assert (refusal.code, refusal.fields["type"]) == ("point_field_invalid", type(array).__name__)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "float16", "bfloat16", "uint32", "float64"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 3), (1, 2, 3)])
def test_images_have_as_many_bytes_as_their_shape_needs(dtype: str, shape: tuple[int, ...]) -> None:
    """One byte more or less than shape and dtype need is refused (POINT-2)."""
    width = {"bool": 1, "uint8": 1, "int16": 2, "float16": 2, "bfloat16": 2, "uint32": 4, "float64": 8}[dtype]
    needed = width * math.prod(shape)
    assert len(ImagePoint("i", 0, bytes(needed), shape, dtype).data) == needed
    for wrong in {needed + 1, max(needed - 1, 0)} - {needed}:
        assert refused(lambda wrong=wrong: ImagePoint("i", 0, bytes(wrong), shape, dtype)).fields["field"] == "data"


finite = st.floats(allow_nan=False, allow_infinity=False)
count = st.integers(0, 2**70)


@settings(deadline=None)
@given(st.sets(finite, min_size=2, max_size=8), st.data())
def test_histograms_keep_counts_and_edges_exactly(edges: set[float], data: st.DataObject) -> None:
    """Counts beyond 2**53 and edges of any size are kept as they were given (POINT-2)."""
    ordered = sorted(edges)
    counts = data.draw(st.lists(count, min_size=len(ordered) - 1, max_size=len(ordered) - 1))
    summary = data.draw(st.dictionaries(st.sampled_from(SUMMARY_FIELDS), st.floats() | st.integers()))
    point = HistogramPoint("h", 0, counts, ordered, summary)  # type: ignore[arg-type]
    assert point.counts == tuple(counts)
    assert repr(point.edges) == repr(tuple(ordered))
    assert repr(dict(point.summary)) == repr(summary)


@pytest.mark.parametrize(
    ("counts", "edges", "summary", "field"),
    [
        ((), (0.0,), {}, "counts"),
        ((-1,), (0.0, 1.0), {}, "counts"),
        ((-(10**5000),), (0.0, 1.0), {}, "counts"),
        ((1.0,), (0.0, 1.0), {}, "counts"),
        ((True,), (0.0, 1.0), {}, "counts"),
        (("1",), (0.0, 1.0), {}, "counts"),
        ("1", (0.0, 1.0), {}, "counts"),
        (None, (0.0, 1.0), {}, "counts"),
        ({0: 1}, (0.0, 1.0), {}, "counts"),
        ((1, 2), (0.0, 1.0), {}, "edges"),
        ((1,), (0.0, 1.0, 2.0), {}, "edges"),
        ((1,), (1.0, 1.0), {}, "edges"),
        ((1,), (-0.0, 0.0), {}, "edges"),
        ((1,), (1.0, 0.0), {}, "edges"),
        ((1,), (0.0, math.inf), {}, "edges"),
        ((1,), (math.nan, 1.0), {}, "edges"),
        ((1,), (0, 10**400), {}, "edges"),
        ((1,), (2**53, 2**53 + 1), {}, "edges"),
        ((1,), (False, True), {}, "edges"),
        ((1,), None, {}, "edges"),
        ((1,), 5, {}, "edges"),
        ((1,), (0.0, 1.0), {"mean": 1.0}, "summary"),
        ((1,), (0.0, 1.0), {"num": True}, "summary"),
        ((1,), (0.0, 1.0), {"min": "0"}, "summary"),
        ((1,), (0.0, 1.0), FrozenMapping({"min": "0"}), "summary"),
        ((1,), (0.0, 1.0), FrozenMapping({"num": True}), "summary"),
        ((1,), (0.0, 1.0), FrozenMapping({"mean": 1.0}), "summary"),
        ((1,), (0.0, 1.0), None, "summary"),
        ((1,), (0.0, 1.0), [("min", 0)], "summary"),
    ],
)
def test_malformed_histograms_are_refused(counts: Any, edges: Any, summary: Any, field: str) -> None:
    """Each way to break a histogram is refused by the name of its field (POINT-2, PROT-9)."""
    refusal = refused(lambda: HistogramPoint("h", 0, counts, edges, summary))
    assert (refusal.code, refusal.fields["field"]) == ("point_field_invalid", field)


def test_the_summary_leaves_out_what_is_unknown() -> None:
    """A summary may be empty or partial, and nothing is filled in (POINT-2)."""
    assert dict(HistogramPoint("h", 0, (1,), (0.0, 1.0)).summary) == {}
    given_summary: Mapping[str, Any] = FrozenMapping({"num": 1, "max": math.nan})
    assert HistogramPoint("h", 0, (1,), (0.0, 1.0), given_summary).summary is given_summary


def test_counts_of_arrays_become_plain_integers() -> None:
    """Integer arrays and tensors are taken as counts; bool ones, floats and tables are not (POINT-2)."""
    torch, numpy = pytest.importorskip("torch"), pytest.importorskip("numpy")
    for counts in (torch.tensor([1, 2]), numpy.array([1, 2], dtype=numpy.uint8), memoryview(b"\1\2")):
        point = HistogramPoint("h", 0, counts, (0.0, 1.0, 2.0))
        assert point.counts == (1, 2) and {type(each) for each in point.counts} == {int}
    for counts in (
        torch.tensor([True, False]),
        numpy.array([True, False]),
        torch.tensor([1.0, 2.0]),
        torch.tensor([[1], [2]]),
        numpy.array([[1], [2]]),
        torch.tensor(1),
    ):
        refusal = refused(lambda counts=counts: HistogramPoint("h", 0, counts, (0.0, 1.0, 2.0)))
        assert refusal.fields["field"] == "counts"


def test_edges_of_a_grid_are_shared_and_still_counted() -> None:
    """Points over one grid hold the same tuple of edges; a wrong number of counts is refused as ever (POINT-2)."""
    edges = DEFAULT_DESCRIPTOR.edges
    assert HistogramPoint("h", 0, (0,) * 513, edges).edges is edges
    assert HistogramPoint("h", 0, (0,) * 513, list(edges)).edges == edges  # type: ignore[arg-type]
    for number in (512, 514):
        assert refused(lambda number=number: HistogramPoint("h", 0, (0,) * number, edges)).fields["field"] == "edges"


def test_the_largest_step_stands_in_one_place() -> None:
    """Steps go to 2**63-1 in every kind of point that has one (POINT-3)."""
    assert LARGEST_STEP == 2**63 - 1
    for make in (
        lambda step: ScalarPoint("a", step, 1),
        lambda step: HistogramPoint("h", step, (1,), (0.0, 1.0)),
        lambda step: TextPoint("t", step, ""),
        lambda step: ImagePoint("i", step, b"", (0,), "uint8"),
        lambda step: EmbeddingPoint("e", step, b"", (0, 1), "uint8"),
        lambda step: EventPoint("v", step, ""),
        lambda step: MetadataPoint("m", step, {}),
    ):
        assert make(LARGEST_STEP).step == LARGEST_STEP
        assert refused(lambda make=make: make(LARGEST_STEP + 1)).code == "point_step_invalid"
