"""Tokens drawn from tempered logits cut by top-k, top-p and min-p, without a sort.

    p[v]  = exp((logits[v] - max logits) / temperature), up to a factor
    cut_k = the least number of which fewer than top_k logits are greater
    cut_p = the least number such that the mass p of greater logits is less than top_p of the mass from cut_k up
    cut_m = max logits + temperature * log(min_p): tokens less likely than min_p times the likeliest are dropped
    token = the first v, in the order of ids, at which the mass of kept tokens up to it exceeds uniform * their mass

uniform is given, or the number that a seed has at a position (`philox_ref`): a captured step draws without the host.

A token is kept if it is below no cut, as in a sorted list, except that all tokens equal to the last kept one are kept.
cut_k and cut_p are found by halving the range of floats, ordered as integers; the sums of mass are float32, so a token
whose mass reaches top_p to within their rounding may be kept or not, and so may one that is at cut_m to within a
rounding. Temperature 0 is greedy: the likeliest token, the first of equals. A row that has no likeliest finite logit
(NaN, +inf, or nothing but -inf) gives token -1.

source  Holtzman et al. 2019, arXiv:1904.09751, section 3.1 (top-p); Fan et al. 2018, arXiv:1805.04833, section 4.2
        (top-k); Nguyen et al. 2024, arXiv:2407.01082, section 3 (min-p)
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_kernels.dispatch import results_of

IN_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
NO_TOKEN = -1
# of Philox
WORD = 0xFFFFFFFF
ROUNDS = 10
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
KEY_STEPS = 0x9E3779B9, 0xBB67AE85


@dataclass(frozen=True, slots=True)
class Operands:
    """The inputs of one call.

    logits       [B, V] float16, bfloat16 or float32, the last axis dense; V >= 1
    uniform      [B] float32 in [0, 1); None: of the seeds
    temperature  [B] float32, 0 or more; 0 is greedy, and the cut then the largest logit
    top_k        [B] int32, 0: off
    top_p        [B] float32 in (0, 1], 1: off
    min_p        [B] float32 in [0, 1], 0: off; None: off for all
    seed         [B] int64 if uniform is None, with position [B] int64 from 0 to 2**31 - 1
    raises       TypeError (dtypes), ValueError (shapes, strides, devices)
    """

    logits: Tensor
    uniform: Tensor | None
    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor | None = None
    seed: Tensor | None = None
    position: Tensor | None = None

    def __post_init__(self) -> None:
        logits = self.logits
        if logits.dtype not in IN_DTYPES:
            raise TypeError(f"sample: got logits {logits.dtype}, expected {' or '.join(map(str, IN_DTYPES))}")
        if logits.dim() != 2 or not logits.shape[1] or logits.stride(1) != 1:
            got = f"logits {list(logits.shape)} with strides {list(logits.stride())}"
            raise ValueError(f"sample: got {got}, expected [B, V], V of 1 or more, dense rows")
        has_seeds = self.uniform is None
        if (self.seed is not None, self.position is not None) != (has_seeds, has_seeds):
            raise ValueError("sample: expected uniform, or seed and position; got some of both or none")
        for name in ("uniform", "temperature", "top_k", "top_p", "min_p", "seed", "position"):
            if (tensor := getattr(self, name)) is None:
                continue
            expected = {"top_k": torch.int32, "seed": torch.int64, "position": torch.int64}.get(name, torch.float32)
            if tensor.dtype != expected:
                raise TypeError(f"sample: got {name} {tensor.dtype}, expected {expected}")
            if list(tensor.shape) != [len(logits)] or not tensor.is_contiguous():
                raise ValueError(f"sample: got {name} {list(tensor.shape)}, expected [{len(logits)}], dense")
            if tensor.device != logits.device:
                raise ValueError(
                    f"sample: got {name} on {tensor.device} and logits on {logits.device}, expected one device"
                )

    def uniforms(self) -> Tensor:
        """[B] float32: those that were given, or the oracle's of the seeds"""
        if self.uniform is not None:
            return self.uniform
        assert self.seed is not None and self.position is not None  # as was checked
        return uniform_ref(self.seed, self.position)

    def empty(self) -> tuple[Tensor, Tensor]:
        """(token [B] int64, cut [B] float32), to be written"""
        num_rows, device = len(self.logits), self.logits.device
        return torch.empty(num_rows, dtype=torch.int64, device=device), torch.empty(num_rows, device=device)


def sample_ref(operands: Operands) -> tuple[Tensor, Tensor]:
    """(token [B] int64, cut [B] float64: the least logit that is kept), in float64 and with a sort: the oracle."""
    tokens, cuts, device = [], [], operands.logits.device
    min_p = torch.zeros_like(operands.top_p) if operands.min_p is None else operands.min_p
    settings = zip(operands.temperature, operands.top_k, operands.top_p, min_p, strict=True)
    for row, u, (t, k, p, m) in zip(operands.logits.double(), operands.uniforms().double(), settings, strict=True):
        token, cut = _sample_row(row, u, float(t), int(k), float(p), float(m))
        tokens.append(token)
        cuts.append(cut)
    return torch.tensor(tokens, device=device), torch.tensor(cuts, dtype=torch.float64, device=device)


def _sample_row(
    row: Tensor, u: Tensor, temperature: float, top_k: int, top_p: float, min_p: float
) -> tuple[int, float]:
    best = row.argmax()  # NaN is above all
    if not row[best].isfinite():
        return NO_TOKEN, float("nan")
    if temperature == 0:
        return int(best), float(row[best])
    cut = kept_from(row, temperature, top_k, top_p, min_p)
    mass = torch.where(row >= cut, ((row - row[best]) / temperature).exp(), 0)
    cumulative = mass.cumsum(0)
    return int((cumulative > u * cumulative[-1]).int().argmax()), cut


def kept_from(row: Tensor, temperature: float, top_k: int, top_p: float, min_p: float = 0.0) -> float:
    """The least logit that is kept. row [V] float64 with a finite largest"""
    ordered = row.sort(descending=True).values
    cut = ordered[min(top_k or len(row), len(row)) - 1]
    kept = ordered[ordered >= cut]
    mass = ((kept - kept[0]) / temperature).exp()
    above = torch.cat([mass.new_zeros(1), mass.cumsum(0)])[: len(kept)]  # mass of tokens before, with equal ones
    # The last value whose greater values have less than top_p of the mass.
    firsts = torch.searchsorted(-kept, -kept)  # the place of the first that equals each
    return float(kept[(above[firsts] < top_p * mass.sum()) & (mass >= min_p)][-1])


def sample(operands: Operands, impl: str | None = None) -> tuple[Tensor, Tensor]:
    """(token [B] int64, cut [B] float32: no logit below it could be drawn), by the table's first entry or by `impl`."""
    return results_of("sample", operands, impl)


def sample_reference(operands: Operands, token: Tensor, cut: Tensor) -> None:
    """Writes the oracle's result into token and cut: the table's entry "reference"."""
    exact_token, exact_cut = sample_ref(operands)
    token.copy_(exact_token)
    cut.copy_(exact_cut)


def philox_ref(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """The four words of 32 bits of a counter under a key, by Philox 4x32-10; Triton's `tl.rand` is the same.

    source  Salmon et al. 2011, Parallel Random Numbers: As Easy as 1, 2, 3, doi:10.1145/2063384.2063405, section 3.3
    """
    c0, c1, c2, c3 = counter
    for _ in range(ROUNDS):
        first, second = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = second >> 32 ^ c1 ^ key[0], second & WORD, first >> 32 ^ c3 ^ key[1], first & WORD
        key = (key[0] + KEY_STEPS[0]) & WORD, (key[1] + KEY_STEPS[1]) & WORD
    return c0, c1, c2, c3


def uniform_ref(seed: Tensor, position: Tensor) -> Tensor:
    """[B] float32 in [0, 1) of seeds [B] at positions [B] below 2**31; 31 bits of the first word."""
    words = [
        philox_ref((place, 0, 0, 0), (one & WORD, one >> 32 & WORD))[0]
        for one, place in zip(seed.tolist(), position.tolist(), strict=True)
    ]
    steps = torch.tensor([min(word, WORD - word) for word in words], dtype=torch.float32, device=seed.device)
    return steps * torch.tensor(4.6566127342e-10, device=seed.device)  # just below 2**-31
