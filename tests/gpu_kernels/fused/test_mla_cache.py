"""The bytes of a token, and refusals; proof/test_check.py holds the kernel against the oracle."""

import pytest
import torch
from support.refused_operands import assert_refused

from gpu_kernels.fused import mla_cache_problems
from gpu_kernels.fused.mla_cache import Operands, mla_cache
from gpu_kernels.fused.mla_cache_problems import SENTINEL
from gpu_kernels.proof.problems import problems_of
from quant.kv.mla_latent import decode_latent, encode_latent


def make(T=3, dtype=torch.float16, is_fp8=True, device="cpu"):
    return mla_cache_problems._operands(T, dtype, is_fp8, device, is_exact=True)


def unturned(operands):
    """Angles of 0: the key stays as it is."""
    return operands | {"cos": torch.ones_like(operands["cos"]), "sin": torch.zeros_like(operands["sin"])}


def test_bytes_are_the_formats(run):
    """Equal to quant's bytes of the same latent and key: random, zero, tiny and large groups."""
    operands = unturned(make(4, torch.float32, device=run.device))
    operands["slots"] = torch.tensor([5, 64, 0, 7], device=run.device)
    operands["latent"][0, :128] = 0
    operands["latent"][1, 128:256] *= 2.0**-120
    operands["latent"][2, 256:] *= 1e30
    run(mla_cache, Operands(**operands), impl="triton")
    expected = encode_latent(operands["latent"].cpu(), operands["key"].cpu())
    rows = operands["cache"].flatten(0, 1)[operands["slots"]].cpu()
    assert torch.equal(rows, expected)


def test_groups_that_are_not_finite(run):
    """A group with NaN or inf reads back as NaN; the others are as without it."""
    operands = unturned(make(2, device=run.device))
    operands["slots"] = torch.tensor([3, 4], device=run.device)
    operands["latent"][0, 130], operands["latent"][1, 511] = torch.nan, torch.inf
    run(mla_cache, Operands(**operands), impl="triton")
    latent, _ = decode_latent(operands["cache"].flatten(0, 1)[operands["slots"]].cpu())
    bad = latent.unflatten(1, (4, 128)).isnan()
    assert bad.all(-1).tolist() == [[False, True, False, False], [False, False, False, True]]
    assert torch.equal(bad.all(-1), bad.any(-1))


@pytest.mark.parametrize("problem", [p for p in problems_of("mla_cache") if p.is_interpreted], ids=str)
def test_reference_entry(problem):
    operands = problem.operands("cpu")
    mla_cache(Operands(**operands, interleaved="interleaved" in problem.label), impl="reference")
    assert problem.agrees((operands["cache"], operands["slots"]), problem.op.reference(**problem.operands("cpu")))


def test_no_tokens():
    operands = make()
    for name in ("latent", "key", "positions", "slots"):
        operands[name] = operands[name][:0]
    mla_cache(Operands(**operands))
    assert (operands["cache"] == SENTINEL).all()


REFUSED = {
    "two types": (lambda o: dict(key=o["key"].float()), TypeError, "got latent torch.float16 and key torch.float32"),
    "half a latent": (lambda o: dict(latent=o["latent"][:, :256]), ValueError, r"expected \[T, 512\], \[T, 64\] and"),
    "cache of another type": (lambda o: dict(cache=o["cache"].int()), TypeError, "or uint8 for FP8"),
    "cache of 576 bytes": (lambda o: dict(cache=o["cache"][..., :576]), ValueError, r"\[num_pages, page_size, 656\]"),
    "rows not aligned": (
        lambda o: dict(cache=torch.zeros(3, 64, 657, dtype=torch.uint8)[..., :656]),
        ValueError,
        "4-byte aligned",
    ),
    "two devices": (lambda o: dict(cache=o["cache"].to("meta")), ValueError, "got cache on meta and latent on cpu"),
}


@pytest.mark.parametrize("row", REFUSED.values(), ids=REFUSED.keys())
def test_bad_operands_are_refused(row):
    assert_refused(lambda **operands: mla_cache(Operands(**operands)), make(), row)
