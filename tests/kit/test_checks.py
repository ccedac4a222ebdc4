"""Every check passes on what a perfect sink leaves, and fails on the damage that it is there for."""

from __future__ import annotations

from dataclasses import replace
from math import nan

import pytest

from torchlens_conformance.kit.checking import ask
from torchlens_conformance.kit.checks import CHECKS, get_check
from torchlens_conformance.kit.model import (
    COULD_NOT_RUN,
    FAILED,
    LOSS_CLASSES,
    NOT_APPLICABLE,
    NOT_DECLARED,
    PASSED,
    RAISED,
    Call,
    Check,
    Transcript,
)
from torchlens_conformance.protocol import (
    EmbeddingPoint,
    EventPoint,
    GraphPoint,
    HistogramPoint,
    ImagePoint,
    MetadataPoint,
    Refusal,
    ScalarPoint,
    TextPoint,
)
from torchlens_conformance.spec import clause

from .handmade import (
    ALL_WORDS,
    NONCE,
    Damage,
    changed,
    fact,
    in_part,
    last_call,
    perfect,
    received,
    refused,
)

PERFECT = perfect()
LOSE_FIRST = received(lambda points: points[1:])
DOUBLE_FIRST = received(lambda points: [*points, points[0]])
STRANGER = received(lambda points: [*points, ScalarPoint("stranger", 1, 1.0)])
SWAP = received(lambda points: [points[-1], *points[1:-1], points[0]])
UNTYPED = {"outcome": RAISED, "exception": "OSError: no"}

DAMAGES: list[tuple[str, str, Damage]] = [
    ("surface.words", "surface", fact(own_words=["scalar", "colour"])),
    ("surface.words", "surface", fact(own_words=None)),
    ("surface.words", "surface", fact(own_words=[], words_again=[])),
    ("surface.words", "surface", fact(words_again=["scalar"])),
    ("surface.methods", "surface", fact(methods=["flush", "close"])),
    ("surface.methods", "surface", fact(own_words=["scalar"])),
    (
        "surface.methods",
        "surface",
        lambda t: replace(t, calls=(*t.calls, Call("emit_image", "acknowledged", note="not advertised"))),
    ),
    ("surface.refuses-typed", "tags", last_call("emit_scalar", **UNTYPED)),
    ("surface.refuses-typed", "tags", lambda t: replace(t, calls=(t.calls[0], refused(t.calls[1], remedy=None)))),
    (
        "surface.refuses-typed",
        "tags",
        lambda t: replace(t, calls=(t.calls[0], refused(t.calls[1], fields={"fields": "missing"}))),
    ),
    ("surface.preflight", "surface", fact(last_step=7)),
    ("surface.preflight", "surface", fact(relay="certain")),
    ("surface.preflight", "surface", fact(grid="dict")),
    ("values.scalar", "round-trip", changed(ScalarPoint, value=0.0)),
    ("values.scalar", "round-trip", lambda t: replace(t, calls=(t.calls[0], refused(t.calls[1]), *t.calls[2:]))),
    ("values.steps", "round-trip", changed(ScalarPoint, step=2**63 - 2)),
    ("values.histogram", "round-trip", changed(HistogramPoint, counts=(1,) * 8)),
    ("values.summary", "round-trip", changed(HistogramPoint, summary={"num": 0})),
    ("values.text", "round-trip", changed(TextPoint, text="")),
    ("values.image", "round-trip", changed(ImagePoint, data=b"\0" * 30)),
    ("values.graph", "round-trip", changed(GraphPoint, graph={"nodes": []})),
    ("values.embedding", "round-trip", changed(EmbeddingPoint, labels=None)),
    ("values.event", "round-trip", changed(EventPoint, payload={"step": nan})),
    ("values.metadata", "round-trip", changed(MetadataPoint, metadata={})),
    ("tags.unchanged", "tags", changed(ScalarPoint, tag="unsafe/_")),
    ("tags.unchanged", "tags", LOSE_FIRST),
    ("order.kept", "order", SWAP),
    ("delivery.nothing-lost", "order", LOSE_FIRST),
    ("delivery.nothing-extra", "order", STRANGER),
    ("delivery.nothing-twice", "order", DOUBLE_FIRST),
    ("points.unchanged", "aliasing", fact(mutated=[(0, "step 0", "step 1")])),
    ("points.not-aliased", "aliasing", fact(words_after=[])),
    ("points.not-aliased", "aliasing", changed(ScalarPoint, value=-1.0)),
    ("teardown.flush-before-close", "teardown", last_call("flush", **UNTYPED)),
    ("teardown.flush-before-close", "teardown", DOUBLE_FIRST),
    ("teardown.close-twice", "close-twice", last_call("close", **UNTYPED)),
    ("teardown.close-twice", "close-twice", DOUBLE_FIRST),
    ("teardown.closed-refuses", "closed", last_call("emit_scalar", outcome="acknowledged")),
    ("teardown.closed-refuses", "closed", last_call("emit_scalar", code="tracker_value_unsupported")),
    ("teardown.closed-refuses", "closed", last_call("emit_scalar", **UNTYPED)),
    ("teardown.closed-refuses", "closed", STRANGER),
    ("teardown.close-is-enough", "close-only", LOSE_FIRST),
    ("survives.kill-between", "kill", in_part("after 1", LOSE_FIRST)),
    ("survives.kill-between", "kill", in_part("after 1", lambda t: replace(t, calls=t.calls[:1]))),
    ("survives.kill-inside", "kill-inside", in_part("after 1 ms", STRANGER)),
    ("survives.kill-inside", "kill-inside", in_part("after 1 ms", lambda t: replace(t, read=None))),
    ("survives.full-disk", "full-disk", LOSE_FIRST),
    ("survives.full-disk", "full-disk", last_call("close", **UNTYPED)),
    ("survives.read-only", "read-only", last_call("open", **UNTYPED)),
    ("isolation.two-sinks", "two-sinks", in_part("b", STRANGER)),
    ("isolation.second-sink", "second-sink", in_part("after close", LOSE_FIRST)),
    ("isolation.second-sink", "second-sink", in_part("while open", last_call("open second", **UNTYPED))),
    ("concurrency.fork", "fork", STRANGER),
    ("concurrency.fork", "fork", fact(child_ended="timed out")),
    ("concurrency.spawn", "spawn", fact(child_said="exit code 1")),
    ("concurrency.spawn", "spawn", in_part("spawned", received(lambda points: []))),
    ("concurrency.threads", "threads", LOSE_FIRST),
    ("concurrency.threads", "threads", last_call("emit_scalar", **UNTYPED)),
    ("scale.memory", "scale", fact(blocks=tuple((0.01, 0.01, (30 + 2 * n) << 20) for n in range(10)))),
    ("scale.memory", "scale", fact(came_back=19_999)),
    ("scale.cost", "scale", fact(blocks=tuple((0.01 * n, 0.01 * n, 30 << 20) for n in range(1, 16)))),
    ("scale.cost", "scale", fact(refused=3, first="OSError")),
    ("reader.fresh", "fresh", lambda t: replace(t, read=replace(t.read, how="same process"))),
    ("reader.fresh", "fresh", fact(nonce="another")),
    ("reader.sees-changes", "changes", lambda t: fact(reads={"b": t.read})(t)),
]


def asked(check: Check, transcripts: dict[str, Transcript]) -> str:
    """Return the outcome of a check; its findings hold what the report needs."""
    result = ask(check, transcripts, ALL_WORDS)
    for finding in result.findings:
        assert finding.loss in LOSS_CLASSES and finding.message and finding.expected and finding.seen
    return result.outcome


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_a_perfect_sink_passes(check: Check) -> None:
    """What a perfect sink leaves passes every check (PROT-1)."""
    assert asked(check, PERFECT) == PASSED


@pytest.mark.parametrize(
    ("check_id", "scenario", "damage"), DAMAGES, ids=[f"{d[0]}-{n}" for n, d in enumerate(DAMAGES)]
)
def test_each_damage_is_found(check_id: str, scenario: str, damage: Damage) -> None:
    """Each check finds the damage that it is there for, and says what it expected and saw (PROT-10, POINT-1)."""
    assert asked(get_check(check_id), {**PERFECT, scenario: damage(PERFECT[scenario])}) == FAILED


def test_no_check_is_left_without_damage() -> None:
    """Every check is seen to fail (PROT-1)."""
    assert {check.id for check in CHECKS} == {damage[0] for damage in DAMAGES}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_a_scenario_that_is_missing_or_broken_fails(check: Check) -> None:
    """A check does not pass when what it needs was not run, was cut short, or read nothing (PROT-1)."""
    assert asked(check, {}) == FAILED
    for scenario in check.scenarios[:1]:
        whole = PERFECT[scenario]
        parts = {name: replace(part, ended="signal 11") for name, part in whole.facts.get("parts", {}).items()}
        facts = {**whole.facts, **({"parts": parts} if parts else {})}
        broken = replace(whole, ended="signal 11", facts=facts)
        assert asked(check, {**PERFECT, scenario: broken}) == FAILED


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_checks_name_clauses_that_exist(check: Check) -> None:
    """Every check cites clauses that bind a sink or a measurement, has a question and a remedy (PROT-9)."""
    assert check.clauses
    assert all({"sink", "reader", "measurement"} & set(clause(clause_id).binds) for clause_id in check.clauses)
    assert check.question.endswith("?") and check.remedy.endswith(".")
    assert check.level in ("must", "should")


def test_an_unknown_check_is_refused() -> None:
    """An id that no check has is refused by name (PROT-9)."""
    with pytest.raises(Refusal) as caught:
        get_check("values.colour")
    assert caught.value.code == "kit_check_unknown"


def test_not_declared_not_applicable_and_could_not_run_are_three_things() -> None:
    """What was not declared, does not apply, or could not be sent is told apart (PROT-2, PROT-7)."""
    scalar, preflight = get_check("values.scalar"), get_check("surface.preflight")
    assert ask(scalar, PERFECT, ("graph",)).outcome == NOT_DECLARED
    assert ask(get_check("order.kept"), PERFECT, ()).outcome == COULD_NOT_RUN
    bare = {**PERFECT, "surface": fact(hooks=[])(PERFECT["surface"])}
    assert ask(preflight, bare, ALL_WORDS).outcome == NOT_APPLICABLE


def test_a_fault_of_the_check_is_no_answer() -> None:
    """A check that raises could not run; that is neither passed nor failed (PROT-9)."""
    broken = replace(get_check("values.scalar"), find=lambda transcripts: 1 / 0)  # type: ignore[arg-type, return-value]
    assert ask(broken, PERFECT, ALL_WORDS).outcome == COULD_NOT_RUN


def test_a_refused_hard_point_passes_and_is_told() -> None:
    """A store may refuse a hard value with a code; the result says which (POINT-3)."""
    whole = PERFECT["round-trip"]
    calls = tuple(
        refused(call) if isinstance(call.point, ScalarPoint) and call.point.value != call.point.value else call
        for call in whole.calls
    )
    kept = received(lambda points: [p for p in points if not (isinstance(p, ScalarPoint) and p.value != p.value)])
    result = ask(get_check("values.scalar"), {**PERFECT, "round-trip": replace(kept(whole), calls=calls)}, ALL_WORDS)
    assert result.outcome == PASSED
    assert "1 legal points were refused" in result.reason


def test_fewer_points_of_scale_are_told() -> None:
    """A slow sink that passes on fewer points has that beside its result, and only there (PROT-10)."""
    fewer = {**PERFECT, "scale": fact(wanted=200_000)(PERFECT["scale"])}
    result = ask(get_check("scale.cost"), fewer, ALL_WORDS)
    assert result.outcome == PASSED and "20,000 points in place of 200,000" in result.reason
    assert ask(get_check("scale.cost"), PERFECT, ALL_WORDS).reason == ""
    assert ask(get_check("order.kept"), fewer, ALL_WORDS).reason == ""


def test_refusing_everything_is_no_way_to_pass() -> None:
    """A sink that advertises scalars and refuses them all fails with loss "refused" (PROT-1)."""
    whole = PERFECT["round-trip"]
    calls = tuple(refused(call) if isinstance(call.point, ScalarPoint) else call for call in whole.calls)
    kept = received(lambda points: [p for p in points if not isinstance(p, ScalarPoint)])
    result = ask(get_check("values.scalar"), {**PERFECT, "round-trip": replace(kept(whole), calls=calls)}, ALL_WORDS)
    assert result.outcome == FAILED
    assert {finding.loss for finding in result.findings} == {"refused"}


def test_unflushed_points_may_be_lost_to_a_kill() -> None:
    """A point counts as acknowledged once flush returned; what came after may be lost (PROT-10)."""
    part = PERFECT["kill"].facts["parts"]["after 1"]
    flush_early = replace(part, calls=(*part.calls[:6], Call("flush", "acknowledged"), *part.calls[6:-3]))
    short = received(lambda points: points[:5])(flush_early)
    shorter = received(lambda points: points[:4])(flush_early)
    for transcript, outcome in ((short, PASSED), (shorter, FAILED)):
        seen = {**PERFECT, "kill": in_part("after 1", lambda _, t=transcript: t)(PERFECT["kill"])}  # type: ignore[misc]
        assert asked(get_check("survives.kill-between"), seen) == outcome


def test_a_full_disk_with_notice_may_lose_what_was_not_flushed() -> None:
    """After a typed refusal the points since the last flush may be gone, those before may not (PROT-10)."""
    whole = PERFECT["full-disk"]
    calls = (
        *whole.calls[:6],
        Call("flush", "acknowledged"),
        *whole.calls[6:-3],
        refused(whole.calls[-3]),
        refused(Call("flush", ""), "tracker_sink_write_failed"),
        Call("close", "acknowledged"),
    )
    noticed = received(lambda points: points[:5])(replace(whole, calls=calls))
    assert asked(get_check("survives.full-disk"), {**PERFECT, "full-disk": noticed}) == PASSED
    damaged = received(lambda points: points[1:5])(replace(whole, calls=calls))
    assert asked(get_check("survives.full-disk"), {**PERFECT, "full-disk": damaged}) == FAILED


def test_taking_everything_on_a_read_only_place_is_found() -> None:
    """A sink that says yes on a place that cannot be written has dropped everything silently (PROT-10)."""
    whole = replace(PERFECT["close-only"], scenario="read-only", read=replace(PERFECT["close-only"].read, points=()))
    result = ask(get_check("survives.read-only"), {"read-only": whole}, ALL_WORDS)
    assert result.outcome == FAILED
    assert result.findings[0].loss == "dropped silently"


def test_findings_show_bits() -> None:
    """A changed number is shown as value and as bits, with its class of loss (POINT-3)."""
    narrow = {**PERFECT, "round-trip": changed(ScalarPoint, value=2.5000001)(PERFECT["round-trip"])}
    (finding,) = ask(get_check("values.scalar"), narrow, ALL_WORDS).findings
    assert finding.expected == "2.5 (bits 0x4004000000000000)"
    assert finding.loss == "bounded"
    assert NONCE in finding.where
