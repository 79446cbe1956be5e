"""The tokenizer of a Hugging Face directory: tokenizer.json with the settings of tokenizer_config.json."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from quant.artifacts.hf_added_tokens import (
    ADDED_TOKENS,
    SPECIAL_TOKENS_MAP,
    add_missing_tokens,
    content_of,
    with_special_tokens_map,
)
from quant.artifacts.stop_tokens import GENERATION_CONFIG
from quant.artifacts.tokenizer_json import json_of, load_tokenizer, with_first_token
from quant.errors import InputError, shown
from quant.json_file import read_json
from quant.panics import panics_as
from quant.present import present
from quant.regular_file import check_is_no_dead_link, read_regular_text
from quant.source import TokenizerInfo

TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
# Classes that let the key add_bos_token decide. For all others the post-processor does, in transformers 5 for all.
# source: transformers 4.57, update_post_processor() of the classes that have it
BOS_BY_KEY = {
    f"{family}Tokenizer{fast}" for family in ("Llama", "CodeLlama", "Gemma", "Cohere") for fast in ("", "Fast")
}
# tokenizer_config.json as older versions wrote it, and as the reference models have it: there the key decides.
OLDER_KEYS = {
    *("tokenizer_class", "bos_token", "eos_token", "add_bos_token"),
    *("clean_up_tokenization_spaces", "model_max_length"),
}
CHAT_TEMPLATE = "chat_template.jinja"  # newer files keep it here, older ones as a key of tokenizer_config.json
# Tokenizers of other libraries, from which transformers makes a tokenizer.json.
OTHERS = ("tokenizer.model", "spiece.model", "tiktoken.model", "vocab.json", "vocab.txt")
KEPT = (TOKENIZER_CONFIG, CHAT_TEMPLATE, SPECIAL_TOKENS_MAP, ADDED_TOKENS, GENERATION_CONFIG)
MOST_TEXT_BYTES = 16 << 20  # published templates have some kilobytes, lists of added tokens up to a megabyte


def read_tokenizer(folder: Path, config: Mapping[str, Any]) -> TokenizerInfo | None:
    """None if there is no tokenizer.json. raises InputError if one is there and cannot be used."""
    path = folder / TOKENIZER
    for name in (TOKENIZER, TOKENIZER_CONFIG, CHAT_TEMPLATE):
        check_is_no_dead_link(folder / name)
    if not path.exists():
        if hint := missing_tokenizer(folder):
            logging.getLogger(__name__).warning(hint)
        return None
    read_json(path)
    text = read_regular_text(path)
    tokenizer = load_tokenizer(text, str(path))
    settings = read_json(folder / TOKENIZER_CONFIG) if (folder / TOKENIZER_CONFIG).exists() else {}
    settings = with_special_tokens_map(folder, settings)
    is_completed = add_missing_tokens(tokenizer, folder, settings, config.get("vocab_size"))
    if is_completed:
        text = json_of(tokenizer, str(path))
    ids = {}
    for kind in ("bos", "eos"):
        token = content_of(settings.get(f"{kind}_token"))
        found = None if token is None else tokenizer.token_to_id(token)
        ids[kind] = config_token_id(config, f"{kind}_token_id", str(folder)) if found is None else found
    first = _first_token(tokenizer, path)
    _warn_of_more(tokenizer, path)
    if first is not None:  # whatever other token the settings name
        ids["bos"] = first
    add_bos = ids["bos"] is not None and _adds_bos(settings, first is not None, path)
    return TokenizerInfo(
        text, ids["bos"], ids["eos"], add_bos, _chat_template(folder, settings), _kept_files(folder), is_completed
    )


def missing_tokenizer(folder: Path) -> str | None:
    """How to make the tokenizer.json of a directory that has a tokenizer in another file alone."""
    other = next((name for name in OTHERS if (folder / name).exists()), None)
    if other is None or (folder / TOKENIZER).exists():
        return None
    return (
        f"{folder}: {TOKENIZER} is missing, and {other} is not read; make it with transformers: "
        f"AutoTokenizer.from_pretrained({str(folder)!r}).save_pretrained({str(folder)!r})"
    )


def _kept_files(folder: Path) -> dict[str, str]:
    """Name -> content of the files that a written directory keeps. raises InputError for one that cannot be read"""
    files = {name: _read_text(folder / name) for name in KEPT if (folder / name).exists()}
    settings = json.loads(files.get(TOKENIZER_CONFIG, "{}"))
    if settings.pop("auto_map", None) is not None:  # classes in Python files, which are not copied
        files[TOKENIZER_CONFIG] = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
    return files


def _first_token(tokenizer: Tokenizer, path: Path) -> int | None:
    """The token that the post-processor puts before a text."""
    with panics_as(lambda error: InputError(f"{path}: the tokenizer cannot cut a text: {error}")):
        encoded = tokenizer.encode("a")
    return encoded.ids[0] if encoded.special_tokens_mask[:1] == [1] else None


def _warn_of_more(tokenizer: Tokenizer, path: Path) -> None:
    """Warn of tokens that the post-processor adds beyond one before a text, most often EOS at its end."""
    encoded = tokenizer.encode("a")
    added = [token for token, special in zip(encoded.ids, encoded.special_tokens_mask, strict=True) if special]
    if added[encoded.special_tokens_mask[:1] == [1] :]:
        logging.getLogger(__name__).warning(
            "%s: the post-processor adds %s to every text; transformers does so, and here only a first token is added",
            path,
            ", ".join(shown(tokenizer.id_to_token(token) or token) for token in added),
        )


def _adds_bos(settings: Mapping[str, Any], processed: bool, path: Path) -> bool:
    """Whether a text begins with BOS; processed: whether the post-processor puts it there."""
    wanted = settings.get("add_bos_token")
    if not isinstance(wanted, bool) or wanted == processed:
        return processed
    if settings.keys() - {"chat_template"} == OLDER_KEYS:
        return wanted
    counts = settings.get("tokenizer_class") in BOS_BY_KEY
    logging.getLogger(__name__).warning(
        "%s: add_bos_token is %s, and the post-processor %s BOS: the %s counts, as in transformers 4",
        path,
        str(wanted).lower(),
        "adds" if processed else "does not add",
        "key" if counts else "post-processor",
    )
    return wanted if counts else processed


def _chat_template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    """The template, or the default one of several named ones. raises InputError if the key holds neither"""
    if (folder / CHAT_TEMPLATE).exists():
        return _read_text(folder / CHAT_TEMPLATE)
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {each.get("name"): each.get("template") for each in template if isinstance(each, Mapping)}
        template = named.get("default")
    if template is not None and not isinstance(template, str):
        raise InputError(
            f"{folder / TOKENIZER_CONFIG}: chat_template is {shown(template)}, expected the text of a template"
        )
    return template


def _read_text(path: Path) -> str:
    """raises InputError"""
    try:
        return read_regular_text(path, MOST_TEXT_BYTES)
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start}; fetch the file again") from error


def config_token_id(config: Mapping[str, Any], key: str, where: str) -> int | None:
    """A token id of config.json; of several end tokens the first."""
    value = config.get(key)
    value = value[0] if isinstance(value, list) and value else value
    if value is not None and (type(value) is not int or value < 0):
        raise InputError(f"{where}: config key {key!r} must be a token id, got {shown(value)}")
    return value


def write_tokenizer(folder: Path, tokenizer: TokenizerInfo, context: int) -> None:
    """tokenizer.json and the files that transformers needs next to it: those of the source, if it has them."""
    text, files = tokenizer.json, dict(tokenizer.files)
    if TOKENIZER_CONFIG not in files:
        loaded = load_tokenizer(text, TOKENIZER)
        if tokenizer.add_bos and _first_token(loaded, folder / TOKENIZER) is None:
            text = with_first_token(loaded, present(tokenizer.bos_token_id), TOKENIZER).to_str()
        files[TOKENIZER_CONFIG] = json.dumps(_settings(loaded, tokenizer, context), indent=2, ensure_ascii=False) + "\n"
    for name, content in {TOKENIZER: text, **files}.items():
        (folder / name).write_text(content, encoding="utf-8")


def _settings(loaded: Tokenizer, tokenizer: TokenizerInfo, context: int) -> dict[str, Any]:
    """tokenizer_config.json for a tokenizer without one."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None if tokenizer.bos_token_id is None else loaded.id_to_token(tokenizer.bos_token_id),
        "eos_token": None if tokenizer.eos_token_id is None else loaded.id_to_token(tokenizer.eos_token_id),
        "add_bos_token": tokenizer.add_bos,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],  # or transformers 4 gives a decoder token_type_ids, too
        "model_max_length": context,
        **({} if tokenizer.chat_template is None else {"chat_template": tokenizer.chat_template}),
    }
