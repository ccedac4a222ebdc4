"""Images as PNG and back, without loss (POINT-2)."""

from __future__ import annotations

import io

from torchlens_conformance.protocol import ImagePoint, Refusal

from .packages import require_package

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def encode_png(point: ImagePoint, *, extra: str) -> bytes:
    """Return an image of uint8 and shape (height, width, 1, 3 or 4) as PNG.

    Args:
        point: The image.
        extra: The extra that brings the PNG library, named when it is missing.

    Raises ``tracker_value_unsupported`` for other images: a PNG would return them changed. Clause: POINT-2.
    """
    if point.dtype != "uint8" or len(point.shape) != 3 or point.shape[2] not in _MODES or 0 in point.shape:
        raise Refusal(
            "tracker_value_unsupported",
            "A PNG carries uint8 pixels of shape (height, width, channels) with 1, 3 or 4 channels.",
            remedy="Convert the image to uint8 and give it a channel dimension.",
            tag=point.tag,
            shape=point.shape,
            dtype=point.dtype,
        )
    height, width, channels = point.shape
    library = require_package("PIL.Image", extra=extra)
    buffer = io.BytesIO()
    library.frombytes(_MODES[channels], (width, height), point.data).save(buffer, format="PNG")
    return buffer.getvalue()


def decode_png(tag: str, step: int, encoded: bytes, *, extra: str) -> ImagePoint:
    """Return a PNG of 8 bits a channel as a point.

    Raises ``ValueError`` for anything else: other codecs lose or depend on the decoder. Clause: POINT-2.
    """
    library = require_package("PIL.Image", extra=extra)
    try:
        with library.open(io.BytesIO(encoded), formats=["PNG"]) as image:
            channels = {mode: count for count, mode in _MODES.items()}.get(image.mode)
            if channels is None:
                raise ValueError(f"a PNG of mode {image.mode}")
            width, height = image.size
            data = image.tobytes()
    except (OSError, SyntaxError) as error:
        raise ValueError(f"no PNG: {error}") from None
    return ImagePoint(tag, step, data, (height, width, channels), "uint8")
