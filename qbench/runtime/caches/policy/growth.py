"""Slots that a layer of a `PolicyCache` holds: as few as it needs, and a little room if it grows in decode."""

from collections.abc import Sequence

from qbench.policies import CachePolicy
from qbench.policies.positions import Window
from qbench.runtime.caches.storage.kv_storage import BLOCK_TOKENS
from quant.models import ModelConfig

# A layer that grows by one token per decode step gets room for this part of its tokens at once, in whole blocks. More
# room would exceed a budget by more than 2 %. Less would copy the layer more often: each step now copies GROWTH tokens
# of a long layer in the mean, which is little next to the thousands that it attends to.
GROWTH = 64


def in_blocks(num_slots: int, block: int) -> int:
    """The next multiple of a block."""
    return -(-num_slots // block) * block


def with_room(num_slots: int) -> int:
    """Slots to reserve when a layer that grows in decode needs so many."""
    return max(in_blocks(num_slots, BLOCK_TOKENS), (num_slots + num_slots // GROWTH) // BLOCK_TOKENS * BLOCK_TOKENS)


def sizes_after(
    policies: Sequence[CachePolicy], num_prompt: int, steps: int, num_heads: int, block: int = BLOCK_TOKENS
) -> list[float]:
    """Slots that each layer holds after a prompt in one forward pass and then `steps` decode steps.

    If heads have lengths of their own, an upper bound of the mean over the heads.

    policies   one per layer
    num_heads  KV heads
    block      slots of a storage are a multiple of it
    """
    found = []
    for layer, policy in enumerate(policies):
        kept, added = policy.slots_after(num_prompt, steps, layer, len(policies))
        if policy.per_head_lengths:  # each head fills its last block in part
            most = num_heads * (kept + added + block - 1) // block * block / num_heads
            found.append(min(most, in_blocks(num_prompt + steps, block)))
        else:
            found.append(_size(policy, kept, added, block))
    return found


def _size(policy: CachePolicy, kept: int, added: int, block: int) -> int:
    if policy.in_decode:
        return in_blocks(kept + added, block)
    size = in_blocks(kept, block)
    while size < kept + added:
        size = in_blocks(with_room(size + 1), block)
    return size


def policies_of_layers(config: ModelConfig, policy: CachePolicy) -> list[CachePolicy]:
    """A layer with a window of its own keeps that window, the others follow the policy."""
    rules = [config.attention_rule(layer) for layer in range(config.num_layers)]
    return [Window(rule.window) if rule.window else policy for rule in rules]
