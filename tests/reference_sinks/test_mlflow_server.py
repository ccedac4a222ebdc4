"""MLflowSink over a real `mlflow server` on this machine: the same points, by way of HTTP."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .mlflow_runs import emit, one_of_everything

import mlflow  # isort: skip
from reference_sinks import MLflowSink
from reference_sinks.readers import read_mlflow
from torchlens_conformance.kit.checks.showing import point_key
from torchlens_conformance.kit.subjects.mlflow import DATABASE, empty_database
from torchlens_conformance.protocol import Refusal, ScalarPoint, TextPoint

_READY = ("Uvicorn running on", "Listening at")
# What the servers of MLflow 3 and 2 print once they listen.


@dataclass
class Server:
    """A server, its address, and the folder of its database and artifacts."""

    process: subprocess.Popen[str]
    address: str
    folder: Path

    def kill(self) -> None:
        """End it and everything that it started, at once."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Yield a server that listens."""
    # One try is enough to see that nobody answers.
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    (tmp_path / DATABASE).write_bytes(empty_database())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {
        "--backend-store-uri": f"sqlite:///{tmp_path / DATABASE}",
        "--artifacts-destination": str(tmp_path / "kept"),
        "--host": "127.0.0.1",
        "--port": str(port),
        "--workers": "1",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "mlflow", "server", *(word for pair in options.items() for word in pair)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    started = Server(process, f"http://127.0.0.1:{port}", tmp_path)
    try:
        said = []
        for line in process.stdout:
            said.append(line)
            if any(words in line for words in _READY):
                break
        else:
            pytest.fail(f"the server ended: {''.join(said)}")
        mlflow.set_tracking_uri(started.address)
        yield started
    finally:
        mlflow.set_tracking_uri(None)
        started.kill()
        process.stdout.close()


def _keys(points: Any) -> list[str]:
    return sorted(str(point_key(point)) for point in points)


@pytest.mark.trackers
def test_everything_comes_back_exactly_by_way_of_a_server(server: Server) -> None:
    """Numbers, steps, names, texts and histograms survive HTTP; a dead server is refused by name (MLFLOW-1, PROT-5)."""
    client = mlflow.MlflowClient(server.address)
    run_id = client.create_run(client.create_experiment("over http")).info.run_id
    sink = MLflowSink(client, run_id=run_id)
    sent = [*one_of_everything(), ScalarPoint("\u00e9:a b", 1, 0.5), TextPoint("\u00e9:a b", 1, "words")]
    # The longest names with the longest escapes: the largest request that there is.
    sent += [ScalarPoint("\U00020000" * 247 + f"{index:03}", 1, 0.5) for index in range(200)]
    emit(sink, sent)
    sink.flush()
    result = read_mlflow(server.folder)
    assert _keys(result) == _keys(sent)
    assert result.torn is None and result.unplaced == ()
    assert sink.last_step() == 2**63 - 1
    with pytest.raises(Refusal) as repeated:
        sink.emit_text(sent[-201])
    assert repeated.value.code == "tracker_point_repeated"
    emit(sink, [ScalarPoint("late", 1, 0.5)])
    server.kill()
    with pytest.raises(Refusal) as lost:
        sink.close()
    assert (lost.value.code, lost.value.fields["points"]) == ("tracker_sink_write_failed", 1)
    assert len(read_mlflow(server.folder)) == len(sent)
