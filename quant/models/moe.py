"""MoeConfig: which layers have experts, how many and how wide, and how a token chooses among them."""

from dataclasses import dataclass

from quant.errors import InputError
from quant.models.values import Config, count, flag, number

# Keys that say how experts are chosen or placed, with the only values that are supported (absent is one, too).
SUPPORTED = {
    "scoring_func": ("softmax",),
    "topk_method": ("greedy", "group_limited_greedy"),
    "moe_layer_freq": (1,),
    "decoder_sparse_step": (1,),
    "mlp_only_layers": ([],),
}


@dataclass(frozen=True, slots=True)
class MoeConfig:
    """Routed experts of a decoder.

    num_dense_layers   leading layers that have one plain feed-forward net instead
    shared_ffn_size    width of what every token passes through beside its experts, 0 for none
    norm_topk_prob     whether the chosen experts' probabilities are scaled to sum to 1
    num_groups         experts stand in this many groups; a token chooses within its best `groups_per_token`
    """

    num_experts: int
    num_experts_per_token: int
    expert_ffn_size: int
    shared_ffn_size: int = 0
    num_dense_layers: int = 0
    norm_topk_prob: bool = False
    routed_scaling_factor: float = 1.0
    num_groups: int = 1
    groups_per_token: int = 1

    def __post_init__(self) -> None:
        if self.num_experts_per_token > self.num_experts:
            raise InputError(
                f"num_experts_per_tok is {self.num_experts_per_token}, expected at most the number of experts, "
                f"{self.num_experts}"
            )
        if self.num_experts % self.num_groups or self.groups_per_token > self.num_groups:
            raise InputError(
                f"n_group is {self.num_groups} and topk_group {self.groups_per_token}, "
                f"expected groups of equal size out of {self.num_experts} experts"
            )

    @property
    def num_shared_experts(self) -> int:
        """How many experts' width the shared net has."""
        return self.shared_ffn_size // self.expert_ffn_size

    @classmethod
    def from_hf(cls, config: Config, num_experts_key: str) -> "MoeConfig":
        """raises InputError for a missing or impossible number, or a way of choosing that is not supported"""
        for key, values in SUPPORTED.items():
            value = config.get(key)
            if value is not None and value not in values:
                raise InputError(f"{key} {value!r} is not supported; known: {', '.join(map(str, values))}")
        expert_ffn_size = count(config, "moe_intermediate_size")
        grouped = config.get("topk_method") == "group_limited_greedy"
        return cls(
            num_experts=count(config, num_experts_key),
            num_experts_per_token=count(config, "num_experts_per_tok"),
            expert_ffn_size=expert_ffn_size,
            shared_ffn_size=expert_ffn_size * count(config, "n_shared_experts", 0, least=0),
            num_dense_layers=count(config, "first_k_dense_replace", 0, least=0),
            norm_topk_prob=flag(config, "norm_topk_prob"),
            routed_scaling_factor=number(config, "routed_scaling_factor", 1.0),
            num_groups=count(config, "n_group", 1) if grouped else 1,
            groups_per_token=count(config, "topk_group", 1) if grouped else 1,
        )
