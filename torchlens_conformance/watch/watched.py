"""What a session watches, resolved once at attach."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from torch import nn

from ..protocol.grid import GridDescriptor
from .op_grain.calls import Calls
from .op_grain.selection import OperationChoice
from .op_grain.sites import OperationSite
from .operations.model import OperationTrace
from .settings import BOUNDARY_SIGNALS, MODULE_SIGNALS
from .sites import ModuleSite, ParameterSite


@dataclass(frozen=True)
class Watched:
    """What a session watches.

    Attributes:
        model: The model as it was given.
        signals: The signals, in the order of their rows.
        parameters: The parameter sites.
        modules: The module sites.
        outputs: Output leaves of every module that ran in discovery, by the module's leaf.
        descriptor: The grid.
        allow_missing_phases: Whether a missing phase is a named skip.
        operations: The operations, at op grain.
        choice: What was asked for at op grain, else None.
        trace: What discovery saw at op grain, else None.
        calls: At op grain, the calls of the watched functions by their places.
    """

    model: nn.Module
    signals: tuple[str, ...]
    parameters: list[ParameterSite]
    modules: list[ModuleSite]
    outputs: dict[str, list[str]]
    descriptor: GridDescriptor
    allow_missing_phases: bool
    operations: list[OperationSite] = field(default_factory=list)
    choice: OperationChoice | None = None
    trace: OperationTrace | None = None
    calls: Calls = field(default_factory=dict)

    @cached_property
    def boundary_signals(self) -> tuple[str, ...]:
        """The signals that are read at the optimizer boundary."""
        return tuple(signal for signal in self.signals if signal in BOUNDARY_SIGNALS)

    @cached_property
    def module_signals(self) -> tuple[str, ...]:
        """The signals that are read at outputs of modules."""
        return tuple(signal for signal in self.signals if signal in MODULE_SIGNALS)

    @cached_property
    def output_leaves(self) -> tuple[str, ...]:
        """Every output leaf that has a name, in the order of the modules or operations."""
        if self.operations:
            return tuple(leaf for site in self.operations for leaf in site.leaves)
        return tuple(leaf for site in self.modules for leaf in self.leaves_of(site.leaf))

    @cached_property
    def families(self) -> dict[str, tuple[str, ...]]:
        """The leaves of every signal, in the order of their rows."""
        parameters = tuple(site.leaf for site in self.parameters)
        return {signal: self.output_leaves if signal in MODULE_SIGNALS else parameters for signal in self.signals}

    def leaves_of(self, module: str) -> list[str]:
        """Return the output leaves of one module; one that did not run in discovery has its own leaf."""
        return self.outputs.get(module, [module])
