import numpy as np
import pytest
import torch
from support.perplexity import plan_of

from qbench.quality.kld.reference_logits import KeptLogits, kept_bytes, save_logits
from qbench.quality.protocols.perplexity import token_nll
from quant.errors import InputError

VOCAB = 131
SCORING = plan_of(np.random.default_rng(0).integers(VOCAB, size=(5, 20)))
TABLE = torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(1))


def save(path, mode: str) -> np.ndarray:
    named = {"model": "ref", "fingerprint": "f"}
    return save_logits(path, lambda tokens: TABLE[tokens], SCORING, VOCAB, mode=mode, named=named)


@pytest.mark.parametrize("mode", ["exact", "top-k"])
def test_rows_come_back_in_the_order_of_the_plan(tmp_path, mode):
    nll = save(tmp_path / "x", mode)
    kept = KeptLogits(tmp_path / "x")
    kept.require([SCORING])
    for window, start in zip(SCORING.windows, SCORING.starts, strict=False):
        rows, targets = TABLE[torch.from_numpy(window.tokens[:-1])], torch.from_numpy(window.targets)
        got = kept.compare(rows, int(start), targets)
        assert np.array_equal(got.base_nll, token_nll(rows, targets))
        assert np.array_equal(nll[start : start + 19], got.base_nll)
        assert (got.kld <= got.error + VOCAB * 2.0**-52).all(), "the model is its own reference"
    assert kept.num_bytes - kept_bytes(SCORING, VOCAB, mode) in range(1, 4096), "a header and the rows"


def test_the_rows_are_mapped_and_not_read(tmp_path):
    save(tmp_path / "x", "top-k")
    assert isinstance(KeptLogits(tmp_path / "x").rows, np.memmap)


@pytest.mark.parametrize("num_bytes", [0, 7, 9, 100, -1, -500])
def test_a_torn_file_is_refused(tmp_path, num_bytes):
    save(tmp_path / "x", "exact")
    whole = (tmp_path / "x").read_bytes()
    (tmp_path / "torn").write_bytes(whole[:num_bytes])
    with pytest.raises(InputError, match=r"save it again|no file of reference logits"):
        KeptLogits(tmp_path / "torn")


def test_a_run_that_dies_leaves_no_file(tmp_path):
    def dies(tokens):
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        save_logits(tmp_path / "x", dies, SCORING, VOCAB, mode="exact", named={})
    assert list(tmp_path.iterdir()) == []
