"""A few points through a real route: sent in a process of its own, read back here."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fidelity.processes import _inherited
from fidelity.received import Received
from fidelity.routes import get_route
from torchlens_conformance.protocol import Point

_SEND = """
import pickle, sys
from pathlib import Path
from fidelity.routes import get_route
place = Path(sys.argv[2])
points = pickle.loads((place / "points").read_bytes())
refused = get_route(sys.argv[1]).send(points, place / "store")
(place / "refused").write_bytes(pickle.dumps(refused))
"""


def trip(route_id: str, points: Sequence[Point], place: Path) -> Received:
    """Send ``points`` through a route into ``place`` and return what its store gives back, with what was refused."""
    route = get_route(route_id)
    store = place / "store"
    store.mkdir(parents=True)
    (place / "points").write_bytes(pickle.dumps(list(points)))
    environment = {**_inherited(), "HOME": str(place), "TMPDIR": str(place), **route.environment(store)}
    command = [sys.executable, "-c", _SEND, route_id, str(place)]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return replace(route.read(store), refused=tuple(pickle.loads((place / "refused").read_bytes())))
