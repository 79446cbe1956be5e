"""MlaConfig: the sizes of DeepSeek's multi-head latent attention."""

from dataclasses import dataclass

from quant.errors import InputError
from quant.models.values import Config, count


@dataclass(frozen=True, slots=True)
class MlaConfig:
    """Queries, keys and values through low-rank factors; one rotated key of `qk_rope_head_dim` serves all heads.

    q_lora_rank  0: the queries are one plain projection
    source       DeepSeek-V2, arXiv:2405.04434, section 2.1
    """

    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int

    def __post_init__(self) -> None:
        if self.qk_rope_head_dim % 2:
            raise InputError(f"qk_rope_head_dim is {self.qk_rope_head_dim}, expected an even number (rotary pairs)")

    @property
    def has_plain_q(self) -> bool:
        return self.q_lora_rank == 0

    @property
    def qk_head_dim(self) -> int:
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def latent_size(self) -> int:
        """Numbers in the cache per token and layer: the latent of keys and values, and the rotated key."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @classmethod
    def from_hf(cls, config: Config) -> "MlaConfig":
        """raises InputError for a missing or impossible size, or rotary pairs that are no neighbours"""
        if config.get("rope_interleave") is False:
            raise InputError("rope_interleave false is not supported; known: true")
        return cls(
            q_lora_rank=count(config, "q_lora_rank", 0, least=0),
            kv_lora_rank=count(config, "kv_lora_rank"),
            qk_nope_head_dim=count(config, "qk_nope_head_dim"),
            qk_rope_head_dim=count(config, "qk_rope_head_dim"),
            v_head_dim=count(config, "v_head_dim"),
        )
