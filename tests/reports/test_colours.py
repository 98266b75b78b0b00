"""The colours of figures: readers with any colour vision can tell them apart, on light and on dark ground."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest

from vebench.reports.plots import COLOURS, GROUND, INK, MUTED, SERIES

Vector = npt.NDArray[np.float64]

# G. Machado, M. Oliveira, L. Fernandes, A Physiologically-based Model for Simulation of Color Vision Deficiency, IEEE
# Transactions on Visualization and Computer Graphics 15 (6), 2009: severity 1.0.
SEEN = {
    "all cones": np.eye(3),
    "no long": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no middle": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "no short": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
# IEC 61966-2-1: from linear sRGB to XYZ, and the white of it.
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
WHITE = np.array([0.95047, 1.0, 1.08883])


def linear(colour: str) -> Vector:
    parts = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    low, high = sorted(float((TO_XYZ @ linear(colour))[1]) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def lab(light: Vector) -> Vector:
    parts = TO_XYZ @ np.clip(light, 0, 1) / WHITE
    x, y, z = np.where(parts > 0.008856, np.cbrt(parts), 7.787 * parts + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("ground", ["light", "dark"])
@pytest.mark.parametrize("seen", SEEN)
def test_any_two_series_can_be_told_apart_with_any_colour_vision(ground: str, seen: str) -> None:
    places = [lab(SEEN[seen] @ linear(getattr(colour, ground))) for colour in (*SERIES, MUTED)]
    assert min(float(np.linalg.norm(one - other)) for one, other in combinations(places, 2)) >= 20


@pytest.mark.parametrize("ground", ["light", "dark"])
def test_lines_and_texts_stand_out_from_their_ground(ground: str) -> None:
    behind = getattr(GROUND, ground)
    assert min(contrast(getattr(colour, ground), behind) for colour in SERIES) >= 3
    assert min(contrast(getattr(colour, ground), behind) for colour in (INK, MUTED)) >= 4.5


def test_no_two_colours_are_the_same() -> None:
    assert len({colour.light for colour in COLOURS}) == len(COLOURS)
