"""Texts of tokens together are the text, whatever a decoder does to the beginning of one."""

import pytest
from support.byte_tokenizer import byte_tokenizer
from tokenizers import Tokenizer as JsonTokenizer
from tokenizers import decoders, models, normalizers

from qbench.runtime.text.token_text import INCOMPLETE, TokenTexts
from qbench.runtime.text.tokenizer import Tokenizer
from quant.source import TokenizerInfo

SPACE = "\u2581"


def sentence_pieces() -> Tokenizer:
    """Spaces are a part of words, and the first one of a text is dropped, as Llama's tokenizer does."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), SPACE, *"athe,", f"{SPACE}t", f"{SPACE}the"]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    model = models.BPE(vocabulary, [(SPACE, "t")], unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    tokenizer = JsonTokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return Tokenizer(TokenizerInfo(tokenizer.to_str(), None, None, False))


def test_words_keep_their_spaces():
    tokenizer = sentence_pieces()
    texts = TokenTexts(tokenizer)
    the = tokenizer.tokenizer.token_to_id(f"{SPACE}the")
    assert tokenizer.decode([the]) == "the" and texts.text(the) == " the" == texts.name(the)
    ids = tokenizer.encode("at the, \u2603")
    assert "".join(texts.joined(ids[1:])) == "at the, \u2603"[len(texts.text(ids[0])) - 1 :]


@pytest.mark.parametrize("make", [sentence_pieces, byte_tokenizer])
def test_parts_of_a_character_have_their_own_names_and_bytes(make):
    texts = TokenTexts(make())
    ids = [token for token in make().encode("\u2603", add_bos=False) if INCOMPLETE in texts.text(token)]
    assert len(ids) == 3 and len({texts.name(token) for token in ids}) == 3
    assert [texts.bytes_of(token) for token in ids] == [[byte] for byte in "\u2603".encode()]
    assert texts.joined(ids) == ["", "", "\u2603"]
    first, rest = texts.joined(ids[:2])
    assert first == "" and {*rest} == {INCOMPLETE}, "bytes that form no character"
