"""`load`: a model in memory that gives text and logits."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from qbench.api.run_arguments import with_run_arguments
from qbench.calibration.open_subject import open_subject
from qbench.progress import progress_bar
from qbench.run.options import RunOptions
from qbench.runtime import Sampling, StoppingStream, Tokenizer, generate, load_model
from quant.errors import InputError


class LoadedModel:
    """A model in memory. Made by `qbench.load`.

    spec       the model as it was named
    model      the decoder of the runtime
    tokenizer  None for a model without one, such as rand:SHAPE
    """

    def __init__(self, spec: str, options: RunOptions) -> None:
        with progress_bar(f"load {spec}") as update:
            subject = open_subject(spec, options, update)
            self.model = load_model(subject.source, subject.options)
        self.spec = spec
        self.options = subject.options
        info = subject.source.tokenizer
        self.tokenizer = None if info is None else Tokenizer(info)

    def __repr__(self) -> str:
        return f"LoadedModel({self.spec!r}, {self.options})"

    def tokens(self, text: str) -> list[int]:
        """The token ids of a text, with the BOS token if the model expects one.

        raises   InputError for a model without a tokenizer
        """
        return self._tokenizer().encode(text, add_bos=None if text else True)

    def logits(self, text: str | Sequence[int]) -> Tensor:
        """Logits of the next token at every position, in one forward pass.

        text     a string, or token ids
        returns  [T, V] float32
        raises   InputError for no tokens, or for more than the model's context holds
        """
        tokens = self.tokens(text) if isinstance(text, str) else list(text)
        limit = self.model.config.max_positions
        if not 1 <= len(tokens) <= limit:
            raise InputError(f"got {len(tokens)} tokens, expected 1 to {limit} (the context of {self.spec})")
        with torch.inference_mode():
            return self.model(torch.tensor([tokens]))[0]

    def generate(
        self,
        prompt: str = "",
        max_new_tokens: int | None = None,
        *,
        sampling: Sampling | None = None,
        stop: Sequence[str] = (),
        on_text: Callable[[str], None] | None = None,
    ) -> str:
        """The text that continues a prompt.

        max_new_tokens  None: 128, or as many as the context has room for
        sampling   None: greedy
        stop       texts to end before
        on_text    called with each piece of text as soon as it is certain
        raises     InputError if prompt and new tokens exceed the context
        """
        tokens, pieces = self.tokens(prompt), []
        stream = StoppingStream(self._tokenizer().stream(tokens), stop)

        def add(piece: str) -> bool:
            pieces.append(piece)
            if on_text is not None:
                on_text(piece)
            return stream.stopped

        with torch.inference_mode():
            generate(self.model, tokens, sampling or Sampling(), max_new_tokens, lambda one: add(stream.push(one)))
        add(stream.flush())
        return "".join(pieces)

    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise InputError(f"{self.spec} has no tokenizer; pass token ids to `logits`, or choose a model with one")
        return self.tokenizer


@with_run_arguments
def load(model: str, *, options: RunOptions) -> LoadedModel:
    """Load a model, quantized now if a recipe is given.

    model    a directory, a .gguf file, `ref:NAME`, `rand:SHAPE` or `hf:ORG/NAME`
    raises   InputError for an unknown name, or options that the model cannot have
    """
    return LoadedModel(str(model), options)
