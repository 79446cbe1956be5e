"""The choice of experts: the kernels equal the definition bit for bit, and that equals a textbook loop."""

import numpy as np
import pytest
from support.close import assert_close
from support.random_linear import random_qtensor

import cpu_kernels
from cpu_kernels.moe import route_ref

HIDDEN, NUM_EXPERTS = 128, 12
RULES = {
    "softmax": {"num_chosen": 3},
    "normed": {"num_chosen": 3, "is_normed": True},
    "groups by their best": {"num_chosen": 4, "num_groups": 4, "groups_per_token": 2, "factor": 16.0},
    "groups by several, sigmoid and bias": {
        "num_chosen": 4,
        "scoring": "sigmoid",
        "num_groups": 3,
        "groups_per_token": 2,
        "best_of_group": 2,
        "choice_bias": np.linspace(-0.3, 0.4, NUM_EXPERTS).astype(np.float32),
        "is_normed": True,
        "factor": 2.5,
    },
    "all": {"num_chosen": NUM_EXPERTS, "is_normed": True},
}


def random_logits(num_tokens: int) -> np.ndarray:
    return np.random.default_rng(num_tokens).standard_normal((num_tokens, NUM_EXPERTS)).astype(np.float32)


@pytest.fixture(scope="module")
def linear() -> cpu_kernels.LinearGroup:
    qtensor = random_qtensor("f32", NUM_EXPERTS, HIDDEN, seed=1)
    return cpu_kernels.LinearGroup([cpu_kernels.PackedLinear("f32", qtensor.parts, qtensor.shape)], [None])


def test_the_definition_equals_a_textbook_loop():
    """DeepSeek-V3's rule, one number at a time."""
    rules = RULES["groups by several, sigmoid and bias"]
    logits = random_logits(40)
    for row, its, counts in zip(logits.tolist(), *route_ref(logits, **rules), strict=True):
        scores = [1 / (1 + np.exp(-logit)) for logit in row]
        raised = [score + bias for score, bias in zip(scores, rules["choice_bias"].tolist(), strict=True)]
        of_group = {g: sum(sorted(raised[4 * g : 4 * g + 4])[-2:]) for g in range(3)}
        groups = sorted(of_group, key=of_group.get)[-2:]
        best = sorted((e for e in range(NUM_EXPERTS) if e // 4 in groups), key=lambda e: -raised[e])[:4]
        assert its.tolist() == best
        total = sum(scores[e] for e in best)
        assert_close(counts, [2.5 * scores[e] / total for e in best], rtol=6 * 2**-24)  # so many roundings


@pytest.mark.parametrize("num_tokens", [0, 1, 3, 131])
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_equals_the_definition(linear, rules, num_tokens):
    logits = random_logits(num_tokens)
    chosen, weights = cpu_kernels.Router(linear, **rules).choose(logits)
    expected_chosen, expected_weights = route_ref(logits, **rules)
    assert np.array_equal(chosen, expected_chosen)
    # e^x of two libraries, each right to its last bit of 53, may fall on both sides of a float's middle; a quotient.
    assert_close(weights, expected_weights, rtol=2 * 2**-23)


def test_the_first_of_equal_experts_are_chosen(linear):
    chosen, weights = cpu_kernels.Router(linear, 3).choose(np.zeros((2, NUM_EXPERTS), np.float32))
    assert chosen.tolist() == [[0, 1, 2]] * 2
    assert_close(weights, np.full((2, 3), 1 / NUM_EXPERTS, np.float32))


def test_sigmoids_that_vanish_count_nothing(linear):
    router = cpu_kernels.Router(linear, 2, "sigmoid", is_normed=True)
    assert_close(router.choose(np.full((1, NUM_EXPERTS), -1000, np.float32))[1], np.zeros((1, 2), np.float32))


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_nan_is_seen(linear, rules):
    logits = random_logits(3)
    logits[1, 7] = np.nan
    chosen, weights = cpu_kernels.Router(linear, **rules).choose(logits)
    assert np.isnan(weights[1]).any() and not np.isnan(weights[[0, 2]]).any()
    assert all(len(set(its)) == len(its) for its in chosen.tolist())


@pytest.mark.parametrize(
    "change, error, message",
    [
        pytest.param({"num_chosen": 13}, ValueError, "got 13 experts a token, expected 1 to 12", id="too many"),
        pytest.param({"num_chosen": 0}, ValueError, "got 0 experts a token", id="none"),
        pytest.param({"num_groups": 5}, ValueError, "got 5 groups of 12 experts", id="unequal groups"),
        pytest.param({"num_groups": 4}, ValueError, "expected 1 to 3 in its groups", id="out of reach"),
        pytest.param({"groups_per_token": 2}, ValueError, "got 1 groups of 12 experts and 2 a token", id="groups"),
        pytest.param({"best_of_group": 13}, ValueError, "the best 13 of groups of 12", id="best of group"),
        pytest.param({"scoring": "relu"}, ValueError, "got relu, expected softmax or sigmoid", id="scoring"),
        pytest.param({"choice_bias": np.zeros(3, np.float32)}, ValueError, r"expected float32 \[12\]", id="bias"),
    ],
)
def test_rules_that_do_not_go_together(linear, change, error, message):
    with pytest.raises(error, match=message):
        cpu_kernels.Router(linear, **({"num_chosen": 4} | change))


def test_bad_logits(linear):
    router = cpu_kernels.Router(linear, 2)
    with pytest.raises(ValueError, match="expected 12 columns"):
        router.choose(np.zeros((2, 3), np.float32))
    with pytest.raises(TypeError, match="got float64"):
        router.choose(np.zeros((2, NUM_EXPERTS)))


# ---- a layer's net in one call


@pytest.fixture(scope="module")
def experts() -> cpu_kernels.PackedExperts:
    def packed(rows: int, columns: int, seed: int) -> list[cpu_kernels.PackedLinear]:
        each = [random_qtensor("q8_0", rows, columns, seed=seed + e) for e in range(NUM_EXPERTS + 1)]
        return [cpu_kernels.PackedLinear("q8_0", qtensor.parts, qtensor.shape) for qtensor in each]

    return cpu_kernels.PackedExperts(packed(64, HIDDEN, 3), packed(64, HIDDEN, 40), packed(HIDDEN, 64, 80), 1)


@pytest.mark.parametrize("is_normed", [False, True], ids=["as it is", "normed"])
@pytest.mark.parametrize("num_tokens", [0, 1, 3, 63, 1025])
def test_equals_the_chain_of_its_steps(linear, experts, num_tokens, is_normed):
    """Norm, logits, choice, experts, residual; more tokens than one round takes."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((num_tokens, HIDDEN)).astype(np.float32)
    norm, eps = (rng.random(HIDDEN, dtype=np.float32), 1e-5) if is_normed else (None, 0.0)
    router = cpu_kernels.Router(linear, 3, is_normed=True)
    rows = cpu_kernels.rms_norm(x, norm, eps, out=np.empty_like(x)) if is_normed else x
    expected = experts.forward(rows, *router.choose(linear.multiply(rows)[0]))
    assert_close(experts.feed_forward(router, x, norm, eps), expected)
    assert_close(experts.feed_forward(router, x, norm, eps, x), expected + x)


def test_rows_may_have_gaps_between_them(linear, experts):
    wide = np.random.default_rng(3).standard_normal((5, HIDDEN + 7)).astype(np.float32)
    x, router = wide[:, 4 : 4 + HIDDEN], cpu_kernels.Router(linear, 3)
    assert_close(experts.feed_forward(router, x), experts.feed_forward(router, x.copy()))


def test_a_router_of_other_experts(experts):
    qtensor = random_qtensor("f32", 5, HIDDEN, seed=1)
    few = cpu_kernels.LinearGroup([cpu_kernels.PackedLinear("f32", qtensor.parts, qtensor.shape)], [None])
    with pytest.raises(ValueError, match="got one of 5 experts that reads 128, expected 12 that read 128"):
        experts.feed_forward(cpu_kernels.Router(few, 2), np.zeros((1, HIDDEN), np.float32))
