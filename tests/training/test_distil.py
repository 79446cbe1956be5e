import json
from dataclasses import replace

import pytest
import torch
from support.close import assert_close
from support.tiny_mla_moe import TINY

from qbench.reference.curriculum import Stage, batches
from training.distil import BY_LAYER, Distiller, layer_losses, upcycle
from training.export import load
from training.mla_moe import MlaMoe
from training.model import Llama, Shape
from training.train import Settings

SIZES = {"vocab_size": 1536, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
TEACHER = Shape(**SIZES, max_position_embeddings=256)  # 4 heads of 16, of which 2 for keys
STUDENT = replace(TINY, **SIZES)
STAGES = (Stage(f"{BY_LAYER}, 64", 0.5, 64, 256, {"short_dense": 1.0}), Stage("end to end", 1.0, 128, 256))


@pytest.fixture
def teacher():
    torch.manual_seed(1)
    return Llama(TEACHER)


def distiller(teacher, tokenizer, out, **settings):
    return Distiller(Settings(out, minutes=10, threads=1, **settings), teacher, tokenizer, STUDENT, STAGES)


def test_two_steps_end_in_a_model_that_loads(teacher, tokenizer, tmp_path):
    record = distiller(teacher, tokenizer, tmp_path / "out", tokens=512).run()
    assert record["steps"] == 2 and record["teacher"] == "ref:llama"
    assert sum(record["expert_shares"][0]) == pytest.approx(1.0, abs=8 * 5e-5)  # rounded to 4 digits
    loaded = load(tmp_path / "out")
    assert isinstance(loaded, MlaMoe) and not loaded.training
    assert json.loads((tmp_path / "out" / "training.json").read_text())["tokens"] == 512


@pytest.mark.parametrize("stage", STAGES, ids=["by layer", "end to end"])
def test_a_step_lowers_the_loss_of_its_batch(teacher, tokenizer, tmp_path, stage):
    trainer = distiller(teacher, tokenizer, tmp_path, tokens=10**6, warmup_steps=1)
    before = {name: weight.clone() for name, weight in teacher.state_dict().items()}
    rows = torch.from_numpy(next(batches(tokenizer, stage, seed=0)))
    first, *_, last = [trainer.step(rows, stage) for _ in range(5)]
    assert last < first
    for name, weight in teacher.state_dict().items():
        assert_close(weight, before[name])


@torch.no_grad()
def test_layer_losses_are_relative_errors_of_each_part(teacher):
    """1 for a part that writes nothing: here the attentions and the experts, whose last matrices are zero."""
    student = MlaMoe(STUDENT)
    upcycle(student, teacher)
    for name, weight in student.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            weight.zero_()
    tokens = torch.randint(1536, (2, 64), generator=torch.Generator().manual_seed(0))
    parts = 2 + 1  # two attentions and one layer of experts; the dense net is as the teacher's and left alone
    assert layer_losses(student, teacher, tokens).item() == pytest.approx(parts, rel=2**-20)


@torch.no_grad()
def test_carried_weights_are_kept(teacher):
    student = MlaMoe(STUDENT)
    upcycle(student, teacher)
    assert_close(student.lm_head.weight, teacher.model.embed_tokens.weight)
    x = torch.randn(3, 64)
    assert_close(student.model.layers[0].mlp(x), teacher.model.layers[0].mlp(x))
    mine, its = student.model.layers[1].mlp, teacher.model.layers[1].mlp
    inner = torch.nn.functional.silu(its.gate_proj(x)) * its.up_proj(x)  # [3, 96]
    # 32 of 96 neurons are the shared expert's; a routed one writes its 32 of the other 64 doubled.
    for expert, gain in [(mine.shared_experts, 1.0), (mine.experts[3], 2.0)]:
        neurons = [torch.all(its.gate_proj.weight == row, dim=1).nonzero().item() for row in expert.gate_proj.weight]
        assert len(set(neurons)) == 32
        expected = gain * inner[:, neurons] @ its.down_proj.weight[:, neurons].T
        assert_close(expert(x), expected, atol=2**-23 * 32 * expected.abs().max().item())


@torch.no_grad()
def test_a_latent_begins_as_the_teachers_values(teacher):
    """One token sees itself alone, so that attention is its values, up to the scale of the latent's norm."""
    student = MlaMoe(STUDENT)
    upcycle(student, teacher)
    x = torch.randn(4, 1, 64)  # four sequences of one token
    mine, its = student.model.layers[0].self_attn, teacher.model.layers[0].self_attn
    got = mine(x, student.cos[:1], student.sin[:1])
    expected = its(x, teacher.cos[:1], teacher.sin[:1])
    ratio = got.norm(dim=-1, keepdim=True) / expected.norm(dim=-1, keepdim=True)
    assert_close(got, ratio * expected, atol=2**-18 * got.abs().max().item())
    assert (ratio > 0.5).all() and (ratio < 2).all()
