"""A byte-level BPE of the invented language, in GPT-2's form, so that GGUF's "gpt2" tokenizer says the same."""

import json
from itertools import islice
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from qbench.reference.corpus import EOS, MIX, documents

VOCAB_SIZE = 1536
TRAINING_DOCUMENTS = 4000


def train_tokenizer(seed: int = 0, vocab_size: int = VOCAB_SIZE) -> Tokenizer:
    """BPE learnt from the training stream. No merge holds a digit, so every digit is a token."""
    tokenizer = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    # Digits apart while learning only: no digit merges arise, so GPT-2's plain splitting suffices afterwards.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(islice(documents(seed, MIX | {"echo": 0.1}), TRAINING_DOCUMENTS), trainer)
    tokenizer.pre_tokenizer = byte_level
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path, context: int) -> None:
    """tokenizer.json and the tokenizer_config.json next to it."""
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": EOS,
        "eos_token": EOS,
        "add_bos_token": True,
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
