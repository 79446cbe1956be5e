"""Outlier features that are known, found, and too many, against the decomposition feature by feature."""

import pytest
import torch

from gpu_kernels.decode.linears import MOST_FEATURES, THRESHOLD, CodeWeight, LlmInt8Linear

M, K, N = 4, 96, 24


def textbook(x, weight_q, weight_scale, known, known_weight):
    """[M, N] float64: known features and the loudest that reach the threshold in floats, the rest in int8."""
    x, weight = x.double(), weight_q.double() * weight_scale.double()[:, None]
    weight[:, known] = known_weight.double()
    loudness = x.abs().amax(0)
    loudness[known] = 0
    found = [k for k in loudness.argsort(descending=True)[:MOST_FEATURES].tolist() if loudness[k] >= THRESHOLD]
    y = x[:, [*known, *found]] @ weight[:, [*known, *found]].T
    for m, row in enumerate(x):
        small = [k for k in range(K) if k not in known and not (k in found and abs(row[k]) >= THRESHOLD)]
        scale = (row[small].abs().max().float() / 127).double()
        for k in set(small) - set(found):
            y[m] += (row[k] / scale).float().round().double() * scale * weight[:, k]
    return y


@pytest.mark.parametrize("num_loud", [0, 3, MOST_FEATURES, MOST_FEATURES + 9])
@pytest.mark.parametrize("known", [[], [5, 40]], ids=["none known", "two known"])
def test_outliers_are_multiplied_in_float16(num_loud, known):
    generator = torch.Generator().manual_seed(num_loud)
    x = torch.randn(M, K, generator=generator).clamp(-4, 4)
    x[1, torch.randperm(K, generator=generator)[:num_loud]] = torch.linspace(6.5, 30, num_loud)
    x = x.half()
    weight_q = torch.randint(-127, 128, (N, K), generator=generator, dtype=torch.int8)
    weight_scale = torch.rand(N, generator=generator) / 100 + 1e-3
    known_weight = torch.randn(N, len(known), generator=generator).half()
    given = {"known": torch.tensor(known, dtype=torch.int64), "known_weight": known_weight}
    linear = LlmInt8Linear(CodeWeight(weight_q, weight_scale, torch.float16), **given)
    expected = textbook(x, weight_q, weight_scale, known, known_weight)
    # The result and the weights of features that are found are rounded to float16: 2**-11 of either's size.
    sizes = x.double().abs() @ (weight_q.double() * weight_scale.double()[:, None]).abs().T
    assert ((linear(x).double() - expected).abs() <= 2**-11 * (sizes + expected.abs()) + 1e-6).all()
