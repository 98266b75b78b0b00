"""GPUs and energy. NVIDIA's management library (NVML) knows GPUs, if ``nvidia-ml-py`` and a driver are installed."""

from __future__ import annotations

import warnings
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from vebench.machine.kernel import entries, number_in, text_of

POWERCAP = Path("/sys/class/powercap")


@cache
def _nvml() -> tuple[Any, tuple[Any, ...]]:
    """Return the library, and a handle of each GPU."""
    with suppress(Exception), warnings.catch_warnings():  # libraries of the same name warn, and raise their own errors
        warnings.simplefilter("ignore")
        nvml = import_module("pynvml")
        nvml.nvmlInit()
        return nvml, tuple(map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount())))
    return None, ()


def _asked(name: str, *arguments: Any) -> Any:
    """Return the result of a function of NVML, None if it fails. A GPU may not support it."""
    with suppress(Exception):
        return getattr(_nvml()[0], name)(*arguments)
    return None


def read_gpus() -> tuple[str, ...] | None:
    """Return each GPU in words: ``NVIDIA H200, 140 GiB, 1980 MHz, 700 W, driver 570.86``. None if none is known."""
    nvml, handles = _nvml()
    driver, found = _asked("nvmlSystemGetDriverVersion"), []
    for handle in handles:
        words = [str(_asked("nvmlDeviceGetName", handle))]
        if (memory := _asked("nvmlDeviceGetMemoryInfo", handle)) is not None:
            words.append(f"{memory.total / 2**30:.0f} GiB")
        if (clock := _asked("nvmlDeviceGetMaxClockInfo", handle, nvml.NVML_CLOCK_SM)) is not None:
            words.append(f"{clock} MHz")
        if (limit := _asked("nvmlDeviceGetEnforcedPowerLimit", handle)) is not None:
            words.append(f"{limit / 1000:g} W")
        found.append(", ".join((*words, f"driver {driver}")))
    return tuple(found) or None


def energy_uj() -> int | None:
    """Return the energy of all CPU packages and GPUs since some start, in microjoules. None unless all report it."""
    zones = [POWERCAP / f"intel-rapl:{number}" for number in entries(POWERCAP, "intel-rapl:")]  # also on AMD
    packages = [number_in(zone / "energy_uj") for zone in zones if text_of(zone / "name").startswith("package")]
    gpus = [_asked("nvmlDeviceGetTotalEnergyConsumption", handle) for handle in _nvml()[1]]
    counts: list[Any] = [*packages, *(count and 1000 * count for count in gpus)]
    return sum(counts) if packages and None not in counts else None
