"""The work of a run: `QualityWork`, `TasksWork`, `SpeedWork` and `CalibrationWork`.

One class each, for the command line, suites, workers and records. They are plain JSON values and need no torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from qbench.real import is_real, real_file
from qbench.words.written import nearest, read_text_file
from quant.errors import InputError
from quant.json_data import JsonData, JsonRow

# Texts that no file holds, see `qbench.calibration.texts`.
GENERATED = "generated"
RANDOM = "random"
HUB = "hf:"


def is_path(text: str) -> bool:
    """Whether a spec of a text is a path."""
    return text not in (GENERATED, RANDOM) and not text.startswith(HUB) and not is_real(text)


def text_file(text: str | None) -> Path | None:
    """The file of a text; None for a text that no file holds.

    raises   InputError for a `real:` text that is missing or changed
    """
    if text is None or not (is_path(text) or is_real(text)):
        return None
    return real_file(text, "text") if is_real(text) else Path(text)


LONG_LINE = 80  # characters; shorter lines, as "The end.", are in many texts
MOST_SHARED = 0.01


def check_unseen(text: str, calibration: str) -> None:
    """Refuse a text to score that is in the calibration text: calibrated recipes would look too good.

    raises   InputError if its lines in the other text have more than MOST_SHARED of the characters of its long lines
    """
    scored, seen = text_file(text), text_file(calibration)
    if scored is None or seen is None or seen.suffix == ".npy":
        return
    known = set(_long_lines(seen))
    lines = _long_lines(scored)
    shared, total = sum(len(line) for line in lines if line in known), sum(map(len, lines))
    if shared > MOST_SHARED * total:
        raise InputError(
            f"{text}: {shared / total:.0%} of its long lines are in the calibration text {calibration}; "
            "score another text, or calibrate on another one"
        )


def _long_lines(path: Path) -> list[str]:
    return [line for line in read_text_file(path, "text").splitlines() if len(line) >= LONG_LINE]


@dataclass(frozen=True, slots=True)
class QualityWork(JsonRow):
    """A text that is scored, the protocols, and the reference.

    text         a UTF-8 file, or real:NAME; None: the held-out text of a ref: model, or of a ref: reference
    max_windows  number of windows, spread over the text; documents for protocols that score those; None: all
    protocols    names as `conventions.make_scorings` knows them; if empty, those of the file of logits, else gptq-2048
    documents    division of the text, one of documents.HOW; None: as it looks
    reference    the unquantized model, run next to the measured one
    logits       a file of the reference's logits, instead of the reference
    text_sha256  of the file at that path, which may be edited
    raises       InputError for values that cannot be
    """

    json_omits: ClassVar[tuple[str, ...]] = ("protocols", "documents", "reference", "logits", "text_sha256")
    in_suites: ClassVar[tuple[str, ...]] = ("text", "max_windows", "protocols")

    text: str | None = None
    max_windows: int | None = None
    protocols: tuple[str, ...] = ()
    documents: str | None = None
    reference: str | None = None
    logits: Path | None = None
    text_sha256: str | None = None

    def __post_init__(self) -> None:
        if self.max_windows is not None and self.max_windows < 1:
            raise InputError(f"max_windows is {self.max_windows}, expected at least 1")


# Whether a policy sees the question before it compresses the context, see `qbench.tasks.questions`.
QUESTIONS = VISIBLE, HIDDEN, SECOND = "visible", "hidden", "second"


def check_question(name: str) -> None:
    """raises InputError if the name is not one of QUESTIONS"""
    if name not in QUESTIONS:
        raise InputError(f"unknown question {name!r}; known: {', '.join(QUESTIONS)}{nearest(name, QUESTIONS)}")


@dataclass(frozen=True, slots=True)
class TasksWork(JsonRow):
    """Tasks of lm-eval.

    names        tasks, groups or tags that lm-eval or a folder of `include` knows; `*` is any text
    limit        the first items of each task; None: all
    num_fewshot  solved examples before each item; None: as the task says
    include      folders of task files besides lm-eval's own and suites/tasks
    metadata     lm-eval's, for example {"max_seq_lengths": [4096]} for RULER
    question     one of QUESTIONS; None: prompts pass as the cache takes them
    raises       InputError for values that cannot be
    """

    json_omits: ClassVar[tuple[str, ...]] = ("limit", "num_fewshot", "include", "metadata", "question")
    in_suites: ClassVar[tuple[str, ...]] = ("names", "limit", "num_fewshot", "include", "metadata", "question")

    names: tuple[str, ...] = ()
    limit: int | None = None
    num_fewshot: int | None = None
    include: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    question: str | None = None

    def __post_init__(self) -> None:
        for name in ("names", "include"):  # JSON knows lists alone
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not self.names or not all(isinstance(name, str) and name.strip() for name in self.names):
            raise InputError(f"tasks are {list(self.names)!r}, expected at least one name")
        if not isinstance(self.metadata, Mapping) or not all(isinstance(key, str) for key in self.metadata):
            raise InputError(f"metadata of tasks is {self.metadata!r}, expected names with values")
        if self.limit is not None and self.limit < 1:
            raise InputError(f"the limit of items a task is {self.limit}, expected at least 1")
        if self.question is not None:
            check_question(self.question)
        if self.num_fewshot is not None and self.num_fewshot < 0:
            raise InputError(f"num_fewshot is {self.num_fewshot}, expected 0 or more")


MOST_ROUNDS = 1000  # if neither precision nor budget ends it before
PP, TG = 512, 128  # tokens by default, as of llama-bench
WARM_UP_STEPS = 4  # of a breakdown
LEAST = {"pp": 0, "tg": 0, "depth": 0, "batch": 1, "repetitions": 1}


@dataclass(frozen=True, slots=True)
class SpeedSizes(JsonData):
    """The sizes of a speed, as rows of speeds have them."""

    batch: int
    pp: int
    tg: int
    depth: int


@dataclass(frozen=True, slots=True)
class SpeedWork(JsonRow):
    """A timed prompt and timed decoding.

    pp           tokens of a prompt
    tg           steps of one token each
    depth        tokens in the cache before either
    repetitions  rounds after the warm-up; the least number of them if a precision is asked for
    batch        sequences; of a case it is an axis, and its `speed` has 1
    precision    stop once every 95 % interval reaches no further than this share of its value to either side
    budget_s     or once this time has passed, with the repetitions done
    raises       InputError for values that cannot be
    """

    json_omits: ClassVar[tuple[str, ...]] = ("batch", "precision", "budget_s")
    in_suites: ClassVar[tuple[str, ...]] = ("pp", "tg", "depth", "repetitions", "batch", "precision", "budget_s")

    pp: int = PP
    tg: int = TG
    depth: int = 0
    repetitions: int = 5
    batch: int = 1
    precision: float | None = None
    budget_s: float | None = None

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise InputError(f"{name} is {getattr(self, name)}, expected {least} or more")
        if not self.pp and not self.tg:
            raise InputError("pp and tg are both 0: nothing to measure; give at least one")
        if self.precision is not None and not 0 < self.precision < 1:
            raise InputError(f"precision is {self.precision}, expected a share between 0 and 1, such as 0.02")
        if self.budget_s is not None and self.precision is None:
            raise InputError("a budget is for a precision that it cuts short; give a precision, or repetitions alone")
        if self.budget_s is not None and self.budget_s < 0:
            raise InputError(f"budget_s is {self.budget_s}, expected 0 or more seconds")

    @property
    def sizes(self) -> SpeedSizes:
        return SpeedSizes(self.batch, self.pp, self.tg, self.depth)

    @property
    def longest(self) -> int:
        """Tokens of a sequence that the cache must hold."""
        return self.depth + max(self.pp, self.tg)

    @property
    def ends(self) -> list[tuple[int, int]]:
        """(tokens of a sequence, the last of them that came one at a time) when a phase is done, the longest first"""
        ends = [(self.depth + tokens, steps) for tokens, steps in ((self.pp, 0), (self.tg, self.tg)) if tokens]
        return sorted(ends, reverse=True)

    def check_context(self, limit: int) -> None:
        """raises InputError if the work needs more tokens than a model's context holds."""
        if self.longest > limit:
            raise InputError(
                f"pp {self.pp}, tg {self.tg} at depth {self.depth} need {self.longest} tokens, "
                f"the model's context holds {limit}; ask for fewer"
            )


def breakdown_depth(depth: int) -> int:
    """Tokens in the cache before the first step that a breakdown counts: at least one, then its warm-up."""
    return max(1, depth) + WARM_UP_STEPS


def fitting_sizes(pp: int | None, tg: int | None, depth: int, limit: int) -> tuple[int, int]:
    """(pp, tg): those given; for None PP and TG, at most the room that `limit` tokens leave behind `depth`.

    At least one token is left of each, which `SpeedWork.check_context` refuses in a full context.
    """
    room = max(1, limit - depth)
    return (min(PP, room) if pp is None else pp), (min(TG, room) if tg is None else tg)


SAMPLES = 128
SEQ_LEN = 512  # as llama.cpp's imatrix tool; a GPTQ Hessian of 65k tokens has far more rows than a layer has features
LAYER_INPUTS = ("quantized", "steps", "original")
ARITHMETICS = ("fp32", "bf16")


@dataclass(frozen=True, slots=True)
class CalibrationWork(JsonRow):
    """A text that a model is calibrated on, and the run over it.

    text          spec of the text, see `qbench.calibration.texts`; None: one that fits the model
    samples       windows at most; a shorter text gives fewer
    seq_len       tokens per window; None: SEQ_LEN, or the model's context if that is shorter
    seed          which windows are taken, and which documents are generated
    on            "quantized": each layer sees the outputs of the quantized ones before it; "steps": each linear of a
                  layer does, too, which takes one pass instead of two if possible; or "original"
    min_expert_tokens   experts that get fewer are calibrated on extra tokens routed to them; None: no expert is
    arithmetic    of the model's run: "fp32", or "bf16" products; None: the fastest on this machine
    stats         file of statistics: read if it exists, written otherwise
    imatrix       importance matrix of llama.cpp to use instead of calibrating
    export_imatrix   where to write the importance matrix of this calibration, as llama.cpp reads it
    text_sha256   of the file at the path of the text, which may be edited
    raises        InputError for values that cannot be
    """

    json_keys: ClassVar[Mapping[str, str]] = {"seq_len": "length"}  # the word of manifests
    json_omits: ClassVar[tuple[str, ...]] = (
        "on",
        "min_expert_tokens",
        "arithmetic",
        "stats",
        "imatrix",
        "export_imatrix",
        "text_sha256",
    )
    in_suites: ClassVar[tuple[str, ...]] = ("text", "samples", "seq_len", "seed")

    text: str | None = None
    samples: int = SAMPLES
    seq_len: int | None = None
    seed: int = 0
    on: str = "quantized"
    min_expert_tokens: int | None = None
    arithmetic: str | None = None
    stats: Path | None = None
    imatrix: Path | None = None
    export_imatrix: Path | None = None
    text_sha256: str | None = None

    def __post_init__(self) -> None:
        for name, least in (("samples", 1), ("seq_len", 2), ("min_expert_tokens", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(f"calibration: {name} is {value}, expected {least} or more")
        if self.on not in LAYER_INPUTS:
            raise InputError(f"calibration: on is {self.on!r}, expected one of {', '.join(LAYER_INPUTS)}")
        if self.arithmetic not in (None, *ARITHMETICS):
            known = ", ".join(ARITHMETICS)
            raise InputError(f"calibration: arithmetic is {self.arithmetic!r}, expected one of {known}")

    @property
    def reads_statistics(self) -> bool:
        """Whether the file of statistics is there, from an earlier run."""
        return self.stats is not None and self.stats.exists()

    @property
    def keeps_statistics(self) -> bool:
        """Whether statistics that are collected outlive the run."""
        collected = self.imatrix is None and not self.reads_statistics
        return collected and (self.stats is not None or self.export_imatrix is not None)
