"""Scenarios by id: each drives an engine through some cases and yields what was observed. They import torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from ..adapter import Engine
from ..observation import Observed
from . import amp, attaching, callbacks, guest, modules, operations, sharing, steps, surroundings, values
from .machine import machine
from .scripts import SCRIPTS, scripts_of

Scenario = Callable[[Engine], Iterator[Observed]]

SCENARIOS: Mapping[str, Scenario] = {
    # The longest stand first, so that side by side they end together.
    "machine": machine,
    "twins-modules": guest.twins_modules,
    "twins": guest.twins,
    "data-parallel": surroundings.data_parallel,
    "twins-closure": guest.twins_closure,
    "slow-sink": sharing.slow_sink,
    "compiled": surroundings.compiled,
    "refusals": attaching.refusals,
    "failing-sink": sharing.failing_sink,
    "statistics": values.statistics,
    "derived": amp.derived,
    "derived-half": amp.derived_half,
    "transfer": guest.transfer,
    "updates": values.updates,
    "names": values.names,
    "cadence": steps.cadence,
    "final-sample": steps.final_sample,
    "both-spellings": steps.both_spellings,
    "first-rows": steps.first_rows,
    "closure": steps.closure,
    "several-optimizers": steps.several_optimizers,
    "scale-history": amp.scale_history,
    "unscaled": amp.unscaled,
    "unknown": amp.unknown,
    "fused": amp.fused,
    "amp-several": amp.several,
    "invalid-scale": amp.invalid_scale,
    "after-close": sharing.after_close,
    "empty-close": sharing.empty_close,
    "ending-sink": sharing.ending_sink,
    "interrupted-sink": sharing.interrupted_sink,
    "environment": surroundings.environment,
    "hooks": guest.hooks,
    "outputs": modules.outputs,
    "root-output": modules.root_output,
    "shared-outputs": modules.shared_outputs,
    "output-gradients": modules.output_gradients,
    "forward-kept": modules.forward_kept,
    "module-spellings": modules.both_spellings,
    "explicit": modules.explicit,
    "operations": operations.operations,
    "operations-attach": operations.operations_attach,
    "operations-kept": operations.operations_kept,
    "checkpointed": operations.checkpointed,
    **callbacks.SCENARIOS,
    **{topic: partial(scripts_of, topic) for topic in SCRIPTS},
}
"""Every scenario."""
