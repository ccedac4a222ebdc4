"""The closed capability words and what they oblige a sink to (PROT-1..4)."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from types import MappingProxyType

from .refusals import Refusal, short_repr

CAPABILITY_METHODS: Mapping[str, str] = MappingProxyType(
    {
        "scalar": "emit_scalar",
        "raw_histogram": "emit_histogram",
        "text_manifest": "emit_text",
        "image": "emit_image",
        "graph": "emit_graph",
        "run_metadata": "emit_metadata",
        "structured_event": "emit_event",
        "embedding_module": "emit_embedding",
    }
)
"""Each capability word with the method that a sink advertising it must have (PROT-2)."""


def advertised_capabilities(sink: object) -> frozenset[str]:
    """Return the capability words of ``sink`` after checking words and methods.

    Raises ``tracker_sink_invalid`` when there is no ``capabilities()``, when it gives no collection of words or raises
    (a refusal of the sink itself passes), when a word is unknown, or when the method of an advertised word (or
    ``flush``, ``close``) is missing.

    Clause: PROT-1, PROT-2, PROT-3.
    """
    name = type(sink).__name__
    capabilities = getattr(sink, "capabilities", None)
    if not callable(capabilities):
        raise Refusal(
            "tracker_sink_invalid",
            f"{name} has no capabilities().",
            remedy="Wrap it in an adapter: JSONLSink(path), MemorySink(), TensorBoardSink(writer_or_logdir) or "
            "WandbSink(run), or write a sink with capabilities(), emit_*, flush() and close().",
            sink=name,
        )
    words = _given_words(name, capabilities)
    unknown = sorted(str(word) for word in words if word not in CAPABILITY_METHODS)
    if unknown:
        raise Refusal(
            "tracker_sink_invalid",
            f"{name} advertises unknown capability words.",
            remedy=f"Use only {', '.join(CAPABILITY_METHODS)}.",
            sink=name,
            words=unknown,
        )
    wanted = [CAPABILITY_METHODS[word] for word in CAPABILITY_METHODS if word in words] + ["flush", "close"]
    missing = [method for method in wanted if not callable(getattr(sink, method, None))]
    if missing:
        raise Refusal(
            "tracker_sink_invalid",
            f"{name} lacks methods that it must have.",
            remedy="Implement them, or do not advertise their capability.",
            sink=name,
            methods=missing,
        )
    return words


def _given_words(name: str, capabilities: Callable[[], Iterable[str]]) -> frozenset[str]:
    try:
        given = capabilities()
        if isinstance(given, str):
            raise TypeError("one text in place of a collection of words")
        return frozenset(given)
    except Refusal:
        raise
    except Exception as error:
        raise Refusal(
            "tracker_sink_invalid",
            f"capabilities() of {name} does not give capability words.",
            remedy="Return a set or tuple of words from capabilities().",
            sink=name,
            error=short_repr(error),
        ) from error


def require_capability(sink: object, capability: str, *, sink_name: str | None = None) -> None:
    """Refuse ``tracker_sink_capability_missing`` unless ``sink`` advertises ``capability``.

    Raises ``tracker_sink_invalid`` for an unknown word. Clause: PROT-4.
    """
    require_capabilities([(sink_name or type(sink).__name__, sink)], [capability])


def require_advertised(name: str, advertised: Container[str], capability: str) -> None:
    """Refuse ``tracker_sink_capability_missing`` unless ``capability`` is among the words of the sink ``name``.

    Clause: PROT-4.
    """
    if capability not in advertised:
        raise Refusal(
            "tracker_sink_capability_missing",
            f"{name} does not carry {capability!r}.",
            remedy="Ask for something it advertises, or add a sink that carries it.",
            sink=name,
            capability=capability,
        )


def require_word(capability: str) -> None:
    """Refuse ``tracker_sink_invalid`` unless ``capability`` is one of the closed words. Clause: PROT-2."""
    if not isinstance(capability, str) or capability not in CAPABILITY_METHODS:
        raise Refusal(
            "tracker_sink_invalid",
            f"{short_repr(capability)} is no capability word.",
            remedy=f"Use one of {', '.join(CAPABILITY_METHODS)}.",
            capability=capability if isinstance(capability, str) else short_repr(capability),
        )


def require_capabilities(sinks: Iterable[tuple[str, object]], capabilities: Iterable[str]) -> None:
    """Check every (name, sink) pair against every requested word before anything is emitted.

    Raises ``tracker_sink_capability_missing`` or ``tracker_sink_invalid``. Clause: PROT-4.
    """
    wanted = tuple(capabilities)
    for capability in wanted:
        require_word(capability)
    for name, sink in sinks:
        advertised = advertised_capabilities(sink)
        for capability in wanted:
            require_advertised(name, advertised, capability)
