"""MoeConfig: which layers have experts, how many and how wide, and how a token chooses among them."""

from dataclasses import dataclass

from quant.errors import InputError, shown
from quant.models.values import MOST_EXPERTS, Config, count, flag, number

# Keys that say which layers have experts, with the only value that is supported (absent is supported, too).
PLACES = {"moe_layer_freq": (1,), "decoder_sparse_step": (1,), "mlp_only_layers": ([],)}
# Ways of choosing -> how many of a group's best scores count for the group; None: all experts are one group
TOPK_METHODS = {"greedy": None, "group_limited_greedy": 1, "noaux_tc": 2}
BIASED_METHOD = "noaux_tc"  # the one that adds a learned bias to the scores before it chooses
LEAST_SUM = 1e-20  # of chosen scores: divisor of a sum of sigmoids that all vanish, as published


@dataclass(frozen=True, slots=True)
class ExpertKeys:
    """How a family's configs and tensors speak of experts.

    num_experts, ffn_size  keys of their number and of their width
    module                 the layer's module that holds router and experts
    projections            names of gate, up and down in one expert
    scoring                function that makes scores of the router's logits: "softmax" over all, or "sigmoid" of each
    methods                the values of topk_method; the first is the default
    """

    num_experts: str
    ffn_size: str = "moe_intermediate_size"
    module: str = "mlp"
    projections: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    scoring: str = "softmax"
    methods: tuple[str, ...] = ("greedy",)


@dataclass(frozen=True, slots=True)
class MoeConfig:
    """Routed experts of a decoder.

    num_dense_layers   leading layers that have one plain feed-forward net instead
    shared_ffn_size    width of the net that every token passes through in addition to its experts, 0 without such a net
    norm_topk_prob     whether the chosen experts' probabilities are scaled to sum to 1
    num_groups         experts are in this many groups; a token chooses within its best `groups_per_token`
    best_of_group      how many of a group's highest scores sum to the group's own
    scoring            "softmax" over all experts, or "sigmoid" of each by itself
    has_choice_bias    whether a bias is added to the scores to choose, though not to the weights of the experts'
                       outputs
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
    best_of_group: int = 1
    scoring: str = "softmax"
    has_choice_bias: bool = False

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
        in_reach = self.groups_per_token * (self.num_experts // self.num_groups)
        if self.num_experts_per_token > in_reach:
            raise InputError(
                f"num_experts_per_tok is {self.num_experts_per_token}, expected at most the experts of topk_group "
                f"{self.groups_per_token} groups, {in_reach}"
            )
        if self.best_of_group > self.num_experts // self.num_groups:
            raise InputError(
                f"n_group is {self.num_groups}, expected at least {self.best_of_group} experts in each group"
            )

    @property
    def num_shared_experts(self) -> int:
        """How many experts' width the shared net has."""
        return self.shared_ffn_size // self.expert_ffn_size

    @classmethod
    def from_hf(cls, config: Config, keys: ExpertKeys) -> "MoeConfig":
        """raises InputError for a missing or impossible number, or a way of choosing that is not supported"""
        _check_values(config, PLACES | {"scoring_func": (keys.scoring,), "topk_method": keys.methods})
        method = config.get("topk_method") or keys.methods[0]
        best_of_group = TOPK_METHODS[method]
        num_groups = 1 if best_of_group is None else count(config, "n_group", 1)
        groups_per_token = count(config, "topk_group", 1) if num_groups > 1 else 1
        if groups_per_token == num_groups:  # every expert is in reach
            num_groups = groups_per_token = 1
        expert_ffn_size = count(config, keys.ffn_size)
        return cls(
            num_experts=count(config, keys.num_experts, most=MOST_EXPERTS),
            num_experts_per_token=count(config, "num_experts_per_tok"),
            expert_ffn_size=expert_ffn_size,
            shared_ffn_size=expert_ffn_size * count(config, "n_shared_experts", 0, least=0),
            num_dense_layers=count(config, "first_k_dense_replace", 0, least=0),
            norm_topk_prob=flag(config, "norm_topk_prob"),
            routed_scaling_factor=number(config, "routed_scaling_factor", 1.0),
            num_groups=num_groups,
            groups_per_token=groups_per_token,
            best_of_group=best_of_group if best_of_group is not None and num_groups > 1 else 1,
            scoring=keys.scoring,
            has_choice_bias=method == BIASED_METHOD,
        )


def _check_values(config: Config, supported: dict[str, tuple]) -> None:
    for key, values in supported.items():
        value = config.get(key)
        if value is not None and value not in values:
            raise InputError(f"{key} {shown(value)} is not supported; known: {', '.join(map(str, values))}")
