"""Writes a picture that differs from the reference's, together with the reference's, for people to look at.

It needs OpenCV, as every Atari environment does.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

GREY, COLOURED = 2, 3
CHANNELS = (1, 3)


def save(folder: str, name: str, expected: NDArray[np.generic], found: NDArray[np.generic]) -> tuple[str, ...]:
    """Write both pictures and their absolute difference, stretched to full contrast; return the files' paths.

    Frames of a stack are placed side by side. Returns an empty tuple if the observations are not pictures. Raises
    ImportError without OpenCV, and OSError if a file cannot be written.
    """
    one, other = picture(expected), picture(found)
    if one is None or other is None:
        return ()
    pictures = {"expected": one, "found": other}
    if one.shape == other.shape:
        pictures["difference"] = contrast(one, other)
    paths = []
    for kind, image in pictures.items():
        path = Path(folder) / f"{re.sub('[^A-Za-z0-9.=-]+', '-', name)}-{kind}.png"
        path.write_bytes(_png(image))
        paths.append(str(path))
    return tuple(paths)


def picture(observation: NDArray[np.generic]) -> NDArray[np.uint8] | None:
    """Return an observation as a picture, ``(height, width)`` or ``(height, width, channels)``; None if it is not one.

    The frames of a stack, ``(frames, height, width)``, are placed side by side.
    """
    if observation.dtype != np.uint8 or observation.ndim < GREY:
        return None
    pixels = observation.astype(np.uint8)
    if pixels.ndim == COLOURED and pixels.shape[-1] in CHANNELS:
        return pixels
    if pixels.ndim == COLOURED:
        return np.concatenate(list(pixels), axis=1)
    return pixels if pixels.ndim == GREY else None


def contrast(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the absolute difference of two pictures, pixel by pixel; the largest is white."""
    gap = np.abs(one.astype(np.int16) - other.astype(np.int16))
    return (gap * 255 // max(1, int(gap.max(initial=0)))).astype(np.uint8)


def _png(image: NDArray[np.uint8]) -> bytes:
    import cv2  # noqa: PLC0415 - imported on use

    if image.ndim == COLOURED and image.shape[-1] == CHANNELS[-1]:
        image = image[..., ::-1]  # OpenCV expects blue first
    encoded, data = cv2.imencode(".png", image)
    if not encoded:
        raise OSError("OpenCV could not encode a picture")
    return bytes(data)
