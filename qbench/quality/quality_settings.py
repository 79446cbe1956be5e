"""`QualitySettings`: the text that a quality measurement scores, and its reference."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class QualitySettings:
    """The text, the protocols, and the reference.

    text         a UTF-8 file; None: the held-out text of a ref: model, or of a ref: reference
    max_windows  number of windows, spread over the text; documents for protocols that score those; None: all
    protocols    names as `conventions.make_scorings` knows them; if empty, those of the file of logits, else gptq-2048
    documents    how the text is divided, one of documents.HOW; None: as it looks
    reference    the unquantized model, run next to the measured one
    logits       a file of the reference's logits, instead of the reference
    """

    text: str | Path | None = None
    max_windows: int | None = None
    protocols: tuple[str, ...] = ()
    documents: str | None = None
    reference: str | None = None
    logits: Path | None = None
