import numpy as np
import pytest

from quant.calibrated import ExpertTokens
from quant.calibration.coverage import FIELD_OF, check_coverage, expert_tokens, few_tokens_warning
from quant.errors import InputError
from quant.stats import InputStats

UP = "model.layers.2.mlp.experts.{}.up_proj.weight"
DOWN = "model.layers.2.mlp.experts.{}.down_proj.weight"
Q = "model.layers.2.self_attn.q_proj.weight"


def inputs(num_tokens=5, **fields):
    return InputStats(num_tokens, **{"absmax": np.ones(2), "sum_squares": np.ones(2), **fields})


def test_present_statistics_pass():
    check_coverage({Q: frozenset({"absmax", "imatrix"})}, {Q: inputs()})


@pytest.mark.parametrize("stats", [{}, {Q: inputs(num_tokens=0)}], ids=["absent", "no tokens"])
def test_a_linear_without_tokens(stats):
    with pytest.raises(InputError, match="there are no statistics of its inputs"):
        check_coverage({Q: frozenset({"imatrix"})}, stats)


@pytest.mark.parametrize("need", FIELD_OF)
def test_every_need_is_looked_for(need):
    lacking = inputs(**{field: None if field == FIELD_OF[need] else np.ones(2) for field in FIELD_OF.values()})
    with pytest.raises(InputError, match=rf"lack what its method needs \({need}\)"):
        check_coverage({Q: frozenset({need})}, {Q: lacking})


def test_experts_are_named_together():
    names = {UP.format(expert): frozenset({"imatrix"}) for expert in range(3)}
    with pytest.raises(InputError, match="expert 0, 2 of layer 2; route some to them with --min-expert-tokens"):
        check_coverage(names, {UP.format(1): inputs()})


def test_an_expert_counts_as_often_as_its_rarest_linear():
    names = [pattern.format(expert) for pattern in (UP, DOWN) for expert in range(2)]
    assert expert_tokens([Q, *names], {UP.format(0): 7, DOWN.format(0): 6, UP.format(1): 4}) == [6, 0]
    assert expert_tokens([Q], {Q: 9}) == []


def test_few_tokens_are_reported():
    line = few_tokens_warning({"0": ExpertTokens([500, 3]), "1": ExpertTokens([127, 128])})
    assert line.startswith("2 of 4 experts were calibrated on fewer than 128 tokens (layer 0, expert 1: 3)")
    assert few_tokens_warning({"0": ExpertTokens([500])}) is None and few_tokens_warning(None) is None
