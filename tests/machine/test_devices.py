"""GPUs and energy, by a library and files of our own."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from vebench.child.answers import difference
from vebench.machine import devices

FAKE = {
    "NVML_CLOCK_SM": 1,
    "nvmlInit": lambda: None,
    "nvmlDeviceGetCount": lambda: 1,
    "nvmlDeviceGetHandleByIndex": lambda number: number,
    "nvmlSystemGetDriverVersion": lambda: "570.86",
    "nvmlDeviceGetName": lambda _: "NVIDIA H200",
    "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(total=140 << 30),
    "nvmlDeviceGetEnforcedPowerLimit": lambda _: 700_000,
    "nvmlDeviceGetTotalEnergyConsumption": lambda _: 5,  # millijoules
}


@pytest.fixture(autouse=True)
def _anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(devices, "POWERCAP", tmp_path)
    for number, name in enumerate(("package-0", "psys", "package-1")):
        zone = tmp_path / f"intel-rapl:{number}"
        zone.mkdir()
        (zone / "name").write_text(name)
        (zone / "energy_uj").write_text("1000000")
    devices._nvml.cache_clear()
    yield
    devices._nvml.cache_clear()


def test_a_gpu_is_read_as_far_as_it_tells_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(**FAKE))
    assert devices.read_gpus() == ("NVIDIA H200, 140 GiB, 700 W, driver 570.86",)
    assert devices.energy_uj() == 2_005_000


def test_without_a_library_or_a_right_to_read_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert (devices.read_gpus(), devices.energy_uj()) == (None, 2_000_000)
    (tmp_path / "intel-rapl:2" / "energy_uj").unlink()
    assert devices.energy_uj() is None


def test_energy_is_unknown_while_its_counter_begins_again() -> None:
    assert difference({"energy_uj": 9}, {"energy_uj": 2}, {}) == {"energy_uj": None}
