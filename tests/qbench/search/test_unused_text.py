"""Text that a finished mix is measured on before the check."""

import numpy as np
import pytest
import torch
from support.perplexity import plan_of

from qbench.calibration.windows import calibration_tokens
from qbench.quality.evaluate import prepare, read_text
from qbench.quality.kld.kld import divergence
from qbench.run.work import CalibrationWork
from qbench.runtime import load_model
from qbench.search.refusals import FEWEST_WINDOWS, unused_text
from qbench.search.validate import Check, predict
from qbench.sources import open_source
from quant.job import make_job
from quant.quantize import QuantizedSource
from quant.recipes import get_recipe

REF = open_source("ref:llama")


def test_windows_match_the_check_and_were_not_calibrated_on():
    options = CalibrationWork(samples=4, seq_len=64)
    (check,) = prepare(REF, read_text(None, "ref:llama"), 8)
    found = unused_text(REF, options, check)
    for ours, theirs in zip(found.windows, check.windows, strict=False):
        assert (len(ours.tokens), len(ours.targets)) == (len(theirs.tokens), len(theirs.targets))
    assert found.num_blocks == FEWEST_WINDOWS and found.block_unit == "window"
    text = " ".join(map(str, np.concatenate([window.tokens for window in found.windows])))
    assert not any(" ".join(map(str, row)) in text for row in calibration_tokens(REF, options).tokens)


def test_a_text_with_too_few_unused_windows(tmp_path):
    (check,) = prepare(REF, read_text(None, "ref:llama"), 8)
    size = len(check.windows[0].tokens)
    for num_unused, is_enough in ((FEWEST_WINDOWS, True), (FEWEST_WINDOWS - 1, False)):
        np.save(tmp_path / "a.npy", np.arange(size * (1 + num_unused)) % 1000)
        options = CalibrationWork(text=str(tmp_path / "a.npy"), samples=1, seq_len=size)
        assert (unused_text(REF, options, check) is not None) is is_enough


def test_their_number_follows_the_calibration_text():
    (check,) = prepare(REF, read_text(None, "ref:llama"), 24)
    for samples, wanted in ((64, 6), (90, 9), (128, 13), (999, 24)):
        found = unused_text(REF, CalibrationWork(samples=samples), check)
        assert len(found.windows) == wanted


def test_the_prediction_is_the_divergence_of_the_file(tmp_path):
    tokens = np.random.default_rng(0).integers(0, 320, (3, 24))
    files = {name: QuantizedSource(make_job(REF, get_recipe(name))) for name in ("q4_0", "q8_0")}
    sizes = dict.fromkeys(files, (0, 0.0))
    wanted = Check(REF, files, sizes, "q4_0", plan_of(tokens[:, :8]), True, tmp_path, 1)
    found = predict(wanted, plan_of(tokens), ["q4_0"])
    logits = [load_model(each)(torch.from_numpy(tokens))[:, :-1].flatten(0, 1) for each in (files["q4_0"], REF)]
    kld = divergence(*logits, torch.from_numpy(tokens[:, 1:]).flatten()).kld.mean()
    # Products round inputs in another way if another number of tokens comes at once.
    assert list(found) == ["q4_0"] and found["q4_0"] == pytest.approx(float(kld), rel=0.02)
