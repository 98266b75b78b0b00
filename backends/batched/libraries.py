"""Programs that array libraries have compiled, and their memory on GPUs. No library is imported here."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import cache


def compiled() -> int | None:
    """Return how many programs JAX, since the first call, and torch have compiled; None if neither is loaded."""
    counts = []
    if "jax" in sys.modules:
        counts.append(len(_of_jax()))
    if (dynamo := sys.modules.get("torch._dynamo.utils")) is not None:
        counts.append(dynamo.counters["stats"]["unique_graphs"])
    return sum(counts) if counts else None


@cache
def _of_jax() -> list[float]:
    """Return a list that grows by an item with each program that JAX compiles from now on."""
    durations: list[float] = []

    def note(event: str, seconds: float, **_: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            durations.append(seconds)

    sys.modules["jax"].monitoring.register_event_duration_secs_listener(note)
    return durations


def compile_ns() -> int | None:
    """Return for how many nanoseconds JAX has compiled since the first call of ``compiled``; None without JAX."""
    return round(1e9 * sum(_of_jax())) if "jax" in sys.modules else None


def peak_memory() -> int | None:
    """Return the most bytes on GPUs that JAX, torch and Warp have used in this process; None if they used none."""
    peak = 0
    jax, torch, warp = (sys.modules.get(name) for name in ("jax", "torch", "warp"))
    with suppress(Exception):  # a library without its GPU may raise anything, and the windows are measured
        if jax is not None:
            peak += sum((device.memory_stats() or {}).get("peak_bytes_in_use", 0) for device in jax.local_devices())
        if torch is not None and torch.cuda.is_initialized():
            peak += sum(torch.cuda.max_memory_allocated(number) for number in range(torch.cuda.device_count()))
        if warp is not None:
            peak += sum(map(warp.get_mempool_used_mem_high, warp.get_cuda_devices()))
    return peak or None
