"""Predictions of simulated sweeps, beside what simpler predictions make of them: docs/scaling.md has many more."""

from __future__ import annotations

from importlib import import_module
from statistics import mean, median
from typing import TYPE_CHECKING

import numpy as np
from support.places import PEERS

if TYPE_CHECKING:
    import pytest


def test_predictions_err_less_than_simpler_ones_and_their_bands_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PEERS)
    model = import_module("scaling_model")
    random = np.random.default_rng(5)
    kinds = [(name, cores, part) for name in model.TRUTHS for cores in model.CORES for part in model.FITTED.values()]
    tried = [model.trial(random, *kind, beside=True) for kind in kinds]
    known = [found for found in tried if found is not None]
    error = median(abs(found.error) for found in known)
    others = {name: median(abs(found.others[name]) for found in known) for name in known[0].others}
    assert others.keys() == {"linear in cores", "last point", "last point x cores", "plain USL"}
    assert all(error < other for other in others.values())
    assert 0.8 <= mean(found.held for found in known) <= 0.97
