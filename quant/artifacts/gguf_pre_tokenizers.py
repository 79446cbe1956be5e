r"""The ways to cut a text into words before byte-level BPE, by their names in GGUF: tokenizer.ggml.pre.

The regular expressions are those of the models' own tokenizer.json, in the syntax of `tokenizers` (Oniguruma).
llama.cpp replaces a few that its engine cannot run. It then differs on rare texts: on letters outside ASCII if the
expression distinguishes upper from lower case, and on U+017F, which `(?i:'s)` takes for an s.

source   llama.cpp, src/llama-vocab.cpp, llm_tokenizer_bpe and llama_vocab::impl::load()
"""

from dataclasses import dataclass

from quant.artifacts.tokenizer_parts import Step


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """One tokenizer.ggml.pre.

    ignore_merges   whether a word that is a token is taken whole
    adds_bos        whether a text begins with BOS if the file does not say it
    bytes           whether tokens are bytes in printable characters; else characters, with a fallback to <0x00>
    spaces          whether a space becomes U+2581, as SentencePiece has it
    """

    steps: tuple[Step, ...]
    ignore_merges: bool = False
    adds_bos: bool = False
    bytes: bool = True
    spaces: bool = False


def _byte_level(use_regex: bool = False) -> Step:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _split(regex: str) -> Step:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def _splits(*regexes: str) -> tuple[Step, ...]:
    """Each cuts the pieces that those before it leave, then bytes become characters."""
    return (*(_split(regex) for regex in regexes), _byte_level())


_CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SYMBOLS_AND_SLASHES = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_LINES, _SPACES = r"\s*[\r\n]+", r"\s+(?!\S)|\s+"
_DIGIT, _DIGITS, _UP_TO_3_DIGITS = r"\p{N}", r"\p{N}+", r"\p{N}{1,3}"
# The regular expression inside the `tokenizers` ByteLevel step, of GPT-2.
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def _alternatives(*regexes: str) -> str:
    return "|".join(regexes)


def _llama3(digits: str = _UP_TO_3_DIGITS, spaces: str = _SPACES) -> str:
    return _alternatives(_CONTRACTION, _WORD, digits, _SYMBOLS, _LINES, spaces)


def _cased(digits: str, contraction: str = f"{_CONTRACTION}?", before: str = "", but: str = "") -> str:
    """Words are also cut between a lower-case letter and an upper-case one.

    contraction   that may end a word
    before        the first alternative
    but           characters that count as no letter
    """
    upper, lower = rf"[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}{but}]", rf"[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}{but}]"
    words = [rf"[^\r\n\p{{L}}\p{{N}}]?{case}{contraction}" for case in (f"{upper}*{lower}+", f"{upper}+{lower}*")]
    symbols = _SYMBOLS if but else _SYMBOLS_AND_SLASHES
    return _alternatives(*([before] if before else []), *words, digits, symbols, _LINES, _SPACES)


_QWEN2 = _llama3(_DIGIT)
_QWEN35 = _alternatives(
    _CONTRACTION, r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+", _DIGIT, r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*", _LINES, _SPACES
)
_JAIS2_SPACES = "|".join(
    [*(rf"\s{{{count}}}(?!\S)" for count in (512, 256, 128, 64, 32, 16, 8, 4)), r"\s{1,2}(?!\S)|\s"]
)
_SEED_CODER = _alternatives(_CONTRACTION, _WORD, r"\p{N}{1}", r" ?[^\s\p{L}\p{N}\r\n]+", _LINES, _SPACES)
_EXAONE_MOE = _alternatives(
    _CONTRACTION,
    r"[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+",
    _DIGIT,
    r" ?[^\s\p{L}\p{N}]+[\r\n/]?",
    r"\s*[\r\n]",
    _SPACES,
)
_KIMI = _cased(_UP_TO_3_DIGITS, before=r"[\p{Han}]+", but=r"&&[^\p{Han}]")
_BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
# A letter of ASCII after one sign of it is one word; so DeepSeek-V3 has it.
_DEEPSEEK_WORDS = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
_DEEPSEEK3 = _alternatives(_DEEPSEEK_WORDS, r" ?[\p{P}\p{S}]+[\r\n]*", _LINES, _SPACES)
_SPARK = _alternatives(_DEEPSEEK_WORDS, r" ?[\p{P}\p{S}]+", r"[\r\n]", _SPACES)
_HAN_AND_KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_DEEPSEEK_HAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
# Letters with case, as Unicode 11 lists them below the mathematical alphabets.
_DEEPSEEK_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376"
    "\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d"
    "\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4"
    "\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"
    "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a"
    "\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2"
    "\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_DEEPSEEK_SIGNS = "!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002"
_YOUTU_SCRIPTS = (
    "[\uac00-\ud7a3\u3131-\u318e]+"
    "|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+"
    f"|[\u3105-\u312f]+|{_HAN_AND_KANA}"
)
_AFMOE_SCRIPTS = (
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f"
    "\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
# Groups of three from the right: 1,234,567.
_AFMOE_DIGITS = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"
_PUNCTUATION: Step = {"type": "Punctuation", "behavior": "Contiguous"}
_EACH_DIGIT: Step = {"type": "Digits", "individual_digits": True}

_gpt2 = PreTokenizer((_byte_level(True),))
_llama_bpe = PreTokenizer(_splits(_llama3()), ignore_merges=True, adds_bos=True)
_dbrx = PreTokenizer(_splits(_llama3()))
_glm4 = PreTokenizer(_splits(_llama3()), ignore_merges=True)
_each_digit = PreTokenizer((_EACH_DIGIT, _byte_level(True)))
_qwen2 = PreTokenizer(_splits(_QWEN2))
_deepseek3 = PreTokenizer(_splits(_UP_TO_3_DIGITS, _HAN_AND_KANA, _DEEPSEEK3))
_bloom = PreTokenizer(_splits(_BLOOM))
_gpt4o = PreTokenizer(_splits(_cased(_UP_TO_3_DIGITS)))
_tiny_aya = PreTokenizer(_splits(r"\d{1,3}(?=(?:\d{3})*\b)", _cased(_UP_TO_3_DIGITS)))
_gemma4 = PreTokenizer((_split(r"[^\n]+|[\n]+"),), bytes=False, spaces=True)

# A tokenizer is written under the first name that fits it.
PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "gpt-2": _gpt2,
    "llama-bpe": _llama_bpe,
    "smollm": _each_digit,
    "qwen2": _qwen2,
    "qwen35": PreTokenizer(_splits(_QWEN35)),
    "deepseek-llm": PreTokenizer(
        _splits(r"[\r\n]", rf"\s?[{_DEEPSEEK_LETTERS}]+", rf"\s?[{_DEEPSEEK_SIGNS}]+", r"\s+$", _DEEPSEEK_HAN, _DIGITS)
    ),
    "deepseek-coder": PreTokenizer(_splits(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_HAN, _DIGIT)),
    "deepseek-v3": _deepseek3,
    "tekken": PreTokenizer(_splits(_cased(_DIGIT, contraction="")), ignore_merges=True, adds_bos=True),
    "gpt-4o": _gpt4o,
    "bloom": _bloom,
    "falcon": PreTokenizer((_PUNCTUATION, _byte_level(True), _split("[0-9][0-9][0-9]"))),
    "dbrx": _dbrx,
    "minicpm5": PreTokenizer(_splits(_UP_TO_3_DIGITS, _llama3(_DIGITS)), ignore_merges=True),
    "glm4": _glm4,
    "jais-2": PreTokenizer(_splits(_llama3(spaces=_JAIS2_SPACES))),
    "spark2_5": PreTokenizer(_splits(_UP_TO_3_DIGITS, _HAN_AND_KANA, _SPARK, _DIGIT)),
    "youtu": PreTokenizer(_splits(_YOUTU_SCRIPTS, _cased(_DIGIT)), ignore_merges=True),
    "viking": PreTokenizer(_splits(_BLOOM, _DIGIT)),
    "chameleon": PreTokenizer(
        (
            *(
                _split(regex)
                for regex in (
                    "<sentinel:[0-9]+>",
                    "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
                    "([\\t\\n]|    |  )",
                    _DIGIT,
                    r"[\p{P}!-/:-@\[-`{-~]",
                )
            ),
            _byte_level(True),
        ),
        adds_bos=True,
    ),
    "granite-embed-multi-97m": PreTokenizer(_splits(_cased(_UP_TO_3_DIGITS)), ignore_merges=True),
    "tiny_aya": _tiny_aya,
    "kimi-k2": PreTokenizer(_splits(_KIMI)),
    "superbpe": PreTokenizer(_splits(_DIGITS, r"(?=(\d{3})+(?!\d))")),
    "seed-coder": PreTokenizer(_splits(_SEED_CODER)),
    "ufakzeka": PreTokenizer(_splits(_alternatives(_WORD, _DIGIT, _SYMBOLS, _LINES, _SPACES))),
    "afmoe": PreTokenizer(_splits(_AFMOE_DIGITS, _AFMOE_SCRIPTS, _DEEPSEEK3)),
    "laguna": PreTokenizer(_splits(r"[^\n]+|[\n]+", _QWEN2)),
    "exaone-moe": PreTokenizer(_splits(_EXAONE_MOE)),
    "gemma4": _gemma4,
    "whitespace": PreTokenizer((_split(r"\S+"),), bytes=False),
    # llama.cpp takes it for files without a name; it is never written.
    "default": PreTokenizer(_splits(r"[\p{P}\$\+<=>\^~\|]+", _GPT2, _DIGITS, "[0-9][0-9][0-9]")),
    # Other names of the same.
    **dict.fromkeys(
        (
            *(
                "phi-2",
                "jina-es",
                "jina-de",
                "gigachat",
                "jina-v2-es",
                "jina-v2-de",
                "a.x-4.0",
                "mellum",
                "modern-bert",
            ),
            *("jina-v1-en", "jina-v2-code", "roberta-bpe", "exaone4", "mpt", "olmo", "jais", "trillion"),
            "granite-docling",
        ),
        _gpt2,
    ),
    **dict.fromkeys(
        ("llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"), _llama_bpe
    ),
    **dict.fromkeys(("starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"), _each_digit),
    **dict.fromkeys(
        (
            *("deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2", "megrez", "hunyuan", "solar-open", "grok-2"),
            *("bailingmoe", "bailingmoe2", "llada-moe"),  # whose other regular expression makes the same words
        ),
        _qwen2,
    ),
    **dict.fromkeys(("hunyuan-dense", "hy_v4", "joyai-llm"), _deepseek3),
    **dict.fromkeys(("poro-chat", "gpt3-finnish"), _bloom),
    **dict.fromkeys(("llama4", "kanana2", "talkie", "minimax-m2"), _gpt4o),
    **dict.fromkeys(("smaug-bpe", "chatglm-bpe"), _dbrx),
    "glm5": _glm4,
    "cohere2moe": _tiny_aya,
    "sarvam-moe": _gemma4,
    "granite-embed-multi-311m": _gemma4,
}
