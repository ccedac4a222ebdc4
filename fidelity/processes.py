"""Child processes that cannot hang, leak or be forgotten: each has a timeout and a process group of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

_ROOT = Path(__file__).parent.parent
"""Where the packages lie; children find them there whatever their working directory."""

_DROPPED_VARIABLES = ("WANDB_", "CLEARML_", "MLFLOW_", "COMET_", "PYTEST_")
"""The caller's own tracker settings must not reach a measurement, nor its keys a store."""


class ProcessFailed(Exception):
    """A child process did not do its work.

    Attributes:
        reason: ``crashed``, ``timed out`` or ``interrupted``.
        detail: What is known, with the last lines it printed.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class ProcessGroup:
    """All children of one run, so that an interrupt ends every one of them."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self.interrupted = threading.Event()

    def run(
        self, arguments: Sequence[str], *, output: Path, timeout: float, cwd: Path, environment: Mapping[str, str]
    ) -> None:
        """Run ``python -m fidelity.worker`` with ``arguments``; raise :class:`ProcessFailed` if it fails.

        Args:
            arguments: What follows the module's name.
            output: File that takes what the process prints.
            timeout: Seconds after which the process and its children are killed.
            cwd: Working directory; outside any checkout.
            environment: Variables on top of the caller's.
        """
        with output.open("wb") as sink, self._lock:
            if self.interrupted.is_set():
                raise ProcessFailed("interrupted", "the run was stopped before this step began")
            process = subprocess.Popen(
                [sys.executable, "-m", "fidelity.worker", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env={**_inherited(), **environment},
                start_new_session=True,
            )
            self._running.add(process)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise ProcessFailed("timed out", f"no end after {timeout:g} seconds{_tail(output)}") from None
        finally:
            # Also after a regular end: a tracker may have left a service process behind.
            _kill(process)
            with self._lock:
                self._running.discard(process)
        if self.interrupted.is_set() and code:
            raise ProcessFailed("interrupted", "the run was stopped")
        if code:
            raise ProcessFailed("crashed", f"exit code {code}{_tail(output)}")

    def interrupt(self) -> None:
        """Kill every child; steps that have not begun will not begin."""
        self.interrupted.set()
        with self._lock:
            for process in self._running:
                _kill(process)


def _inherited() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(_DROPPED_VARIABLES)}
    paths = [str(_ROOT), *filter(None, kept.get("PYTHONPATH", "").split(os.pathsep))]
    kept["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(os.path.abspath(path) for path in paths))
    return kept


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tail(output: Path, *, lines: int = 6) -> str:
    try:
        text = output.read_text(errors="replace").strip().splitlines()[-lines:]
    except OSError:
        return ""
    return "; it printed last: " + " | ".join(line.strip() for line in text) if text else ""
