"""The rotation of a model, learned: bases in which the rounded model comes closest to the model on calibration text."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from qbench.calibration.windows import calibration_tokens
from qbench.progress import Progress
from qbench.run.work import CalibrationWork
from qbench.runtime.reference_decoder import ReferenceDecoder, check_covered
from quant.errors import InputError
from quant.formats import ActivationFormat, get_format
from quant.job import QuantizationJob
from quant.kv import get_kv_format
from quant.kv.codec import Codec
from quant.kv.formats import KVFormat
from quant.linalg.cayley import CayleySgd
from quant.models import ModelConfig, split_name
from quant.present import present
from quant.rotation import RotatedSource
from quant.rotation.basis import LearnedBases, matrix_of
from quant.workers import one_torch_thread


class RoundedDecoder(ReferenceDecoder):
    """Logits with rounded inputs of linears and rounded keys and values; weights are not rounded.

    The stream stays in one basis. A linear turns its input, rounds it, and turns it back, so a basis changes rounding
    errors and nothing else: weights stay as they are, whatever the basis.

    inputs   canonical name of a weight -> the format that rounds its input
    kv       None: keys and values are kept as they are
    bases    first that of the stream [K, K], then that of each layer's values [D, D], float32; None: nothing is rounded
    """

    def __init__(self, source: RotatedSource, inputs: Mapping[str, ActivationFormat], kv: KVFormat | None) -> None:
        super().__init__(source, torch.float32)
        self.inputs, self.kv = inputs, kv
        self.bases: list[Tensor] | None = None

    def linear(self, x: Tensor, name: str) -> Tensor:
        fmt = self.inputs.get(f"{name}.weight")
        if fmt is not None and self.bases is not None:
            x = self._rounded(x, name, fmt)
        return super().linear(x, name)

    def kept(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if self.kv is None or self.bases is None or self.kv.calibrated:
            return k, v
        basis = self.bases[1 + layer]
        return _through(self.kv.keys, k), _through(self.kv.values, v @ basis) @ basis.T

    def _rounded(self, x: Tensor, name: str, fmt: ActivationFormat) -> Tensor:
        bases = present(self.bases)
        if name.endswith("down_proj"):
            return round_inputs(x, fmt)
        if name.endswith("o_proj"):
            basis = bases[1 + present(split_name(f"{name}.weight")[1])]
            heads = x.unflatten(-1, (-1, len(basis))) @ basis  # [B, T, H, D]
            return (round_inputs(heads.flatten(-2), fmt).unflatten(-1, (-1, len(basis))) @ basis.T).flatten(-2)
        return round_inputs(x @ bases[0], fmt) @ bases[0].T


def round_inputs(x: Tensor, fmt: ActivationFormat) -> Tensor:
    """x [..., K] as the format rounds it. Its gradient knows that errors grow with the largest magnitude of a token."""
    tokens = x.detach().reshape(-1, x.shape[-1]).numpy()
    error = torch.from_numpy(fmt.fake_quantize_input(tokens, {})).view(x.shape) - x.detach()
    largest = x.abs().amax(dim=-1, keepdim=True)
    return x + error * (largest / largest.detach().clamp_min(1e-30))


def _through(codec: Codec, x: Tensor) -> Tensor:
    """x as the codec gives it back; its gradient is that of x"""
    return x + (codec.round_trip(x.detach()) - x.detach())


STEPS = 100  # as in the authors' configuration
WINDOWS = 2  # of a step; more windows are slower and their loss is steadier
MOST_TOKENS = 192  # of a window
HELD_OUT, MOST_HELD_OUT = 4, 16  # one window in four is not learned from and judges the bases; at most sixteen
CHECK = 10  # steps between two looks at the held-out windows
LENGTH = 0.006  # of the first step, falling to 0; 1 turns every plane by one radian
MOMENTUM = 0.9


@dataclass(frozen=True, slots=True)
class LearnedRotation:
    """before, after   mean KL divergence on the held-out windows, with Hadamard bases and with these"""

    bases: LearnedBases
    before: float
    after: float


def with_learned_rotation(
    job: QuantizationJob, options: CalibrationWork, progress: Progress | None = None
) -> QuantizationJob:
    """The job with learned bases in its rotated source. The same text and seed give the same bases.

    raises   InputError for a model whose equations `ReferenceDecoder` does not have, and for a single window
    """
    rotated = job.source
    assert isinstance(rotated, RotatedSource)
    try:
        check_covered(ModelConfig.of(rotated))
    except NotImplementedError as error:
        raise InputError(f"{rotated.spec}: spin- learns through the reference decoder; {error}; use rot-") from error
    windows = calibration_tokens(rotated, options).tokens
    if len(windows) < 2:
        raise InputError("spin- learns from some windows and judges by others, got 1 window; give a longer text")
    learned = learn_rotation(job, windows, options.seed, progress)
    return replace(job, source=RotatedSource(rotated.source, rotated.online, learned.bases))


def learn_rotation(
    job: QuantizationJob, windows: np.ndarray, seed: int, progress: Progress | None = None
) -> LearnedRotation:
    """windows [S, T] int64, S > 1. The bases are those of least divergence on the windows that are not learned from:
    of the Hadamard bases, and of those after every few steps.

    source   Liu et al. 2024, arXiv:2405.16406 (SpinQuant), section 3.2: inputs are rounded, weights are not yet. The
             loss here is the divergence from the model itself, where the paper has the cross entropy of the text
    """
    rotated = job.source
    assert isinstance(rotated, RotatedSource)
    kv = None if job.recipe.kv is None else get_kv_format(job.recipe.kv)
    decoder = RoundedDecoder(rotated, _rounded_inputs(job), kv)
    config, text = decoder.config, torch.from_numpy(windows[:, :MOST_TOKENS])
    last = torch.arange(len(text)) % HELD_OUT == min(HELD_OUT, len(text)) - 1
    start = [torch.eye(config.hidden_size, dtype=torch.float64)]
    start += [torch.eye(config.head_dim, dtype=torch.float64)] * config.num_layers
    with one_torch_thread():
        judge = _Judge(decoder, text[last][:MOST_HELD_OUT], start)
        _descend(decoder, CayleySgd(start, MOMENTUM), text[~last], judge, np.random.default_rng(seed), progress)
    found, before, after = judge.best, judge.before, judge.least
    first, *others = (matrix.numpy() for matrix in found)
    bases = LearnedBases(matrix_of(config.hidden_size) @ first, [matrix_of(config.head_dim) @ one for one in others])
    return LearnedRotation(bases, before, after)


class _Judge:
    """Keeps the matrices of least divergence on windows that no step sees.

    tokens   [S, T] int64
    start    the first matrices
    """

    def __init__(self, decoder: RoundedDecoder, tokens: Tensor, start: list[Tensor]) -> None:
        self._decoder = decoder
        self._batches = [(some, _log_probabilities(decoder, None, some)) for some in tokens.split(WINDOWS)]
        self.best, self.least = list(start), self._loss(start)
        self.before = self.least

    def look(self, matrices: list[Tensor]) -> None:
        loss = self._loss(matrices)
        if loss < self.least:
            self.best, self.least = list(matrices), loss

    def _loss(self, matrices: list[Tensor]) -> float:
        bases = [matrix.float() for matrix in matrices]
        with torch.no_grad():
            found = [(target, _log_probabilities(self._decoder, bases, some)) for some, target in self._batches]
        return float(np.mean([float(_divergence(*pair)) for pair in found]))


def _descend(
    decoder: RoundedDecoder,
    sgd: CayleySgd,
    text: Tensor,
    judge: _Judge,
    random: np.random.Generator,
    progress: Progress | None,
) -> None:
    batches: tuple[Tensor, ...] = text.split(WINDOWS)
    order: list[int] = []
    for step in range(STEPS):
        order = order or random.permutation(len(batches)).tolist()
        tokens = batches[order.pop()]
        target = _log_probabilities(decoder, None, tokens)
        bases = [matrix.float().requires_grad_() for matrix in sgd.matrices]
        _divergence(target, _log_probabilities(decoder, bases, tokens)).backward()
        sgd.step([torch.zeros_like(basis) if basis.grad is None else basis.grad for basis in bases], _length(step))
        if (step + 1) % CHECK == 0 or step + 1 == STEPS:
            judge.look(sgd.matrices)
        if progress is not None:
            progress(step + 1, STEPS, "learn the rotation")


def _length(step: int) -> float:
    return LENGTH * (1 - step / STEPS)


def _log_probabilities(decoder: RoundedDecoder, bases: list[Tensor] | None, tokens: Tensor) -> Tensor:
    """[B, T, V]; bases None: of the model, without a gradient"""
    decoder.bases = bases
    with torch.set_grad_enabled(bases is not None and torch.is_grad_enabled()):
        return decoder.logits(tokens).log_softmax(dim=-1)


def _divergence(target: Tensor, found: Tensor) -> Tensor:
    """Mean over tokens of KL(target || found), both log probabilities"""
    return (target.exp() * (target - found)).sum(dim=-1).mean()


def _rounded_inputs(job: QuantizationJob) -> dict[str, ActivationFormat]:
    formats = {name: get_format(choice.format) for name, choice in job.choices.items()}
    return {name: fmt for name, fmt in formats.items() if isinstance(fmt, ActivationFormat)}
