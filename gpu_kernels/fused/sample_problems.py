"""Problems on which sampling is checked, compiled and timed."""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gpu_kernels.fused.sample import NO_TOKEN, Operands, kept_from, sample
from gpu_kernels.fused.sample_triton import MAX_BLOCK_V, launches
from gpu_kernels.launch import Launch
from gpu_kernels.proof.configured import Unconfigured
from gpu_kernels.proof.problems import Draw, Op, Problem, dtype_name

LLAMA_VOCABULARY = 128256
TIMED = [(64, LLAMA_VOCABULARY, torch.float32), (1, LLAMA_VOCABULARY, torch.float32)]
ODD = [(1, 1, torch.float32), (9, 3, torch.float16), (9, 131, torch.float32), (2, MAX_BLOCK_V + 63, torch.float32)]
# (temperature, top_k, top_p, min_p) of the rows, in turn; the first is timed most.
ROWS = [
    (0.8, 0, 0.95, 0.0),
    (1.0, 40, 0.9, 0.05),
    (1.0, 0, 1.0, 0.3),
    (0.0, 0, 1.0, 0.5),
    (2.0, 7, 1.0, 0.0),
    (0.5, 1, 0.5, 0.1),
    (1.0, 10**6, 1e-6, 1.0),
    (1e-40, 0, 0.9, 0.0),
    (1.5, 0, 1.0, 0.0),
]


def problems() -> list[Problem]:
    given = [_problem(*each, is_timed=True) for each in TIMED] + [_problem(*each) for each in ODD]
    seeded = [_problem(*TIMED[0], is_timed=True, has_seeds=True), _problem(9, 131, torch.float16, has_seeds=True)]
    return given + seeded


def _problem(B: int, V: int, dtype: torch.dtype, is_timed: bool = False, has_seeds: bool = False) -> Problem:
    name = dtype_name(dtype) + (" seeds" if has_seeds else "")
    return Problem(
        op=Op(
            "sample",
            Unconfigured(lambda **given: sample(Operands(**given), impl="triton"), _launches),
            lambda **operands: operands,
        ),
        label=f"B={B} V={V} {name}",
        sizes={"B": B, "V": V, "dtype": name},
        operands=partial(_operands, B, V, dtype, has_seeds),
        agrees=agrees,
        # Logits; four settings; uniform, or seed and position; token, cut.
        num_bytes=B * (dtype.itemsize * V + 4 * 4 + (2 * 8 if has_seeds else 4) + 8 + 4),
        ops=4 * B * V,  # of one walk: subtract, multiply, exp, add
        bound="bandwidth",
        peers={} if has_seeds else {"torch sort": _chain},
        is_timed=is_timed,
    )


def _operands(B: int, V: int, dtype: torch.dtype, has_seeds: bool, device: str) -> dict[str, Any]:
    """Logits of a model's spread, with equals among them; rows of a wider buffer full of NaN."""
    draw = Draw(device)
    buffer = torch.full((B, V + 5), torch.nan, dtype=dtype, device=device)
    logits = buffer[:, :V]
    logits.copy_((draw.normal(B, V) * 24).round() / 8)
    columns = zip(*[ROWS[b % len(ROWS)] for b in range(B)], strict=True)
    dtypes = torch.float32, torch.int32, torch.float32, torch.float32
    temperature, top_k, top_p, min_p = (
        torch.tensor(column, dtype=kind, device=device) for column, kind in zip(columns, dtypes, strict=True)
    )
    settings = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    if has_seeds:
        seeds = {"seed": draw.integers(0, 2**62, B, dtype=torch.int64), "position": torch.arange(B, device=device)}
        return {"logits": logits, "uniform": None} | settings | seeds
    return {"logits": logits, "uniform": draw.uniform(B)} | settings


def agrees(result: tuple[Tensor, Tensor], operands: dict[str, Any]) -> bool:
    """Every row's cut and token are right, within the rounding of sums of mass.

    A mass is exp of an argument that two roundings reach, of 104 at most before exp is 0: 104 * 2**-23, and 2**-22
    for exp. A sum adds the masses block after block in as many roundings as blocks, then in a tree over a block. The
    draw compares two of those sums, and so does top-p: twice that, of all the mass.
    """
    logits, min_p = operands["logits"], operands.get("min_p")
    V = logits.shape[1]
    block = min(MAX_BLOCK_V, 2 ** math.ceil(math.log2(V)))
    error = 2 * (104 * 2**-23 + 2**-22 + (math.ceil(V / block) + math.log2(block) + 1) * 2**-24)
    settings = [operands[name] for name in ("temperature", "top_k", "top_p")]
    least = torch.zeros(len(logits)) if min_p is None else min_p
    settings = zip(Operands(**operands).uniforms(), *settings, least, strict=True)
    rows = zip(logits.double(), *result, settings, strict=True)
    return all(_row_agrees(row, int(t), float(cut), [float(value) for value in s], error) for row, t, cut, s in rows)


def _row_agrees(row: Tensor, token: int, cut: float, settings: list[float], error: float) -> bool:
    """settings  uniform, temperature, top_k, top_p, min_p"""
    uniform, temperature, top_k, top_p, min_p = settings
    best = int(row.argmax())
    if not row[best].isfinite():
        return token == NO_TOKEN and math.isnan(cut)
    if temperature == 0:
        return token == best and cut == row[best]
    mass = ((row - row[best]) / temperature).exp()
    kept = row >= cut
    cut_k = kept_from(row, temperature, int(top_k), 1.0 + 2 * error)
    if not _is_cut_right(mass, (row > cut, kept, row >= cut_k), top_p, min_p, error):
        return False
    if not 0 <= token < len(row) or not kept[token]:
        return False
    cumulative = torch.where(kept, mass, 0).cumsum(0)
    target, slack = uniform * cumulative[-1], error * cumulative[-1]
    return bool(cumulative[token] - mass[token] <= target + slack and cumulative[token] >= target - slack)


def _is_cut_right(mass: Tensor, masks: tuple[Tensor, Tensor, Tensor], top_p: float, min_p: float, error: float) -> bool:
    """All kept are likely enough, and the least likely of those dropped is one that some cut drops.

    masks  [V] bool each: above the cut, kept, and kept by top-k alone
    """
    above, kept, kept_by_k = masks
    all_mass = float(mass[kept_by_k].sum())
    is_kept_right = bool(kept_by_k[kept].all()) and float(mass[kept].min()) >= min_p * (1 - error)
    if top_p < 1:  # less than top_p is above the cut
        is_kept_right &= float(mass[above].sum()) < (top_p + error) * all_mass
    dropped = mass[~kept & kept_by_k]
    if not is_kept_right or not len(dropped) or float(dropped.max()) < min_p * (1 + error):
        return is_kept_right
    # A token that min-p would keep was dropped by top-p: with tokens equal to the cut, at least top_p is kept.
    return top_p < 1 and float(mass[kept].sum()) >= (top_p - error) * all_mass


def _launches(given: dict[str, Any], arch: int) -> list[Launch]:
    operands = Operands(**given)
    return launches(operands, *operands.empty())


def _chain(logits, uniform, temperature, top_k, top_p, min_p) -> Tensor:
    """Sort, cut, softmax, cut, draw: all rows in the same way, on the GPU alone."""
    ordered, ids = logits.sort(dim=1, descending=True)
    place = torch.arange(logits.shape[1], device=logits.device)
    limit = torch.where(top_k == 0, logits.shape[1], top_k)
    ordered = ordered.masked_fill(place >= limit[:, None], -torch.inf)
    p = (ordered / temperature.clamp(min=1e-5)[:, None]).softmax(dim=1)
    p = p.masked_fill((p.cumsum(dim=1) - p >= top_p[:, None]) | (p < min_p[:, None] * p[:, :1]), 0)
    cumulative = p.cumsum(dim=1)
    drawn = torch.searchsorted(cumulative, uniform[:, None] * cumulative[:, -1:], right=True)
    return ids.gather(1, drawn.clamp(max=logits.shape[1] - 1))
