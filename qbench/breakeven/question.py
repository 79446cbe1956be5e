"""`Question`: one choice that pays from some size on, and how it is measured. The registry of all questions."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from qbench.breakeven.verdict import Answer
from qbench.calibration.open_subject import open_subject
from qbench.progress import Progress
from qbench.run.options import RunOptions
from qbench.sources.open import FirstLayers
from qbench.words.written import nearest
from quant.errors import InputError
from quant.source import Source


@dataclass(frozen=True, slots=True)
class Settings:
    """A question as a user puts it.

    sizes         of the question's axis; empty: the question's own
    alternatives  names that the question knows; empty: all of its own
    options       of the model, with the default of the choice in question
    rounds        turns of each side
    clock         "wall" or "cpu", as in measure.host.clocks
    mass          attention mass that a prefill pattern must reach
    num_layers    measure the first so many layers; None: all
    """

    options: RunOptions
    sizes: tuple[int, ...] = ()
    alternatives: tuple[str, ...] = ()
    rounds: int = 8
    clock: str = "wall"
    mass: float = 0.95
    num_layers: int | None = None

    def with_options(self, **changes: Any) -> Self:
        """The same with other fields of `options`."""
        return replace(self, options=replace(self.options, **changes))

    def sizes_within(self, usual: Sequence[int], limit: int) -> tuple[int, ...]:
        """The sizes asked for, ascending; else the usual ones as far as `limit` allows, and the limit.

        raises   InputError for a size above the limit
        """
        for size in self.sizes:
            if size > limit:
                raise InputError(f"{size} tokens, but the model's context holds {limit} here; ask for fewer")
        return tuple(sorted(set(self.sizes or (min(size, limit) for size in usual))))


class Question(ABC):
    """One choice.

    name   as users write it
    asks   the question in words
    axis   the size that decides, with its unit
    """

    name: ClassVar[str]
    asks: ClassVar[str]
    axis: ClassVar[str]

    @abstractmethod
    def answers(self, spec: str, settings: Settings, progress: Progress | None = None) -> Iterator[Answer]:
        """One answer per alternative. raises InputError for a choice that the model cannot have, before it measures"""


_QUESTIONS: dict[str, Question] = {}


def question(name: str) -> Callable[[type[Question]], type[Question]]:
    """Register a question under the name that users write."""

    def add(kind: type[Question]) -> type[Question]:
        kind.name = name
        _QUESTIONS[name] = kind()
        return kind

    return add


def questions() -> list[Question]:
    return list(_QUESTIONS.values())


def get_question(name: str) -> Question:
    """raises InputError for an unknown name"""
    if name not in _QUESTIONS:
        raise InputError(f"unknown question {name!r}; known: {', '.join(_QUESTIONS)}{nearest(name, _QUESTIONS)}")
    return _QUESTIONS[name]


def opened(spec: str, settings: Settings) -> tuple[Source, RunOptions]:
    """The model that a question measures, and the options to load it with. raises InputError as `open_subject`"""
    subject = open_subject(spec, settings.options)
    source = subject.source
    return source if settings.num_layers is None else FirstLayers(source, settings.num_layers), subject.options
