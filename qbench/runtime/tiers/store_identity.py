"""`StoreIdentity`: facts that blocks share, so that one process may read the blocks of another."""

import hashlib
import json
from dataclasses import asdict, dataclass

SPACE_BYTES = 16


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """model        fingerprint of config, tokenizer and weights
    kv_format    name, and the calibrated scales if it has any
    compute      precision of the matmuls, of which keys and values are results
    layout       name and version of the order of a page's bytes, the same for all instruction sets
    page_size    tokens of a block
    block_bytes  of all layers
    """

    model: str
    kv_format: str
    compute: str
    layout: str
    page_size: int
    block_bytes: int

    @property
    def space(self) -> bytes:
        """A digest: equal ones are equal identities."""
        return hashlib.blake2b(self.to_text().encode(), digest_size=SPACE_BYTES).digest()

    def to_text(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, indent=1)

    def differences(self, text: str) -> list[str]:
        """Names of the fields in which a result of `to_text` differs; ["version"] if it cannot be read."""
        try:
            other = json.loads(text)
            return [name for name, value in asdict(self).items() if other[name] != value] or ["version"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return ["version"]
