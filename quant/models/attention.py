"""AttentionRule: how queries of one decoder layer weigh the keys before them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AttentionRule:
    """softmax(scale * q k^T) v, with the additions of some architectures.

    scale      factor of products of queries and keys
    window     keys that a query sees, its own included; 0: all before it
    softcap    scores s become softcap * tanh(s / softcap); 0: no cap
    has_alibi  scores fall with the distance of the key, by each head's own slope
    """

    scale: float
    window: int = 0
    softcap: float = 0.0
    has_alibi: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether scores are the scaled products as they are, of all keys or of a window of them."""
        return self.softcap == 0 and not self.has_alibi
