"""Arrays of NumPy, JAX, torch and Warp: to the host and back, and waiting for a device. No library is imported here."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from vebench.backends import trees
from vebench.backends.trees import Tree


def to_host(tree: Tree) -> Tree:
    """Return the arrays of a tree as NumPy arrays. Arrays in the CPU's memory are not copied."""
    return trees.mapped(_to_host, tree)


def _to_host(array: Any) -> Any:
    if hasattr(array, "detach"):  # torch
        return array.detach().cpu().numpy()
    if hasattr(array, "numpy"):  # Warp
        return array.numpy()
    return np.asarray(array)


def to_device(tree: Tree, like: Tree) -> Tree:
    """Return NumPy arrays as arrays of the library and device of the first array in ``like``."""
    first = trees.leaves(like)[0]
    library = type(first).__module__.partition(".")[0]
    if library == "torch":
        torch = sys.modules["torch"]
        return trees.mapped(lambda array: torch.from_numpy(np.ascontiguousarray(array)).to(first.device), tree)
    if library in ("jax", "jaxlib"):
        jax = sys.modules["jax"]
        return trees.mapped(lambda array: jax.device_put(array, first.sharding), tree)
    return tree


def wait(tree: Tree) -> None:
    """Wait until the devices have computed every array of a tree."""
    for array in trees.leaves(tree):
        if hasattr(array, "block_until_ready"):  # JAX
            array.block_until_ready()
        elif getattr(array, "is_cuda", False):  # torch
            sys.modules["torch"].cuda.synchronize(array.device)
    if (warp := sys.modules.get("warp")) is not None:
        warp.synchronize()
