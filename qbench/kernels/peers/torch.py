"""Linears and attention run by torch, which means oneDNN for bf16 and int8 products, MKL or OpenBLAS for float32."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from qbench.kernels.benchmark import Absent

# Products of 8-bit codes that processors without VNNI add in pairs in 16 bits (vpmaddubsw): 2 * 255 * 127 does not fit.
LARGEST_CODE, PROBE_SIZE = 127, 64
INT4_INNER_TILES = 1  # second argument of the CPU's packing of int4, unused there


class TorchLinears:
    """y = x @ weight.T in one dtype, each call with its own copy of the weight.

    weight   [N, K] float32
    x        [M, K] float32; converted to dtype before the clock starts, and the output back after it has stopped
    """

    def __init__(self, dtype: torch.dtype, weight: np.ndarray, x: np.ndarray, copies: int) -> None:
        self.how = str(dtype).removeprefix("torch.")
        self.x = torch.from_numpy(x).to(dtype)
        self.weights = [torch.from_numpy(weight).to(dtype, copy=True) for _ in range(copies)]
        self.y = torch.empty(0)

    def run(self) -> None:
        for weight in self.weights:
            self.y = F.linear(self.x, weight)

    def output(self) -> np.ndarray:
        return self.y.float().numpy()


def refuse_saturation(y: Tensor, size: int = PROBE_SIZE) -> None:
    """Check the product of two matrices of LARGEST_CODE that share `size` features.

    raises   Absent if it is too small, because sums of two products do not fit 16 bits on this processor
    """
    if (y.double() != LARGEST_CODE**2 * size).any():
        raise Absent("wrong here: saturates; without VNNI its sums of two 8-bit products have 16 bits")


def refuse_saturating_int_mm() -> None:
    """raises Absent if torch._int_mm saturates on this processor"""
    codes = torch.full((PROBE_SIZE, PROBE_SIZE), LARGEST_CODE, dtype=torch.int8)
    refuse_saturation(torch._int_mm(codes, codes.T))  # pyright: ignore[reportPrivateImportUsage]


class TorchInt8Linears:
    """W8A8 by torch._int_mm: rounding of x by token and the scales of the result are timed with the product.

    codes    [N, K] int8; scale [N, 1] float32
    raises   Absent if its products saturate here
    """

    how = "_int_mm"

    def __init__(self, codes: np.ndarray, scale: np.ndarray, x: np.ndarray, copies: int) -> None:
        self.x = torch.from_numpy(x)
        self.weights = [torch.from_numpy(codes).clone() for _ in range(copies)]
        self.scale = torch.from_numpy(scale).reshape(1, -1)  # [1, N]
        self.y = torch.empty(0)
        refuse_saturating_int_mm()

    def run(self) -> None:
        for weight in self.weights:
            x_scale = self.x.abs().amax(dim=1, keepdim=True) / 127  # [M, 1]
            x_q = torch.round(self.x / x_scale).to(torch.int8)
            self.y = torch._int_mm(x_q, weight.T).float() * x_scale * self.scale  # pyright: ignore[reportPrivateImportUsage]

    def output(self) -> np.ndarray:
        return self.y.numpy()


class OneDnnInt8Linears:
    """W8A8 by oneDNN on weights that it packed beforehand: one scale for all tokens, as its operator takes it, found
    and applied within the time.

    codes    [N, K] int8; scale [N, 1] float32
    raises   Absent if this torch has no such operator, and if its products saturate here
    """

    how = "qlinear"
    zero_point = 128  # of x: products of int8 with int8 are a plain loop

    def __init__(self, codes: np.ndarray, scale: np.ndarray, x: np.ndarray, copies: int) -> None:
        try:
            pack, self.multiply = torch.ops.onednn.qlinear_prepack, torch.ops.onednn.qlinear_pointwise.default
        except AttributeError as error:
            raise Absent(f"torch {torch.__version__} has no oneDNN") from error
        self.x = torch.from_numpy(x)
        self.weights = [pack(torch.from_numpy(codes).clone(), None) for _ in range(copies)]
        self.scale, self.zero_points = torch.from_numpy(scale[:, 0].copy()), torch.zeros(len(codes), dtype=torch.int64)
        self.y = torch.empty(0)
        largest = torch.full((PROBE_SIZE, PROBE_SIZE), LARGEST_CODE, dtype=torch.int8)
        x_q = largest.to(torch.uint8).add_(self.zero_point)
        ones, zeros = torch.ones(PROBE_SIZE), torch.zeros(PROBE_SIZE, dtype=torch.int64)
        refuse_saturation(self.product(x_q, 1.0, pack(largest, None), ones, zeros))

    def run(self) -> None:
        for weight in self.weights:
            x_scale = self.x.abs().amax() / 127
            x_q = torch.round(self.x / x_scale).add_(self.zero_point).to(torch.uint8)
            self.y = self.product(x_q, float(x_scale), weight, self.scale, self.zero_points)

    def product(self, x_q: Tensor, x_scale: float, weight: Tensor, scale: Tensor, zero_points: Tensor) -> Tensor:
        return self.multiply(
            x_q, x_scale, self.zero_point, weight, scale, zero_points, None, 1.0, 0, torch.float32, "none", [], ""
        )

    def output(self) -> np.ndarray:
        return self.y.numpy()


class TorchInt4Linears:
    """Four-bit groups by torch's int4 packing: bfloat16 activations, scales and outputs.

    q          [N, K] int8 in -8 to 7; scale, zero_point [N, K // group_size]: weight = scale * (q - zero_point)
    raises     Absent if this torch has no such kernel
    """

    how = "int4pack"

    def __init__(
        self, q: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, group_size: int, x: np.ndarray, copies: int
    ) -> None:
        self.x, self.group_size = torch.from_numpy(x).bfloat16(), group_size
        codes = torch.from_numpy(q).int() + 8
        try:
            pack = torch.ops.aten._convert_weight_to_int4pack_for_cpu
            self.weights = [pack(codes, INT4_INNER_TILES) for _ in range(copies)]
        except (AttributeError, RuntimeError) as error:
            raise Absent(f"torch {torch.__version__} packs no int4 for the CPU") from error
        # The kernel's weight is scale * (code - 8) + zero.
        scale = scale.astype(np.float32)
        grid = np.stack((scale, -scale * zero_point), axis=-1)  # [N, K // group_size, 2]
        self.scales = torch.from_numpy(grid).transpose(0, 1).contiguous().bfloat16()
        self.y: Tensor = torch.empty(0)

    def run(self) -> None:
        multiply = torch.ops.aten._weight_int4pack_mm_for_cpu
        for weight in self.weights:
            self.y = multiply(self.x, weight, self.group_size, self.scales)  # scales [K // group_size, N, 2]

    def output(self) -> np.ndarray:
        return self.y.float().numpy()


class TorchAttention:
    """torch's scaled dot product attention in one dtype, several times, each over its own copy of keys and values.

    q        [H, T, D] float32, the last T tokens, of one or of all
    k, v     [G, S, D] float32
    """

    def __init__(
        self, dtype: torch.dtype, q: np.ndarray, k: np.ndarray, v: np.ndarray, softmax_scale: float, copies: int
    ) -> None:
        self.how, self.softmax_scale = str(dtype).removeprefix("torch."), softmax_scale
        self.q = torch.from_numpy(q[None]).to(dtype)  # [1, H, T, D]
        self.pairs = [tuple(torch.from_numpy(x[None]).to(dtype, copy=True) for x in (k, v)) for _ in range(copies)]
        self.y = torch.empty(0)

    def run(self) -> None:
        causal = self.q.shape[2] > 1
        for k, v in self.pairs:
            self.y = F.scaled_dot_product_attention(
                self.q, k, v, is_causal=causal, scale=self.softmax_scale, enable_gqa=True
            )

    def output(self) -> np.ndarray:
        """[H, T, D]"""
        return self.y[0].float().numpy()


class TorchLatents:
    """Latent attention of one token as two products.

    torch's scaled dot product attention is several times as slow: values are narrower than keys, for which it has no
    fast code.

    q          [H, K] float32
    latents    [S, K] float32, whose first `latent_size` numbers are the values, too
    """

    def __init__(
        self,
        dtype: torch.dtype,
        q: np.ndarray,
        latents: np.ndarray,
        latent_size: int,
        softmax_scale: float,
        copies: int,
    ) -> None:
        self.how, self.softmax_scale, self.latent_size = str(dtype).removeprefix("torch."), softmax_scale, latent_size
        self.q = torch.from_numpy(q).to(dtype)  # [H, K]
        self.texts = [torch.from_numpy(latents).to(dtype, copy=True) for _ in range(copies)]
        self.y = torch.empty(0)

    def run(self) -> None:
        for text in self.texts:
            scores = F.linear(self.q, text).float() * self.softmax_scale  # [H, S]
            self.y = torch.softmax(scores, dim=-1).to(text.dtype) @ text[:, : self.latent_size]

    def output(self) -> np.ndarray:
        """[H, latent_size]"""
        return self.y.float().numpy()
