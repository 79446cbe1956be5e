"""A text as documents: the scored part of each, and its number of words and bytes."""

import json
import re
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from quant.errors import InputError

SEPARATOR = "<|endoftext|>"
HOW = ("whole", "endoftext", "jsonl", "wikitext")
ARTICLE = re.compile(r" = [^=]+ = ")  # " = Title = "; sections have two signs or more


@dataclass(frozen=True, slots=True)
class Document:
    text: str  # scored by the model
    num_words: int
    num_bytes: int


@dataclass(frozen=True)
class Passage:
    """A text to evaluate on, as one stream and as documents."""

    text: str  # as in the file
    stream: str  # cut into windows by protocols of windows
    parts: tuple[str, ...]  # its documents as written
    how: str  # it was divided: one of HOW

    @cached_property
    def documents(self) -> tuple[Document, ...]:
        """Made when a protocol that scores documents asks: counting the words of many takes a small model's time."""
        return tuple(_document(part, self.how) for part in self.parts)


def read_passage(text: str, how: str | None = None) -> Passage:
    """The text's documents: lines of JSON with `text`, parts between <|endoftext|>, else all of it as one.

    how      one of HOW, where the text itself should not decide
    raises   InputError for a text that is not of that kind, or has no document
    """
    how = how or _kind(text)
    if how == "jsonl":
        texts = _json_texts(text)
    elif how == "endoftext":
        texts = text.split(SEPARATOR)
    elif how == "wikitext":
        texts = _articles(text)
    else:
        texts = [text]
    parts = tuple(part for part in texts if part.strip())
    if not parts:
        raise InputError("the text is empty, so there is nothing to evaluate on; give a longer one")
    return Passage(text, "\n\n".join(parts) if how == "jsonl" else text, parts, how)


def _document(page: str, how: str) -> Document:
    """Words and bytes are those of the page as written, as lm-eval counts them, whatever is scored in its place."""
    text = page
    if how == "wikitext":
        from lm_eval.tasks.wikitext.preprocess_wikitext import wikitext_detokenizer

        text = wikitext_detokenizer({"page": page})
    return Document(text, len(re.split(r"\s+", page)), len(page.encode()))


def _kind(text: str) -> str:
    first = text.lstrip().partition("\n")[0]
    if first.startswith("{"):
        try:
            if "text" in json.loads(first):
                return "jsonl"
        except ValueError:
            pass  # a text that happens to start with a brace
    return "endoftext" if SEPARATOR in text else "whole"


def _json_texts(text: str) -> list[str]:
    texts = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                texts.append(json.loads(line)["text"])
            except (ValueError, KeyError, TypeError):
                raise InputError(f"line {number} of the text is no JSON object with a `text`") from None
            if not isinstance(texts[-1], str):
                raise InputError(f"line {number} of the text: `text` is {texts[-1]!r}, expected a string")
    return texts


def _articles(text: str) -> list[str]:
    """The articles of a WikiText file: each from its title, a line between two that are blank, to the next one's."""
    lines = text.split("\n")
    blank = [not line.strip() for line in lines]
    starts = [
        i
        for i, line in enumerate(lines)
        if ARTICLE.fullmatch(line.rstrip("\r")) and (i == 0 or blank[i - 1]) and (i + 1 == len(lines) or blank[i + 1])
    ]
    if not starts:
        raise InputError("the text has no article (a line ` = Title = ` between blank ones); it is no WikiText file")
    cuts = [0, *(start for start in starts if "".join(lines[:start]).strip()), len(lines)]
    return ["\n".join(lines[low:high]) for low, high in pairwise(cuts)]
