"""The weights of a layer's experts in words: each as words_layout.py has it, one after the other."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_kernels.gemm.words_layout import GROUP_SIZES, PLANE_K, SCALE_DTYPES, WordsWeight, block_k, unpack_words_ref


@dataclass(frozen=True, slots=True)
class WordsExperts:
    """E matrices [N, K] of 4 or 8 bits, quantized in the same way; groups and channels as of a WordsWeight.

    codes       [E, blocks, N, 32] int16
    scale       [E, G, N] float
    zero_point  [E, G, N] int8    None: 0
    raises      NotImplementedError for groups that pack_words does not make
    """

    codes: Tensor
    scale: Tensor
    zero_point: Tensor | None
    num_features: int
    group_size: int | None
    bits: int

    def __post_init__(self) -> None:
        sizes = [size for size in GROUP_SIZES if size <= block_k(self.bits)]
        if self.group_size not in (None, *sizes):
            got = f"groups of {self.group_size} in {self.bits} bits"
            raise NotImplementedError(f"WordsExperts: got {got}, expected one of {sizes}, or None for one a channel")

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, expert: int) -> WordsWeight:
        zero_point = None if self.zero_point is None else self.zero_point[expert]
        form = self.num_features, self.group_size, self.bits
        return WordsWeight(self.codes[expert], self.scale[expert], zero_point, None, *form)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(E, N, K)"""
        return len(self.codes), self.codes.shape[2], self.num_features

    def parts(self, name: str) -> list[tuple[str, Tensor | None, list[int], tuple[torch.dtype, ...]]]:
        """(name, tensor, shape, dtypes) of each, as `checks.check_operands` wants them."""
        E, N, K = self.shape
        groups = [E, 1 if self.group_size is None else K // self.group_size, N]
        return [
            (f"{name}.codes", self.codes, [E, -(-K // block_k(self.bits)), N, PLANE_K], (torch.int16,)),
            (f"{name}.scale", self.scale, groups, SCALE_DTYPES),
            (f"{name}.zero_point", self.zero_point, groups, (torch.int8,)),
        ]


def stack_experts(weights: list[WordsWeight]) -> WordsExperts:
    """The results of `pack_words` for all experts, together.

    raises  ValueError if they are quantized in different ways; NotImplementedError in act-order, whose order differs by
            expert
    """
    shapes = {(each.num_rows, each.num_features) for each in weights}
    forms = {(each.group_size, each.bits, each.zero_point is None) for each in weights}
    if len(shapes) != 1 or len(forms) != 1:
        raise ValueError(f"stack_experts: got {len(shapes)} shapes and {len(forms)} forms, expected one of each")
    if any(each.order is not None for each in weights):
        raise NotImplementedError("stack_experts: got experts in act-order, expected features in their own order")
    first = weights[0]
    zero_points = [each.zero_point for each in weights if each.zero_point is not None]
    return WordsExperts(
        codes=torch.stack([each.codes for each in weights]),
        scale=torch.stack([each.scale for each in weights]),
        zero_point=torch.stack(zero_points) if zero_points else None,
        num_features=first.num_features,
        group_size=first.group_size,
        bits=first.bits,
    )


def expert_ref(experts: Tensor | WordsExperts, expert: int) -> Tensor:
    """One expert's weight [N, K] float64"""
    return unpack_words_ref(experts[expert]) if isinstance(experts, WordsExperts) else experts[expert].double()
