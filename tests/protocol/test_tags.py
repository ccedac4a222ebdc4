"""Tags: how series are named, where names and namespaces go, and what is safe."""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchlens_conformance.protocol import (
    CHECK_OUTCOMES,
    FAMILIES,
    NONFINITE_KINDS,
    RESERVED_ROOT,
    STATISTICS,
    Refusal,
    check_tag,
    histogram_tag,
    meta_tag,
    nonfinite_tag,
    overflow_tag,
    require_safe_tag,
    run_tag,
    scalar_tag,
    unsafe_reason,
)

UNSAFE = "?#%\"'\\`|<>"
SAFE = "".join(sorted(set(map(chr, range(0x20, 0x7F))) - set(UNSAFE)))


def refused(call: Callable[[], object]) -> Refusal:
    """Return the refusal that ``call`` raises."""
    with pytest.raises(Refusal) as caught:
        call()
    return caught.value


def test_the_words_of_the_grammar() -> None:
    """Families, reserved root, statistics and outcomes are those of the specification (TAG-1, STAT-1, STAT-2)."""
    assert FAMILIES == ("parameters", "gradients", "activations", "activation_grads", "updates", "nonfinite")
    assert RESERVED_ROOT == "torchlens"
    assert STATISTICS == ("mean", "std", "norm", "min", "max", "count", "zero_fraction")
    assert NONFINITE_KINDS == ("nan", "posinf", "neginf")
    assert CHECK_OUTCOMES == {"pass": 0, "warn": 1, "fail": 2}


def test_series_are_named_by_family_statistic_and_leaf() -> None:
    """Each sort of series has its place in the grammar (TAG-1, GRID-2)."""
    assert scalar_tag("gradients", "norm", "h.0.weight") == "gradients/norm/h.0.weight"
    assert histogram_tag("parameters", "h.0.weight") == "parameters/hist/h.0.weight"
    assert overflow_tag("updates", "_root") == "updates/overflow/_root"
    assert run_tag("last_step") == "torchlens/run/last_step"
    assert meta_tag("manifest") == "torchlens/meta/manifest"
    assert check_tag("finite") == "torchlens/check/finite"


PLACEMENTS: list[tuple[Callable[..., str], str]] = [
    (lambda **at: scalar_tag("gradients", "norm", "w", **at), "gradients{}/norm/w"),
    (lambda **at: histogram_tag("gradients", "w", **at), "gradients{}/hist/w"),
    (lambda **at: overflow_tag("gradients", "w", **at), "gradients{}/overflow/w"),
    (lambda **at: nonfinite_tag("gradients", "nan", "w", **at), "nonfinite{}/gradients_nan/w"),
    (lambda **at: run_tag("attached", **at), "torchlens/run{}/attached"),
    (lambda **at: meta_tag("manifest", **at), "torchlens/meta{}/manifest"),
    (lambda **at: check_tag("finite", **at), "torchlens/check{}/finite"),
]


@pytest.mark.parametrize(("make", "form"), PLACEMENTS)
def test_a_name_follows_the_family_and_a_namespace_leads(make: Callable[..., str], form: str) -> None:
    """A name is one component after the family, or after torchlens/run and its like; a namespace is first (TAG-2)."""
    assert make() == form.format("")
    assert make(name="student") == form.format("/student")
    assert make(namespace="exp 1") == "exp 1/" + form.format("")
    assert make(name="student", namespace="exp 1") == "exp 1/" + form.format("/student")


@pytest.mark.parametrize(("make", "form"), PLACEMENTS)
@pytest.mark.parametrize("what", ["name", "namespace"])
@pytest.mark.parametrize("value", ["", "a/b", "/", ".", "..", "a?b", "\u00e9", "a\n", 5, b"a", ["a"]])
def test_names_are_one_safe_component(make: Callable[..., str], form: str, what: str, value: Any) -> None:
    """A name or namespace that is empty, has a slash or is unsafe is refused (TAG-2)."""
    refusal = refused(lambda: make(**{what: value}))
    assert (refusal.code, refusal.fields[what]) == ("tracker_name_invalid", value)


def test_two_named_sessions_share_no_series() -> None:
    """No tag of the session ``a`` is one of the session ``b`` or of the one without a name (TAG-2)."""
    sessions = [{make(**at) for make, _ in PLACEMENTS} for at in ({}, {"name": "a"}, {"name": "b"}, {"namespace": "a"})]
    assert all(len(session) == len(PLACEMENTS) for session in sessions)
    assert not any(first & second for first, second in itertools.combinations(sessions, 2))


def test_nonfinite_series_of_two_streams_differ() -> None:
    """Every family and kind has a series of its own, for one and the same site (TAG-5)."""
    tags = [nonfinite_tag(family, kind, "w") for family in FAMILIES for kind in NONFINITE_KINDS]
    assert len(set(tags)) == len(tags)
    assert "nonfinite/activation_grads_posinf/w" in tags and "nonfinite/activations_neginf/w" in tags
    assert all(unsafe_reason(tag) is None for tag in tags)


def test_safety_of_every_character() -> None:
    """Of all characters exactly printable ASCII without the ten unsafe ones is safe (TAG-3)."""
    safe = {chr(code) for code in range(0x110000) if unsafe_reason(f"a{chr(code)}a") is None}
    assert safe == set(SAFE) and len(safe) == 95 - 10
    assert set(string.ascii_letters + string.digits + "/._-: +*=@!$&(),;[]^{}~") <= safe


@settings(deadline=None)
@given(st.lists(st.text(SAFE.replace("/", ""), min_size=1, max_size=8), min_size=1, max_size=4).map("/".join))
def test_a_safe_tag_is_returned_as_it_is(tag: str) -> None:
    """A safe tag passes unchanged; only a ``.`` or ``..`` component makes safe characters unsafe (TAG-3)."""
    if {".", ".."} & set(tag.split("/")):
        assert refused(lambda: require_safe_tag(tag)).code == "tracker_tag_unsafe"
    else:
        assert require_safe_tag(tag) is tag


@settings(deadline=None)
@given(st.text(SAFE, max_size=8), st.characters(), st.text(SAFE, max_size=8))
def test_one_unsafe_character_anywhere_is_refused(before: str, character: str, after: str) -> None:
    """An unsafe tag is refused with the tag itself, never rewritten into a safe one (TAG-3)."""
    tag = before + character + after
    if character not in SAFE:
        refusal = refused(lambda: require_safe_tag(tag, site="h.0"))
        assert (refusal.code, refusal.fields["tag"], refusal.fields["site"]) == ("tracker_tag_unsafe", tag, "h.0")
        assert repr(character) in str(refusal.fields["reason"])
    elif unsafe_reason(tag) is None:
        assert require_safe_tag(tag) == tag


@pytest.mark.parametrize("tag", ["", "/", "a/", "/a", "a//b", ".", "..", "a/.", "../a", "a/../b"])
def test_empty_and_dotted_components_are_refused(tag: str) -> None:
    """An empty, ``.`` or ``..`` component is unsafe, and the tag stands for the site when none is named (TAG-3)."""
    refusal = refused(lambda: require_safe_tag(tag))
    assert refusal.code == "tracker_tag_unsafe"
    assert refusal.fields["site"] == tag and "component" in str(refusal.fields["reason"])


@pytest.mark.parametrize("tag", ["...", "a/.b", "a/b..", " ", "a/ /b", "h.0.weight", "x" * 5000])
def test_other_dots_and_spaces_are_safe(tag: str) -> None:
    """Only whole components of dots are unsafe; spaces and length are no matter of the grammar (TAG-3)."""
    assert require_safe_tag(tag) == tag
