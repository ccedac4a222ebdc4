"""``python -m torchlens_conformance`` is the command line."""

from __future__ import annotations

from torchlens_conformance.cli import main

if __name__ == "__main__":
    main()
