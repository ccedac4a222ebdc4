"""No host is contacted: the whole measurement runs where there is nothing but loopback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from fidelity.routes import CONTROL_ROUTES

# Found, not imported: some trackers change the process that imports them.
_PACKAGES = (
    "clearml",
    "comet_ml",
    "jsonschema",
    "matplotlib",
    "mlflow",
    "tensorboard",
    "torch",
    "transformers",
    "wandb",
)
if any(find_spec(package) is None for package in _PACKAGES):
    pytest.skip("a package of the measurement is not installed", allow_module_level=True)

# Raises loopback inside the namespace, then becomes the command.
_LOOPBACK_ONLY = """
import fcntl, os, socket, struct, sys
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40
with socket.socket() as control:
    fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP | IFF_RUNNING))
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""

# 192.0.2.0/24 is reserved for documentation: nobody answers there, in any network.
_DIALS_OUT = """
import errno, socket, sys
with socket.socket() as dialler:
    dialler.settimeout(5)
    sys.exit(0 if dialler.connect_ex(("192.0.2.1", 443)) == errno.ENETUNREACH else 1)
"""

_TALKS_TO_ITSELF = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 5):
    pass
"""


def _namespace() -> list[str]:
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("there is no unshare command here")
    command = [unshare, "--net"] if os.geteuid() == 0 else [unshare, "--net", "--map-root-user"]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("network namespaces are not allowed here")
    return [*command, sys.executable, "-c", _LOOPBACK_ONLY]


def _inside(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*_namespace(), *arguments], cwd=cwd, capture_output=True, text=True, timeout=1800, check=False
    )


def test_dialling_out_fails_there_and_loopback_works(tmp_path: Path) -> None:
    """The control: in the namespace a process that dials out is refused at once, and loopback answers (FID-7)."""
    assert _inside("-c", _DIALS_OUT, cwd=tmp_path).returncode == 0
    assert _inside("-c", _TALKS_TO_ITSELF, cwd=tmp_path).returncode == 0


@pytest.mark.trackers
@pytest.mark.timeout(1900)
def test_the_whole_run_passes_with_loopback_only(tmp_path: Path) -> None:
    """Tensors, every route and both controls are measured without a network (FID-3, FID-4, FID-5, FID-6, FID-8)."""
    done = _inside("-m", "torchlens_conformance", "fidelity", "run", "--output", str(tmp_path / "out"), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "out" / "measured.json").read_text())
    assert {route["status"] for route in result["routes"]} == {"measured"}
    assert result["void"] is False and result["incomplete"] == []
    drawn = {path.name for path in (tmp_path / "out" / "pictures").iterdir()}
    routes = {route["id"] for route in result["routes"]}
    seen = {f"fidelity-seen-{route}.svg" for route in routes - set(CONTROL_ROUTES)}
    assert drawn == seen | {f"fidelity-{route}.svg" for route in routes}
    assert not list((tmp_path / "out").rglob("*.partial"))
