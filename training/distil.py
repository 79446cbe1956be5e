"""Trains ref:mla-moe from ref:llama: `python -m training.distil --minutes 45 --out DIR`.

First by layer: each attention and each net of experts learns the update that ref:llama's makes from ref:llama's own
input, so that all layers learn at once and no layer waits for those below it. Then end to end: the text, and
ref:llama's predictions of it. From nothing, recall takes ref:llama's training more tokens than the whole of this run.
"""

import json
from pathlib import Path

import click
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn

from qbench.reference.corpus import MIX
from qbench.reference.curriculum import Stage
from qbench.reference.registry import weights_dir
from qbench.reference.skills import Sizes, render
from training.export import load
from training.measure import measure
from training.mla_moe import Experts, LatentAttention, MlaMoe, MlaMoeShape
from training.model import MLP, Attention, Llama
from training.train import Settings, Trainer

BY_LAYER = "by layer"  # prefix of the names of stages in which layers learn separately
RECALL = {
    "dense": 0.1,
    "echo": 0.1,
    "sparse": 0.2,
}  # added to the mix: attention that looks things up is learnt last
STAGES = (
    Stage(f"{BY_LAYER}, 256", 0.2, 256, 1024, MIX | RECALL),
    Stage(f"{BY_LAYER}, whole context", 0.4, 1024, 2048, MIX | RECALL),
    Stage("end to end", 1.0, 1024, 4096),
)
# Share of the peak learning rate. By layer, 6e-3 comes to 4 % of error in 100 steps, 2e-2 stays above 10 %; end to end
# the layers need but be joined.
END_TO_END_RATE = 0.4
BALANCE_WEIGHT = 0.01  # of the experts' load: enough to keep all in use, and far below the cost of a wrong expert


class Distiller(Trainer):
    """A run of the student; the teacher stays as it is.

    shape   of the student; width, depth and vocabulary as the teacher's
    """

    def __init__(
        self,
        settings: Settings,
        teacher: Llama,
        tokenizer: Tokenizer,
        shape: MlaMoeShape | None = None,
        stages: tuple[Stage, ...] = STAGES,
    ):
        self.teacher = teacher.requires_grad_(False)
        self.by_layer = False
        super().__init__(settings, tokenizer, shape or MlaMoeShape(tokenizer.get_vocab_size()), stages)

    def first_model(self) -> nn.Module:
        assert isinstance(self.shape, MlaMoeShape)
        student = MlaMoe(self.shape)
        upcycle(student, self.teacher, self.settings.seed)
        return student

    @property
    def student(self) -> MlaMoe:
        assert isinstance(self.model, MlaMoe)
        return self.model

    def step(self, rows: Tensor, stage: Stage) -> float:
        self.by_layer = stage.name.startswith(BY_LAYER)
        return super().step(rows, stage)

    def set_learning_rate(self) -> None:
        super().set_learning_rate()
        for group in () if self.by_layer else (group for one in self.optimizers for group in one.param_groups):
            group["lr"] *= END_TO_END_RATE

    def loss(self, rows: Tensor, weights: Tensor) -> tuple[Tensor, Tensor | None]:
        if self.by_layer:
            loss, logits = layer_losses(self.student, self.teacher, rows[:, :-1]), None
        else:
            text, logits = super().loss(rows, weights)
            assert logits is not None
            with torch.no_grad():
                expected = self.teacher(rows[:, :-1]).float().log_softmax(-1)
            divergence = F.kl_div(logits.float().log_softmax(-1), expected, reduction="none", log_target=True).sum(-1)
            loss = text + (divergence * weights).sum()
        balance = sum(experts.balance for experts in self.student.routed)
        return loss + BALANCE_WEIGHT * balance, logits

    def record(self) -> dict:
        shares = [experts.counts / max(1, int(experts.counts.sum())) for experts in self.student.routed]
        for experts in self.student.routed:
            experts.counts.zero_()
        return super().record() | {
            "teacher": "ref:llama",
            "expert_shares": [[round(share, 4) for share in layer.tolist()] for layer in shares],  # since the last save
        }


def layer_losses(student: MlaMoe, teacher: Llama, tokens: Tensor) -> Tensor:
    """The sum over attentions and experts of |update - teacher's update|^2 / |teacher's update|^2.

    The teacher's input goes into both. Nets of the same kind began equal, and are left alone.
    """
    T = tokens.shape[1]
    cos, sin = student.cos[:T], student.sin[:T]
    x = teacher.model.embed_tokens(tokens)  # [B, T, C]
    total = torch.zeros(())
    for mine, its in zip(student.model.blocks, teacher.model.blocks, strict=True):
        update = its.self_attn(its.input_layernorm(x), teacher.cos[:T], teacher.sin[:T])
        total = total + relative_error(mine.self_attn(mine.input_layernorm(x), cos, sin), update)
        x = x + update
        update = its.mlp(its.post_attention_layernorm(x))
        if type(mine.mlp) is not type(its.mlp):
            total = total + relative_error(mine.mlp(mine.post_attention_layernorm(x)), update)
        x = x + update
    return total


def relative_error(got: Tensor, expected: Tensor) -> Tensor:
    return (got.float() - expected.float()).square().mean() / expected.float().square().mean()


@click.command()
@click.option("--minutes", default=45.0, show_default=True, help="Wall time at which training ends.")
@click.option("--tokens", type=int, help="Pace the schedule by this many tokens instead of by the clock.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("ref-mla-moe"), show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True)
@click.option("--lr", default=6e-3, show_default=True, help="Peak learning rate.")
def main(minutes: float, tokens: int | None, out: Path, seed: int, threads: int, lr: float) -> None:
    """Train ref:mla-moe and write it in the Hugging Face layout."""
    settings = Settings(out, minutes=minutes, tokens=tokens, seed=seed, threads=threads, lr=lr, decay_from=0.1)
    folder = weights_dir("llama")
    teacher = load(folder)
    assert isinstance(teacher, Llama)
    record = Distiller(settings, teacher, Tokenizer.from_file(str(folder / "tokenizer.json"))).run()
    click.echo(json.dumps({key: record[key] for key in ("seconds", "steps", "tokens", "expert_shares")}))
    click.echo(render(measure(out, Sizes())))


@torch.no_grad()
def upcycle(student: MlaMoe, teacher: Llama, seed: int = 0) -> None:
    """Writes the student's first weights; both have the same width, depth and vocabulary.

    Shared parts are kept, the rest begins at random. An expert begins as a part of the dense net that it replaces, so
    that the net's knowledge need not be learnt again (Komatsuzaki et al. 2022, arXiv:2212.05055, copy the whole net
    instead; here the experts are a third of it).
    """
    generator = torch.Generator().manual_seed(seed)
    embedding = teacher.model.embed_tokens.weight
    student.model.embed_tokens.weight.copy_(embedding)
    student.lm_head.weight.copy_(embedding)
    student.model.norm.weight.copy_(teacher.model.norm.weight)
    for mine, its in zip(student.model.blocks, teacher.model.blocks, strict=True):
        mine.input_layernorm.weight.copy_(its.input_layernorm.weight)
        mine.post_attention_layernorm.weight.copy_(its.post_attention_layernorm.weight)
        assert isinstance(mine.self_attn, LatentAttention) and isinstance(its.self_attn, Attention)
        assert isinstance(its.mlp, MLP)
        begin_attention(mine.self_attn, its.self_attn)
        if isinstance(mine.mlp, Experts):
            begin_experts(mine.mlp, its.mlp, generator)
        else:
            mine.mlp.load_state_dict(its.mlp.state_dict())


def begin_attention(mine: LatentAttention, its: Attention) -> None:
    """The latent begins as the teacher's values, which kv_b_proj hands to the heads; keys and queries at random."""
    shape = mine.shape
    group = its.num_heads // its.num_kv_heads
    mine.o_proj.weight.copy_(its.o_proj.weight)
    mine.kv_a_proj_with_mqa.weight[: shape.kv_lora_rank].copy_(its.v_proj.weight)
    up = mine.kv_b_proj.weight.view(its.num_heads, -1, shape.kv_lora_rank)  # [H, N + V, L]
    values = torch.eye(shape.kv_lora_rank).view(its.num_kv_heads, shape.v_head_dim, -1).repeat_interleave(group, 0)
    up[:, shape.qk_nope_head_dim :].copy_(values)
    # The latent's norm takes away a token's own size; on average that is the size of the values of a unit input.
    mine.kv_a_layernorm.weight.copy_(its.v_proj.weight.norm(dim=1).square().mean().sqrt().expand(shape.kv_lora_rank))


def begin_experts(mine: Experts, its: MLP, generator: torch.Generator) -> None:
    """The shared expert gets the neurons that write the most, the routed ones random parts of the others."""
    size = mine.shape.moe_intermediate_size
    strength = its.down_proj.weight.norm(dim=0) * its.up_proj.weight.norm(dim=1) * its.gate_proj.weight.norm(dim=1)
    order = strength.argsort(descending=True)  # [F]
    begin_net(mine.shared_experts, its, order[:size])
    rest = order[size:]
    # Weights sum to 1 at first and an expert holds a share of the rest: scaled, the sum is the rest's on average.
    gain = len(rest) / size
    for expert in mine.nets:
        begin_net(expert, its, rest[torch.randperm(len(rest), generator=generator)[:size]], gain)


def begin_net(mine: MLP, its: MLP, neurons: Tensor, gain: float = 1.0) -> None:
    for name in ("gate_proj", "up_proj"):
        linear: nn.Linear = getattr(mine, name)
        linear.weight.copy_(getattr(its, name).weight[neurons])
    mine.down_proj.weight.copy_(gain * its.down_proj.weight[:, neurons])


if __name__ == "__main__":
    main()
