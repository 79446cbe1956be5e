"""Fuzzed artifacts on a disk: changed bytes, files that are no files, tokenizers that multiply text."""

import json
import os
import shutil
from functools import cached_property
from pathlib import Path
from random import Random

from fuzz.mutations import mutate_bytes, mutate_json
from fuzz.target import ACCEPTED, Target, forward, tiny_source
from support.artifact import write_artifact

from qbench.runtime import Tokenizer
from qbench.sources import open_source
from quant.artifacts.manifest import changes, read_manifest
from quant.artifacts.tokenizer_json import load_tokenizer
from quant.errors import InputError
from quant.recipes import get_recipe
from quant.source import TokenizerInfo

SEPARATOR = b"\0file\0"  # between the name of a file and its bytes


class ChangedArtifactTarget(Target):
    """One file of a GGUF file or a directory, its manifest among them. Bytes that differ unnoticed are a fault."""

    name = "changed-artifact"

    @cached_property
    def _whole(self) -> dict[str, bytes]:
        """Path from the folder -> the bytes that were written."""
        for file, recipe in (("x.gguf", "q8_0"), ("x", "rtn-w8a8")):
            write_artifact(tiny_source(), self.folder / file, recipe=get_recipe(recipe))
        files = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in files}

    def seeds(self) -> list[bytes]:
        return [name.encode() + SEPARATOR + raw for name, raw in sorted(self._whole.items())]

    def mutate(self, rng: Random, seed: bytes) -> bytes:
        name, separator, raw = seed.partition(SEPARATOR)
        return name + separator + (mutate_json if name.endswith(b".json") else mutate_bytes)(rng, raw)

    def run(self, raw: bytes) -> str:
        name, _, found = raw.partition(SEPARATOR)
        written = self._whole.get(name.decode(errors="replace"))
        if written is None:
            raise InputError("no such file in the artifact")
        path = self.folder / name.decode()
        path.write_bytes(found)
        try:
            is_noticed = self._is_noticed(self.folder / ("x" if path.parent.name == "x" else "x.gguf"))
        finally:
            path.write_bytes(written)
        assert is_noticed is (found != written), f"{name.decode()}: {'un' if found != written else ''}changed"
        return ACCEPTED

    @staticmethod
    def _is_noticed(artifact: Path) -> bool:
        try:
            manifest = read_manifest(artifact)
            return manifest is None or bool(changes(artifact, manifest))
        except InputError:
            return True


class SpecialFileTarget(Target):
    """A file of a model's directory that is a link, a pipe or a folder. Reading one that is outside is a fault."""

    name = "special-file"
    kinds = ("link", "dangling", "circle", "device", "pipe", "folder", "absent", "empty", "blob")

    def seeds(self) -> list[bytes]:
        write_artifact(tiny_source(), self.folder / "model", recipe=get_recipe("bf16"))
        names = sorted(path.name for path in (self.folder / "model").iterdir())
        return [json.dumps(dict.fromkeys(names, "file")).encode()]

    def mutate(self, rng: Random, seed: bytes) -> bytes:
        kinds = json.loads(seed)
        for name in rng.sample(sorted(kinds), rng.choice((1, 1, 2))):
            kinds[name] = rng.choice(self.kinds)
        return json.dumps(kinds).encode()

    def run(self, raw: bytes) -> str:
        tried = self.folder / "tried"
        shutil.rmtree(tried, ignore_errors=True)
        (tried / "model").mkdir(parents=True)
        kinds = json.loads(raw)
        for name, kind in kinds.items():
            self._make(tried, name, kind)
        found = forward(open_source(str(tried / "model")))
        outside = [name for name, kind in kinds.items() if kind == "link"]
        # Weights may be on another disk; an artifact would publish these.
        assert not set(outside) & {"config.json", "tokenizer.json", "tokenizer_config.json"}, f"read outside: {outside}"
        return found

    def _make(self, tried: Path, name: str, kind: str) -> None:
        file, path = self.folder / "model" / name, tried / "model" / name
        targets = {"link": tried / "outside" / name, "dangling": "nothing", "circle": name, "device": "/dev/zero"}
        if kind == "link":
            (tried / "outside").mkdir(exist_ok=True)
            shutil.copy(file, tried / "outside" / name)
        if kind in targets:
            path.symlink_to(targets[kind])
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        elif kind == "empty":
            path.touch()
        elif kind in ("file", "blob"):
            shutil.copy(file, path)


class NormalizerTarget(Target):
    """Normalizers and pre-tokenizers of a tokenizer.json: text that grows without end is a fault."""

    name = "normalizer"

    def seeds(self) -> list[bytes]:
        grow = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
        twice = [{"type": "Prepend", "prepend": "a "}, {"type": "NFKC"}, {"type": "Lowercase"}]
        return [
            json.dumps(each).encode()
            for each in (grow, {"type": "Sequence", "normalizers": [grow, *twice]}, *twice,
                         {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "},
                         {"type": "Sequence", "normalizers": 3 * [grow]})
        ]  # fmt: skip

    def mutate(self, rng: Random, seed: bytes) -> bytes:
        mutated = mutate_json(rng, seed)
        if rng.random() < 0.3:
            return b'{"type": "Sequence", "normalizers": [' + b", ".join(rng.choice((1, 8, 40)) * [mutated]) + b"]}"
        return mutated

    def run(self, raw: bytes) -> str:
        try:
            normalizer = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise InputError("no JSON") from error
        document = json.loads(self._document) | {"normalizer": normalizer}
        text = json.dumps(document)
        load_tokenizer(text, "tokenizer.json")
        tokenizer = Tokenizer(TokenizerInfo(text, 0, None, False))
        tokenizer.decode(tokenizer.encode("a banana and a text with <s>"))
        return ACCEPTED

    @cached_property
    def _document(self) -> str:
        source = tiny_source()
        assert source.tokenizer is not None
        return source.tokenizer.json
