"""The rotation of a model, learned: bases in which the rounded model comes closest to the model on calibration text."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from qbench.calibration.options import CalibrationOptions
from qbench.calibration.rounded_decoder import RoundedDecoder
from qbench.calibration.windows import calibration_tokens
from qbench.progress import Progress
from qbench.runtime.reference_decoder import check_covered
from quant.errors import InputError
from quant.formats import ActivationFormat, get_format
from quant.job import QuantizationJob
from quant.kv import get_kv_format
from quant.linalg.cayley import CayleySgd
from quant.models import ModelConfig
from quant.rotation import RotatedSource
from quant.rotation.basis import LearnedBases, matrix_of
from quant.workers import one_torch_thread

STEPS = 100  # as in the authors' configuration
WINDOWS = 2  # of a step; more windows are slower and their loss is steadier
MOST_WINDOWS, MOST_TOKENS = 24, 192  # to learn from: the logits of the model are kept for all of them
LENGTH = 0.02  # of the first step, falling to 0; 1 turns every plane by one radian
MOMENTUM = 0.9


@dataclass(frozen=True, slots=True)
class LearnedRotation:
    """before, after   mean KL divergence on the calibration windows, with Hadamard bases and with these"""

    bases: LearnedBases
    before: float
    after: float


def with_learned_rotation(
    job: QuantizationJob, options: CalibrationOptions, progress: Progress | None = None
) -> QuantizationJob:
    """The job with learned bases in its rotated source. The same text and seed give the same bases.

    raises   InputError for a model whose equations `ReferenceDecoder` does not have
    """
    rotated = job.source
    assert isinstance(rotated, RotatedSource)
    try:
        check_covered(ModelConfig.of(rotated))
    except NotImplementedError as error:
        raise InputError(f"{rotated.spec}: spin- learns through the reference decoder; {error}; use rot-") from error
    windows = calibration_tokens(rotated, options).tokens
    learned = learn_rotation(job, windows, options.seed, progress)
    return replace(job, source=RotatedSource(rotated.source, rotated.online, learned.bases))


def learn_rotation(
    job: QuantizationJob, windows: np.ndarray, seed: int, progress: Progress | None = None
) -> LearnedRotation:
    """windows [S, T] int64. If the learned bases are no better on them, Hadamard bases stay.

    source   Liu et al. 2024, arXiv:2405.16406 (SpinQuant), section 3.2: inputs are rounded, weights are not yet. The
             loss here is the divergence from the model itself, where the paper has the cross entropy of the text
    """
    rotated = job.source
    assert isinstance(rotated, RotatedSource)
    kv = None if job.recipe.kv is None else get_kv_format(job.recipe.kv)
    decoder = RoundedDecoder(rotated, _rounded_inputs(job), kv)
    config, text = decoder.config, torch.from_numpy(windows[:MOST_WINDOWS, :MOST_TOKENS])
    start = [torch.eye(config.hidden_size, dtype=torch.float64)]
    start += [torch.eye(config.head_dim, dtype=torch.float64)] * config.num_layers
    with one_torch_thread():
        targets = [_log_probabilities(decoder, None, some) for some in text.split(WINDOWS)]
        batches = list(zip(text.split(WINDOWS), targets, strict=True))
        before = _mean_loss(decoder, start, batches)
        found = _descend(decoder, CayleySgd(start, MOMENTUM), batches, np.random.default_rng(seed), progress)
        after = _mean_loss(decoder, found, batches)
    if not after < before:
        found, after = start, before
    first, *others = (matrix.numpy() for matrix in found)
    bases = LearnedBases(matrix_of(config.hidden_size) @ first, [matrix_of(config.head_dim) @ one for one in others])
    return LearnedRotation(bases, before, after)


Batch = tuple[Tensor, Tensor]  # tokens [B, T], and the model's log probabilities [B, T, V]


def _descend(
    decoder: RoundedDecoder,
    sgd: CayleySgd,
    batches: list[Batch],
    random: np.random.Generator,
    progress: Progress | None,
) -> list[Tensor]:
    order: list[int] = []
    for step in range(STEPS):
        order = order or random.permutation(len(batches)).tolist()
        tokens, target = batches[order.pop()]
        bases = [matrix.float().requires_grad_() for matrix in sgd.matrices]
        _divergence(target, _log_probabilities(decoder, bases, tokens)).backward()
        sgd.step([torch.zeros_like(basis) if basis.grad is None else basis.grad for basis in bases], _length(step))
        if progress is not None:
            progress(step + 1, STEPS, "learn the rotation")
    return sgd.matrices


def _length(step: int) -> float:
    return LENGTH * (1 - step / STEPS)


def _mean_loss(decoder: RoundedDecoder, matrices: list[Tensor], batches: list[Batch]) -> float:
    bases = [matrix.float() for matrix in matrices]
    with torch.no_grad():
        losses = [float(_divergence(target, _log_probabilities(decoder, bases, some))) for some, target in batches]
    return float(np.mean(losses))


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
