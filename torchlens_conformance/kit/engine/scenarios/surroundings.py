"""Scenarios about what surrounds a session: a compiled model, environment variables, other processes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...keepers import Fault, side_by_side
from ..adapter import Engine
from ..observation import NotApplicable, Observed
from .case import Case, batch, gradients_of, hook_census, parameters_of, small_model
from .digests import digest_of
from .guest import BOUNDARY

DISABLE = "TORCHLENS_WATCH_DISABLE"
_PATIENCE = timedelta(seconds=120)
_kept: list[Any] = []


def _plain_model() -> Any:
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))


def _train(model: Any, optimizer: Any, n: int) -> None:
    optimizer.zero_grad()
    model(batch(n)).square().sum().backward()
    optimizer.step()


# A compiled model --------------------------------------------------------------------------------------------------


def compiled(engine: Engine) -> Iterator[Observed]:
    """A compiled model, watched at the optimizer boundary and unwatched: graphs, breaks, parameters, rows."""
    case = Case(engine, "compiled/eager")
    unwatched = _compiled_run(None)
    yield case.observed(watched=_compiled_run(case), unwatched=unwatched, steps=list(range(5)))


def _compiled_run(case: Case | None) -> dict[str, Any]:
    import torch

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    graphs: list[Any] = []

    def keep(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    inner = _plain_model()
    try:
        model: Any = torch.compile(inner, backend=keep)
        if case is None:
            model(batch(0))
    except Exception as error:
        raise NotApplicable(f"torch.compile does not work here: {type(error).__name__}: {error}") from error
    optimizer = torch.optim.SGD(inner.parameters(), lr=0.1)
    watched = case is not None and case.attach(model, optimizer=optimizer, signals=BOUNDARY, every=2)
    if case is not None:
        model(batch(0))
    for n in range(5):
        if watched and case is not None:
            with case.step(n):
                _train(model, optimizer, n)
        else:
            _train(model, optimizer, n)
    if watched and case is not None:
        case.close()
    breaks = sum(torch._dynamo.utils.counters["graph_break"].values())
    return {"graphs": len(graphs), "graph breaks": breaks, "parameters": digest_of(dict(inner.named_parameters()))}


# The environment ---------------------------------------------------------------------------------------------------


@contextmanager
def set_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a while."""
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]


_ENVIRONMENTS: Mapping[str, Mapping[str, str]] = {
    "none": {},
    "disabled": {DISABLE: "1"},
    "zero": {DISABLE: "0"},
    "empty": {DISABLE: ""},
    "others": {
        "TORCHLENS_WATCH_SIGNALS": "parameters,updates",
        "TORCHLENS_WATCH_EVERY": "1",
        "TORCHLENS_WATCH_HIST_EVERY": "1",
        "TORCHLENS_WATCH_SELECT": "2",
        "TORCHLENS_WATCH_ENABLE": "1",
    },
}


def environment(engine: Engine) -> Iterator[Observed]:
    """The same run under environment variables: the one that turns off, and those that must turn nothing on."""
    import torch

    for name, variables in _ENVIRONMENTS.items():
        with set_variables(variables):
            case = Case(engine, f"environment/{name}")
            model = small_model()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            before = hook_census(model, [optimizer])
            if case.attach(model, optimizer=optimizer, every=2):
                case.facts["hooks"] = (before, hook_census(model, [optimizer]))
                for n in (2, 3, 4):
                    with case.step(n):
                        _train(model, optimizer, n)
                case.close()
        yield case.observed(parameters=parameters_of(model))


# Other processes ---------------------------------------------------------------------------------------------------


def data_parallel(engine: Engine) -> Iterator[Observed]:
    """Two processes of a DistributedDataParallel run over gloo, both watched."""
    import torch

    if not torch.distributed.is_available():
        raise NotApplicable("this torch has no torch.distributed")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with TemporaryDirectory(prefix="conformance-") as folder:
        told = side_by_side([partial(_rank, engine, rank, Path(folder)) for rank in range(2)], workers=2)
    for answer in told:
        if isinstance(answer, Fault):
            raise RuntimeError(f"a rank gave no answer: {answer.text}")
        if isinstance(answer, str):
            raise NotApplicable(f"gloo does not start here: {answer}")
        yield answer


def _rank(engine: Engine, rank: int, folder: Path) -> Observed | str:
    import torch

    try:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2, timeout=_PATIENCE
        )
        inner = _plain_model()
        model = torch.nn.parallel.DistributedDataParallel(inner)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    case = Case(engine, f"data-parallel/rank-{rank}")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    case.facts = {"gradients": {}, "before": hook_census(model, [optimizer])}
    if case.attach(model, optimizer=optimizer):
        for n in (1, 2, 3):
            with case.step(n):
                optimizer.zero_grad()
                # Each rank has other inputs, and the gradients that it sees are the mean of both.
                model(batch(10 * n + rank)).square().sum().backward()
                case.facts["gradients"][n] = gradients_of(inner)
                optimizer.step()
        case.close()
    case.facts["after"] = hook_census(model, [optimizer])
    # Never freed: when the last owner of a gloo group goes, torch waits for the group's thread while it holds the
    # interpreter's lock, which that thread may be waiting for. The process ends without freeing anything.
    _kept.append(model)
    return case.observed(rank=rank)
