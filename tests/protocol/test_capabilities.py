"""Capability words: the closed list, the methods they oblige to, and what is refused before anything is emitted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from torchlens_conformance.protocol import (
    CAPABILITY_METHODS,
    DEFAULT_DESCRIPTOR,
    GridDescriptor,
    KnowsLastStep,
    Ledger,
    OffersGrid,
    PreflightsHistograms,
    PreflightsTags,
    Refusal,
    RelayState,
    ReportsRelay,
    ScalarPoint,
    Sink,
    advertised_capabilities,
    require_capabilities,
    require_capability,
)

WORDS = (
    ("scalar", "emit_scalar"),
    ("raw_histogram", "emit_histogram"),
    ("text_manifest", "emit_text"),
    ("image", "emit_image"),
    ("graph", "emit_graph"),
    ("run_metadata", "emit_metadata"),
    ("structured_event", "emit_event"),
    ("embedding_module", "emit_embedding"),
)


def make_sink(words: object, *, methods: Iterable[str] | None = None, name: str = "Made") -> Any:
    """Return a sink that advertises ``words`` and has ``methods`` (by default those that the words need)."""
    if methods is None:
        methods = [*(CAPABILITY_METHODS[word] for word in words), "flush", "close"]  # type: ignore[attr-defined]
    body: dict[str, Any] = {"capabilities": lambda self: words}
    for method in methods:
        body[method] = lambda self, *arguments: self.calls.append(arguments)
    sink = type(name, (), body)()
    sink.calls = []
    return sink


def refused(call: Callable[[], object]) -> Refusal:
    """Return the refusal that ``call`` raises."""
    with pytest.raises(Refusal) as caught:
        call()
    return caught.value


def test_the_words_are_closed() -> None:
    """There are eight words, each with its method, and the table cannot be changed (PROT-2)."""
    assert tuple(CAPABILITY_METHODS.items()) == WORDS
    with pytest.raises(TypeError):
        CAPABILITY_METHODS["video"] = "emit_video"  # type: ignore[index]


@pytest.mark.parametrize(("word", "method"), WORDS)
def test_each_word_obliges_to_its_method(word: str, method: str) -> None:
    """A sink with word and method is taken; without the method it is refused by name (PROT-1, PROT-2)."""
    assert advertised_capabilities(make_sink([word])) == {word}
    for absent in (method, "flush", "close"):
        present = {method, "flush", "close"} - {absent}
        refusal = refused(lambda present=present: advertised_capabilities(make_sink([word], methods=present)))
        assert (refusal.code, refusal.fields["methods"]) == ("tracker_sink_invalid", [absent])
        assert refusal.fields["sink"] == "Made"


def test_all_missing_methods_are_named_at_once() -> None:
    """A sink that lacks several methods learns of all of them (PROT-1, PROT-9)."""
    refusal = refused(lambda: advertised_capabilities(make_sink(["graph", "scalar"], methods=["close"])))
    assert refusal.fields["methods"] == ["emit_scalar", "emit_graph", "flush"]


def test_a_method_must_be_callable() -> None:
    """An attribute that merely has the name of the method does not count (PROT-1)."""
    sink = make_sink(["scalar"])
    sink.emit_scalar = "here"
    assert refused(lambda: advertised_capabilities(sink)).fields["methods"] == ["emit_scalar"]


@pytest.mark.parametrize("words", [["scalar"], ("scalar",), {"scalar"}, frozenset(["scalar"]), {"scalar": 1}])
def test_words_may_come_in_any_collection(words: Any) -> None:
    """Lists, tuples, sets and the like are all taken, and an iterator too (PROT-1)."""
    assert advertised_capabilities(make_sink(words)) == {"scalar"}
    assert advertised_capabilities(make_sink(iter(words), methods=["emit_scalar", "flush", "close"])) == {"scalar"}


@pytest.mark.parametrize("word", ["embedding", "histogram", "", "Scalar", "scalar ", 1, None])
def test_unknown_words_are_refused(word: Any) -> None:
    """A word outside the closed list is refused by name, also the older spelling ``embedding`` (PROT-2)."""
    refusal = refused(lambda: advertised_capabilities(make_sink(["scalar", word], methods=["emit_scalar"])))
    assert (refusal.code, refusal.fields["words"]) == ("tracker_sink_invalid", [str(word)])
    assert "scalar" in refusal.remedy


class FromAnotherLibrary:
    """A logger that is no sink."""

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        """Log a number."""


@pytest.mark.parametrize("thing", [object(), None, "runs/here", 5, FromAnotherLibrary(), print])
def test_an_object_without_capabilities_is_refused(thing: object) -> None:
    """Whatever has no capabilities() is refused, and the remedy names the adapters (PROT-3)."""
    refusal = refused(lambda: advertised_capabilities(thing))
    assert (refusal.code, refusal.fields["sink"]) == ("tracker_sink_invalid", type(thing).__name__)
    for adapter in ("JSONLSink", "MemorySink", "TensorBoardSink", "WandbSink"):
        assert adapter in refusal.remedy


def test_capabilities_that_is_no_method_is_refused() -> None:
    """A list called ``capabilities`` is not the method (PROT-3)."""
    sink = make_sink([])
    sink.capabilities = ["scalar"]
    assert refused(lambda: advertised_capabilities(sink)).code == "tracker_sink_invalid"


@pytest.mark.parametrize("given", [None, 5, "scalar", [["scalar"]]])
def test_capabilities_that_gives_no_words_is_refused(given: object) -> None:
    """None, a number, one bare text and unhashable words are refused, not raised through (PROT-2, PROT-9)."""
    refusal = refused(lambda: advertised_capabilities(make_sink(given, methods=[])))
    assert refusal.code == "tracker_sink_invalid" and "does not give capability words" in str(refusal)


def test_capabilities_that_raises_is_refused_with_its_cause() -> None:
    """An error inside capabilities() becomes a refusal that keeps it; a refusal of the sink's own passes (PROT-3)."""
    sink = make_sink([])
    sink.capabilities = lambda: 1 / 0
    refusal = refused(lambda: advertised_capabilities(sink))
    assert refusal.code == "tracker_sink_invalid" and isinstance(refusal.__cause__, ZeroDivisionError)
    own = Refusal("tracker_sink_unavailable", "Not installed.", remedy="Install it.")

    def unavailable() -> None:
        raise own

    sink.capabilities = unavailable
    assert refused(lambda: advertised_capabilities(sink)) is own


def test_a_class_in_place_of_an_object_is_refused() -> None:
    """Passing the class of a sink is refused (PROT-3)."""
    assert refused(lambda: advertised_capabilities(type(make_sink(["scalar"])))).code == "tracker_sink_invalid"


def test_a_sink_may_advertise_nothing() -> None:
    """No words are no fault of shape (PROT-1)."""
    assert advertised_capabilities(make_sink([])) == frozenset()


def test_a_missing_capability_names_sink_and_word() -> None:
    """What is not advertised is refused with sink and capability, under the name of its row (PROT-4)."""
    sink = make_sink(["scalar"])
    require_capability(sink, "scalar")
    refusal = refused(lambda: require_capability(sink, "graph"))
    assert refusal.code == "tracker_sink_capability_missing"
    assert refusal.fields == {"sink": "Made", "capability": "graph"}
    assert refused(lambda: require_capability(sink, "graph", sink_name="Made#2")).fields["sink"] == "Made#2"


@pytest.mark.parametrize("word", ["video", "", None, ["scalar"]])
def test_asking_for_an_unknown_word_is_refused(word: Any) -> None:
    """An unknown word is refused as such, whether there are sinks or none (PROT-2)."""
    sink = make_sink(["scalar"])
    for call in (
        lambda: require_capability(sink, word),
        lambda: require_capabilities([("a", sink)], ["scalar", word]),
        lambda: require_capabilities([], [word]),
        lambda: Ledger([sink]).require([word]),
        lambda: Ledger([]).require([word]),
    ):
        assert refused(call).code == "tracker_sink_invalid"


@pytest.mark.parametrize("poor", [0, 1, 2])
def test_all_sinks_are_checked_before_anything_is_emitted(poor: int) -> None:
    """Wherever the sink stands that lacks a capability, none of the sinks was called (PROT-4)."""
    sinks = [make_sink(["scalar"] if index == poor else ["scalar", "graph"], name=f"S{index}") for index in range(3)]
    ledger = Ledger(sinks)
    ledger.require(["scalar"])
    refusal = refused(lambda: ledger.require(["scalar", "graph"]))
    assert refusal.code == "tracker_sink_capability_missing"
    assert refusal.fields == {"sink": f"S{poor}", "capability": "graph"}
    pairs = [(row.name, row.sink) for row in ledger.rows]
    assert refused(lambda: require_capabilities(pairs, iter(["scalar", "graph"]))).fields == refusal.fields
    assert [sink.calls for sink in sinks] == [[], [], []]


def test_the_words_of_a_session_are_those_at_attach() -> None:
    """A sink that changes its mind after it was entered is judged by what it advertised then (PROT-4)."""
    sink = make_sink(["scalar"])
    ledger = Ledger([sink])
    sink.capabilities = lambda: []
    ledger.require(["scalar"])
    ledger.deliver(ScalarPoint("a", 0, 1))
    assert len(sink.calls) == 1 and ledger.rows[0].failure is None


class WithHooks:
    """A sink that has every optional hook."""

    def capabilities(self) -> Iterable[str]:
        """Advertise nothing."""
        return ()

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def preflight_histograms(self, descriptor: GridDescriptor) -> None:
        """Take every grid."""

    def preflight_tags(self, tags: Iterable[str]) -> None:
        """Take every tag."""

    def default_histogram_descriptor(self) -> GridDescriptor:
        """Offer the default grid."""
        return DEFAULT_DESCRIPTOR

    def relay_state(self) -> RelayState:
        """Claim nothing."""
        return RelayState("computed", "nothing was sent")

    def last_step(self) -> int | None:
        """Know nothing."""
        return None


def test_hooks_are_optional_and_recognised() -> None:
    """A sink with the hooks is recognised by each; one without is a sink all the same (PROT-7, PROT-11)."""
    hooks = (PreflightsHistograms, PreflightsTags, OffersGrid, ReportsRelay, KnowsLastStep)
    assert isinstance(WithHooks(), Sink) and all(isinstance(WithHooks(), hook) for hook in hooks)
    plain = make_sink([])
    assert isinstance(plain, Sink) and not any(isinstance(plain, hook) for hook in hooks)
    assert not isinstance(object(), Sink)
