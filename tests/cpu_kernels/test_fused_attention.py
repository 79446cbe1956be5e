"""The attention half of a layer, and whole layers, in one call against the chain of single calls, bit for bit."""

import numpy as np
import pytest
from support.close import assert_close
from support.fused_layers import EPS, HEAD_DIM, HIDDEN, NUM_KV_HEADS, SCALE, Layer, Net, random, rotation
from support.threads import assert_threads_change_nothing

import cpu_kernels
from cpu_kernels import DecoderLayer, KVStore, attention_step, feed_forward, run_layers

STEPS = {
    "plain": {},
    "normed": {"norm_weight": random(HIDDEN), "eps": EPS},
    "heads normed": {"q_norm": random(HEAD_DIM), "k_norm": random(HEAD_DIM, seed=1), "head_eps": EPS},
}


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("batch", [1, 3], ids="B={}".format)
def test_a_prompt_and_the_tokens_after_it(batch, steps):
    layer, length = Layer(batch), 0
    for num_tokens in (7, 1, 1, 3):
        length += num_tokens
        rope, lengths = rotation(length - num_tokens, num_tokens), np.full(batch, length)
        x = random(batch * num_tokens, HIDDEN, seed=length)
        assert_close(layer.one_call(x, rope, lengths, **steps), layer.chain(x, rope, lengths, **steps))
        y = layer.one_call(x, rope, lengths, residual=x, **steps)
        assert_close(y, layer.chain(x, rope, lengths, residual=x, **steps))


@pytest.mark.parametrize("kv_format", ["f16", "int8"])
@pytest.mark.parametrize("level", ["scalar", "avx2", "avx512"])
def test_every_level(monkeypatch, level, kv_format):
    if level not in cpu_kernels.features():
        pytest.skip(f"this machine has no {level}")
    monkeypatch.setenv("QBENCH_ISA", level)
    layer, x, rope, lengths = Layer(1, kv_format), random(5, HIDDEN), rotation(0, 5), np.array([5])
    assert_close(layer.one_call(x, rope, lengths), layer.chain(x, rope, lengths))
    assert layer.stores[0].last_isa == layer.stores[1].last_isa == level


def test_results_do_not_depend_on_threads():
    x, rope, lengths = random(31, HIDDEN), rotation(0, 31), np.array([31])
    assert_threads_change_nothing((1, 2, 5), lambda: Layer(1).one_call(x, rope, lengths, **STEPS["heads normed"]))


def test_no_tokens():
    assert Layer(2).one_call(np.zeros((0, HIDDEN), np.float32), rotation(0, 0), np.array([0, 0])).shape == (0, HIDDEN)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda y, x, r: y.one_call(x, r, np.array([3])), ValueError, "ends"),
        (lambda y, x, r: y.one_call(x[:3], r, np.array([4, 4])), ValueError, "expected tokens for each of 2 sequences"),
        (lambda y, x, r: y.one_call(x, rotation(0, 3), np.array([4])), ValueError, r"cos: got float32 \[3, 32\]"),
        (lambda y, x, r: y.one_call(x, r, np.array([4]), q_norm=x[0]), ValueError, r"q_norm: got float32 \[96\]"),
        (lambda y, x, r: y.one_call(x, r, np.array([4]), residual=x[:2]), ValueError, "residual: got"),
        (lambda y, x, r: y.one_call(x, r, np.array([4]), window=-1), ValueError, "window: got -1"),
        (lambda y, x, r: y.one_call(x.astype(np.float64), r, np.array([4])), TypeError, "x: got float64"),
        (
            lambda y, x, r: attention_step(*y.groups, None, x, *r, y.table, np.array([4]), SCALE),
            TypeError,
            "expected a KVStore|incompatible function arguments",
        ),
        (
            lambda y, x, r: attention_step(y.groups[1], y.groups[1], y.stores[0], x, *r, y.table, np.array([4]), SCALE),
            ValueError,
            "got groups of 1 and 1 linears, expected 3 and 1",
        ),
        (
            lambda y, x, r: attention_step(
                *y.groups, KVStore("f32", 1, 32, 1, HEAD_DIM), x, *r, y.table, np.array([4]), SCALE
            ),
            ValueError,
            "k has 64 rows, v 64, expected 32 as the store has them",
        ),
    ],
    ids=["length", "batch", "angles", "head norm", "residual", "window", "dtype", "no store", "groups", "kv heads"],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call(Layer(1), np.ones((4, HIDDEN), np.float32), rotation(0, 4))


# ---- whole layers


@pytest.mark.parametrize("batch", [1, 3], ids="B={}".format)
@pytest.mark.parametrize("has_head_norms", [False, True], ids=["plain", "heads normed"])
def test_layers_in_one_call_are_one_after_another(batch, has_head_norms):
    layers, nets, length = [Layer(batch) for _ in range(3)], [Net(10 * i) for i in range(3)], 0
    weights = random(HIDDEN), random(HIDDEN, seed=1)
    head_norms = (random(HEAD_DIM), random(HEAD_DIM, seed=1), EPS) if has_head_norms else (None, None, 0.0)
    whole = [
        DecoderLayer(*layer.groups, *net.groups, *weights, EPS, HEAD_DIM, *head_norms)
        for layer, net in zip(layers, nets, strict=True)
    ]
    for num_tokens in (7, 1, 3):
        length += num_tokens
        rope, lengths = rotation(length - num_tokens, num_tokens), np.full(batch, length)
        x = expected = random(batch * num_tokens, HIDDEN, seed=length)
        for layer, net in zip(layers, nets, strict=True):
            q_norm, k_norm, head_eps = head_norms
            steps = {"q_norm": q_norm, "k_norm": k_norm, "head_eps": head_eps}
            expected = layer.one_call(
                expected, rope, lengths, norm_weight=weights[0], eps=EPS, residual=expected, **steps
            )
            expected = feed_forward(*net.groups, expected, weights[1], EPS, expected)
        stores = [layer.stores[1] for layer in layers]
        assert_close(run_layers(whole, stores, x, *rope, layers[0].table, lengths, SCALE), expected)
        assert np.isfinite(expected).all()
        # once more over the same tokens: the net of so few may take another path, which with q8_0 changes no bit
        last = run_layers(whole, stores, x, *rope, layers[0].table, lengths, SCALE, last_only=True)
        wanted = expected.reshape(batch, num_tokens, -1)[:, -1]
        assert_close(last, wanted)


@pytest.mark.parametrize("last_only", [False, True], ids=["all", "last only"])
def test_sequences_of_different_lengths_give_the_same_result_separately(last_only):
    layer, net, weights = Layer(3), Net(0), (random(HIDDEN), random(HIDDEN, seed=1))
    whole = [DecoderLayer(*layer.groups, *net.groups, *weights, EPS, HEAD_DIM)] * 2
    table, cu_seqlens, stores = (
        layer.table,
        np.array([0, 5, 6, 13]),
        [KVStore("f16", 3, 32, NUM_KV_HEADS, HEAD_DIM)] * 2,
    )
    x, rope, ends = random(13, HIDDEN), rotation(0, 13), np.array([5, 1, 7])
    together = run_layers(whole, stores, x, *rope, table, ends, SCALE, 0, last_only, cu_seqlens)
    step = attention_step(*layer.groups, stores[0], x, *rope, table, ends, SCALE, cu_seqlens=cu_seqlens)
    for b, rows in enumerate((slice(0, 5), slice(5, 6), slice(6, 13))):
        one = x[rows], *(angles[rows] for angles in rope), table[b : b + 1], ends[b : b + 1], SCALE
        wanted = slice(b, b + 1) if last_only else rows
        assert_close(run_layers(whole, stores, *one, 0, last_only), together[wanted])
        assert_close(attention_step(*layer.groups, stores[0], *one), step[rows])


def test_a_layer_keeps_its_groups():
    layer, net, weight = Layer(1), Net(0), np.ones(HIDDEN, np.float32)
    whole = DecoderLayer(*layer.groups, *net.groups, weight, weight, EPS, HEAD_DIM)
    stores, table = layer.stores, layer.table
    x, rope, lengths = random(2, HIDDEN), rotation(0, 2), np.array([2])
    expected = run_layers([whole], stores[:1], x, *rope, table, lengths, SCALE)
    del layer, net, weight
    assert_close(run_layers([whole], stores[1:], x, *rope, table, lengths, SCALE), expected)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda w, s, *a: run_layers([], [], *a), ValueError, "layers, stores: got 0 and 0"),
        (lambda w, s, *a: run_layers([w], [], *a), ValueError, "layers, stores: got 1 and 0"),
        (lambda w, s, *a: run_layers([None], [s], *a), TypeError, "layer 0: got None, expected DecoderLayer"),
        (lambda w, s, *a: run_layers([w, None], [s, s], *a), TypeError, "layer 1: got None, expected DecoderLayer"),
        (lambda w, s, *a: run_layers([w], [None], *a), TypeError, "store: expected a KVStore"),
        (
            lambda w, s, *a: run_layers([w, w], [s, KVStore("f32", 1, 64, NUM_KV_HEADS, HEAD_DIM)], *a),
            ValueError,
            "pages of 32 tokens and of 64",
        ),
        (
            lambda w, s, *a: run_layers([w], [KVStore("f32", 1, 32, NUM_KV_HEADS, 64)], *a),
            ValueError,
            "stores: got heads of 64, expected 32",
        ),
        (lambda w, s, x, *a: run_layers([w], [s], x[:, :64], *a), ValueError, "expected 96 columns"),
        (
            lambda w, s, *a: DecoderLayer(
                *Layer(1).groups, *Net(0).groups, np.ones(3, np.float32), np.ones(HIDDEN, np.float32), EPS, HEAD_DIM
            ),
            ValueError,
            r"attention_norm: got float32 \[3\]",
        ),
    ],
    ids=["no layers", "no stores", "no layer", "one None", "None", "pages", "heads", "columns", "norm"],
)
def test_bad_layers(call, error, message):
    layer, net, weight = Layer(1), Net(0), np.ones(HIDDEN, np.float32)
    whole = DecoderLayer(*layer.groups, *net.groups, weight, weight, EPS, HEAD_DIM)
    arguments = (np.ones((4, HIDDEN), np.float32), *rotation(0, 4), layer.table, np.array([4]), SCALE)
    with pytest.raises(error, match=message):
        call(whole, layer.stores[0], *arguments)


ROWS = np.zeros((1, 4, NUM_KV_HEADS * HEAD_DIM), np.uint16)
CHOICE = (ROWS, 4, 2, 1, 1, 5)  # 2 of the pages 1 to 4, those before and those from page 5 on
HUGE = 2**62


def choose_pages(choice=CHOICE, tokens=1, sequences=1, ends=None, kv_format="f32", table=None, **options):
    """One layer over a sequence of 7 pages"""
    layer, net, weight = Layer(1), Net(0), np.ones(HIDDEN, np.float32)
    whole = DecoderLayer(*layer.groups, *net.groups, weight, weight, EPS, HEAD_DIM)
    store = KVStore(kv_format, 8 * sequences, 32, NUM_KV_HEADS, HEAD_DIM)
    table = np.arange(8 * sequences, dtype=np.int32).reshape(sequences, 8) if table is None else table
    x, rope = np.ones((sequences * tokens, HIDDEN), np.float32), rotation(0, tokens)
    ends = np.full(sequences, 200) if ends is None else ends
    return run_layers([whole], [store], x, *rope, table, [ends], SCALE, choices=[choice], **options)


def test_a_choice_of_all_blocks_changes_no_bit():
    assert_close(choose_pages((ROWS, 4, 4, 1, 1, 5)), choose_pages(None))


def test_smoothed_scores_choose():
    """The score of a block is mixed with its last one; a block without a last one keeps its own."""
    rows = np.full((1, 4, NUM_KV_HEADS * HEAD_DIM), 0.0, np.float16)
    rows[0, 3, 0] = 1
    seen, scores = [], np.empty((1, 4), np.float32)
    for share, before in [(0.0, [[]]), (0.75, [[8.0, 100.0, -8.0]])]:
        smoothing = (share, np.array(before, np.float32), after := np.empty((1, 4), np.float32))
        choose_pages(
            (rows.view(np.uint16), 4, 1, 1, 1, 5), smoothing=[smoothing], chosen=[best := np.empty((1, 1), int)]
        )
        seen.append(best.tolist())
        scores = after if not share else scores
    assert scores[0, :3].tolist() == [0, 0, 0] and scores[0, 3] != 0
    assert after.tolist() == [[6, 75, -6, scores[0, 3]]]
    assert seen == [[[3 if scores[0, 3] > 0 else 0]], [[1]]]


def test_only_missing_pages_are_brought():
    """Rows of zeros: of equal blocks the first ones are chosen, whose pages are 1 and 2 of the table."""
    asked, table = [], np.arange(8, dtype=np.int32)[None]

    def bring(layer, best):
        asked.append((layer, best.tolist()))
        table[0, :] = range(8)

    expected = choose_pages(table=table, on_choice=bring)
    assert not asked
    table[0, 3] = -1  # not chosen
    assert_close(choose_pages(table=table, on_choice=bring), expected)
    assert not asked
    table[0, 2] = -1
    assert_close(choose_pages(table=table, on_choice=bring), expected)
    assert asked == [(0, [[0, 1]])]


def tier_of(layers: int, blocks: int):
    """A tier whose blocks are nowhere"""
    store, size = KVStore("f32", 8, 32, NUM_KV_HEADS, HEAD_DIM), layers * blocks
    own = np.zeros(size), *(np.zeros(size, kind) for kind in (np.int32, bool, bool, int))
    arrays = np.full((layers, blocks), -1, np.int32), *own, np.full(8, -1), np.zeros(layers, bool)
    try:
        return cpu_kernels.ChosenBlocks(store, arrays, 0.0, 0, store.page_bytes, 1, 1)
    except OSError:
        pytest.skip("this system takes no several reads at once")


def test_pages_that_a_tier_cannot_bring_are_left_to_the_caller():
    asked, table = [], np.array([[0, -1, 2, 3, 4, 5, 6, 7]], np.int32)

    def bring(layer, best):
        asked.append((layer, best.tolist()))
        table[0, 1] = 1

    expected = choose_pages()
    assert_close(choose_pages(table=table, on_choice=bring, tier=tier_of(1, 8)), expected)
    assert asked == [(0, [[0, 1]])]


@pytest.mark.parametrize(
    "tier, on_choice, error, message",
    [
        (lambda: 1, print, TypeError, "tier: expected a ChosenBlocks"),
        (lambda: tier_of(1, 8), None, ValueError, "tier: got layer 0 .* expected on_choice"),
        (lambda: tier_of(1, 4), print, ValueError, "tier: got layer 0 and 5 pages"),
    ],
    ids=["kind", "no caller", "few pages"],
)
def test_bad_tier(tier, on_choice, error, message):
    with pytest.raises(error, match=message):
        choose_pages(on_choice=on_choice, tier=tier())


@pytest.mark.parametrize(
    "chosen, error", [(np.empty((1, 3), int), ValueError), (np.empty((1, 2)), TypeError), (1, TypeError)]
)
def test_bad_chosen(chosen, error):
    with pytest.raises(error, match="chosen: "):
        choose_pages(chosen=[chosen])


@pytest.mark.parametrize(
    "smoothing, error, message",
    [
        ((1.0, [[0]], 4), ValueError, "smoothing: got a share of 1"),
        ((0.5, [[0] * 5], 4), ValueError, r"smoothing: got scores float32 \[1, 5\], expected \[1, n\] of at most 4"),
        ((0.5, [[0]], 3), ValueError, r"smoothing: got float32 \[1, 3\], expected float32 \[1, 4\]"),
        ((0.5, [0], 4), ValueError, r"smoothing: got float32 \[1\]"),
        ((0.5, None, 4), TypeError, r"smoothing: expected \(share, before, after\)"),
    ],
    ids=["share", "more scores than blocks", "room", "one dimension", "none"],
)
def test_bad_smoothing(smoothing, error, message):
    share, before, size = smoothing
    before = None if before is None else np.array(before, np.float32)
    with pytest.raises(error, match=message):
        choose_pages(smoothing=[(share, before, np.empty((1, size), np.float32))])


@pytest.mark.parametrize(
    "choice, options, error, message",
    [
        ((ROWS.astype(np.int32), *CHOICE[1:]), {}, TypeError, r"choices: got int32 \[1, 4, 64\]"),
        ((ROWS[:, :, :32].copy(), *CHOICE[1:]), {}, ValueError, r"choices: got rows uint16 \[1, 4, 32\], expected"),
        ((ROWS[:, ::2], *CHOICE[1:]), {}, ValueError, r"choices: .*expected contiguous uint16 \[A, room, C\]"),
        (CHOICE, {"tokens": 2}, ValueError, "choices: got 2 tokens of 1 sequences, expected 1 of 1"),
        (CHOICE, {"sequences": 2}, ValueError, "choices: got 2 tokens of 2 sequences, expected 1 of 1"),
        (
            CHOICE,
            {"kv_format": "kivi4", "ends": np.array([20])},
            ValueError,
            "in a store that keeps each token by itself",
        ),
        (CHOICE, {"ends": np.array([[200, 199]])}, ValueError, "choices: got ends or pages for each of 2 heads"),
        (CHOICE, {"window": 5}, ValueError, r"choices: got a window of 5, expected 0"),
        ((ROWS, 5, 2, 1, 1, 6), {}, ValueError, "choices: got 2 of 5 blocks .* in 7 pages and 4 rows"),
        ((ROWS, 0, 0, 1, 1, 5), {}, ValueError, "choices: got 0 of 0 blocks"),
        ((ROWS, 4, 5, 1, 1, 5), {}, ValueError, "choices: got 5 of 4 blocks"),
        ((ROWS, 4, 2, -1, 1, 5), {}, ValueError, "pages after -1 and before page 5"),
        ((ROWS, 4, 2, 2, 1, 5), {}, ValueError, "pages after 2 and before page 5"),
        ((ROWS, 4, 2, 1, HUGE, 5), {}, ValueError, f"blocks of {HUGE} pages"),
        ((ROWS, 4, 2, 1, 1, 7), {}, ValueError, "before page 7, .* in 7 pages"),
        (CHOICE[:5], {}, TypeError, r"choices: expected \(rows, num_rows, count, init_pages"),
    ],
    ids=[
        "dtype",
        "columns",
        "strides",
        "tokens",
        "sequences",
        "residual",
        "ends of heads",
        "window",
        "rows",
        "no rows",
        "count",
        "negative",
        "overlap",
        "overflow",
        "no recent page",
        "too few entries",
    ],
)
def test_bad_choices(choice, options, error, message):
    with pytest.raises(error, match=message):
        choose_pages(choice, **options)
