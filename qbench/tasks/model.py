"""TaskModel: this project's runtime as a language model of lm-eval, so that any of its tasks runs on any artifact."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from qbench.progress import Progress
from qbench.runtime import Sampling, Tokenizer
from qbench.runtime.decoder_model import DecoderModel
from qbench.tasks.generation import Prompt, count_occurrences, generate_batch, plan_batches
from qbench.tasks.questions import cut_prompt, token_cuts
from qbench.tasks.scoring import Request, group_requests, run_forward
from quant.errors import InputError
from quant.present import present
from quant.source import Source

MAX_NEW_TOKENS = 256  # where a task does not say: lm-eval's own default
GENERATION_KEYS = {"until", "max_gen_toks", "do_sample", "temperature", "top_p", "top_k"}
# Values that change nothing, which many tasks spell out.
NEUTRAL = {"num_beams": 1, "num_return_sequences": 1, "repetition_penalty": 1.0, "use_cache": True}


class TaskModel(TemplateLM):
    """Text in, log-likelihoods and text out; tokens are cut as lm-eval's `hf` model cuts them.

    question    one of settings.QUESTIONS; None: prompts pass as the cache takes them
    truncated   requests whose context lost its beginning, because the model's holds less
    raises      InputError for a source without tokenizer, or one that knows neither BOS nor EOS
    """

    def __init__(
        self, model: DecoderModel, source: Source, progress: Progress | None = None, question: str | None = None
    ) -> None:
        super().__init__()
        if source.tokenizer is None:
            raise InputError(f"{source.spec} has no tokenizer, so no task can be run; choose a model with one")
        if source.tokenizer.bos_token_id is None and source.tokenizer.eos_token_id is None:
            raise InputError(f"{source.spec}: its tokenizer has neither BOS nor EOS, which empty contexts need")
        self.model = model
        self.text = Tokenizer(source.tokenizer)
        self.max_length = model.config.max_positions
        self.progress = progress
        self.truncated = 0
        self.question = question
        self._ends: dict[str, tuple[int, ...]] = {}  # prompt -> characters after which a forward pass ends

    @property
    def eot_token_id(self) -> int | None:  # pyright: ignore[reportIncompatibleMethodOverride]  # so does lm-eval's hf
        return self.text.info.eos_token_id

    @property
    def prefix_token_id(self) -> int:
        """The token before a text without context"""
        bos = self.text.info.bos_token_id
        return present(self.text.info.eos_token_id) if bos is None else bos

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **options: Any) -> list[int]:
        """add_special_tokens   False: no such tokens; else the tokenizer's own convention"""
        return self.text.encode(string, add_bos=False if add_special_tokens is False else None)

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = True) -> list[tuple[float, bool]]:
        return super().loglikelihood(self._cut(requests), disable_tqdm=True)

    def _cut(self, requests: list[Instance]) -> list[Instance]:
        """The requests with the prompts that the question asks for, whose cuts are noted. raises InputError"""
        if self.question is None:
            return requests
        found = []
        for request in requests:
            cut = cut_prompt(request.args[0], request.doc, self.question, str(request.task_name))
            self._ends[cut.text] = cut.ends
            found.append(replace(request, arguments=(cut.text, *request.args[1:])))
        return found

    def _cuts(self, prompt: str, tokens: Sequence[int]) -> tuple[int, ...]:
        ends = self._ends.get(prompt, ())
        return token_cuts(tokens, [self.tok_encode(prompt[:end]) for end in ends])

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **options: Any
    ) -> list[tuple[float, bool]]:
        """requests   (key in caches, or None; context; continuation)"""
        asked = [
            self._fitted(context, continuation, self._cuts(name[0], context) if name else ())
            for name, context, continuation in requests
        ]
        names: dict[Request, list[Any]] = {request: [] for request in asked}
        for request, (name, _, _) in zip(asked, requests, strict=True):
            names[request].append(name)
        answers: dict[Request, tuple[float, bool]] = {}
        forwards = group_requests(asked, self.model.config.vocab_size, share=self._can_go_back())
        for work in forwards:
            for request, answer in run_forward(self.model, work):
                answers[request] = answer.loglikelihood, answer.greedy
                for name in filter(None, names[request]):
                    self.cache_hook.add_partial("loglikelihood", name, answers[request])
            self._tell(len(answers), len(names), "continuations")
        return [answers[request] for request in asked]

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = True) -> list[float]:
        """Each text whole, in windows of the model's context that overlap in one token."""
        windows: list[tuple[None, list[int], list[int]]] = []
        ends: list[int] = []
        for (string,) in (request.args for request in requests):
            cut = get_rolling_token_windows(self.tok_encode(string), self.prefix_token_id, self.max_length, 1)
            windows += [(None, *make_disjoint_window(window)) for window in cut]
            ends.append(len(windows))
        scores = [loglikelihood for loglikelihood, _ in self._loglikelihood_tokens(windows)]
        totals = [sum(scores[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
        for request, total in zip(requests, totals, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return totals

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = True) -> list[str]:
        requests = self._cut(requests)
        keys = [json.dumps(request.args, sort_keys=True) for request in requests]
        repeats = count_occurrences(keys)
        prompts = [self._prompt(*request.args, seed=seed) for request, seed in zip(requests, repeats, strict=True)]
        eot = self.eot_token_id
        stop_ids = frozenset(self.model.config.eos_token_ids) | ({eot} if eot is not None else set())
        answers: dict[int, str] = {}
        for batch in plan_batches(prompts):
            texts = generate_batch(self.model, self.text, [prompts[index] for index in batch], stop_ids)
            for index, text in zip(batch, texts, strict=True):
                answers[index] = text
                self.cache_hook.add_partial("generate_until", requests[index].args, text)
            self._tell(len(answers), len(prompts), "answers")
        return [answers[index] for index in range(len(prompts))]

    def _fitted(self, context: list[int], continuation: list[int], cuts: tuple[int, ...] = ()) -> Request:
        """The request with as much context as fits: the last token of the continuation is never fed.

        raises   InputError for a continuation that does not fit by itself
        """
        if not continuation:
            raise InputError("a task asks for the log-likelihood of an empty continuation; mend its doc_to_target")
        if len(continuation) > self.max_length:
            raise InputError(
                f"a task's continuation has {len(continuation)} tokens, but the model's context holds "
                f"{self.max_length}; choose a model of longer context"
            )
        max_context = self.max_length + 1 - len(continuation)
        self.truncated += len(context) > max_context
        return Request(tuple(context[-max_context:]), tuple(continuation), _shifted(cuts, len(context) - max_context))

    def _prompt(self, context: str, gen_kwargs: dict[str, Any], *, seed: int) -> Prompt:
        options: dict[str, Any] = dict(normalize_gen_kwargs(gen_kwargs, MAX_NEW_TOKENS))
        neutral = {key for key, value in NEUTRAL.items() if options.get(key) == value}
        unknown = options.keys() - GENERATION_KEYS - neutral
        if unknown:
            known = ", ".join(sorted(GENERATION_KEYS))
            raise InputError(f"a task asks to generate with {', '.join(sorted(unknown))}; supported are {known}")
        new_tokens = options["max_gen_toks"]
        if not 1 <= new_tokens < self.max_length:
            raise InputError(
                f"a task asks for max_gen_toks {new_tokens}, but the model's context holds {self.max_length}; "
                "choose a model of longer context"
            )
        max_context = self.max_length - new_tokens
        tokens = self.tok_encode(context)
        self.truncated += len(tokens) > max_context
        temperature = float(options.get("temperature") or 0.0) if options["do_sample"] else 0.0
        sampling = Sampling(temperature, options.get("top_p") or 1.0, options.get("top_k") or 0, seed=seed)
        cuts = _shifted(self._cuts(context, tokens), len(tokens) - max_context)
        return Prompt(tuple(tokens[-max_context:]), tuple(options["until"]), new_tokens, sampling, cuts)

    def _can_go_back(self) -> bool:
        """Whether a cut cache keeps its earlier values: not if tokens are encoded in groups across the cut."""
        kv = self.model.kv
        return kv is None or max(kv.format.keys.token_group, kv.format.values.token_group) == 1

    def _tell(self, done: int, total: int, what: str) -> None:
        if self.progress is not None:
            self.progress(done, total, what)


def _shifted(cuts: tuple[int, ...], dropped: int) -> tuple[int, ...]:
    """Cuts of a prompt that lost so many tokens at its beginning, if the number is above 0."""
    return tuple(cut - max(0, dropped) for cut in cuts if cut > max(0, dropped))
