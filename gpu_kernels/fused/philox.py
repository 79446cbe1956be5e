"""Philox 4x32-10: the number that a seed gives at a place, without a state; Triton's `tl.rand` is the same.

source  Salmon et al. 2011, Parallel Random Numbers: As Easy as 1, 2, 3, doi:10.1145/2063384.2063405, section 3.3
"""

import torch
from torch import Tensor

WORD = 0xFFFFFFFF
ROUNDS = 10
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
KEY_STEPS = 0x9E3779B9, 0xBB67AE85


def philox_ref(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """The four words of 32 bits of a counter under a key: the oracle."""
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
