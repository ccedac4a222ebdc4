"""Settings in real runs: what the framework's cadence gives, the environment's variables, and the printed lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import torchlens_conformance.trackers as trk
from tests.callbacks import huggingface_runs, lightning_runs
from tests.callbacks.lightning_runs import torch
from torchlens_conformance.callbacks.extra_forward import CallbackWarning
from torchlens_conformance.protocol import Refusal

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")

FRAMEWORKS = pytest.mark.parametrize("framework", ["hf", "lightning"])


def run(framework: str, folder: Path, sink: Any, **settings: Any) -> tuple[Any, list[str]]:
    """Train with a callback of these settings, and return it with the lines that it printed."""
    lines: list[str] = []
    if framework == "hf":
        callback = trk.HFTrainerWatchCallback(to=sink, print_fn=lines.append, **settings)
        huggingface_runs.train(folder, [callback], logging_steps=3)
        return callback, lines
    callback = trk.LightningWatchCallback(to=sink, print_fn=lines.append, **settings)
    module = lightning_runs.fresh(lightning_runs.Automatic)
    lightning_runs.fit(folder, module, [callback], logger=lightning_runs.own_log(folder), log_every_n_steps=3)
    return callback, lines


@pytest.mark.parametrize(
    ("arguments", "every", "source"),
    [
        ({"logging_steps": 0.25}, 2, "[derived: logging_steps=2]"),
        ({"logging_steps": 0.3}, 3, "[derived: logging_steps=3]"),
        ({"logging_steps": 0.3, "max_steps": 5}, 2, "[derived: logging_steps=2]"),
        ({"max_steps": 4, "logging_steps": 3}, 3, "[derived: logging_steps=3]"),
        ({"logging_strategy": "no"}, 1, "[derived: about 100 points of 8 steps]"),
        ({"logging_strategy": "epoch"}, 1, "[derived: about 100 points of 8 steps]"),
    ],
    ids=["ratio", "ratio-rounded-up", "ratio-of-max-steps", "max-steps", "no-logging", "by-epoch"],
)
def test_the_cadence_of_a_trainer(tmp_path: Path, arguments: dict[str, Any], every: int, source: str) -> None:
    """A ratio of logging_steps is resolved; without logging by steps the length of the run decides (CB-1)."""
    callback = huggingface_runs.quiet(trk.MemorySink())
    huggingface_runs.train(tmp_path, [callback], **arguments)
    assert callback.settings is not None
    assert (callback.settings.every, callback.settings.sources["every"]) == (every, source)


@pytest.mark.parametrize(
    ("arguments", "every", "source"),
    [
        ({"logger": True, "log_every_n_steps": 5}, 5, "[derived: log_every_n_steps=5]"),
        ({"logger": True, "log_every_n_steps": 0}, 1, "[derived: about 100 points of 12 steps]"),
        ({"max_steps": 8, "max_epochs": None}, 1, "[derived: about 100 points of 8 steps]"),
        ({"accumulate_grad_batches": 4}, 1, "[derived: about 100 points of 4 steps]"),
    ],
    ids=["logging", "never-logs", "max-steps", "accumulation"],
)
def test_the_cadence_of_lightning(tmp_path: Path, arguments: dict[str, Any], every: int, source: str) -> None:
    """The loggers' cadence is taken; without loggers the length of the run decides (CB-1)."""
    if arguments.get("logger"):
        arguments = {**arguments, "logger": lightning_runs.own_log(tmp_path)}
    callback = lightning_runs.quiet(trk.MemorySink())
    lightning_runs.fit(tmp_path, lightning_runs.fresh(lightning_runs.Automatic), [callback], **arguments)
    assert callback.settings is not None
    assert (callback.settings.every, callback.settings.sources["every"]) == (every, source)


def test_a_fit_without_an_end_has_the_default_cadence(tmp_path: Path) -> None:
    """Neither a logger nor a length: the default is taken, and named so (CB-1)."""
    pl = lightning_runs.pl

    class Ends(pl.Callback):  # type: ignore[misc,name-defined]
        def on_train_batch_end(self, trainer: Any, *others: Any) -> None:
            trainer.should_stop = trainer.global_step >= 3

    callback = lightning_runs.quiet(trk.MemorySink())
    module = lightning_runs.fresh(lightning_runs.Automatic)
    lightning_runs.fit(tmp_path, module, [callback, Ends()], max_epochs=-1)
    assert callback.settings is not None
    assert (callback.settings.every, callback.settings.sources["every"]) == (50, "[default]")


@FRAMEWORKS
def test_the_four_variables_are_taken(framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each variable decides where its argument is left out, before the framework's cadence, and is printed (CB-2)."""
    monkeypatch.setenv("TORCHLENS_WATCH_SIGNALS", "parameters,updates")
    monkeypatch.setenv("TORCHLENS_WATCH_SELECT", "head")
    monkeypatch.setenv("TORCHLENS_WATCH_EVERY", "2")
    monkeypatch.setenv("TORCHLENS_WATCH_HIST_EVERY", "4")
    sink = trk.MemorySink()
    callback, lines = run(framework, tmp_path, sink)
    assert lines == [
        "watch signals = parameters,updates [env TORCHLENS_WATCH_SIGNALS]",
        "watch select = head [env TORCHLENS_WATCH_SELECT]",
        "watch every = 2 [env TORCHLENS_WATCH_EVERY]",
        "watch hist_every = 4 [env TORCHLENS_WATCH_HIST_EVERY]",
    ]
    assert callback.settings.lines() == lines
    watched = {point.tag.split("/")[0] for point in sink.scalars if not point.tag.startswith("torchlens/")}
    leaves = {point.tag.split("/")[2] for point in sink.scalars if not point.tag.startswith("torchlens/")}
    assert watched == {"parameters", "updates"} and leaves == {"head.weight", "head.bias"}
    steps = sorted({point.step for point in sink.histograms})
    assert steps == ([1, 4, 8] if framework == "hf" else [0, 4, 8])
    assert {2, 6} <= {point.step for point in sink.scalars if point.tag == "updates/norm/head.bias"}


@FRAMEWORKS
def test_each_setting_has_its_own_source(framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Argument over environment over framework over default, each setting by itself, in one run (CB-2)."""
    monkeypatch.setenv("TORCHLENS_WATCH_SIGNALS", "parameters")
    monkeypatch.setenv("TORCHLENS_WATCH_HIST_EVERY", "none")
    sink = trk.MemorySink()
    callback, lines = run(framework, tmp_path, sink, signals=("gradients",))
    derived = "logging_steps=3" if framework == "hf" else "log_every_n_steps=3"
    assert lines == [
        "watch signals = gradients [argument]",
        "watch select = None [default]",
        f"watch every = 3 [derived: {derived}]",
        "watch hist_every = None [env TORCHLENS_WATCH_HIST_EVERY]",
    ]
    assert not sink.histograms and {"gradients"} == set(callback.report.signals)


@FRAMEWORKS
@pytest.mark.parametrize("variable", ["EVERY", "HIST_EVERY", "SIGNALS", "SELECT"])
def test_a_malformed_variable_is_refused_at_once(
    framework: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A malformed variable refuses by name when the callback is made, before anything is set up (CB-2)."""
    monkeypatch.setenv(f"TORCHLENS_WATCH_{variable}", " , ")
    make = trk.HFTrainerWatchCallback if framework == "hf" else trk.LightningWatchCallback
    with pytest.raises(Refusal) as caught:
        make(to=trk.MemorySink())
    assert caught.value.code == "watch_env_config_invalid"
    assert caught.value.fields["variable"] == f"TORCHLENS_WATCH_{variable}"


@FRAMEWORKS
def test_only_the_kill_switch_turns_off(framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With TORCHLENS_WATCH_DISABLE=1 nothing is collected, and a row and the report say so (ENV-1)."""
    monkeypatch.setenv("TORCHLENS_WATCH_DISABLE", "1")
    sink = trk.MemorySink()
    callback, _ = run(framework, tmp_path, sink)
    assert {point.tag for point in sink.scalars} == {"torchlens/run/disabled"}
    assert callback.report.disabled_by and callback.report.sampled_steps == 0


class Full(trk.MemorySink):
    """Takes no scalar."""

    def emit_scalar(self, point: Any) -> None:
        """Raise."""
        raise OSError("no room")


def maker(framework: str) -> Any:
    """Return the callback's class."""
    return trk.HFTrainerWatchCallback if framework == "hf" else trk.LightningWatchCallback


def test_a_run_that_gave_nothing_warns_and_returns_its_output(tmp_path: Path) -> None:
    """When no point arrived anywhere train() returns, a warning names the sink, and the report is kept (CLOSE-2)."""
    callback = trk.HFTrainerWatchCallback(to=Full(), print_fn=lambda line: None)
    with pytest.warns(CallbackWarning, match="watch_close_empty") as warned:
        trainer, _ = huggingface_runs.train(tmp_path, [callback])
    told = [str(each.message) for each in warned if isinstance(each.message, CallbackWarning)]
    assert len(told) == 1 and "no room" in told[0] and "callback's report" in told[0]
    assert trainer.state.global_step == huggingface_runs.STEPS
    assert callback.report is not None and "no room" in str(callback.report.sinks[0].failed)
    assert callback.session is None and callback.close() is callback.report


def test_a_fit_that_gave_nothing_reaches_its_end(tmp_path: Path) -> None:
    """When no point arrived anywhere the callbacks after ours still hear of the end of the fit (CLOSE-2, PROT-5)."""
    pl = lightning_runs.pl
    heard: list[str] = []

    class Last(pl.Callback):  # type: ignore[misc,name-defined]
        def on_train_end(self, *others: Any) -> None:
            heard.append("train")

        def on_fit_end(self, *others: Any) -> None:
            heard.append("fit")

    callback = trk.LightningWatchCallback(to=Full(), print_fn=lambda line: None)
    with pytest.warns(CallbackWarning, match="watch_close_empty"):
        lightning_runs.fit(tmp_path, lightning_runs.fresh(lightning_runs.Automatic), [callback, Last()])
    assert heard == ["train", "fit"]
    assert callback.report is not None and "no room" in str(callback.report.sinks[0].failed)


@FRAMEWORKS
def test_a_print_fn_that_raises_leaves_nothing_open(framework: str, tmp_path: Path) -> None:
    """What ``print_fn`` raises comes out of training before it begins, and no session or hook is left (CB-2)."""
    sink = trk.MemorySink()

    def broken(line: str) -> None:
        raise ArithmeticError(line)

    callback = maker(framework)(to=sink, print_fn=broken)
    with pytest.raises(ArithmeticError):
        if framework == "hf":
            huggingface_runs.train(tmp_path, [callback])
        else:
            lightning_runs.fit(tmp_path, lightning_runs.fresh(lightning_runs.Automatic), [callback])
    assert callback.session is None and not sink.scalars
    # Without an open session the sink is free, and open.
    model = torch.nn.Linear(2, 1)
    trk.watch(model, sink, optimizer=torch.optim.SGD(model.parameters(), lr=0.1)).close()


@FRAMEWORKS
@pytest.mark.parametrize("given", [None, "print", 1])
def test_a_print_fn_that_cannot_be_called_is_refused_at_once(framework: str, given: Any) -> None:
    """A ``print_fn`` that cannot be called refuses when the callback is made (CB-2)."""
    with pytest.raises(Refusal) as caught:
        maker(framework)(to=trk.MemorySink(), print_fn=given)
    assert (caught.value.code, caught.value.fields["setting"]) == ("watch_settings_invalid", "print_fn")


class Plain(trk.MemorySink):
    """Carries no histograms."""

    def capabilities(self) -> frozenset[str]:
        """Return scalars alone."""
        return frozenset({"scalar"})


@FRAMEWORKS
@pytest.mark.parametrize(
    ("variable", "value", "keywords", "code"),
    [
        ("SIGNALS", "activations", {}, "watch_tier_inputs_missing"),
        ("SIGNALS", "activations", {"select": "body"}, "watch_tier_inputs_missing"),
        ("SIGNALS", "updates", {"grain": "op", "allow_forward_wrap": True}, "watch_tier_unavailable"),
        ("HIST_EVERY", "5", {"to": Plain()}, "tracker_sink_capability_missing"),
    ],
)
def test_what_the_environment_asks_for_in_vain_is_refused_at_once(
    framework: str, variable: str, value: str, keywords: Any, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A good value that this callback cannot follow refuses when it is made, with the variable named (CB-2)."""
    name = f"TORCHLENS_WATCH_{variable}"
    monkeypatch.setenv(name, value)
    with pytest.raises(Refusal) as caught:
        maker(framework)(**{"to": trk.MemorySink(), **keywords})
    refusal = caught.value
    assert refusal.code == code and refusal.fields["environment"] == {name: value}
    assert f"{name}={value!r} came from the environment: change or unset" in refusal.remedy


def test_a_name_of_the_environment_that_the_model_lacks_is_refused_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What only a model can tell refuses before the first step, with the variable named (CB-2)."""
    monkeypatch.setenv("TORCHLENS_WATCH_SELECT", "nowhere")
    callback = huggingface_runs.quiet(trk.MemorySink())
    with pytest.raises(Refusal) as caught:
        huggingface_runs.train(tmp_path, [callback])
    assert caught.value.code == "watch_selector_matched_no_sites" and callback.session is None
    assert caught.value.fields["environment"] == {"TORCHLENS_WATCH_SELECT": "nowhere"}
    assert "TORCHLENS_WATCH_SELECT='nowhere'" in caught.value.remedy


@FRAMEWORKS
def test_words_from_an_iterator_are_taken(framework: str, tmp_path: Path) -> None:
    """Signals and names that come from an iterator, which gives them once, are those of the run (CB-2)."""
    sink = trk.MemorySink()
    callback, _ = run(framework, tmp_path, sink, signals=iter(["parameters"]), select=iter(["head"]))
    assert callback.settings.signals == ("parameters",) and callback.settings.select == ("head",)
    watched = {point.tag.rpartition("/")[2] for point in sink.scalars if not point.tag.startswith("torchlens/")}
    assert watched == {"head.weight", "head.bias"}
