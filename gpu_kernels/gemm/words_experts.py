"""The weights of a layer's experts in words: each as words_layout.py has it, one after the other."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gpu_kernels.gemm.words_layout import GROUP_SIZES, PLANE_K, SCALE_DTYPES, WordsWeight, block_k, unpack_words_ref


@dataclass(frozen=True, slots=True)
class WordsExperts:
    """E matrices [N, K] of 4 or 8 bits, quantized in the same way; groups and channels as of a WordsWeight.

    codes       [E, blocks, N, 32] int16
    scale       [E, G, N] float
    zero_point  [E, G, N] int8    None: 0
    order       [E, K] int32      of each expert as of a WordsWeight; None: all have their features in place
    raises      NotImplementedError for groups that pack_words does not make
    """

    codes: Tensor
    scale: Tensor
    zero_point: Tensor | None
    num_features: int
    group_size: int | None
    bits: int
    order: Tensor | None = None

    def __post_init__(self) -> None:
        sizes = [size for size in GROUP_SIZES if size <= block_k(self.bits)]
        if self.group_size not in (None, *sizes):
            got = f"groups of {self.group_size} in {self.bits} bits"
            raise NotImplementedError(f"WordsExperts: got {got}, expected one of {sizes}, or None for one a channel")

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, expert: int) -> WordsWeight:
        zero_point, order = (None if each is None else each[expert] for each in (self.zero_point, self.order))
        form = self.num_features, self.group_size, self.bits
        return WordsWeight(self.codes[expert], self.scale[expert], zero_point, order, *form)

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
            (f"{name}.order", self.order, [E, K], (torch.int32,)),
        ]


def stack_experts(weights: list[WordsWeight]) -> WordsExperts:
    """The results of `pack_words` for all experts, together.

    raises  ValueError if they are quantized in different ways
    """
    shapes = {(each.num_rows, each.num_features) for each in weights}
    forms = {(each.group_size, each.bits, each.zero_point is None) for each in weights}
    if len(shapes) != 1 or len(forms) != 1:
        raise ValueError(f"stack_experts: got {len(shapes)} shapes and {len(forms)} forms, expected one of each")
    first = weights[0]
    in_place = torch.arange(first.num_features, dtype=torch.int32, device=first.codes.device)
    orders = [in_place if each.order is None else each.order for each in weights]
    zero_points = [each.zero_point for each in weights if each.zero_point is not None]
    return WordsExperts(
        codes=torch.stack([each.codes for each in weights]),
        scale=torch.stack([each.scale for each in weights]),
        zero_point=torch.stack(zero_points) if zero_points else None,
        num_features=first.num_features,
        group_size=first.group_size,
        bits=first.bits,
        order=torch.stack(orders) if any(each.order is not None for each in weights) else None,
    )


def hidden_in_order(gate_up: WordsExperts, down: WordsExperts) -> tuple[WordsExperts, WordsExperts]:
    """The same experts without an order of down: gate and up give hidden features in the order in which down has them.

    gate_up  [E, 2 * I, K]: rows of gate, then of up
    """
    if down.order is None:
        return gate_up, down
    order = down.order.long()
    rows = torch.cat([order, order + order.shape[1]], 1)  # [E, 2 * I]

    def moved(part: Tensor) -> Tensor:
        places = rows[:, None].expand(-1, part.shape[1], -1)  # [E, blocks or G, 2 * I]
        return part.gather(2, places if part.dim() == 3 else places[..., None].expand(-1, -1, -1, part.shape[3]))

    zero_point = None if gate_up.zero_point is None else moved(gate_up.zero_point)
    gate_up = replace(gate_up, codes=moved(gate_up.codes), scale=moved(gate_up.scale), zero_point=zero_point)
    return gate_up, replace(down, order=None)


def expert_ref(experts: Tensor | WordsExperts, expert: int) -> Tensor:
    """One expert's weight [N, K] float64"""
    return unpack_words_ref(experts[expert]) if isinstance(experts, WordsExperts) else experts[expert].double()
