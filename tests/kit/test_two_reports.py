"""Two runs of one subject give one report, but for when and where they ran."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tests.kit import broken_subjects
from tests.kit.report_examples import CONTROLS, PROFILE
from torchlens_conformance.kit.certify import observe
from torchlens_conformance.kit.conclude import conclude, describe
from torchlens_conformance.kit.report import Steadied
from torchlens_conformance.kit.subject import Subject

MAY_DIFFER = {"environment.date", "environment.host", "environment.nonce", "environment.milliseconds", "digest"}
"""Fields that may differ; the digest covers the others."""


def differences(one: Any, other: Any, where: str = "") -> Iterator[str]:
    """Yield the paths at which two documents differ."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in sorted({*one, *other}):
            yield from differences(one.get(key), other.get(key), f"{where}.{key}" if where else key)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (here, there) in enumerate(zip(one, other)):
            yield from differences(here, there, f"{where}[{index}]")
    elif one != other or type(one) is not type(other):
        yield where


def document(subject: Subject) -> Mapping[str, Any]:
    """Return the document of a run of the whole profile."""
    observed = observe(subject, PROFILE, controls=CONTROLS[:2])
    return conclude(describe(subject, observed.words), PROFILE, observed).document


def test_two_reports_of_a_right_sink() -> None:
    """The reports of two runs on JSONLSink differ only in date, host, nonce and times (PROT-1)."""
    assert set(differences(document(broken_subjects.JSONL), document(broken_subjects.JSONL))) <= MAY_DIFFER


def test_two_reports_of_a_wrong_sink() -> None:
    """Findings hold no nonce, no place and no address: two runs on a wrong sink say the same (PROT-1)."""
    subject = replace(broken_subjects.RAISES_IN_EMIT, capabilities={"scalar", "raw_histogram", "text_manifest"})
    first, second = document(subject), document(subject)
    assert any(row["findings"] for row in first["results"])
    assert set(differences(first, second)) <= MAY_DIFFER


def test_differences_are_seen() -> None:
    """The comparison sees another value, another type, a missing key and another length (PROT-1)."""
    assert list(differences({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]})) == ["a[1].b"]
    assert list(differences({"a": 1}, {"a": True})) == ["a"]
    assert list(differences({"a": None, "b": 1}, {"a": None})) == ["b"]
    assert list(differences([1], [1, 2])) == [""]


def test_names_by_time_and_chance_are_steadied() -> None:
    """What trackers call their files by time, host, process and chance does not reach a report (PROT-1)."""
    for text in (
        "conformance-a1b2c3d4/kill/place-0011aabb/events.out.tfevents.1795975447.vm.875.1 is torn",
        "wandb/offline-run-20261129_181309-1akw7riu/run-1akw7riu.wandb of Run (1akw7riu)",
        "/tmp/tmpxmrs6rt9wandb-media/x",
    ):
        steady = Steadied()(text)
        assert not any(word in steady for word in ("a1b2", "0011", "1795975447", "875", "20261129", "akw7", "xmrs")), (
            steady
        )
