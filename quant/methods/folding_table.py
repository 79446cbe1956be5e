"""Which tensors a per-channel scale can move between without changing the function: facts about decoders, as data.

A tensor's outputs divided by s and its readers' input features multiplied by s give the same sums. That needs nothing
nonlinear in between, and no other reader. The rows hold for every architecture that has tensors of these names; a row
whose tensors an architecture lacks does not apply.
"""

from dataclasses import dataclass

from quant.models.rows import LAYER


@dataclass(frozen=True, slots=True)
class FoldRow:
    """source   tensor whose outputs are divided: a norm, or a linear
    readers  every linear that reads these outputs; the second "{}" is the expert
    through  the ops in between: nothing (output k is input feature k), "heads" (the attention's mean over positions,
             each KV head read by a group of query heads), "latent heads" (the same in MLA, whose source has a key part,
             which must stay, and a value part per head)
    """

    source: str
    readers: tuple[str, ...]
    through: str | None = None


def _row(source: str, *readers: str, through: str | None = None) -> FoldRow:
    return FoldRow(_weight(source), tuple(_weight(name) for name in readers), through)


def _weight(name: str) -> str:
    return f"{LAYER}.{name}.weight"


# Linear to linear first: that changes the rows of v, up and kv_b, which the norms' scales then see as they are.
# The SwiGLU product is linear in `up`, and softmax weighs values without changing their channels.
# fmt: off
FOLDS = (
    _row("self_attn.v_proj", "self_attn.o_proj", through="heads"),
    _row("self_attn.kv_b_proj", "self_attn.o_proj", through="latent heads"),
    _row("mlp.up_proj", "mlp.down_proj"),
    _row("mlp.experts.{}.up_proj", "mlp.experts.{}.down_proj"),
    _row("block_sparse_moe.experts.{}.w3", "block_sparse_moe.experts.{}.w2"),
    _row("mlp.shared_experts.up_proj", "mlp.shared_experts.down_proj"),
    _row("input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
         "self_attn.q_a_proj", "self_attn.kv_a_proj_with_mqa"),
    _row("self_attn.q_a_layernorm", "self_attn.q_b_proj"),
    _row("self_attn.kv_a_layernorm", "self_attn.kv_b_proj"),
    _row("post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.fc1",
         "mlp.gate", "mlp.experts.{}.gate_proj", "mlp.experts.{}.up_proj",
         "mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj",
         "block_sparse_moe.gate", "block_sparse_moe.experts.{}.w1", "block_sparse_moe.experts.{}.w3"),
)
# fmt: on
