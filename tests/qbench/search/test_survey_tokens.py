"""How much of the text a survey reads."""

import numpy as np

from qbench.search.survey_tokens import PIECE, hessian_windows, joint_tokens, kv_tokens, single_tokens
from qbench.sources import open_source
from quant.calibration.tokens import CalibrationTokens
from quant.models import ModelConfig

TOKENS = np.arange(128 * 512).reshape(128, 512)
CALIBRATION = CalibrationTokens(TOKENS, "ids", 0, 128)


def test_hessians_have_a_share_of_the_windows_or_enough_tokens_per_feature():
    config = ModelConfig.of(open_source("ref:llama"))
    assert np.array_equal(hessian_windows(CALIBRATION, 256, config).tokens, TOKENS[::4])
    assert hessian_windows(CALIBRATION, 8192, config).tokens.size == 4 * 8192
    assert hessian_windows(CALIBRATION, 10**6, config).tokens.shape == TOKENS.shape


def test_an_expert_needs_the_same_number_of_tokens_as_a_layer():
    config = ModelConfig.of(open_source("ref:mla-moe"))
    assert config.expert_share < 1
    assert hessian_windows(CALIBRATION, 2048, config).tokens.size * config.expert_share >= 4 * 2048


def test_probes_read_short_pieces_of_many_windows():
    single, joint = single_tokens(TOKENS, 31), joint_tokens(TOKENS)
    assert single.shape == (4, PIECE) and joint.shape == (10, PIECE)
    assert np.array_equal(single[:, 0], TOKENS[::32, 0])
    assert single_tokens(TOKENS[:, :32], 1000).shape == (4, 32)


def test_kv_formats_are_probed_on_a_few_long_windows():
    assert kv_tokens(TOKENS, 9, 8192).shape == (2, 2048) and kv_tokens(TOKENS, 1, 1024).shape == (9, 1024)
    assert np.array_equal(kv_tokens(TOKENS, 9, 8192)[0], TOKENS[:4].ravel())
    assert kv_tokens(TOKENS, 9, 100).shape[1] == 100 and kv_tokens(TOKENS[:1], 9, 2048).shape == (1, 512)
