"""Counters and facts of the machine: small trees of our own for what depends on it, this machine where it must work."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from vebench.child.answers import difference
from vebench.machine import devices, host, kernel
from vebench.machine.kernel import control_groups, cpu_quota

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="read from /proc")


@pytest.fixture
def tree(tmp_path: Path) -> Callable[[dict[str, str]], Path]:
    """Return a function that lays files, by path and text, under a root of their own."""

    def lay(files: dict[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return lay


def test_the_quota_is_the_least_of_the_own_cgroup_and_its_ancestors(tree: Callable[[dict[str, str]], Path]) -> None:
    root = tree(
        {
            "proc/self/cgroup": "0::/user/job\n",
            "sys/fs/cgroup/user/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/user/job/cpu.max": "max 100000\n",
        }
    )
    assert cpu_quota(root) == (1.5, "/sys/fs/cgroup/user/cpu.max")


def test_the_memory_left_is_the_systems_or_the_containers_if_less(tree: Callable[[dict[str, str]], Path]) -> None:
    files = {"proc/meminfo": "MemTotal: 4096 kB\nMemAvailable:    2048 kB\n", "proc/self/cgroup": "0::/\n"}
    assert host.memory_available(tree(files)) == 2048 << 10
    limits = {"sys/fs/cgroup/memory.max": "1000000\n", "sys/fs/cgroup/memory.current": "400000\n"}
    assert host.memory_available(tree(limits)) == 600_000
    cached = {"sys/fs/cgroup/memory.stat": "anon 90000\ninactive_file 100000\nactive_file 200000\n"}
    assert host.memory_available(tree(cached)) == 900_000, "the kernel frees cached files"


def test_throttling_is_read_in_nanoseconds(tree: Callable[[dict[str, str]], Path]) -> None:
    stat = {"sys/fs/cgroup/cpu.stat": "usage_usec 5\nnr_throttled 2\nthrottled_usec 1234\n"}
    assert kernel.throttling(control_groups(tree({})), "nr_throttled") is None
    root = tree({"proc/self/cgroup": "1:cpu:/x\n0::/\n", **stat})
    groups = control_groups(root)
    assert (kernel.throttling(groups, "nr_throttled"), kernel.throttling(groups, "throttled_usec", 1000)) == (
        2,
        1_234_000,
    )


NVML = SimpleNamespace(
    nvmlInit=lambda: None,
    nvmlDeviceGetCount=lambda: 1,
    nvmlDeviceGetHandleByIndex=lambda number: number,
    nvmlSystemGetDriverVersion=lambda: "570.86",
    nvmlDeviceGetName=lambda _: "NVIDIA H200",
    nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(total=140 << 30),
    nvmlDeviceGetMaxClockInfo=lambda _, of: {7: 1980}[of],
    nvmlDeviceGetTotalEnergyConsumption=lambda _: 5,  # millijoules; and no function that tells the power limit
    NVML_CLOCK_SM=7,
)
H200 = ("NVIDIA H200, 140 GiB, 1980 MHz, driver 570.86",)


@pytest.mark.parametrize(("nvml", "gpus", "energy"), [(NVML, H200, 2_005_000), (None, None, 2_000_000)])
def test_gpus_and_energy_are_known_as_far_as_they_are_told(
    tree: Callable[[dict[str, str]], Path], nvml: object, gpus: object, energy: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    zones = {f"intel-rapl:{number}/name": name for number, name in enumerate(("package-0", "psys", "package-1"))}
    root = tree({**zones, **{f"intel-rapl:{number}/energy_uj": "1000000" for number in range(3)}})
    monkeypatch.setattr(devices, "POWERCAP", root)
    monkeypatch.setattr(devices, "_nvml", devices._nvml.__wrapped__)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert (devices.read_gpus(), devices.energy_uj()) == (gpus, energy)
    (root / "intel-rapl:2/energy_uj").unlink()
    assert devices.energy_uj() is None
    assert difference({"energy_uj": 9}, {"energy_uj": 2}, {}) == {"energy_uj": None}, "it has begun again at zero"


@linux
def test_cpu_time_is_that_of_all_threads_and_grows() -> None:
    before = kernel.cpu_time_ns([os.getpid()])
    sum(range(100_000))
    after = kernel.cpu_time_ns([os.getpid()])
    assert before is not None
    assert after is not None
    assert after > before
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert kernel.cpu_time_ns([child.pid]) is None, "a process that has ended"
