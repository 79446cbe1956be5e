"""Locales that are not UTF-8: files are written in UTF-8, and output replaces the characters that the locale lacks."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.small_directory import write_small

import qbench
import quant

ASCII = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
TEMPLATE = "{% for m in messages %}<\uff5c{{ m.role }}\uff5c>\u00e9{{ m.content }}{% endfor %}"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A directory whose name and chat template are not ASCII."""
    folder = write_small("llama", tmp_path_factory.mktemp("locale") / "m\u00fc\u4f60")
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {"chat_template": TEMPLATE}), "utf-8")
    return folder


def run(*words: object, locale: Mapping[str, str] = ASCII) -> subprocess.CompletedProcess[bytes]:
    line = [sys.executable, "-m", "qbench", *map(str, words)]
    return subprocess.run(line, capture_output=True, env={**os.environ, **locale}, check=False)


def test_a_directory_keeps_its_template(model, tmp_path):
    done = run("quantize", model, "--recipe", "rtn-w8", "-o", tmp_path / "\u00e9")
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / "\u00e9/tokenizer_config.json").read_text("utf-8"))
    assert written["chat_template"] == TEMPLATE
    assert run("verify", tmp_path / "\u00e9").returncode == 0


def test_a_gguf_file_has_the_name_of_its_model(model, tmp_path):
    path = tmp_path / "\u4f60.gguf"
    done = run("quantize", model, "--recipe", "q8_0", "-o", path)
    assert done.returncode == 0, done.stderr
    assert model.name.encode() in path.read_bytes()


# click itself writes UTF-8 if the locale has ASCII alone.
@pytest.mark.parametrize("locale, encoding", [(ASCII, "utf-8"), ({"PYTHONIOENCODING": "latin-1"}, "latin-1")])
def test_generated_text_is_printed(model, locale, encoding):
    words = ("generate", model, "--prompt", "a \u00e9\u4f60", "-n", "24")
    plain, as_json = run(*words, locale=locale), run(*words, "--json", locale=locale)
    assert (plain.returncode, as_json.returncode) == (0, 0), plain.stderr + as_json.stderr
    found = json.loads(as_json.stdout.decode("ascii"))
    assert not found["text"].isascii(), "the text has characters that the locale lacks"
    assert plain.stdout.decode(encoding) == found["text"].encode(encoding, "replace").decode(encoding)


def lacks_encoding(call: ast.Call) -> bool:
    """Whether a call reads or writes text in the encoding of the locale."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if "encoding" in given or None in given:
        return False
    if name in ("read_text", "write_text"):
        return len(call.args) < (1 if name == "read_text" else 2)
    is_text = any(ast.unparse(given[key]) == "True" for key in ("text", "universal_newlines") if key in given)
    if name in ("run", "Popen", "check_output"):
        return is_text
    if name != "open" or ast.unparse(call.func) not in ("open", "path.open", "file.open"):
        return False
    position = 1 if isinstance(call.func, ast.Name) else 0
    mode = given.get("mode", call.args[position] if len(call.args) > position else None)
    return not (isinstance(mode, ast.Constant) and "b" in str(mode.value))


def test_text_files_name_their_encoding():
    roots = [Path(str(package.__file__)).parent for package in (qbench, quant)]
    found = [
        f"{file}:{node.lineno}"
        for root in roots
        for file in root.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Call) and lacks_encoding(node)
    ]
    assert not found, found
    assert lacks_encoding(ast.parse('Path("x").write_text(y)', mode="eval").body)  # pyright: ignore[reportArgumentType]
