"""SentencePiece's table of replaced characters, built from entries, and a textbook search for them."""

import struct
import unicodedata
from collections.abc import Mapping
from itertools import count, product

LEAF, TEXT = 1 << 8, 1 << 31
LONGEST = 4  # characters of an entry


def table(entries: Mapping[str, str]) -> bytes:
    """The bytes of a table, a node at the first place that is free for it."""
    texts, places, trie = b"", {}, {}
    for old, new in entries.items():
        if new not in places:
            places[new] = len(texts)
            texts += new.encode() + b"\0"
        node = trie
        for byte in old.encode():
            node = node.setdefault(byte, {})
        node[0] = places[new]
    units, nodes, first = {0: 0}, set(), 1

    def put(node: dict, at: int) -> None:
        """Write the node that the unit `at` leads to."""
        nonlocal first
        while first in units or first in nodes:
            first += 1
        place = next(p for p in count(first) if p not in nodes and not any((p ^ byte) in units for byte in node))
        nodes.add(place)
        units[at] |= (at ^ place) << 10 | (LEAF if 0 in node else 0)
        for byte, child in node.items():
            units[place ^ byte] = TEXT | child if byte == 0 else byte
        for byte, child in node.items():
            if byte:
                put(child, place ^ byte)

    put(trie, 0)
    size = (max(*units, *nodes) | 255) + 1
    return struct.pack(f"<I{size}I", 4 * size, *(units.get(place, 0) for place in range(size))) + texts


def nmt_nfkc() -> dict[str, str]:
    """As the rules of T5 and XLM-R: NFKC of characters and of the sequences that it composes, and spaces of all kinds.

    The fullwidth tilde stays, as there. Sequences are a part of theirs: accents of Vietnamese, voiced kana, some jamo.
    """
    compatible = (char for char in map(chr, range(0x110000)) if unicodedata.decomposition(char) and char != "\uff5e")
    entries = {char: unicodedata.normalize("NFKC", char) for char in compatible}
    entries |= {**dict.fromkeys(map(chr, range(1, 9)), ""), **dict.fromkeys("\t\n\r\u200b\u200d\u2581\ufeff", " ")}
    marks = "\u0300\u0301\u0302\u0303\u0306\u0309\u031b\u0323"
    for base, first, second in product("aeouyAEOUY\uff41\uff25", marks, ["", *marks]):
        entries |= _composed(base + first + second)
    for sequence in map("".join, product("\u304b\u306f\uff76", "\u3099\u309a\uff9e")):
        entries |= _composed(sequence)
    for sequence in map("".join, product("\u1100\u1109", "\u1161\u116e", ["", "\u11a8", "\u11ab"])):
        entries |= _composed(sequence)
    return entries


def _composed(text: str) -> dict[str, str]:
    """Entries of a text in canonical order that becomes one character, and of the same with its beginning composed."""
    whole, start = (unicodedata.normalize("NFKC", part) for part in (text, text[:2]))
    parts = "".join(unicodedata.normalize("NFKD", char) for char in text)
    if len(whole) > 1 or unicodedata.normalize("NFKD", text) != parts:
        return {}
    return {text: whole} | ({start + text[2:]: whole} if len(text) > 2 and len(start) == 1 else {})


def replaced(text: str, entries: Mapping[str, str]) -> str:
    """The longest entry at each place, or the character."""
    result, place = "", 0
    while place < len(text):
        size = next((n for n in range(LONGEST, 0, -1) if text[place : place + n] in entries), 0)
        result += entries[text[place : place + size]] if size else text[place]
        place += max(1, size)
    return result
