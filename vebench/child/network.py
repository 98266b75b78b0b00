"""Policies that are networks, on torch: with random weights, since only their time matters."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vebench.backends.interface import ActionSpace
    from vebench.backends.trees import Tree
    from vebench.child.policy import PolicyChoice

_MOST_TOKENS = 64
_PICTURE_AXES = 3
# Kernel, stride and channels of each layer (Mnih et al., Human-level control through deep reinforcement learning,
# Nature 518, 2015), and the width of the layer after them.
_NATURE_LAYERS = ((8, 4, 32), (4, 2, 64), (3, 1, 64))
_NATURE_WIDTH = 512


class Network:
    """A network that samples actions: from a categorical distribution for each integer, a normal one for each real.

    ``observations`` are like those to come; their first axis is rows. Its weights and draws follow from ``seed``.
    Observations of bytes are scaled to 0..1. On CUDA they are copied once for each batch, through pinned memory.
    """

    def __init__(self, policy: PolicyChoice, space: ActionSpace, observations: NDArray[np.generic], seed: int) -> None:
        torch.set_num_threads(policy.threads)
        torch.manual_seed(seed)
        self._device = torch.device(policy.device)
        self._cuda = self._device.type == "cuda"
        if self._cuda and not torch.cuda.is_available():
            raise ValueError(f"--policy {policy.label}: torch {torch.__version__} sees no CUDA device here")
        # Adapters may return arrays that must not be written to, which a tensor cannot tell: nothing here writes.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        shape = observations.shape[1:]
        body, width = _body(policy, shape)
        model = nn.Sequential(_Scaled(observations.dtype == np.uint8), body, _Head(space, width))
        self._model: Any = model.to(self._device).eval()
        if policy.compile:
            self._model = torch.compile(self._model)
        self._autocast = policy.precision == "bf16"
        self._dtype = space.low.dtype
        self._shape = space.low.shape
        like = torch.from_numpy(np.ascontiguousarray(observations))
        self._pinned = torch.empty_like(like, pin_memory=True) if self._cuda else None

    def upload(self, observations: Tree) -> torch.Tensor:
        """Copy observations to the device; on CPU they are not copied."""
        rows = torch.from_numpy(np.ascontiguousarray(observations))
        if self._pinned is None:
            return rows
        there = self._pinned[: len(rows)].copy_(rows).to(self._device, non_blocking=True)
        torch.cuda.synchronize(self._device)
        return there

    def infer(self, there: torch.Tensor) -> torch.Tensor:
        """Choose actions, on the device."""
        with torch.inference_mode(), torch.autocast(self._device.type, torch.bfloat16, enabled=self._autocast):
            chosen: torch.Tensor = self._model(there)
        if self._cuda:
            torch.cuda.synchronize(self._device)
        return chosen

    def download(self, chosen: torch.Tensor) -> NDArray[np.generic]:
        """Return the actions."""
        actions: NDArray[np.generic] = chosen.cpu().numpy().astype(self._dtype, copy=False)
        return actions.reshape(len(actions), *self._shape)


class _Scaled(nn.Module):
    """Observations as real numbers, bytes of pictures from 0 to 1."""

    def __init__(self, pictures: bool) -> None:
        super().__init__()
        self._factor = 1 / 255 if pictures else 1.0

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.to(torch.float32) * self._factor


class _Head(nn.Module):
    """A linear layer, and a draw from the distribution that it parametrises."""

    def __init__(self, space: ActionSpace, width: int) -> None:
        super().__init__()
        low, high = space.low.reshape(-1), space.high.reshape(-1)
        self._integer = space.integer
        self._counts = [int(top) - int(bottom) + 1 for bottom, top in zip(low, high)] if self._integer else []  # noqa: B905 - Python 3.10, and of equal length
        self._linear = nn.Linear(width, sum(self._counts) if self._integer else len(low))
        self.register_buffer("_low", torch.from_numpy(low.astype(np.int64 if self._integer else np.float32)))
        self.register_buffer("_high", torch.from_numpy(high.astype(np.int64 if self._integer else np.float32)))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        out = self._linear(features).float()
        if not self._integer:
            return torch.clamp(out + torch.randn_like(out), self._low, self._high)
        # The largest of logits with Gumbel noise is a draw from the categorical distribution.
        noisy = out - torch.log(-torch.log(torch.rand_like(out).clamp_(1e-20, 1 - 1e-7)))
        chosen = [part.argmax(-1) for part in noisy.split(self._counts, -1)]
        return torch.stack(chosen, -1) + self._low


class _Tokens(nn.Module):
    """Cuts a flat observation into tokens of equal width, filled up with zeros, each embedded with its position."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self._chunk = math.ceil(size / _MOST_TOKENS)
        self._count = math.ceil(size / self._chunk)
        self._padding = self._count * self._chunk - size
        self._embed = nn.Linear(self._chunk, width)
        self._position = nn.Parameter(torch.randn(self._count, width) * 0.02)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        flat = nn.functional.pad(rows.flatten(1), (0, self._padding))
        embedded: torch.Tensor = self._embed(flat.view(len(flat), self._count, self._chunk))
        return embedded + self._position


class _Mean(nn.Module):
    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return tokens.mean(1)


def _body(policy: PolicyChoice, shape: tuple[int, ...]) -> tuple[nn.Module, int]:
    """Return the network up to its head, for observations of this shape, and how many features it has."""
    size = max(1, math.prod(shape))
    parts: list[nn.Module] = [nn.Flatten()]
    if policy.kind == "nature-cnn":
        least = 36  # for which the last layer has one place
        if len(shape) != _PICTURE_AXES or min(shape[1:]) < least:
            raise ValueError(
                f"policy nature-cnn takes stacked images, (stack, height, width), of {least} x {least} or more, "
                f"not observations of shape {shape}: use mlp:64x64"
            )
        channels, height, width = shape
        parts = []
        for kernel, stride, following in _NATURE_LAYERS:
            parts += [nn.Conv2d(channels, following, kernel, stride), nn.ReLU()]
            channels, height, width = following, (height - kernel) // stride + 1, (width - kernel) // stride + 1
        parts += [nn.Flatten(), nn.Linear(channels * height * width, _NATURE_WIDTH), nn.ReLU()]
        return nn.Sequential(*parts), _NATURE_WIDTH
    if policy.kind == "transformer":
        layers, width = policy.sizes
        block = nn.TransformerEncoderLayer(width, width // 8, 4 * width, dropout=0.0, batch_first=True)
        encoder = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        return nn.Sequential(_Tokens(size, width), encoder, _Mean()), width
    for width in policy.sizes:
        parts += [nn.Linear(size, width), nn.Tanh()]
        size = width
    return nn.Sequential(*parts), size
