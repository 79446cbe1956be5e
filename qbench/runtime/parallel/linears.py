"""The output and down projections of a rank, which exchange values with the other lanes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from qbench.runtime.layers.fused import FusedLinears
from qbench.runtime.layers.norm import Norm
from qbench.runtime.parallel.ranks import Ranks
from quant.formats import ActivationFormat, get_format
from quant.qtensor import QTensor


class LaneLinears(FusedLinears):
    """One linear whose weight the lanes share; never a part of a larger call of cpu_kernels.

    exchanges     values per token of each exchange that a product needs, as this lane sends them
    is_tokenwise  whether cpu_kernels are known to compute each token without a look at the others of the call
    """

    exchanges: tuple[int, ...]

    def __init__(self, qtensor: QTensor, bias: Tensor | None, impl: str, ranks: Ranks) -> None:
        super().__init__([qtensor], [None], impl)
        self.packed_group = self.group
        self.is_tokenwise = self.group is not None and not self.group.shares
        self.group = self.chained = None
        self.bias = bias
        self.ranks = ranks

    @property
    def size_bytes(self) -> int:
        return super().size_bytes + (0 if self.bias is None else self.bias.nbytes)

    def __call__(self, x: Tensor, norm: Norm | None = None, residual: Tensor | None = None) -> tuple[Tensor, ...]:
        y = self._product(x if norm is None else norm(x))
        return (y if residual is None else y.add_(residual),)

    def _product(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class SummedLinears(LaneLinears):
    """Some input features, all output features: partial sums are added over the lanes, then comes the bias.

    Formats that round their inputs with a scale per token or call take the magnitude over all lanes: it is the input of
    one more feature, whose weights are 0.
    """

    def __init__(self, qtensor: QTensor, bias: Tensor | None, impl: str, ranks: Ranks) -> None:
        fmt = get_format(qtensor.format)
        self.input_format = fmt if isinstance(fmt, ActivationFormat) else None
        self.shared = qtensor.shared
        self.exchanges = (qtensor.shape[0],)
        if self.input_format is not None:
            if self.input_format.has_input_scale:
                self.exchanges = (1, *self.exchanges)
            qtensor = self.input_format.add_zero_column(qtensor)
        super().__init__(qtensor, bias, impl, ranks)
        if bias is None and self.input_format is None:
            self.chained = self.packed_group
            self.add_ranks = ranks.add

    def _product(self, x: Tensor) -> Tensor:
        if self.input_format is not None:
            x = self._with_magnitude(x, self.input_format)
        (y,) = self._products(x)
        self.ranks.add(y.numpy())
        return y if self.bias is None else y + self.bias

    def _with_magnitude(self, x: Tensor, fmt: ActivationFormat) -> Tensor:
        """x [..., K] -> [..., K + 1]"""
        rows = x.reshape(-1, x.shape[-1])  # [M, K]
        if fmt.has_input_scale:
            largest = self.ranks.largest(torch.from_numpy(fmt.input_absmax(rows.numpy(), self.shared)))
        else:
            largest = rows.new_zeros(len(rows), 1)
        return torch.cat([rows, largest], dim=1).view(*x.shape[:-1], -1)


class HeadLinears(LaneLinears):
    """The output head, cut by rows of the vocabulary: the logits of all lanes side by side, those of one rank.

    widths   rows of each lane
    """

    def __init__(self, qtensor: QTensor, impl: str, ranks: Ranks, widths: Sequence[int]) -> None:
        super().__init__(qtensor, None, impl, ranks)
        self.widths = widths
        self.exchanges = (widths[ranks.lane],)

    def _product(self, x: Tensor) -> Tensor:
        (y,) = self._products(x)
        return torch.cat(self.ranks.gather(y, self.widths), dim=-1)


class GatheredLinears(LaneLinears):
    """All input features, some output features: inputs and outputs are put together over the lanes, so that each value
    is computed on one lane as one rank would.

    widths   input and output features of each lane
    """

    def __init__(
        self,
        qtensor: QTensor,
        bias: Tensor | None,
        impl: str,
        ranks: Ranks,
        widths: tuple[Sequence[int], Sequence[int]],
    ) -> None:
        super().__init__(qtensor, bias, impl, ranks)
        self.widths = widths
        self.exchanges = tuple(each[ranks.lane] for each in widths)

    def _product(self, x: Tensor) -> Tensor:
        inputs, outputs = self.widths
        (y,) = self._products(torch.cat(self.ranks.gather(x, inputs), dim=-1))
        return torch.cat(self.ranks.gather(y if self.bias is None else y + self.bias, outputs), dim=-1)
