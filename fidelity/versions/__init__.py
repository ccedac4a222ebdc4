"""One tracker over many versions: columns of measured cells, merged, compared and told in words (FID-3)."""

from __future__ import annotations
