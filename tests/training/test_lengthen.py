import json
from itertools import islice

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from support.close import assert_close

from qbench.reference.curriculum import Stage
from qbench.reference.long_tasks import MAKERS, MEASURED, answers, by_length, share_right
from training import lengthen, train
from training.export import load
from training.lengthen import CONTEXT, LONG_MIX, ROPE_BASE, STAGES, Lengthener, contexts, rows
from training.model import Llama, Shape
from training.train import Settings

SMALL = {"vocab_size": 1536, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2}
SHORT = Shape(**SMALL, max_position_embeddings=128)
LONG = Shape(**SMALL, max_position_embeddings=512, rope_theta=ROPE_BASE)


def test_a_run_continues_from_the_given_weights(tokenizer, tmp_path):
    torch.manual_seed(1)
    start = Llama(SHORT)
    settings = Settings(tmp_path / "out", minutes=10, tokens=512, threads=1)
    trainer = Lengthener(settings, start, tokenizer, LONG, (Stage("only", 1.0, 512, 512, LONG_MIX),))
    for name, weight in start.state_dict().items():
        assert_close(trainer.model.state_dict()[name], weight)
    record = trainer.run()
    assert record["steps"] == 1 and record["made_from"] == "ref:llama"
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["max_position_embeddings"] == 512 and config["rope_theta"] == ROPE_BASE
    assert load(tmp_path / "out")(torch.zeros(1, 512, dtype=torch.int64)).shape == (1, 512, 1536)


def test_the_base_keeps_slow_channels_in_the_known_part_of_their_circle():
    """A pair that turned by at most `known` radians within 1024 tokens turns by no more within 8192."""
    pairs = np.arange(32)
    known = 1024 * 10_000.0 ** (-pairs / 32)
    slow = known < 2 * np.pi
    assert slow.sum() == 14
    turned = CONTEXT * ROPE_BASE ** (-pairs / 32)
    assert (turned[slow] <= known[slow]).all() and (turned < 2 * np.pi)[slow].all()


@pytest.mark.parametrize("context", [256, 2048])
def test_rows_are_full_and_ask_for_something(tokenizer, context):
    source = rows(tokenizer, Stage("s", 1.0, 4096, 4096, LONG_MIX), context, seed=0)
    for row in islice(source, 12):
        assert row.shape == (context + 1,)
        assert row[0] == tokenizer.token_to_id("<|endoftext|>")
        assert answers(row, tokenizer).sum() >= 1


def test_batches_draw_every_context_of_their_stage(tokenizer, tmp_path):
    stage = Stage("s", 1.0, 128, 512, LONG_MIX)
    trainer = Lengthener(Settings(tmp_path, threads=1), Llama(SHORT), tokenizer, LONG, (stage,))
    assert contexts(stage) == [64, 128]
    shapes = {batch.shape for batch in islice(trainer.batches(stage, seed=0), 12)}
    assert shapes == {(8, 65), (4, 129)}


def test_stages_grow_to_the_whole_context():
    assert [stage.context for stage in STAGES] == sorted(stage.context for stage in STAGES)
    assert STAGES[-1].context == CONTEXT and STAGES[-1].end == 1.0
    assert all(stage.mix.keys() <= MAKERS.keys() for stage in STAGES)


def oracle(tokenizer):
    """A model that reads the next token in the row itself, shifted; and one that never answers."""

    def ahead(tokens):
        return torch.nn.functional.one_hot(tokens.roll(-1, 1), tokenizer.get_vocab_size()).float()

    return ahead


@pytest.mark.parametrize("task", MEASURED)
def test_shares_of_models_whose_skill_is_known(task, tokenizer):
    size = tokenizer.get_vocab_size()
    assert share_right(oracle(tokenizer), tokenizer, task, 700, 30) > 0.9  # it cannot see a row's last token
    assert share_right(lambda tokens: torch.zeros(*tokens.shape, size), tokenizer, task, 700, 30) == 0.0


def test_by_length_names_each_task_and_length(tokenizer):
    report = by_length(oracle(tokenizer), tokenizer, (300, 600), 10)
    assert report.keys() == MEASURED.keys()
    assert all(list(shares) == [300, 600] for shares in report.values())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA GPU")
@pytest.mark.parametrize("module", [train, lengthen])
def test_a_gpu_that_is_not_there_is_refused_before_any_file(module, tmp_path):
    result = CliRunner().invoke(module.main, ["--device", "cuda", "--out", str(tmp_path / "out")])
    assert result.exit_code == 2 and "there is no CUDA device that torch can use" in result.output
    assert not list(tmp_path.iterdir())
