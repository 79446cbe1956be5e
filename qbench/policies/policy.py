"""`CachePolicy`: which tokens a KV cache keeps. `LayerState`: the facts that it may use.

A policy decides and never touches bytes. `runtime.caches.PolicyCache` collects attention weights for it, asks it
after each forward pass of a layer, and removes the tokens that it does not keep.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Self

import torch
from torch import Tensor

from qbench.policies.budget import Budget
from qbench.words.registry import Named
from quant.errors import InputError

if TYPE_CHECKING:
    from qbench.policies.infllm import InfLLM
    from qbench.policies.oracle import Recorder
    from qbench.policies.retrieval import RetrievalPolicy


@dataclass(frozen=True, slots=True)
class Observe:
    """The attention weights of a forward pass that a policy wants to see.

    queries      the last so many queries count; None: all of them
    accumulates  whether scores are sums over all forward passes; False: only the last forward pass counts
    each         whether the weights of each query are wanted; False: their sum
    """

    queries: int | None = None
    accumulates: bool = False
    each: bool = False


@dataclass(frozen=True, slots=True)
class TokenKinds:
    """Token ids that a policy may treat in a special way, [n] int64 each; empty if the model has no tokenizer.

    special      control tokens, such as the beginning of a text or of a turn
    punctuation  tokens that are punctuation marks only
    """

    special: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    punctuation: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))


@dataclass(frozen=True, slots=True)
class Span:
    """The tokens that a query sees by their positions: the last ones, and perhaps the first ones.

    window  number of the last tokens, the query's own included; None: in each layer as the model says
    sinks   number of the first tokens, which have their positions in the cache
    """

    window: int | None
    sinks: int = 0

    @property
    def num_tokens(self) -> int:
        """Tokens that every layer keeps, if `window` is a number"""
        assert self.window is not None
        return self.sinks + self.window


class LayerReader(ABC):
    """Contents of one layer's storage, decoded when a policy asks for them."""

    @abstractmethod
    def keys(self) -> Tensor:
        """[B, G, S, D] float32, rotated, as attention reads them

        If the cache keeps latents, [B, H, S, D]: the keys that each head makes of the shared rows, because its queries
        meet these. The norm or the mean of the rows would mix channels that each head weighs in another way. The
        rotated part of a key comes first.
        """

    @abstractmethod
    def values(self) -> Tensor:
        """[B, G, S, D] float32, as attention reads them; if it keeps latents, [B, H, S, D]"""

    @abstractmethod
    def rotation(self, start: int, end: int) -> tuple[Tensor, Tensor] | None:
        """cos and sin [end - start, R] of this layer's rotation; None if the model does not rotate keys"""


@dataclass(slots=True)
class LayerState:
    """One layer of a sequence after a forward pass, or B layers that are handled together.

    S slots hold one token each; slots need not be in text order. If the cache keeps latents, all heads are one group:
    G is 1, and attention weights are summed over all heads.

    If heads have lengths of their own, some slots of the shorter ones are empty.

    num_new        tokens that the forward pass brought to each sequence
    num_seen       tokens of each sequence so far, evicted ones included
    num_prompt     tokens seen at the end of the last forward pass of more than one token
    positions      [B, G, S] int64: place of each token in the text, from 0; -1 in empty slots
    score          [B, G, S] float32: last result of `CachePolicy.update`, 0 for new tokens
    tokens         [B, num_seen] int64: token ids of the text
    reader         decodes keys and values
    softmax_scale  factor of the attention scores
    queries        [B, H, T, D] float32: queries of the forward pass before their rotation, the part to rotate first;
                   None if not asked for
    token_kinds    ids of special tokens and punctuation, if the policy reads them
    notes          [B, G] int64: a number for each head that `CachePolicy.update` may change, 0 at first
    sequence       number of the sequence in the batch; several rows are layers of this one sequence
    """

    layer: int
    num_layers: int
    num_new: int
    num_seen: int
    num_prompt: int
    positions: Tensor
    score: Tensor
    tokens: Tensor
    reader: LayerReader
    softmax_scale: float
    queries: Tensor | None = None
    token_kinds: TokenKinds = field(default_factory=TokenKinds)
    notes: Tensor | None = None
    sequence: int = 0

    @property
    def num_held(self) -> int:
        return self.positions.shape[2]

    @property
    def is_prefill(self) -> bool:
        """Whether the forward pass brought more than one token."""
        return self.num_new > 1

    @property
    def is_held(self) -> Tensor:
        """[B, G, S] bool: whether a slot holds a token"""
        return self.positions >= 0

    def is_one_of(self, ids: Tensor) -> Tensor:
        """[B, G, S] bool: whether a slot holds a token with one of these ids"""
        tokens = self.tokens.gather(1, self.positions.clamp(min=0).flatten(1)).view(self.positions.shape)
        return torch.isin(tokens, ids) & self.is_held

    def last(self, count: int) -> Tensor:
        """[B, G, S] bool: whether a token is one of the last `count` of the text"""
        return self.positions >= self.num_seen - count


class CachePolicy(Named, ABC):
    """Chooses the tokens that each layer keeps. Subclasses are frozen dataclasses of their options.

    position_only      whether visible tokens follow from positions alone, so that one forward pass can show them all
    in_decode          whether decode steps evict, so that no layer grows beyond `slots` by more than one token
    reads_queries      whether `keep` looks at `LayerState.queries`
    reads_token_kinds  whether it looks at `LayerState.token_kinds`
    same_in_layers     whether a decode step evicts by the same rule in all layers, so that they are handled together
    needs_future       whether it must see the text once before, so that it is refused where tokens are generated
    per_head           whether heads of one layer may keep different tokens
    per_head_lengths   whether they may keep different numbers of tokens
    may_spill          whether tokens that queries do not read may be on a disk
    why_no_spill       why they may not, if there is more to say than that the policy keeps few tokens
    """

    position_only: ClassVar[bool] = False
    in_decode: ClassVar[bool] = False
    reads_queries: ClassVar[bool] = False
    reads_token_kinds: ClassVar[bool] = False
    needs_future: ClassVar[bool] = False
    same_in_layers: ClassVar[bool] = True
    per_head: ClassVar[bool] = True
    per_head_lengths: ClassVar[bool] = False
    may_spill: ClassVar[bool] = False
    why_no_spill: ClassVar[str] = ""

    @property
    def span(self) -> Span | None:
        """The tokens that a query sees, if these follow from positions and are not the whole text"""
        return None

    @property
    def is_full(self) -> bool:
        """Whether a query sees the whole text"""
        return self.position_only and self.span is None

    @property
    def has_sinks(self) -> bool:
        return self.span is not None and self.span.sinks > 0

    @property
    def retrieval(self) -> "RetrievalPolicy | None":
        """The policy itself if it keeps every token and lets each query choose the pages that it reads"""
        return None

    @property
    def distant(self) -> "InfLLM | None":
        """The policy itself if queries also meet distant keys at another position than that of the text"""
        return None

    def informed(self, recorder: "Recorder") -> "CachePolicy":
        """The policy for the text that the recorder has seen; only of a policy that needs the future."""
        raise NotImplementedError(f"policy {self.name} does not need the future")

    @property
    def observes(self) -> Observe | None:
        """The attention weights that `keep` needs, or None"""
        return None

    @property
    def observes_decode(self) -> bool:
        """Whether it needs the weights of decode steps as well"""
        return self.observes is not None

    @property
    def acts_in_decode(self) -> bool:
        """Whether a decode step without weights may change scores or evict"""
        return True

    def most_read(self) -> Budget | None:
        """Tokens that a query reads at most; None: all that there are"""
        return None

    def for_model(self, num_layers: int, bytes_per_token: float) -> Self:
        """The policy for a model with so many layers and so many bytes of keys and values per token over all layers.

        raises   InputError for options that the model cannot have
        """
        return self

    def update(self, state: LayerState, weights: Tensor) -> Tensor:
        """The score of each token after a forward pass, [B, G, S] float32.

        weights  [B, G, S] float32: attention weights of the observed queries, summed over them and over the heads of a
                 group
        """
        accumulates = self.observes is not None and self.observes.accumulates
        return weights + state.score if accumulates else weights

    def update_each(self, state: LayerState, weights: Iterator[Tensor]) -> Tensor:
        """`update` of a policy whose `Observe.each` is set.

        weights  [B, G, t, S] float32 for t of the observed queries after the other: their attention weights, averaged
                 over the heads of a group
        """
        raise NotImplementedError(f"policy {self.name} asks for the weights of each query and does not read them")

    @abstractmethod
    def slots(self, context: int, layer: int, num_layers: int) -> int:
        """Number of tokens that the layer holds after a prompt of `context` tokens; memory planning asks this."""

    def slots_after(self, num_prompt: int, steps: int, layer: int, num_layers: int) -> tuple[int, int]:
        """Slots of a layer after a prompt in one forward pass and then `steps` decode steps of one token.

        If heads have lengths of their own, the mean over them, or an upper bound of it.

        returns  slots in use after the last eviction that moved tokens, and slots taken since; a slot whose token was
                 evicted and that waits for the next token is in use
        """
        kept = self.slots(num_prompt, layer, num_layers)
        if not self.in_decode:
            return kept, steps
        most = self.slots(num_prompt + steps, layer, num_layers)
        return kept, max(0, min(kept + steps, most + 1) - kept) if steps else 0

    @abstractmethod
    def keep(self, state: LayerState) -> Tensor | None:
        """[B, G, n] int64: slots to keep, ascending; None: all

        If heads may have lengths of their own, n is that of the longest head, and shorter ones end in -1.
        """

    def evict_one(self, state: LayerState) -> Tensor | None:
        """[B, G] int64: the only slot to evict in a decode step; None: `keep` decides

        The next token takes the slot, so that nothing moves.
        """
        return None


def lowest_slot(score: Tensor) -> Tensor:
    """Slot with the lowest score, [B, G] int64. If scores are equal, the highest slot."""
    return score.shape[2] - 1 - score.flip(2).argmin(2)


def top_slots(score: Tensor, count: int) -> Tensor:
    """Slots with the highest scores, ascending. If scores are equal, lower slots come first.

    score    [B, G, S] float
    returns  [B, G, count] int64
    """
    return score.argsort(dim=2, descending=True, stable=True)[..., :count].sort(2).values


def padded_slots(stays: Tensor) -> Tensor:
    """Slots that stay, ascending, [B, G, n] int64: n is the longest head's number of them, shorter ones end in -1.

    stays    [B, G, S] bool
    """
    num_slots = stays.shape[2]
    slots = torch.arange(num_slots).expand(stays.shape).masked_fill(~stays, num_slots).sort(2).values
    slots = slots[..., : int(stays.sum(2).max())]
    return slots.masked_fill(slots == num_slots, -1)


def check_at_least(name: str, given: float, least: float) -> None:
    """raises InputError if an option of a policy is too small"""
    if given < least:
        raise InputError(f"{name} is {given:g}, expected at least {least:g}")
