"""KL divergence of logits that are near those of one reference, in float32 with a small relative error.

With d = logits - reference, less its mean under p, the difference of first-order terms is zero by construction:

    KLD = log sum p exp(d) - sum p d = log1p(sum p expm1(d))

`qbench.quality.kld.divergence` computes the same in float64 and takes both softmaxes again for every model. Here the
reference's softmax is computed once for many models.
"""

import torch
from torch import Tensor

LARGEST = 80.0  # of d: exp of it is below the largest float32, and no divergence that large is compared with another


class NearKld:
    """reference [N, V] float32 logits"""

    def __init__(self, reference: Tensor) -> None:
        self.reference = reference
        self.p = torch.softmax(reference, dim=-1)  # [N, V]

    def sum(self, logits: Tensor) -> float:
        """Sum over the tokens of the divergence of `logits` [N, V] float32, nats; NaN for logits that are not finite"""
        d = logits - self.reference  # [N, V]
        for _ in range(2):  # the first mean is that of shifted logits, and has their rounding
            d -= (self.p * d).sum(dim=-1, keepdim=True)
        grown = torch.expm1(d.clamp_max_(LARGEST)).mul_(self.p).sum(dim=-1)  # [N]
        return float(torch.log1p(grown).clamp_min_(0).sum(dtype=torch.float64))
