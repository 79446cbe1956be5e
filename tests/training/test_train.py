import json

import numpy as np
import pytest
import torch
from support.close import assert_close
from tokenizers import Tokenizer, models

from qbench.reference.corpus import MIX
from qbench.reference.curriculum import ANSWER_WEIGHT, CHANCE_WEIGHT, STAGES, Stage, answers, batches, loss_weights
from training import train as training
from training.export import load
from training.model import Llama, Shape
from training.optim import orthogonalize

TINY = Shape(vocab_size=1536, hidden_size=64, intermediate_size=64, num_hidden_layers=2, max_position_embeddings=256)


def run(tokenizer, tmp_path, name="out"):
    stages = (Stage("first", 0.5, 64, 256, {"short_dense": 1.0}), Stage("second", 1.0, 128, 256, MIX))
    settings = training.Settings(tmp_path / name, minutes=10, tokens=512, threads=1)
    trainer = training.Trainer(settings, tokenizer, TINY, stages)
    return trainer, trainer.run()


def test_two_steps_end_in_a_model_that_loads(tokenizer, tmp_path):
    trainer, record = run(tokenizer, tmp_path)
    assert record["steps"] == 2 and record["tokens"] == 512 and record["progress"] == 1.0
    loaded = load(tmp_path / "out")
    for name, weight in trainer.model.state_dict().items():
        assert_close(loaded.state_dict()[name], weight.bfloat16().float())
    assert json.loads((tmp_path / "out" / "training.json").read_text())["tokens"] == 512
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"], "no temporary folder stays"


def test_a_seed_gives_one_model(tokenizer, tmp_path):
    (first, _), (second, _) = run(tokenizer, tmp_path, "a"), run(tokenizer, tmp_path, "b")
    for name, weight in first.model.state_dict().items():
        assert_close(second.model.state_dict()[name], weight)


def test_a_step_lowers_the_loss_of_its_batch(tokenizer, tmp_path):
    trainer = training.Trainer(training.Settings(tmp_path, tokens=10**6, threads=1, warmup_steps=1), tokenizer, TINY)
    rows = torch.from_numpy(next(batches(tokenizer, Stage("s", 1.0, 64, 512), seed=0)))
    first, *_, last = [trainer.step(rows, STAGES[0]) for _ in range(5)]
    assert last < first


def test_logits_equal_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = Llama(TINY).eval()
    peer = transformers.LlamaForCausalLM(transformers.LlamaConfig(**TINY.hf_config(0))).float().eval()
    missing, unexpected = peer.load_state_dict(model.state_dict(), strict=False)
    assert missing == ["lm_head.weight"] and not unexpected  # tied: the embedding
    tokens = torch.randint(TINY.vocab_size, (2, 200))
    with torch.no_grad():
        got, expected = model(tokens), peer(tokens).logits
    assert_close(got, expected, atol=2**-23 * TINY.hidden_size * expected.abs().max().item())


def test_rows_begin_with_a_document(tokenizer):
    rows = next(batches(tokenizer, Stage("s", 1.0, 128, 1024), seed=0))
    assert rows.shape == (8, 129)
    assert (rows[:, 0] == tokenizer.token_to_id("<|endoftext|>")).all()


def test_loss_weights_by_hand(tokenizer):
    text = "set babel acorn\nget babel acorn\nsay acorn\nagain acorn ash\nThe end"
    tokens = np.array(tokenizer.encode(text).ids)
    one, low, high = 1.0, CHANCE_WEIGHT, ANSWER_WEIGHT
    expected = [one, low, low, one, one, low, high, one, one, low, low, one, one, high, one]
    assert_close(loss_weights(tokens, tokenizer)[: len(expected)], np.float32(expected))
    assert (loss_weights(tokens, tokenizer)[len(expected) :] == one).all()
    assert answers(tokens, tokenizer).nonzero()[0].tolist() == [6, 13]


@pytest.mark.parametrize("shape", [(16, 48), (48, 16), (32, 32)], ids=["wide", "tall", "square"])
def test_orthogonalize_keeps_directions_and_levels_their_size(shape):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    update = orthogonalize(matrix).float()
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    inside = left.T @ update @ right.T  # diagonal where the singular vectors agree
    # The iteration's fixed band is [0.68, 1.13] (Jordan et al. 2024); bfloat16 blurs by 2**-8 a product, 15 products.
    blur = 15 * 2**-8
    assert inside.diagonal().min() > 0.68 - blur and inside.diagonal().max() < 1.13 + blur
    assert (inside - inside.diagonal().diag()).abs().max() < 2 * blur


def test_a_tokenizer_that_splits_a_mark_is_refused():
    with pytest.raises(ValueError, match="splits 'get'"):
        answers(np.zeros((1, 4), dtype=np.int64), Tokenizer(models.BPE(vocab={"again": 0, "Ċ": 1}, merges=[])))
