"""The backends as machinery: choice, threads, forks, the disk cache, imports."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from torchlens_conformance.protocol import DEFAULT_DESCRIPTOR, Refusal
from torchlens_conformance.statistics import compiled_available, compute, compute_many

from .oracle import BACKENDS, assert_same_sums, exact_fields, torch

needs_compiler = pytest.mark.skipif(not compiled_available(), reason="the compiled backend cannot run here")

IMPORTS = """
import sys
import torchlens_conformance.statistics
print([name for name in ("torch", "numpy", "numba") if name in sys.modules])
"""

FORK = """
import os, sys, torch
from torchlens_conformance.statistics import compute
torch.set_num_threads(2)
tensor = torch.ones(1_000_000)
assert compute(tensor).total == 1e6
child = os.fork()
if child == 0:
    os._exit(0 if compute(tensor).total == 1e6 else 3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""

FULL_DISK = """
import importlib.util, pathlib, resource, sys, tempfile
from torchlens_conformance.statistics import kernels
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, "doubling.py")
    path.write_text("def double(value):\\n    return value + value\\n")
    spec = importlib.util.spec_from_file_location("doubling", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    double = kernels._kernel(module.double)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    print(double(21), double(22), len(list(pathlib.Path(folder).rglob("*.nbc"))))
"""

AT_EXIT = """
import atexit, torch
from torchlens_conformance.statistics import compute
torch.set_num_threads(2)
atexit.register(lambda: print(compute(torch.ones(1_000_000)).total))
"""


def run(program: str, *options: str) -> str:
    """Run a program in a fresh interpreter and return what it printed."""
    done = subprocess.run([sys.executable, *options, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_is_cheap() -> None:
    """The package imports without torch, numpy and numba; they come with the first tensor (STAT-1)."""
    assert run(IMPORTS) == "[]"


@needs_compiler
def test_a_forked_child_counts_too() -> None:
    """Threads do not survive a fork, so a child makes its own instead of waiting for ever (STAT-1)."""
    assert run(FORK) == "0"


@needs_compiler
def test_the_end_of_the_interpreter() -> None:
    """When no more threads start, the caller's thread does all the work (STAT-1)."""
    assert run(AT_EXIT) == "1000000.0"


@needs_compiler
def test_results_do_not_depend_on_the_threads() -> None:
    """One thread or several, alone or in company: every field is the same, sums included (STAT-1)."""
    generator = torch.Generator().manual_seed(5)
    tensors = [torch.randn(size, generator=generator) for size in (700_001, 5, 300_000)]
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(compute_many(tensors, descriptor=DEFAULT_DESCRIPTOR, backend="compiled"))
        found.append([compute(tensor, descriptor=DEFAULT_DESCRIPTOR, backend="compiled") for tensor in tensors])
    finally:
        torch.set_num_threads(before)
    assert all(other == found[0] for other in found[1:])


@pytest.mark.parametrize("backend", BACKENDS)
def test_chunks_make_no_difference(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut into chunks of any length, a tensor keeps its counts and, up to rounding, its sums (STAT-1)."""
    from torchlens_conformance.statistics import plain_cpu

    generator = torch.Generator().manual_seed(6)
    tensor = torch.randn(50_000, generator=generator)
    tensor[[17, 40_000]] = torch.tensor([torch.nan, torch.inf])
    wanted = compute(tensor, descriptor=DEFAULT_DESCRIPTOR, backend=backend)
    modules: list[tuple[Any, str]] = [(plain_cpu, "CHUNK")]
    if compiled_available():
        from torchlens_conformance.statistics import compiled

        modules.append((compiled, "CHUNK"))
    for length in (1000, 4097, 30_000):
        for module, name in modules:
            monkeypatch.setattr(module, name, length)
        got = compute(tensor, descriptor=DEFAULT_DESCRIPTOR, backend=backend)
        assert exact_fields(got) == exact_fields(wanted)
        assert_same_sums(got, wanted)


@needs_compiler
def test_an_error_in_a_thread_reaches_the_caller() -> None:
    """A task that raises in any thread is not lost, and the others stop (STAT-1)."""
    from torchlens_conformance.statistics import threads

    done = []

    def work(task: int) -> None:
        if task == 3:
            raise ValueError("task 3")
        done.append(task)

    for number in (1, 2, 4):
        with pytest.raises(ValueError, match="task 3"):
            threads.share(1000, work, threads=number)
    done.clear()
    threads.share(1000, done.append, threads=3)
    assert sorted(done) == list(range(1000))


@needs_compiler
def test_without_a_cache_folder_it_compiles_all_the_same() -> None:
    """Where no folder can be written, the kernel is compiled in every process (STAT-1)."""
    from torchlens_conformance.statistics import kernels

    namespace: dict[str, Any] = {}
    exec("def double(value):\n    return value + value\n", namespace)  # A function without a file has no cache folder.
    assert kernels._kernel(namespace["double"])(21) == 42


@needs_compiler
def test_a_full_disk_only_costs_time() -> None:
    """When the machine code cannot be written to disk, the call succeeds all the same (STAT-1)."""
    pytest.importorskip("resource")
    assert run(FULL_DISK) == "42 44 0"


def test_a_backend_that_cannot_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown backend, and the compiled one without numba, refuse; ``auto`` then uses torch (STAT-1)."""
    module = sys.modules[compute.__module__]
    monkeypatch.setattr(module, "_compiled_reduce", lambda: None)
    for backend in ("compiled", "fortran"):
        with pytest.raises(Refusal) as refused:
            compute(torch.ones(2), backend=backend)  # type: ignore[arg-type]
        assert refused.value.code == "statistics_backend_unavailable"
    assert compute(torch.ones(2)).total == 2.0
