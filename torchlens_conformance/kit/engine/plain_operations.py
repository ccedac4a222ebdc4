"""Single operations in the plain engine: copies of what chosen functions give in a step's first forward.

Clause: TIER-2, TIER-3.
"""

from __future__ import annotations

import random
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .plain_attach import refusal
from .plain_modules import PlainModules

if TYPE_CHECKING:
    import torch

    from .adapter import Ask


def require_operations(ask: Ask) -> None:
    """Refuse what op grain does not take, before the model is touched. Clause: TIER-2, TIER-3."""
    if ask.grain != "op":
        return
    if not ask.allow_forward_wrap:
        raise refusal("watch_forward_wrap_consent_required", "Op grain wraps the forward.")
    if set(ask.signals) != {"activations"}:
        raise refusal("watch_tier_unavailable", "Op grain watches activations.", signals=list(ask.signals))


class PlainOperations(PlainModules):
    """Stands in the forward's place on sampled steps and keeps what the chosen functions give.

    Args:
        model: The model.
        ask: What to watch.
        skip: Takes the name of a skip.

    Attributes:
        ratio: What observing cost in a few forwards at attach.
    """

    def __init__(self, model: torch.nn.Module, ask: Ask, skip: Callable[[str], None]) -> None:
        super().__init__(model, (), None, lambda: None)
        self.model, self.ask, self.skip = model, ask, skip
        self.hooks = [self]
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.forwards = 0
        self.calls: Counter[str] = Counter()
        self.number = 0
        self.ratio = self.calibrate()
        self.require_choice()
        self.values, self.forwards = {}, 0
        self.disclose()

    # The forward ------------------------------------------------------------------------------------------------------

    def begin(self, *, due: bool) -> None:
        """Take the forward's place on a step that is sampled."""
        self.forwards = 0
        if due:
            self.install()

    def install(self) -> None:
        """Take the forward's place."""
        self.model.__dict__["forward"] = self.forward

    def clear(self) -> None:
        """Forget what earlier forwards gave, and give the place back."""
        super().clear()
        self.remove()

    def remove(self) -> None:
        """Give the place back. Clause: CLOSE-3."""
        self.model.__dict__.pop("forward", None)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the plain forward, and look at the first one of a step. Clause: TIER-3."""
        self.forwards += 1
        if self.forwards > 1:
            return self.forward_again(*args, **kwargs)
        return self.looked_at(*args, **kwargs)

    def forward_again(self, *args: Any, **kwargs: Any) -> Any:
        """Run a further forward as it is, and say that it was not looked at."""
        self.skip("forward_repeated")
        return self.plain(*args, **kwargs)

    def plain(self, *args: Any, **kwargs: Any) -> Any:
        """Run the forward of the class."""
        return type(self.model).forward(self.model, *args, **kwargs)

    def looked_at(self, *args: Any, **kwargs: Any) -> Any:
        """Run the forward and see every call."""
        from torch.overrides import TorchFunctionMode

        see = self.see_call

        class Calls(TorchFunctionMode):
            def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                result = func(*args, **(kwargs or {}))
                see(getattr(func, "__name__", ""), result)
                return result

        self.calls, self.number = Counter(), 0
        with Calls():
            return self.plain(*args, **kwargs)

    def see_call(self, function: str, result: Any) -> None:
        """Count a call that gives tensors, and keep what a chosen one gives."""
        import torch

        tensors = [part for part in (result if isinstance(result, tuple) else (result,)) if torch.is_tensor(part)]
        if not tensors:
            return
        self.number += 1
        self.calls[function] += 1
        if function in (self.ask.functions or ()) and tensors[0].is_floating_point():
            label = self.label(function)
            self.shapes[label] = tuple(tensors[0].shape)
            self.keep_call(label, tensors[0])

    def label(self, function: str) -> str:
        """Return ``<function>_<k>_<n>``. Clause: TIER-3."""
        return f"{function}_{self.calls[function]}_{self.number}"

    def keep_call(self, label: str, tensor: torch.Tensor) -> None:
        """Keep one output, and its facets under it. Clause: TIER-3."""
        self.keep("activations", label, tensor)
        with self.unseen():
            facets = self.facets(label, tensor)
        for number, part in enumerate(facets):
            self.keep("activations", f"{label}/head_{number}", part)

    def facets(self, label: str, tensor: torch.Tensor) -> Sequence[torch.Tensor]:
        """Return the parts of an output, in the order of the axis."""
        function = label.split("_")[0]
        if function not in (self.ask.facets or {}):
            return ()
        heads, dim = (self.ask.facets or {})[function]
        return tensor.chunk(heads, dim=dim)

    # Attach -----------------------------------------------------------------------------------------------------------

    def calibrate(self) -> float:
        """Run both forwards in turns; return how much longer the observed one took. Clause: TIER-2."""
        seconds = []
        for observed in (True, False, True):
            with self.restored():
                start = time.perf_counter()
                self.run_once(observed=observed)
                seconds.append(time.perf_counter() - start)
        return seconds[2] / seconds[1]

    def run_once(self, *, observed: bool) -> None:
        """Run one forward on the example."""
        import torch

        with torch.no_grad():
            (self.looked_at if observed else self.plain)(self.ask.inputs)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Put back what a forward changes, also when it raises. Clause: TIER-2."""
        buffers = self.buffers_now()
        states = self.random_now()
        try:
            yield
        finally:
            self.restore_random(states)
            self.restore_buffers(buffers)

    def buffers_now(self) -> Mapping[str, torch.Tensor]:
        """Return copies of the buffers."""
        return {name: buffer.detach().clone() for name, buffer in self.model.named_buffers()}

    def random_now(self) -> tuple[Any, Any]:
        """Return the random states of torch and of Python."""
        import torch

        return torch.get_rng_state(), random.getstate()

    def restore_buffers(self, buffers: Mapping[str, torch.Tensor]) -> None:
        """Write the copies back, and take away what was None before."""
        for name, buffer in list(self.model.named_buffers()):
            if name in buffers:
                buffer.copy_(buffers[name])
            else:
                self.restore_none(name)

    def restore_none(self, name: str) -> None:
        """Let a buffer be None again."""
        path, _, last = name.rpartition(".")
        setattr(self.model.get_submodule(path), last, None)

    def restore_random(self, states: tuple[Any, Any]) -> None:
        """Set the random states."""
        import torch

        torch.set_rng_state(states[0])
        random.setstate(states[1])

    def require_choice(self) -> None:
        """Refuse a choice that takes nothing, and facets that do not fit. Clause: TIER-3."""
        if not self.shapes:
            raise refusal("watch_selector_matched_no_sites", "Nothing is chosen.", census=dict(self.calls))
        for label, shape in self.shapes.items():
            heads, dim = (self.ask.facets or {}).get(label.split("_")[0], (1, 0))
            if not -len(shape) <= dim < len(shape) or shape[dim] % heads:
                raise refusal("watch_facet_shape_invalid", "A split does not fit.", shape=list(shape))

    def disclose(self) -> None:
        """Say once what a sampled step costs. Clause: TIER-2."""
        warnings.warn(f"watch_op_grain_cost_disclosed: {self.ratio:.2f} times the forward", stacklevel=2)
