"""The reference's logits of one scoring in a file, so that many models are compared with one run of it.

magic      8 bytes
length     uint32, of the header
header     JSON: mode, k, vocab_size, num_rows, protocol, model, fingerprint; blanks up to a multiple of 64 bytes
rows       one a scored token, in the order of the scoring: [V] float32 logits ("exact") or a `top_k.row_type`
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qbench.measure.quality_figures import KLDReference
from qbench.progress import Progress
from qbench.quality.kld.kld import Divergence, divergence
from qbench.quality.kld.top_k import entries, keep, row_type, top_k_divergence
from qbench.quality.protocols.forward import Model, Outputs, batches, scored_pieces
from qbench.quality.protocols.perplexity import token_nll
from qbench.quality.protocols.protocol import Protocol
from qbench.quality.protocols.scoring import Scoring
from qbench.run.work import QualityWork
from qbench.statistics.paired import require_same_protocol
from quant.atomic import atomic_file
from quant.errors import InputError
from quant.present import present
from quant.regular_file import open_regular

CACHE_LIMIT_BYTES = 2 << 30  # beyond this the whole logits are not kept unless asked for
MAGIC = b"qbLOGIT1"
ALIGNMENT = 64


class KeptLogits:
    """A file of reference logits, mapped and not read: a comparison touches the rows that it needs.

    raises   InputError for a file of another kind, or a torn one
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header, offset = _read_header(path)
        self.vocab_size = self.header["vocab_size"]
        dtype = _row_type(self.header["mode"], self.vocab_size, self.header["k"])
        self.num_bytes = path.stat().st_size
        if self.num_bytes != offset + self.header["num_rows"] * dtype.itemsize:
            raise InputError(f"{path}: torn: {self.num_bytes} bytes are not what its header tells; save it again")
        self.rows = np.memmap(path, dtype, "r", offset, self.header["num_rows"])

    @property
    def limit(self) -> int:
        """How many windows, or documents, of the text it holds."""
        return self.header["protocol"].get("num_documents") or self.header["protocol"]["num_windows"]

    def completed(self, settings: QualityWork) -> QualityWork:
        """The settings that the file was made under, if no protocol is named."""
        if settings.protocols:
            return settings
        protocol = self.header["protocol"]
        return replace(
            settings,
            protocols=(protocol["name"],),
            max_windows=settings.max_windows or self.limit,
            documents=settings.documents or protocol.get("documents"),
        )

    def require(self, scorings: Sequence[Scoring]) -> None:
        """raises InputError that names the difference if the file was made from another scoring"""
        if len(scorings) > 1:
            raise InputError(f"{self.path} holds one protocol, {self.header['protocol']['name']}; ask for it alone")
        try:
            require_same_protocol(self.header["protocol"], scorings[0].protocol.describe().to_json())
        except InputError as error:
            raise InputError(f"{self.path} was made from something else: {error}") from None

    def describe(self) -> KLDReference:
        return KLDReference(mode=self.header["mode"], k=self.header["k"], bytes=self.num_bytes)

    def compare(self, logits: Tensor, start: int, targets: Tensor) -> Divergence:
        """logits [N, V] of the model for the scored tokens from number `start` of the scoring on"""
        rows = np.array(self.rows[start : start + len(logits)])
        if self.header["mode"] == "exact":
            return divergence(logits, torch.from_numpy(rows["logits"]), targets)
        return top_k_divergence(logits, rows, targets)


@torch.inference_mode()
def save_logits(
    path: Path,
    model: Model,
    scoring: Scoring,
    vocab_size: int,
    *,
    mode: str,
    named: Mapping[str, Any],
    progress: Progress | None = None,
) -> np.ndarray:
    """Run the reference over the scoring and keep its logits; the file appears whole or not at all.

    mode      "exact" or "top-k"
    named     {model, fingerprint} for whoever opens the file
    returns   [N] float64 negative log-likelihood of each scored token, nats
    """
    k = entries(vocab_size) if mode == "top-k" else None
    num_rows, dtype = int(scoring.starts[-1]), _row_type(mode, vocab_size, k)
    header = {"mode": mode, "k": k, "vocab_size": vocab_size, "num_rows": num_rows}
    head = _header_bytes({**header, "protocol": scoring.protocol.describe().to_json(), **named})
    nll, done = np.empty(num_rows), 0
    with atomic_file(path) as temporary:
        with open(temporary, "wb") as file:
            file.write(head)
            file.truncate(len(head) + num_rows * dtype.itemsize)
        rows = np.memmap(temporary, dtype, "r+", len(head), num_rows)
        for batch in batches([scoring], vocab_size):
            outputs = Outputs.of(model, batch.tokens)
            draws = {w: torch.Generator().manual_seed(int(scoring.starts[w])) for uses in batch.uses for _, w in uses}
            for piece, parts in scored_pieces(batch, [scoring], vocab_size):
                logits = outputs.logits(piece)
                for part in parts:
                    scored, start = logits[part.rows], int(scoring.starts[part.window])
                    targets = torch.from_numpy(scoring.windows[part.window].targets[part.targets])
                    into = slice(start + part.targets.start, start + part.targets.stop)
                    nll[into] = token_nll(scored, targets)
                    if mode == "exact":
                        rows["logits"][into] = scored.numpy()
                    else:
                        rows[into] = keep(scored, targets, present(k), draws[part.window])
            done += sum(map(len, batch.uses))
            if progress:
                progress(done, len(scoring.windows), "reference")
        rows.flush()
    return nll


def default_mode(scoring: Scoring, vocab_size: int) -> str:
    """Whole logits as long as they fit, since they change no digit."""
    return "exact" if kept_bytes(scoring, vocab_size, "exact") <= CACHE_LIMIT_BYTES else "top-k"


def mode_that_fits(scoring: Scoring, vocab_size: int, room: int) -> str | None:
    """The default mode if its rows fit into `room` bytes, otherwise top-k, otherwise None."""
    modes = (default_mode(scoring, vocab_size), "top-k")
    return next((mode for mode in modes if kept_bytes(scoring, vocab_size, mode) <= room), None)


def kept_bytes(scoring: Scoring, vocab_size: int, mode: str) -> int:
    """Bytes of the rows, without the header."""
    return int(scoring.starts[-1]) * _row_type(mode, vocab_size, entries(vocab_size)).itemsize


def cache_path(folder: Path, protocol: Protocol, fingerprint: str) -> Path:
    """Where a sweep keeps the logits of one model under one protocol."""
    return folder / f"reference-{fingerprint[:16]}-{protocol.hash}.logits"


def _row_type(mode: str, vocab_size: int, k: int | None) -> np.dtype:
    return np.dtype([("logits", "<f4", (vocab_size,))]) if mode == "exact" else row_type(vocab_size, present(k))


def _header_bytes(header: dict[str, Any]) -> bytes:
    text = json.dumps(header).encode()
    text += b" " * (-(len(MAGIC) + 4 + len(text)) % ALIGNMENT)
    return MAGIC + len(text).to_bytes(4, "little") + text


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """The header, and where the rows begin."""
    try:
        with open_regular(path) as file:
            magic, length = file.read(len(MAGIC)), int.from_bytes(file.read(4), "little")
            text = file.read(length) if magic == MAGIC else b""
    except OSError as error:
        raise InputError(f"{path}: cannot read reference logits: {error.strerror}") from error
    if magic != MAGIC:
        raise InputError(f"{path}: no file of reference logits; `qbench eval MODEL --save-logits FILE` writes one")
    if len(text) != length:
        raise InputError(f"{path}: torn in its header; save it again")
    return json.loads(text), len(MAGIC) + 4 + length
