"""Cayley steps: the matrix stays orthogonal, moves along the gradient, and descends to a known rotation."""

import torch

from quant.linalg.cayley import CayleySgd, cayley_step, skew_gradient


def normal(size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def orthogonal(size: int, seed: int) -> torch.Tensor:
    return torch.linalg.qr(normal(size, seed))[0]


def test_a_step_is_the_exponential_to_second_order():
    x, skew = orthogonal(12, 1), skew_gradient(orthogonal(12, 1), normal(12))
    errors = []
    for length in (1e-2, 1e-3):
        y = cayley_step(x, skew, length)
        assert (y @ y.T - torch.eye(12)).abs().max() < 1e-14
        errors.append(float((y - torch.linalg.matrix_exp(-length * skew) @ x).norm()))
    assert errors[1] < 2e-3 * errors[0], "the error falls with the third power of the length"


def test_the_skew_part_is_the_gradient_along_the_manifold():
    """The change of <G, X> along a step is minus the square of W's norm, as for the exponential map."""
    x, g, length = orthogonal(9, 2), normal(9), 1e-6
    skew = skew_gradient(x, g)
    change = ((cayley_step(x, skew, length) - x) * g).sum() / length
    assert abs(float(change + skew.norm() ** 2)) < 1e-4 * float(skew.norm() ** 2)


def test_it_finds_a_rotation():
    target, sgd = orthogonal(8, 3), CayleySgd([torch.eye(8, dtype=torch.float64)], momentum=0.5)
    if torch.det(target) < 0:
        target[0] *= -1
    steps = 300
    for step in range(steps):
        sgd.step([2 * (sgd.matrices[0] - target)], 0.2 * (1 - step / steps))
    (found,) = sgd.matrices
    assert (found - target).norm() < 0.05
    assert (found @ found.T - torch.eye(8)).abs().max() < 1e-12


def test_without_a_gradient_nothing_moves():
    sgd = CayleySgd([orthogonal(4, 5)], momentum=0.9)
    sgd.step([torch.zeros(4, 4)], 0.1)
    assert torch.equal(sgd.matrices[0], orthogonal(4, 5))
