"""Perplexity protocols: how a text becomes scored tokens, named and hashed so that unlike numbers never meet."""

import hashlib
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from qbench.measure.quality_figures import ProtocolFacts
from qbench.measure.records.migrate import protocol_identity
from qbench.measure.records.record import json_hash
from qbench.run.choices import FAST


@dataclass(frozen=True, slots=True)
class Protocol:
    """Everything that changes a perplexity besides the model. A field that is None says nothing and is not hashed."""

    name: str
    window: int  # tokens a forward pass sees
    stride: int  # tokens from one window's start to the next one's
    scored: str  # "all" but a window's first, its "second-half", its "new" tokens, or every token of a "document"
    bos: str  # where the tokenizer's goes: "text-start", "window-start" (over its first token) or "document-start"
    dtype: str  # of the logits; their softmax is summed in float64
    num_windows: int  # windows scored, spread evenly over the text
    text_windows: int  # windows the text has; a last shorter one is dropped where "all" or "second-half" is scored
    data_sha256: str  # of the text
    tokens_sha256: str  # of the token ids: tokenizer and BOS as they come out
    unit: str | None = None  # unit of perplexity: "word", "byte"; None: token
    documents: str | None = None  # how the text is divided, one of documents.HOW; None: one stream
    num_documents: int | None = None  # scored, spread evenly over the text
    compute: str | None = None  # one of qbench.run.choices.PRECISIONS; None: fast

    def of(self, compute: str) -> "Protocol":
        """The same, under which a model of this compute is measured."""
        return replace(self, compute=None if compute == FAST else compute)

    @property
    def hash(self) -> str:
        """16 hex digits; rows join only if they are equal."""
        return json_hash(protocol_identity(self._described()))

    def describe(self) -> ProtocolFacts:
        """Fields that a record keeps: every field with a value, and the hash."""
        return ProtocolFacts.from_json({**self._described(), "hash": self.hash})

    def _described(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


def tokens_sha256(tokens: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(tokens, dtype="<i8").data).hexdigest()
