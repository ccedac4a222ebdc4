"""Where a callback's settings come from: argument, environment, framework, default, in this order."""

from __future__ import annotations

from typing import Any

import pytest

from torchlens_conformance.callbacks.configuration import UNSET, Cadence, derive_cadence, resolve_settings
from torchlens_conformance.protocol import Refusal

LEFT_OUT: dict[str, Any] = dict.fromkeys(("signals", "select", "every", "hist_every"), UNSET)
EVERYTHING = {
    "TORCHLENS_WATCH_SIGNALS": "gradients, updates",
    "TORCHLENS_WATCH_SELECT": "h.0,head",
    "TORCHLENS_WATCH_EVERY": "7",
    "TORCHLENS_WATCH_HIST_EVERY": "none",
}


def test_an_argument_wins_over_everything() -> None:
    """What is given is taken, None for no histograms included (CB-2)."""
    given = {"signals": ("parameters",), "select": None, "every": 3, "hist_every": None}
    settings = resolve_settings(given, Cadence(10, "logging_steps=10"), environment=EVERYTHING)
    assert (settings.signals, settings.select, settings.every, settings.hist_every) == (("parameters",), None, 3, None)
    assert set(settings.sources.values()) == {"[argument]"}


def test_the_environment_wins_over_the_framework() -> None:
    """A variable is taken where the argument was left out, and named as the source (CB-2, ENV-1)."""
    settings = resolve_settings(LEFT_OUT, Cadence(10, "logging_steps=10"), environment=EVERYTHING)
    assert (settings.signals, settings.select, settings.every, settings.hist_every) == (
        ("gradients", "updates"),
        ("h.0", "head"),
        7,
        None,
    )
    assert settings.lines() == [
        "watch signals = gradients,updates [env TORCHLENS_WATCH_SIGNALS]",
        "watch select = h.0,head [env TORCHLENS_WATCH_SELECT]",
        "watch every = 7 [env TORCHLENS_WATCH_EVERY]",
        "watch hist_every = None [env TORCHLENS_WATCH_HIST_EVERY]",
    ]


def test_the_framework_wins_over_the_default() -> None:
    """Without argument and variable the framework's cadence is taken, and only for the cadence (CB-1, CB-2)."""
    settings = resolve_settings(LEFT_OUT, Cadence(10, "logging_steps=10"), environment={})
    assert (settings.every, settings.sources["every"]) == (10, "[derived: logging_steps=10]")
    assert settings.sources["signals"] == "[default]" and settings.signals == ("gradients",)
    alone = resolve_settings(LEFT_OUT, None, environment={})
    assert (alone.every, alone.sources["every"]) == (50, "[default]")


@pytest.mark.parametrize(
    ("logging", "length", "every"), [(25, 1000, 25), (None, 1000, 10), (None, 40, 1), (None, None, None), (0, 300, 3)]
)
def test_the_cadence_follows_logging_then_the_length(logging: Any, length: Any, every: Any) -> None:
    """Logging decides; else there are about 100 points of the run; else nothing is derived (CB-1)."""
    cadence = derive_cadence(logging, "logging_steps", length)
    assert (cadence and cadence.every) == every


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TORCHLENS_WATCH_EVERY", "0"),
        ("TORCHLENS_WATCH_EVERY", "-3"),
        ("TORCHLENS_WATCH_EVERY", "1.5"),
        ("TORCHLENS_WATCH_EVERY", "²"),
        ("TORCHLENS_WATCH_EVERY", "none"),
        ("TORCHLENS_WATCH_HIST_EVERY", "never"),
        ("TORCHLENS_WATCH_SIGNALS", ""),
        ("TORCHLENS_WATCH_SIGNALS", "gradients,,updates"),
        ("TORCHLENS_WATCH_SELECT", " , "),
        ("TORCHLENS_WATCH_EVERY", ""),
        ("TORCHLENS_WATCH_EVERY", "9" * 5000),
        ("TORCHLENS_WATCH_EVERY", "0" * 5000),
        ("TORCHLENS_WATCH_EVERY", str(2**63)),
        ("TORCHLENS_WATCH_HIST_EVERY", "9" * 5000),
        ("TORCHLENS_WATCH_HIST_EVERY", str(2**63)),
        ("TORCHLENS_WATCH_HIST_EVERY", "null"),
        ("TORCHLENS_WATCH_SIGNALS", "gradient"),
        ("TORCHLENS_WATCH_SIGNALS", "GRADIENTS"),
        ("TORCHLENS_WATCH_SIGNALS", "gradients;updates"),
        ("TORCHLENS_WATCH_SIGNALS", "gradients, gradients"),
    ],
)
def test_a_malformed_variable_is_refused_by_name(variable: str, value: str) -> None:
    """A variable that is set and malformed refuses with its name, the value and the way out (CB-2)."""
    with pytest.raises(Refusal) as caught:
        resolve_settings(LEFT_OUT, None, environment={variable: value})
    assert caught.value.code == "watch_env_config_invalid"
    assert caught.value.fields["variable"] == variable and variable in caught.value.remedy
    assert str(caught.value.fields["value"])[:100] == repr(value)[:100] and len(str(caught.value)) < 1000
    if variable == "TORCHLENS_WATCH_SIGNALS":
        assert "gradients, parameters, updates, activations, activation_grads" in caught.value.remedy
    # A malformed variable does no harm where an argument stands in its place.
    name = variable.removeprefix("TORCHLENS_WATCH_").lower()
    resolve_settings({**LEFT_OUT, name: ("gradients",) if name in ("signals", "select") else 2}, None, environment={})


def test_one_selector_of_operations_is_taken_and_shown() -> None:
    """A selector that is no word, alone or in a list, comes through as it is (CB-2, TIER-3)."""
    pytest.importorskip("torch")
    from torchlens_conformance.trackers import func

    softmax = func("softmax")
    for given in (softmax, [softmax]):
        settings = resolve_settings({**LEFT_OUT, "select": given}, None, environment={})
        assert settings.select == (softmax,)
        assert "softmax" in settings.lines()[1] and settings.lines()[1].endswith("[argument]")


@pytest.mark.parametrize("text", ["1", " 7 ", "007", str(2**63 - 1)])
def test_numbers_of_the_environment(text: str) -> None:
    """A positive integer up to the largest step is taken, with spaces and zeros before it (CB-2)."""
    for name in ("every", "hist_every"):
        settings = resolve_settings(LEFT_OUT, None, environment={f"TORCHLENS_WATCH_{name.upper()}": text})
        assert getattr(settings, name) == int(text)
        assert settings.environment == {f"TORCHLENS_WATCH_{name.upper()}": text}
