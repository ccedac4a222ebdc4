"""The summary of a Lightning module, once at the start of a fit; Lightning's own summary makes the table (CB-4)."""

from __future__ import annotations

from typing import Any

from torch.nn.parameter import is_lazy

from reference_sinks.packages import require_package

from ..watch.operations import TRACE_MODES
from .arguments import require_callable, require_depth
from .extra_forward import InputGetter, beside_training, forward_inputs, warn
from .running import Print

_lightning = require_package("lightning.pytorch.callbacks", extra="lightning")


class SummaryCallback(_lightning.Callback):  # type: ignore[misc, name-defined]
    """Print the table of layers once at the start of each fit.

    It shows sizes of inputs and outputs, which takes one extra forward in eval mode under ``no_grad``, with modes,
    buffers and random states put back: of the module's ``example_input_array`` when it has one, otherwise of the first
    training batch. Give ``enable_model_summary=False`` to the trainer, which would print its own as well. A module with
    lazy parameters is summarised after its first batch, which gives them their shapes.

    Args:
        depth: How deep modules are listed, an integer >= -1; -1 for all.
        input_getter: From a batch to what the forward takes; needed when the batch is not ``(x, ...)``, ``{"x": ...}``
            or a mapping of the forward's keywords.
        print_fn: Takes the table, with a line on where its sizes come from.

    Attributes:
        trace_mode: ``executed`` when a forward gave the sizes, ``meta`` when it had no values, ``structure`` when none
            went through; None before the table.

    The total is ``sum(p.numel() for p in module.parameters())``: tied weights and modules that are called twice count
    once there. A batch that the forward rejects gives the table without sizes and the warning
    ``lightning_summary_skipped``; training goes on. Raises ``watch_settings_invalid``, and
    ``tracker_sink_unavailable`` without Lightning. Experimental. Clause: CB-4.
    """

    def __init__(self, *, depth: int = 1, input_getter: InputGetter | None = None, print_fn: Print = print) -> None:
        super().__init__()
        self._depth = require_depth("depth", depth)
        require_callable("input_getter", input_getter, optional=True)
        require_callable("print_fn", print_fn)
        self._input_getter = input_getter
        self._print = print_fn
        self._due = False
        self.trace_mode: str | None = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Print at once when the module brings an example, else wait for the first batch."""
        self._due = bool(trainer.is_global_zero)
        if self._due and pl_module.example_input_array is not None and not _has_lazy(pl_module):
            self._summarize(pl_module)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Print with the first batch as the example."""
        if self._due and not _has_lazy(pl_module):
            self._summarize(pl_module, batch)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Print after the first batch when parameters were lazy before it: no forward of ours may fill them."""
        if self._due:
            self._summarize(pl_module, batch)

    def _summarize(self, pl_module: Any, batch: Any = None) -> None:
        self._due = False
        on_meta = {parameter.is_meta for parameter in pl_module.parameters()} == {True}
        self.trace_mode = "meta" if on_meta else "executed"
        own = pl_module.example_input_array
        try:
            if _has_lazy(pl_module):
                raise ValueError("parameters are lazy, and training has not filled them")
            if own is None:
                arguments, keywords = forward_inputs(batch, self._input_getter)
                pl_module.example_input_array = keywords or arguments
            with beside_training(pl_module):
                table = str(self._table(pl_module))
        except Exception as error:
            warn("lightning_summary_skipped", f"no forward, or it raised {type(error).__name__}: {error}")
            pl_module.example_input_array, self.trace_mode = None, "structure"
            table = str(self._table(pl_module))
        finally:
            pl_module.example_input_array = own
        self._print(f"{table}\ntrace_mode {self.trace_mode}: {TRACE_MODES[self.trace_mode]}")

    def _table(self, pl_module: Any) -> Any:
        library = require_package("lightning.pytorch.utilities.model_summary", extra="lightning")
        return library.ModelSummary(pl_module, max_depth=self._depth)


def _has_lazy(pl_module: Any) -> bool:
    return any(is_lazy(parameter) for parameter in pl_module.parameters())
