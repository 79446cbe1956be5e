"""A reference model with latent attention and experts, small enough to train in a test."""

from training.mla_moe import MlaMoeShape

TINY = MlaMoeShape(
    vocab_size=1536,
    hidden_size=64,
    intermediate_size=64,
    num_hidden_layers=3,
    kv_lora_rank=32,
    qk_nope_head_dim=16,
    qk_rope_head_dim=8,
    v_head_dim=16,
    moe_intermediate_size=32,
    max_position_embeddings=256,
)
