"""Parameters of every sort: tied, frozen, lazy, empty, odd values; wrappers, selection, plan and manifest."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import torchlens_conformance.trackers as trk  # noqa: E402
from torchlens_conformance.statistics import compute  # noqa: E402

from .helpers import batch, by_tag, data_rows, histograms, small_model, texts, train_step  # noqa: E402


class Tied(nn.Module):
    """An embedding tied to the output, and a head of one element."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.words.weight
        self.temperature = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Any) -> Any:
        """Return scores."""
        return self.head(self.words(x)) * self.temperature


class Empty(nn.Module):
    """A parameter without elements."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 0))


WORDS = torch.tensor([1, 2, 5])


def watched(model: Any, loop: Any, **options: Any) -> tuple[trk.MemorySink, trk.CloseReport]:
    """Run a loop of three steps under a watch of gradients and parameters."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sink = trk.MemorySink()
    keywords = {"signals": ("gradients", "parameters"), "every": 1, **options}
    with trk.watch(model, sink, optimizer=optimizer, **keywords) as watch:
        for n in range(3):
            with watch.step(n):
                loop(model, optimizer, n)
    return sink, watch.close()


def score(model: Any, optimizer: Any, n: int) -> None:
    """Step on words."""
    optimizer.zero_grad()
    model(WORDS).square().mean().backward()
    optimizer.step()


@pytest.mark.parametrize("select", [None, "words", "head", "head.weight"])
def test_a_tied_weight_is_one_series(select: Any) -> None:
    """One site under its first name, with the whole gradient, found by any of its names (TAG-6)."""
    model = Tied()
    sums = []

    def loop(model: Any, optimizer: Any, n: int) -> None:
        score(model, optimizer, n)
        sums.append(compute(model.words.weight.grad).norm)

    sink, report = watched(model, loop, select=select)
    rows = by_tag(sink)
    assert rows["gradients/norm/words.weight"] == dict(enumerate(sums))
    assert not any("head" in tag for tag in rows) and report.matched_sites == (2 if select is None else 1)
    manifest = json.loads(texts(sink)["torchlens/meta/manifest"][0])
    aliases = {site["leaf"]: site["aliases"] for site in manifest["parameters"]}
    assert aliases["words.weight"] == ["head.weight"]
    assert manifest["plan"]["aliases"] == {"words.weight": ["head.weight"]}


def test_totals_count_tied_weights_once() -> None:
    """Elements of the plan are those of ``parameters()`` (TAG-6, XFER-1)."""
    model = Tied()
    watch = trk.watch(model, trk.MemorySink())
    plan = watch.plan_report()
    assert plan.elements_per_step == sum(parameter.numel() for parameter in model.parameters()) == 29
    assert "words.weight is also head.weight" in plan.format()
    watch.close()


def test_tying_and_untying_after_attach_is_named() -> None:
    """A weight tied later counts once, an alias that goes its own way is named (TAG-6)."""

    def tie(model: Any, optimizer: Any, n: int) -> None:
        train_step(model, optimizer, n)
        if n == 0:
            model[2].weight = model[1].weight

    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    sink, report = watched(model, tie)
    assert sorted(by_tag(sink)["gradients/norm/2.weight"]) == [0]
    assert {skip.sites for skip in report.named_skips if skip.name == "tied_after_attach"} == {("2.weight",)}

    def untie(model: Any, optimizer: Any, n: int) -> None:
        score(model, optimizer, n)
        if n == 0:
            model.head.weight = nn.Parameter(torch.ones(7, 4))

    _, report = watched(Tied(), untie)
    assert [skip.step for skip in report.named_skips if skip.name == "untied_after_attach"] == [1, 2]


def test_a_parameter_that_is_gone_is_named() -> None:
    """A layer that was taken out has a skip, not zeros (STEP-7)."""

    def replace(model: Any, optimizer: Any, n: int) -> None:
        train_step(model, optimizer, n)
        if n == 0:
            model[3] = nn.Identity()

    sink, report = watched(small_model(), replace)
    assert sorted(by_tag(sink)["parameters/norm/3.weight"]) == [0]
    assert report.skip_counts == {"parameter_missing": 2}


def test_frozen_parameters_have_no_gradient_and_no_skip() -> None:
    """Frozen parameters are listed in the plan; unfrozen, they have gradients (STEP-7, ATTACH-8)."""
    model = small_model()
    model[0].requires_grad_(False)

    def thaw(model: Any, optimizer: Any, n: int) -> None:
        if n == 2:
            model[0].requires_grad_(True)
        train_step(model, optimizer, n)

    watch = trk.watch(model, trk.MemorySink())
    assert watch.plan_report().frozen == ("0.weight", "0.bias")
    watch.close()
    sink, report = watched(model, thaw)
    assert sorted(by_tag(sink)["gradients/norm/0.weight"]) == [2]
    assert sorted(by_tag(sink)["parameters/norm/0.weight"]) == [0, 1, 2] and report.skip_counts == {}


def test_lazily_created_parameters_are_watched_once_they_exist() -> None:
    """A lazy layer is named until it has values, and has rows from then on (STEP-7, TAG-6)."""
    model = nn.Sequential(nn.LazyLinear(6), nn.Linear(6, 3))
    sink = trk.MemorySink()
    watch = trk.watch(model, sink, every=1)
    assert watch.plan_report().lazy == ("0.weight", "0.bias") and "created lazily" in watch.plan_report().format()
    with watch:
        partial = torch.optim.SGD(model[1].parameters(), lr=0.1)
        with watch.step(0):
            model[1](torch.ones(2, 6)).square().mean().backward()
            partial.step()
        model(batch(0))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with watch.step(1):
            train_step(model, optimizer, 1)
    assert by_tag(sink)["gradients/norm/0.weight"].keys() == {1}
    assert [skip.step for skip in watch.close().named_skips if skip.name == "parameter_uninitialized"] == [0]


def test_parameters_without_elements() -> None:
    """An empty parameter emits its count and no invented mean (STAT-3)."""
    model = nn.Sequential(nn.Linear(4, 3), Empty())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sink = trk.MemorySink()
    with trk.watch(model, sink, optimizer=optimizer, hist_every=1) as watch, watch.step(0):
        (model[0](batch(0)).square().mean() + model[1].weight.sum()).backward()
        optimizer.step()
    tags = {tag for tag in by_tag(sink) if tag.endswith("/1.weight")}
    assert tags == {"gradients/count/1.weight"} and by_tag(sink)["gradients/count/1.weight"] == {0: 0}


def test_one_element_constants_and_edges() -> None:
    """One element has no std; values on an edge lie in the half-open bin of their side (STAT-1, GRID-2)."""
    values = torch.tensor([2.0**-3, -(2.0**-3), 0.0, -0.0, 1e-40])
    model = nn.ParameterDict({"one": torch.tensor(3.0), "edge": values})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    sink = trk.MemorySink()
    with trk.watch(model, sink, optimizer=optimizer, signals="parameters", hist_every=1) as watch, watch.step(0):
        sum(parameter.sum() for parameter in model.values()).backward()
        optimizer.step()
    rows = by_tag(sink)
    assert "parameters/std/one" not in rows and rows["parameters/min/one"] == rows["parameters/max/one"] == {0: 3.0}
    point = histograms(sink)["parameters/hist/edge"][0]
    occupied = [
        (point.edges[index], point.edges[index + 1], count) for index, count in enumerate(point.counts) if count
    ]
    assert [count for *_, count in occupied] == [1, 3, 1]
    assert occupied[2][0] == 2.0**-3 and occupied[0][1] == -(2.0**-3)


def test_nonfinite_gradients_never_reach_the_loop() -> None:
    """Exact counts by family, finite statistics, and grid plus specials is everything (STAT-2, TAG-5, GRID-2)."""
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    sink = trk.MemorySink()
    spoils = ([(0, math.nan), (1, math.inf)], [(index, math.nan) for index in range(24)], [])
    signals = ("gradients", "updates")
    with trk.watch(model, sink, optimizer=optimizer, every=1, hist_every=1, signals=signals) as watch:
        for n, spoil in enumerate(spoils):
            with watch.step(n):
                optimizer.zero_grad()
                model(batch(n)).square().mean().backward()
                for index, value in spoil:
                    model[0].weight.grad.view(-1)[index] = value
                if not spoil:
                    model[0].weight.grad.zero_()
                optimizer.step()
                model[0].weight.data.nan_to_num_()
    rows = by_tag(sink)
    assert rows["nonfinite/gradients_nan/0.weight"] == {0: 1, 1: 24}
    assert rows["nonfinite/gradients_posinf/0.weight"] == {0: 1, 1: 0}
    assert rows["nonfinite/gradients_neginf/0.weight"] == {0: 0, 1: 0}
    assert rows["gradients/count/0.weight"] == {0: 22, 1: 0, 2: 24} and 1 not in rows["gradients/mean/0.weight"]
    assert rows["gradients/zero_fraction/0.weight"][2] == 1.0
    # zero times infinity moved two weights to NaN: that is the updates' own series.
    assert rows["nonfinite/updates_nan/0.weight"][0] == 2
    for n in range(3):
        counted = sum(histograms(sink)["gradients/hist/0.weight"][n].counts)
        specials = sum(rows[f"nonfinite/gradients_{kind}/0.weight"].get(n, 0) for kind in ("nan", "posinf", "neginf"))
        assert counted + specials == 24


def test_selection_is_exact() -> None:
    """Prefixes take whole components (TAG-6, ATTACH-5)."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mlp, self.attn = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.mlp(x) + self.attn(x)

    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.h = nn.ModuleList([Layer() for _ in range(12)])

        def forward(self, x: Any) -> Any:
            for layer in self.h:
                x = layer(x)
            return x

    for select, expected in (
        (("h.0", "h.11.mlp"), {"h.0.mlp", "h.0.attn", "h.11.mlp"}),
        ("h.1", {"h.1.mlp", "h.1.attn"}),
        (["h.1", "h.1.mlp"], {"h.1.mlp", "h.1.attn"}),
    ):
        sink, report = watched(Deep(), train_step, select=select)
        leaves = {tag.split("/")[-1].rsplit(".", 1)[0] for tag in by_tag(sink) if tag.startswith("gradients/")}
        assert leaves == expected and report.matched_sites == 2 * len(expected)


def test_wrappers_do_not_change_names() -> None:
    """A wrapped or compiled model gives the series of the plain one; the raw path stands in the manifest (TAG-6)."""
    plain, _ = watched(small_model(), train_step)
    inner = small_model()
    inner[0] = torch.compile(inner[0], backend="eager")
    for make in (
        lambda: nn.DataParallel(small_model()),
        lambda: torch.compile(small_model(), backend="eager"),
        lambda: torch.compile(nn.DataParallel(small_model()), backend="eager"),
        lambda: inner,
    ):
        sink, _ = watched(make(), train_step)
        assert {point.tag for point in data_rows(sink)} == {point.tag for point in data_rows(plain)}
    assert json.loads(texts(sink)["torchlens/meta/manifest"][0])["parameters"][0]["path"] == "0._orig_mod.weight"


def test_a_module_of_the_callers_called_module_keeps_its_name() -> None:
    """Only what a wrapper added is taken out of a name (TAG-6)."""
    model = nn.Module()
    model.module = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sink = trk.MemorySink()
    with trk.watch(model, sink, optimizer=optimizer, select="module.weight") as watch, watch.step(0):
        model.module(batch(0)).square().mean().backward()
        optimizer.step()
    assert {tag.split("/")[-1] for tag in by_tag(sink) if tag.startswith("gradients")} == {"module.weight"}


def test_parameters_need_no_forward_of_the_root() -> None:
    """A loop that calls ``forward`` itself, or a submodule, has parameter rows all the same (STEP-7)."""

    def direct(model: Any, optimizer: Any, n: int) -> None:
        optimizer.zero_grad()
        model.forward(batch(n)).square().mean().backward()
        optimizer.step()

    sink, _ = watched(small_model(), direct)
    assert sorted(by_tag(sink)["parameters/norm/0.weight"]) == [0, 1, 2]


def test_half_precision_and_wide_parameters() -> None:
    """Every dtype with statistics is watched, each in its own width (STAT-1, STAT-4)."""
    model = nn.ParameterDict(
        {
            f"of_{dtype}": torch.ones(3, dtype=getattr(torch, dtype))
            for dtype in ("float64", "float32", "float16", "bfloat16")
        }
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    sink = trk.MemorySink()
    with trk.watch(model, sink, optimizer=optimizer, signals=("gradients", "updates")) as watch, watch.step(0):
        sum(parameter.double().sum() for parameter in model.values()).backward()
        optimizer.step()
    assert {by_tag(sink)[f"updates/mean/{name}"][0] for name in model} == {-0.5}


def test_the_plan_states_what_it_costs() -> None:
    """Bytes follow from sites and grid, never from elements; the peak of updates is one copy (XFER-1, STAT-4)."""
    plans = []
    for width in (8, 64):
        model = nn.Sequential(nn.Linear(width, width), nn.Linear(width, width))
        watch = trk.watch(model, trk.MemorySink(), signals=("gradients", "updates"), hist_every=5)
        plans.append(watch.plan_report())
        watch.close()
    small, large = plans
    assert small.bytes_per_step == large.bytes_per_step == 3 * 4 * 80
    assert small.bytes_per_histogram_step == large.bytes_per_histogram_step == 3 * 4 * 80 + 2 * 4 * 515 * 8
    assert large.peak_bytes == 4 * sum(2 * (64 * 64 + 64) for _ in range(1)) and small.peak_bytes == 4 * 2 * (64 + 8)
    assert json.loads(json.dumps(large.as_dict(), allow_nan=False)) == large.as_dict()
    text = large.format()
    assert str(large) == text and "gradients" in text and "every= is the lever" in text
