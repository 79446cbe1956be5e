"""A tokenizer of one token per byte: any text without a file, and characters that span tokens."""

from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as JsonTokenizer
from tokenizers.pre_tokenizers import ByteLevel

from qbench.runtime import Tokenizer
from quant.source import TokenizerInfo

BOS = 256


def byte_level_json() -> str:
    """One token per byte, so that every other letter spans tokens; <s> is 256 and added by the post-processor."""
    alphabet = sorted(ByteLevel.alphabet())
    tokenizer = JsonTokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<s>", special=True)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 256)])
    return tokenizer.to_str()


def trained_byte_level(texts: list[str]) -> TokenizerInfo:
    """A byte-level BPE of 300 tokens with an end token, as GPT-2 is made."""
    tokenizer = JsonTokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|end|>"], initial_alphabet=ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return TokenizerInfo(tokenizer.to_str(), 0, 0, False)


def byte_tokenizer() -> Tokenizer:
    return Tokenizer(TokenizerInfo(byte_level_json(), bos_token_id=BOS, eos_token_id=None, add_bos=True))
