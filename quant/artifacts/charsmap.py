"""SentencePiece's table of replaced characters, and the normalizers of `tokenizers` that replace as SentencePiece does.

SentencePiece, and llama.cpp after it, replace the longest entry at each place of a text. `Precompiled` of `tokenizers`
takes a grapheme of up to five bytes for its shortest entry, and loses the rest of it: `e` with two accents has one
after it. It takes the characters of longer graphemes one by one. So sequences of characters are composed before it,
where the table has them and nowhere else. Behind that each grapheme is a single character.

    number of bytes of the units u32 | units u32 ... | texts in UTF-8, each with a 0 behind it

    unit of a node     31                  10 9      8     7        0      of a leaf   31  30             0
                      +----------------------+--------+------+-----------+            +---+----------------+
                      |        offset        | offset | leaf | last byte |            | 1 | place of a text |
                      |                      |  * 256 |      |  of a key |            +---+----------------+
                      +----------------------+--------+------+-----------+

The child of a node for byte c is at `node ^ offset ^ c`, its leaf at `node ^ offset`.
source: llama.cpp, llm_tokenizer_ugm; huggingface/tokenizers issues 2116 and 2334
"""

import base64
import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache

import numpy as np
from tokenizers import normalizers

from quant.artifacts.tokenizer_parts import Step
from quant.errors import InputError

WORD = 4  # bytes
BLOCK = 255  # children of a node differ in these bits of their place
MOST_NODES, LONGEST = 1 << 19, 64  # XLM-R has a table of 262,073 nodes, and of entries of up to 10 bytes
# Noncharacters of Unicode, in place of characters that NFKC must not touch.
_HIDDEN = [chr(code) for code in range(0xFDD0, 0xFDF0)]
# They belong to the grapheme of the character before them, if they are in no entry: accents, joiners, shades of skin.
_JOINED = r"\p{M}\x{200C}\x{200D}\x{FF9E}\x{FF9F}\x{1F3FB}-\x{1F3FF}\x{E0020}-\x{E007F}"


@lru_cache(maxsize=2)
def entries(raw: bytes) -> Mapping[str, str]:
    """text -> its replacement.

    raises   InputError for a table that a search would leave, never end, or read half a character from
    """
    size = int.from_bytes(raw[:WORD], "little")
    if len(raw) < WORD or size % WORD or not 0 < size < len(raw) - WORD:
        raise _broken(f"{size} bytes of units in {len(raw)}")
    units, texts = np.frombuffer(raw[WORD : WORD + size], "<u4").astype(np.int64), raw[WORD + size :]
    offsets = (units >> 10) << ((units & (1 << 9)) >> 6)
    children: dict[int, list[tuple[int, int, int]]] = {}  # of a node: byte, its node, place of its text or -1
    found: dict[bytes, int] = {}
    stack, num_nodes = [(b"", int(offsets[0]))], 0
    labels = np.arange(1, BLOCK + 1)
    while stack:
        key, node = stack.pop()
        num_nodes += 1
        if node not in children:
            if node | BLOCK >= len(units):
                raise _broken(f"a node at unit {node | BLOCK} of {len(units)}")
            places = node ^ labels
            places = places[(units[places] & (1 << 31 | BLOCK)) == labels]
            nodes = places ^ offsets[places]
            if nodes.size and nodes.max() >= len(units):
                raise _broken(f"a node at unit {nodes.max()} of {len(units)}")
            texts_at = np.where(units[places] >> 8 & 1, units[nodes] & ((1 << 31) - 1), -1)
            bytes_of = (units[places] & BLOCK).tolist()
            children[node] = list(zip(bytes_of, nodes.tolist(), texts_at.tolist(), strict=True))
        for byte, child, place in children[node]:
            stack.append((key + bytes([byte]), child))
            if place >= 0:
                found[stack[-1][0]] = place
        if num_nodes + len(stack) > MOST_NODES or len(key) > LONGEST:
            raise _broken(f"a loop, more than {MOST_NODES} nodes, or an entry of more than {LONGEST} bytes")
    replacements = {place: _text(texts, place) for place in set(found.values())}
    try:
        return {key.decode(): replacements[place] for key, place in found.items()}
    except UnicodeDecodeError:
        raise _broken("an entry for half a character") from None


def growth(raw: bytes) -> float:
    """Bytes that a byte of text may become. raises InputError"""
    return max((len(new.encode()) / len(old.encode()) for old, new in entries(raw).items()), default=1.0)


@lru_cache(maxsize=2)
def steps(raw: bytes) -> tuple[Step, ...]:
    """The normalizers that replace a text's characters as SentencePiece does.

    Sequences are composed by NFKC, between marks that keep all else apart. Characters that NFKC would change and the
    table does not are hidden from it.
    raises   InputError for a table with sequences that NFKC composes otherwise
    """
    table = entries(raw)
    sequences = [key for key in table if len(key) > 1]
    mark = next((chr(code) for code in range(1, 9) if not table.get(chr(code))), None)
    hidden = _hidden(table) if sequences else []
    if mark is None or len(hidden) > len(_HIDDEN) or any(len(text) > 1 for text in hidden):
        raise InputError(
            f"the table of replaced characters has {len(sequences)} sequences, and NFKC composes sequences otherwise; "
            "`tokenizers` has no other way"
        )
    joined = _class({char for key in sequences for char in key[1:]}, _JOINED)
    whole = _pattern(sequences) + "|" if sequences else ""
    # From a place between two entries, the longest one or a character; behind it a mark, if the next one would join.
    ends = rf"(?=(?m:.){joined})(?:\G|(?!{joined}))(?>{whole}(?m:.))\K(?={joined})"
    hide = list(zip(hidden, _HIDDEN, strict=False))
    return (
        {"type": "Replace", "pattern": {"Regex": ends}, "content": mark},
        *(_replace(char, other) for char, other in hide),
        *([Step(type="NFKC")] if sequences else []),
        {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(raw).decode()},
        *(_replace(other, char) for char, other in hide),
        *([_replace(mark, "")] if mark not in table else []),
    )


def _hidden(table: Mapping[str, str]) -> list[str]:
    """The texts that NFKC changes, and that the table's single characters do not mend behind it."""
    changed = {char for char in map(chr, range(0x110000)) if unicodedata.decomposition(char)}
    texts = list(changed | table.keys())
    composed = normalizers.NFKC().normalize_str("\0".join(texts)).split("\0")
    single = {ord(key): new for key, new in table.items() if len(key) == 1}
    after = {text: text.translate(single) for text in set(composed)}
    return sorted(old for old, new in zip(texts, composed, strict=True) if after[new] != table.get(old, old))


def _pattern(texts: Iterable[str]) -> str:
    """A regular expression of the texts, the longest first. Characters with the same ways to go on share a class."""
    tails: dict[str, set[str]] = {}
    for text in texts:
        tails.setdefault(text[0], set()).add(text[1:])
    heads: dict[frozenset[str], set[str]] = {}
    for head, after in tails.items():
        heads.setdefault(frozenset(after), set()).add(head)
    parts = []
    for after, first in heads.items():
        longer = after - {""}
        more = f"(?:{_pattern(longer)}){'?' if '' in after else ''}" if longer else ""
        parts.append(_class(first) + more)
    return "|".join(sorted(parts))


def _class(characters: Iterable[str], more: str = "") -> str:
    runs: list[list[int]] = []
    for code in sorted(map(ord, characters)):
        if runs and runs[-1][1] == code - 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return "[" + "".join(rf"\x{{{first:X}}}-\x{{{last:X}}}" for first, last in runs) + more + "]"


def _replace(old: str, new: str) -> Step:
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def _text(texts: bytes, place: int) -> str:
    end = texts.find(b"\0", place)
    if end < 0:
        raise _broken(f"a text at byte {place} of {len(texts)} without an end")
    try:
        return texts[place:end].decode()
    except UnicodeDecodeError:
        raise _broken("a text that is not UTF-8") from None


def _broken(fault: str) -> InputError:
    return InputError(f"the table of replaced characters is broken: {fault}")
