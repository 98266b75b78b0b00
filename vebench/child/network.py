"""Policies that are networks, on torch: with random weights, since only their time matters."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from vebench.backends.interface import ActionSpace
from vebench.backends.trees import Tree
from vebench.child.policy import PolicyChoice

_MOST_TOKENS = 64
# Kernel, stride and channels of each layer, and the width of the layer after them (Mnih et al., Human-level control
# through deep reinforcement learning, Nature 518, 2015).
_NATURE_LAYERS = ((8, 4, 32), (4, 2, 64), (3, 1, 64))
_NATURE_WIDTH = 512
_LEAST_PICTURE = 36  # pixels, for which the last layer has one place


class Network:
    """A network that samples actions: from a categorical distribution for each integer, a normal one for each real.

    ``observations`` are like those to come; their first axis is rows. Weights and draws follow from ``seed``. On CUDA,
    observations are copied once for each batch, through pinned memory.
    """

    def __init__(self, policy: PolicyChoice, space: ActionSpace, observations: NDArray[np.generic], seed: int) -> None:
        torch.set_num_threads(policy.threads)
        torch.manual_seed(seed)
        self._device = torch.device(policy.device)
        self._cuda = self._device.type == "cuda"
        if self._cuda and not torch.cuda.is_available():
            raise ValueError(f"--policy {policy.label}: torch {torch.__version__} sees no CUDA device here")
        # Adapters may return read-only arrays, which a tensor cannot be: nothing here writes.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        self._model: Any = _Model(policy, space, observations).to(self._device).eval()
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


class _Model(nn.Module):
    """From observations to actions: a body, a linear layer, and a draw from the distribution that it parametrises."""

    def __init__(self, policy: PolicyChoice, space: ActionSpace, observations: NDArray[np.generic]) -> None:
        super().__init__()
        self._factor = 1 / 255 if observations.dtype == np.uint8 else 1.0
        self._body, width = _body(policy, observations.shape[1:])
        low, high = space.low.reshape(-1), space.high.reshape(-1)
        self._counts = (high.astype(np.int64) - low.astype(np.int64) + 1).tolist() if space.integer else []
        self._linear = nn.Linear(width, sum(self._counts) if space.integer else len(low))
        kind = np.int64 if space.integer else np.float32
        self.register_buffer("_low", torch.from_numpy(low.astype(kind)))
        self.register_buffer("_high", torch.from_numpy(high.astype(kind)))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        out = self._linear(self._body(rows.to(torch.float32) * self._factor)).float()
        if not self._counts:
            return torch.clamp(out + torch.randn_like(out), self._low, self._high)
        # The largest of logits with Gumbel noise is a draw from the categorical distribution.
        noisy = out - torch.log(-torch.log(torch.rand_like(out).clamp_(1e-20, 1 - 1e-7)))
        chosen = [part.argmax(-1) for part in noisy.split(self._counts, -1)]
        return torch.stack(chosen, -1) + self._low


class _Transformer(nn.Module):
    """Cuts a flat observation into tokens of equal width, padded with zeros, and encodes them with their positions."""

    def __init__(self, size: int, layers: int, width: int) -> None:
        super().__init__()
        self._chunk = math.ceil(size / _MOST_TOKENS)
        count = math.ceil(size / self._chunk)
        self._padding = count * self._chunk - size
        self._embed = nn.Linear(self._chunk, width)
        self._position = nn.Parameter(torch.randn(count, width) * 0.02)
        block = nn.TransformerEncoderLayer(width, width // 8, 4 * width, dropout=0.0, batch_first=True)
        self._encoder = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        flat = nn.functional.pad(rows.flatten(1), (0, self._padding))
        tokens = self._embed(flat.view(len(flat), -1, self._chunk)) + self._position
        encoded: torch.Tensor = self._encoder(tokens)
        return encoded.mean(1)


def _body(policy: PolicyChoice, shape: tuple[int, ...]) -> tuple[nn.Module, int]:
    """Return the network up to its last layer, for observations of this shape, and how many features it has."""
    size = max(1, math.prod(shape))
    if policy.kind == "transformer":
        layers, width = policy.sizes
        return _Transformer(size, layers, width), width
    parts: list[nn.Module] = []
    if policy.kind == "mlp":
        parts.append(nn.Flatten())
        for width in policy.sizes:
            parts += [nn.Linear(size, width), nn.Tanh()]
            size = width
        return nn.Sequential(*parts), size
    if len(shape) != 3 or min(shape[1:]) < _LEAST_PICTURE:  # noqa: PLR2004 - stack, height, width
        raise ValueError(
            f"policy nature-cnn takes stacked images, (stack, height, width), of {_LEAST_PICTURE} x {_LEAST_PICTURE} "
            f"or more, not observations of shape {shape}: use mlp:64x64"
        )
    channels, height, width = shape
    for kernel, stride, following in _NATURE_LAYERS:
        parts += [nn.Conv2d(channels, following, kernel, stride), nn.ReLU()]
        channels, height, width = following, (height - kernel) // stride + 1, (width - kernel) // stride + 1
    parts += [nn.Flatten(), nn.Linear(channels * height * width, _NATURE_WIDTH), nn.ReLU()]
    return nn.Sequential(*parts), _NATURE_WIDTH
