"""Buckets, padding and buffers, without a GPU; and with one, a captured step against the same step launched eagerly."""

import pytest
import torch

from gpu_kernels.fused.add_rmsnorm import add_rmsnorm
from gpu_kernels.fused.rope_cache import Operands as RopeCache
from gpu_kernels.fused.rope_cache import rope_cache
from gpu_kernels.fused.silu_mul import silu_mul
from gpu_kernels.graphs import DecodeGraphs, Input, bucket_sizes, eagerly

INPUTS = {"token": Input((), torch.int64, 0), "slot": Input((), torch.int64, -1), "x": Input((3,), torch.float32, 0.0)}
HAS_GPU = torch.cuda.is_available()


class Step:
    """Writes x where a slot says, and gives the sum of each row and its token; remembers the sizes that it saw."""

    def __init__(self):
        self.cache = torch.full((10, 3), -1.0)
        self.sizes = []

    def __call__(self, inputs):
        self.sizes.append(len(inputs["x"]))
        taken = inputs["slot"] >= 0
        self.cache[inputs["slot"][taken]] = inputs["x"][taken]
        return inputs["x"].sum(1) + inputs["token"]


def values(batch):
    return {
        "token": torch.arange(batch) + 10,
        "slot": torch.arange(batch),
        "x": torch.arange(3.0 * batch).reshape(batch, 3),
    }


@pytest.mark.parametrize(
    "most, sizes",
    [(1, [1]), (5, [1, 2, 4, 5]), (20, [1, 2, 4, 8, 16, 20]), (64, [1, 2, 4, *range(8, 65, 8)])],
    ids=lambda value: str(value) if isinstance(value, int) else "",
)
def test_bucket_sizes(most, sizes):
    assert bucket_sizes(most) == sizes


def test_less_than_a_third_is_padding():
    sizes = bucket_sizes(512)
    assert sizes[-1] == 512
    buckets = {batch: next(size for size in sizes if size >= batch) for batch in range(17, 513)}
    assert all(3 * (size - batch) < size for batch, size in buckets.items())


def test_all_buckets_are_captured_with_padding_alone_largest_first():
    step = Step()
    DecodeGraphs(step, INPUTS, [1, 4, 8], device="cpu", capture=eagerly)
    assert step.sizes == [8, 4, 1]
    assert (step.cache == -1).all()


@pytest.mark.parametrize("batch, size", [(1, 1), (2, 4), (4, 4), (5, 8), (8, 8)])
def test_runs_the_least_bucket(batch, size):
    step = Step()
    graphs = DecodeGraphs(step, INPUTS, [1, 4, 8], device="cpu", capture=eagerly)
    result = graphs(values(batch))
    given = values(batch)
    assert step.sizes[-1] == size and graphs.bucket(batch) == size
    assert torch.equal(result, given["x"].sum(1) + given["token"])
    assert torch.equal(step.cache[:batch], given["x"]) and (step.cache[batch:] == -1).all()


def test_rows_of_an_earlier_larger_batch_are_padding_again():
    """A bucket that is filled, then used for fewer: the old rows' slots must not be written once more."""
    step = Step()
    graphs = DecodeGraphs(step, INPUTS, [4], device="cpu", capture=eagerly)
    graphs(values(4))
    step.cache.fill_(-1)
    graphs(values(2))
    assert (step.cache[2:] == -1).all()


def test_results_are_in_the_memory_of_the_bucket():
    graphs = DecodeGraphs(Step(), INPUTS, [1, 4], device="cpu", capture=eagerly)
    first, other = graphs(values(3)), graphs(values(1))
    again = graphs(values(2))
    assert first.data_ptr() == again.data_ptr() != other.data_ptr()


REFUSED = {
    "no rows": (lambda v: {name: value[:0] for name, value in v.items()}, "got a batch of 0, expected 1 to 4"),
    "too many": (lambda v: values(5), "got a batch of 5, expected 1 to 4"),
    "a missing input": (lambda v: {"x": v["x"]}, r"got inputs \['x'\], expected \['slot', 'token', 'x'\]"),
    "another type": (lambda v: v | {"slot": v["slot"].int()}, r"got slot torch.int32 \[3\], expected torch.int64"),
    "another shape": (
        lambda v: v | {"x": v["x"][:, :2]},
        r"got x torch.float32 \[3, 2\], expected torch.float32 \[3, 3\]",
    ),
}


@pytest.mark.parametrize("change, message", REFUSED.values(), ids=REFUSED.keys())
def test_bad_inputs_are_refused_before_the_step(change, message):
    step = Step()
    graphs = DecodeGraphs(step, INPUTS, [4], device="cpu", capture=eagerly)
    with pytest.raises(ValueError, match=message):
        graphs(change(values(3)))
    assert step.sizes == [4] and (step.cache == -1).all()


@pytest.mark.parametrize("buckets", [[], [4, 2], [0, 1], [2, 2]], ids=str)
def test_refused_buckets(buckets):
    with pytest.raises(ValueError, match="expected ascending sizes from 1 on"):
        DecodeGraphs(Step(), INPUTS, buckets, device="cpu", capture=eagerly)


@pytest.mark.cuda
@pytest.mark.skipif(not HAS_GPU, reason="no CUDA GPU: buckets and buffers are tested with eager steps only")
def test_a_captured_step_is_the_eager_one():
    """Norm, a product, rotation with the cache write and SiLU of one layer; at every batch size of three buckets."""
    generator = torch.Generator("cuda").manual_seed(0)
    like = {"generator": generator, "device": "cuda", "dtype": torch.bfloat16}
    weight, product = torch.ones(64, device="cuda", dtype=torch.bfloat16), torch.randn(64, 64, **like)
    angles = torch.rand(32, 8, device="cuda")
    inputs = {"x": Input((64,), torch.bfloat16, 0.0), "slot": Input((), torch.int64, -1)}
    inputs["position"] = Input((), torch.int64, 0)

    def step(caches):
        def run(rows):
            y, _, h = add_rmsnorm(rows["x"], weight, residual=rows["x"])
            heads = (y @ product).unflatten(1, (4, 16))
            places = rows["position"], rows["slot"]
            new = heads[:, :2], heads[:, 2:3], heads[:, 3:]
            query = rope_cache(RopeCache(*new, *caches, *places, angles.cos(), angles.sin()))
            return silu_mul(h, query.flatten(1).repeat(1, 2))[0]

        return run

    caches = [[torch.zeros(2, 16, 1, 16, device="cuda", dtype=torch.bfloat16) for _ in range(2)] for _ in range(2)]
    captured = DecodeGraphs(step(caches[0]), inputs, [1, 4, 8], device="cuda")
    eager = DecodeGraphs(step(caches[1]), inputs, [1, 4, 8], device="cuda", capture=eagerly)
    for batch in range(1, 9):
        given = {"x": torch.randn(batch, 64, **like), "slot": torch.arange(batch, device="cuda") + batch}
        given["position"] = torch.arange(batch, device="cuda")
        assert torch.equal(captured(given), eager(given))
        assert all(map(torch.equal, caches[0], caches[1]))
