"""ref:mla-moe's first weights out of ref:llama's: shared parts are kept, the rest begins at random.

An expert begins as a part of the dense net that it replaces, so that the net's knowledge need not be learnt again
(Komatsuzaki et al. 2022, arXiv:2212.05055, copy the whole net instead; here the experts are a third of it).
"""

import torch
from torch import Tensor, nn

from training.mla_moe import Experts, LatentAttention, MlaMoe
from training.model import MLP, Attention, Llama


@torch.no_grad()
def upcycle(student: MlaMoe, teacher: Llama, seed: int = 0) -> None:
    """Writes the student's first weights; both have the same width, depth and vocabulary."""
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
