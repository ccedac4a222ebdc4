"""Scenarios about loss scales, with torch's own GradScaler on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

from ....protocol import DEFAULT_DESCRIPTOR
from ..adapter import Engine
from ..observation import NotApplicable, Observed
from .case import Case, chosen_gradients, gradients_of, values_of


def _scaler(scale: float, **settings: Any) -> Any:
    import torch

    return torch.amp.GradScaler("cpu", init_scale=scale, **settings)


def scale_history(engine: Engine) -> Iterator[Observed]:
    """Five steps with a scale that grows at every update; the third one overflows."""
    import torch

    case = Case(engine, "scale-history/grows")
    wanted = torch.tensor([1.0, -3.0, 0.25])
    model = chosen_gradients({"weight": wanted})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = _scaler(1024.0, growth_interval=1)
    used: dict[int, float] = {}
    if case.attach(model, optimizer=optimizer, signals=("gradients", "updates"), hist_every=1):
        for n in range(11, 16):
            with case.step(n, scaler=scaler):
                optimizer.zero_grad()
                used[n] = scaler.get_scale()
                factor = inf if n == 13 else 1.0
                scaler.scale(model() * factor).backward()
                scaler.step(optimizer)
                scaler.update()
        case.close()
    yield case.observed(scales=used, overflowed=[13], gradients={"weight": wanted.double().tolist()})


def derived(engine: Engine) -> Iterator[Observed]:
    """Random gradients under powers of two, stepped without the scaler, so that the scale is still in them."""
    import torch

    generator = torch.Generator().manual_seed(11)
    for index, exponent in enumerate((0, 1, 7, 10, 16, 24)):
        case = Case(engine, f"derived/scale-{exponent}")
        magnitudes = torch.exp2(torch.randint(-30, 12, (200,), generator=generator).float())
        chosen = {
            "random": torch.randn(200, generator=generator) * magnitudes,
            # Under 65536 this is beyond the grid, and must not become overflow.
            "two": torch.tensor([2.0, -2.0, 0.0, 1.5]),
            "f64": torch.randn(50, generator=generator).double() * 2.0 ** (index - 40),
            "bf16": torch.randn(50, generator=generator).bfloat16(),
        }
        model = chosen_gradients(chosen)
        optimizer = torch.optim.SGD(model.parameters(), lr=2.0**-30)
        scaler = _scaler(2.0**exponent)
        if case.attach(model, optimizer=optimizer, hist_every=1):
            with case.step(3, scaler=scaler):
                scaler.scale(model()).backward()
                case.facts["scaled"] = gradients_of(model)
                optimizer.step()
            case.close()
        yield case.observed(gradients=values_of(chosen), scale=2.0**exponent, step=3)


def derived_half(engine: Engine) -> Iterator[Observed]:
    """Scaled gradients over the whole range of fp16 and bf16, numbers below the normal ones too.

    The gradients are given and not computed, since a backward in fp16 would overflow first; what is right is what is
    there, divided by the scale in float64.
    """
    import torch

    generator = torch.Generator().manual_seed(13)
    for kind in ("float16", "bfloat16"):
        dtype = getattr(torch, kind)
        for exponent in (1, 10, 16, 24):
            case = Case(engine, f"derived-half/{kind}-scale-{exponent}")
            given = {"range": _whole_range(dtype, generator), "edges": _edges_scaled(dtype, exponent)}
            model: Any = torch.nn.ParameterDict({leaf: torch.zeros_like(value) for leaf, value in given.items()})
            try:
                optimizer = torch.optim.SGD(model.parameters(), lr=2.0**-30)
                torch.zeros(1, dtype=dtype).add_(torch.ones(1, dtype=dtype), alpha=0.5)
            except RuntimeError as error:
                raise NotApplicable(f"this torch does not compute in {kind} here: {error}") from error
            scaler = _scaler(2.0**exponent)
            # A scaler makes its scale when it is used for the first time.
            scaler.scale(torch.zeros(1))
            for leaf, parameter in model.named_parameters():
                parameter.grad = given[leaf].clone()
            true = {leaf: [value / 2.0**exponent for value in values] for leaf, values in values_of(given).items()}
            if case.attach(model, optimizer=optimizer, hist_every=1):
                with case.step(3, scaler=scaler):
                    optimizer.step()
                case.close()
            yield case.observed(gradients=true, scale=2.0**exponent, step=3)


def _whole_range(dtype: Any, generator: Any) -> Any:
    """Return every sign and exponent of a dtype with random fractions: its bits are drawn, non-finite ones left out."""
    import torch

    bits = torch.randint(-(2**15), 2**15, (600,), generator=generator, dtype=torch.int16)
    drawn = bits.view(dtype)
    finite = drawn[drawn.isfinite()]
    # Ten numbers below the normal ones, of either sign, and both zeros.
    small = torch.tensor([*range(1, 6), *(n - 2**15 for n in range(1, 6)), 0, -(2**15)], dtype=torch.int16).view(dtype)
    return torch.cat([finite, small])


def _edges_scaled(dtype: Any, exponent: int) -> Any:
    """Return edges of the grid times a scale, where the dtype has them: what lies on an edge stays on it."""
    import torch

    edges = torch.tensor(DEFAULT_DESCRIPTOR.side_edges, dtype=torch.float64) * 2.0**exponent
    rounded = edges.to(dtype)
    return rounded[rounded.isfinite() & (rounded != 0)]


def several(engine: Engine) -> Iterator[Observed]:
    """Two optimizers under one scaler, at stages of their own; and one of which overflows."""
    import torch

    left, right = torch.tensor([2.0, -0.5]), torch.tensor([3.0, 0.25, -8.0])
    wanted = values_of({"left": left, "right": right})
    for name in ("stages", "overflow"):
        case = Case(engine, f"amp-several/{name}")
        model = chosen_gradients({"left": left, "right": right})
        optimizers = [torch.optim.SGD([model.get_parameter(leaf)], lr=0.1) for leaf in ("left", "right")]
        scaler = _scaler(256.0, growth_interval=1000)
        used: dict[int, float] = {}
        signals = ("gradients", "updates")
        if case.attach(model, optimizer=optimizers, signals=signals, hist_every=1):
            for n in (1, 2, 3):
                with case.step(n, scaler=scaler):
                    used[n] = scaler.get_scale()
                    for optimizer in optimizers:
                        optimizer.zero_grad()
                    scaler.scale(model()).backward()
                    if name == "stages":
                        _step_at_stages(scaler, optimizers)
                    else:
                        _step_with_overflow(scaler, optimizers, overflows=n == 2)
            case.close()
        yield case.observed(gradients=wanted, scales=used, overflowed={2: ["right"]} if name == "overflow" else {})


def _step_at_stages(scaler: Any, optimizers: list[Any]) -> None:
    """The first one without its scale, the second one with it."""
    scaler.unscale_(optimizers[0])
    for optimizer in optimizers:
        optimizer.step()
    scaler.update()


def _step_with_overflow(scaler: Any, optimizers: list[Any], *, overflows: bool) -> None:
    """Both by the scaler; an infinity in the gradient of the second one makes the scaler leave that one out."""
    if overflows:
        optimizers[1].param_groups[0]["params"][0].grad[0] = inf
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()


def unscaled(engine: Engine) -> Iterator[Observed]:
    """Gradients that carry no scale at the boundary: ``unscale_``, ``scaler.step``, a disabled scaler, none."""
    import torch

    wanted = torch.tensor([2.0, -0.5, 3.0])
    for name in ("unscale", "step", "disabled", "none"):
        case = Case(engine, f"unscaled/{name}")
        model = chosen_gradients({"weight": wanted})
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = _scaler(512.0, enabled=name != "disabled")
        if case.attach(model, optimizer=optimizer, hist_every=1):
            with case.step(3, **({} if name == "none" else {"scaler": scaler})):
                if name == "none":
                    model().backward()
                    optimizer.step()
                else:
                    scaler.scale(model()).backward()
                    if name == "unscale":
                        scaler.unscale_(optimizer)
                    scaler.step(optimizer)
                    scaler.update()
            case.close()
        yield case.observed(gradients={"weight": wanted.double().tolist()}, step=3)


class DuckScaler:
    """A scaler that says its scale and keeps no record a stage could be read from."""

    def is_enabled(self) -> bool:
        """Say that it is on."""
        return True

    def get_scale(self) -> float:
        """Return the scale."""
        return 8.0


def unknown(engine: Engine) -> Iterator[Observed]:
    """A duck-typed scaler: what is in the gradients cannot be known, so numbers are as measured."""
    import torch

    case = Case(engine, "unknown/duck")
    model = chosen_gradients({"weight": torch.tensor([16.0, -4.0, 24.0])})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if case.attach(model, optimizer=optimizer, hist_every=1):
        with case.step(3, scaler=DuckScaler()):
            model().backward()
            optimizer.step()
        case.close()
    yield case.observed(gradients={"weight": [16.0, -4.0, 24.0]}, step=3)


def fused(engine: Engine) -> Iterator[Observed]:
    """Optimizers that unscale inside their own step; the second step overflows."""
    import torch

    wanted = torch.tensor([2.0, -0.5, 3.0])
    for name in ("SGD", "AdamW"):
        case = Case(engine, f"fused/{name}")
        model = chosen_gradients({"weight": wanted})
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.1, fused=True)
        scaler = _scaler(256.0, growth_interval=1000)
        if case.attach(model, optimizer=optimizer, signals=("gradients", "updates"), hist_every=1):
            for n in (1, 2, 3):
                with case.step(n, scaler=scaler):
                    optimizer.zero_grad()
                    scaler.scale(model() * (inf if n == 2 else 1.0)).backward()
                    scaler.step(optimizer)
                    scaler.update()
            case.close()
        facts = {"scales": {1: 256.0, 2: 256.0, 3: 128.0}, "overflowed": [2]}
        yield case.observed(gradients={"weight": wanted.double().tolist()}, **facts)


def invalid_scale(engine: Engine) -> Iterator[Observed]:
    """A scale that is no power of two: refused when the scope opens, never inside ``optimizer.step``."""
    import torch

    case = Case(engine, "invalid-scale/1000")
    model = chosen_gradients({"weight": torch.ones(3)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = _scaler(1000.0)
    if case.attach(model, optimizer=optimizer):
        assert case.session is not None
        scope = case.session.step(4, scaler=scaler)
        with case.log.doing("open", 4):
            scope.__enter__()
        if case.log.last.outcome == "acknowledged":
            with case.log.doing("train", 4):
                scaler.scale(model()).backward()
                optimizer.step()
            with case.log.doing("leave", 4):
                scope.__exit__(None, None, None)
        with case.step(5):
            optimizer.zero_grad()
            model().backward()
            optimizer.step()
        case.close()
    yield case.observed()
