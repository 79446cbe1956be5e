"""The fuzzed code: each target makes its seeds, mutates one, and runs the result as the command line would."""

import json
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from random import Random

import numpy as np
import yaml
from fuzz.artifact_targets import ChangedArtifactTarget, NormalizerTarget, SpecialFileTarget
from fuzz.mutations import mutate_bytes, mutate_gguf, mutate_json, mutate_tree
from fuzz.target import ACCEPTED, FORWARD, Target, forward, tiny_source
from support.artifact import write_artifact
from support.gguf_parts import GgufParts
from support.sample_records import make_record

from qbench.measure.records.record import parse_record
from qbench.runtime import Tokenizer
from qbench.runtime.tiers.aligned import BUFFERED, padded
from qbench.runtime.tiers.block_file import pack_header
from qbench.runtime.tiers.block_store import BlockKey, BlockNote, CorruptBlock
from qbench.runtime.tiers.disk_store import IDENTITY, SPACE_PREFIX, DiskStore
from qbench.runtime.tiers.store_identity import StoreIdentity
from qbench.sources import open_source
from qbench.store import load_records
from qbench.sweeps.suite.load_suite import load_suite
from quant.artifacts.tokenizer_json import load_tokenizer
from quant.errors import InputError
from quant.recipes import get_recipe
from quant.recipes.yaml_recipe import read_recipe
from quant.safetensors.header import read_header
from quant.source import TokenizerInfo

DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # 20 times as fast, if PyYAML was built with it


class GgufTarget(Target):
    name = "gguf"
    recipes = ("q4_0", "q8_0", "bf16")

    def seeds(self) -> list[bytes]:
        files = []
        for number, kind in enumerate(("llama", "deepseek2", "gemma2")):
            path = self.folder / f"seed{number}.gguf"
            write_artifact(tiny_source(kind), path, recipe=get_recipe(self.recipes[number]))
            files.append(path.read_bytes())
        return files

    @cached_property
    def _parts(self) -> dict[bytes, GgufParts]:
        return {}

    def mutate(self, rng: Random, seed: bytes) -> bytes:
        if seed not in self._parts:
            path = self.folder / "parts.gguf"
            path.write_bytes(seed)
            try:
                self._parts[seed] = GgufParts.read(path)
            except InputError:
                return mutate_bytes(rng, seed)
        return mutate_gguf(rng, seed, self._parts[seed])

    def run(self, raw: bytes) -> str:
        path = self.folder / "case.gguf"
        path.write_bytes(raw)
        return forward(open_source(str(path)))


class FolderTarget(Target):
    """One file of a model's folder is mutated, the others stay. file: its name"""

    file: str
    recipe = "bf16"

    def seeds(self) -> list[bytes]:
        write_artifact(tiny_source(), self.folder / "model", recipe=get_recipe(self.recipe))
        return [(self.folder / "model" / self.file).read_bytes()]

    def run(self, raw: bytes) -> str:
        (self.folder / "model" / self.file).write_bytes(raw)
        return forward(open_source(str(self.folder / "model")))


class ConfigTarget(FolderTarget):
    name, file = "config", "config.json"


class QuantizedConfigTarget(ConfigTarget):
    """The settings of a quantized folder are most of its config."""

    name = "quantized-config"
    packing = "compressed-tensors"

    def seeds(self) -> list[bytes]:
        path = self.folder / "r.yaml"
        path.write_text(f"container: hf\ndefault: w4g32\nmethod: rtn\npacking: {self.packing}\n")
        write_artifact(tiny_source(), self.folder / "model", recipe=read_recipe(path))
        return [(self.folder / "model" / self.file).read_bytes()]


class GptqConfigTarget(QuantizedConfigTarget):
    name, packing = "gptq-config", "gptq"


class SafetensorsTarget(FolderTarget):
    name, file = "safetensors", "model.safetensors"

    def mutate(self, rng: Random, seed: bytes) -> bytes:
        length = int.from_bytes(seed[:8], "little")
        if rng.random() < 0.5 or len(seed) < 8 + length:
            return mutate_bytes(rng, seed)
        header = mutate_json(rng, seed[8 : 8 + length])
        return len(header).to_bytes(8, "little") + header + seed[8 + length :]


class TokenizerTarget(FolderTarget):
    name, file = "tokenizer", "tokenizer.json"

    def run(self, raw: bytes) -> str:
        load_tokenizer(raw.decode(errors="replace"), self.file)
        tokenizer = Tokenizer(TokenizerInfo(raw.decode(errors="replace"), 0, None, False))
        tokenizer.decode(tokenizer.encode("a text with <s> and \N{SNOWMAN}"))
        return super().run(raw)


class IndexTarget(FolderTarget):
    name, file = "index", "model.safetensors.index.json"

    def seeds(self) -> list[bytes]:
        write_artifact(tiny_source(), self.folder / "model", recipe=get_recipe(self.recipe))
        whole, shard = self.folder / "model" / "model.safetensors", "model-00001-of-00001.safetensors"
        names = list(read_header(whole))
        whole.rename(whole.with_name(shard))
        return [json.dumps({"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(names, shard)}).encode()]


class YamlTarget(Target):
    """A tree that is written as YAML, or mutated text."""

    read: Callable[[Path], object]

    def run(self, raw: bytes) -> str:
        path = self.folder / "file.yaml"
        path.write_bytes(raw)
        type(self).read(path)
        return ACCEPTED

    def mutate(self, rng: Random, seed: bytes) -> bytes:
        if rng.random() < 0.4:
            return mutate_bytes(rng, seed)
        try:
            return yaml.dump(mutate_tree(rng, _yaml_tree(seed)), Dumper=DUMPER, sort_keys=False).encode()
        except (yaml.YAMLError, ValueError, TypeError, RecursionError):
            return mutate_bytes(rng, seed)


@lru_cache(maxsize=32)
def _yaml_tree(seed: bytes) -> object:
    """The tree of a seed, parsed once: mutations leave it as it is."""
    return yaml.safe_load(seed)


class RecipeTarget(YamlTarget):
    name, read = "recipe", read_recipe

    def seeds(self) -> list[bytes]:
        texts = (
            'base: q4_k_m\nrules:\n  - {match: "*.down_proj*", format: q6_k}\n'
            '  - {match: "*.layers.0.*", method: gptq, options: {act_order: true}}\n',
            "container: hf\ndefault: w4g128\nmethod: gptq\noptions: {act_order: true}\npacking: gptq\nkv: kv-fp8\n",
        )
        return [text.encode() for text in texts]


class SuiteTarget(YamlTarget):
    name, read = "suite", load_suite

    def seeds(self) -> list[bytes]:
        return [path.read_bytes() for path in sorted((Path(__file__).parents[2] / "suites").glob("*.yaml"))]


class RecordsTarget(Target):
    """Lines of a file of records. A file costs 60 ms, mostly for the plan of its query, so many lines share one."""

    name = "records"
    at_once = 64

    def seeds(self) -> list[bytes]:
        return [json.dumps(make_record(recipe)).encode() for recipe in ("bf16", "q4_0")]

    def groups(self, inputs: list[bytes]) -> list[list[bytes]]:
        """A line that Python has to read sends its whole file there, so such lines share a file, and the others do."""
        groups = [[raw for raw in inputs if self._is_record(raw) is wanted] for wanted in (True, False)]
        return [group for group in groups if group]

    @staticmethod
    def _is_record(raw: bytes) -> bool:
        try:
            return parse_record(raw) is not None
        except InputError:
            return False

    def run(self, raw: bytes) -> str:
        path = self.folder / "r.jsonl"
        path.write_bytes(b"\n".join((self._good, raw, self._good)) + b"\n")
        load_records(path)
        return ACCEPTED

    @cached_property
    def _good(self) -> bytes:
        return self.seeds()[0]


class KVStoreTarget(Target):
    """The file of a block of keys and values, or of the store's identity. A wrong block without an error is a fault."""

    name = "kv-store"
    identity = StoreIdentity("model", "kv-f16", "exact", "kernel-blocks-1", 16, 600)
    key, note = BlockKey(b"r" * 16, b"d" * 16, 3), BlockNote(1234.5, 0.25)

    def seeds(self) -> list[bytes]:
        assert self._store.put(self.key, self._block, self.note)
        return [Path(self._store.path_of(self.key)).read_bytes(), self.identity.to_text().encode()]

    def mutate(self, rng: Random, seed: bytes) -> bytes:
        return mutate_json(rng, seed) if seed.startswith(b"{") else mutate_bytes(rng, seed)

    def run(self, raw: bytes) -> str:
        store = self._store
        if raw.startswith(b"{"):
            other = store.folder / f"{SPACE_PREFIX}0-{'0' * 32}"
            other.mkdir(exist_ok=True)
            (other / IDENTITY).write_bytes(raw)
            store = self._open()
        path = Path(store.path_of(self.key))
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(self._file if raw.startswith(b"{") else raw)
        found = np.zeros(self.identity.block_bytes, np.uint8)
        try:
            note = store.get(self.key, found)
        except CorruptBlock as error:
            assert not path.exists(), "a damaged block stays"
            raise InputError(str(error)) from error
        assert note == self.note and (found == self._block).all(), "another block than the one that was stored"
        return ACCEPTED

    def _open(self) -> DiskStore:
        return DiskStore(self.folder / "store", self.identity, 1 << 20, read_mode=BUFFERED)

    @cached_property
    def _store(self) -> DiskStore:
        return self._open()

    @cached_property
    def _block(self) -> np.ndarray:
        return np.random.default_rng(0).integers(0, 256, self.identity.block_bytes, np.uint8)

    @cached_property
    def _file(self) -> bytes:
        header = pack_header(self.identity.space, self.key, self._block, self.note)
        return header + self._block.tobytes().ljust(padded(len(self._block)), b"\0")


class HttpTarget(Target):
    """Bodies of the API, each to both of its paths. A status that it does not know, or another form, is a fault."""

    name = "http"
    known = (200, 400, 404, 413, 422, 429, 503)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._client = self._open()

    def _open(self):
        from fastapi.testclient import TestClient
        from support.tiny_server import tiny_subject

        from qbench.runtime.engine import EngineOptions
        from qbench.serve.app import create_app
        from qbench.serve.server import open_served

        served = open_served(tiny_subject(context=64), EngineOptions(num_pages=16, max_batch=4))
        client = TestClient(create_app(served), base_url="http://127.0.0.1", raise_server_exceptions=False)
        client.__enter__()
        return client

    def seeds(self) -> list[bytes]:
        sampling = {"temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 1, "n": 1, "max_tokens": 2}
        more = {"stop": ["b"], "presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.1}
        bodies = (
            {"model": "tiny", "prompt": "ab", "logprobs": 2, **sampling, **more},
            {"model": "tiny", "prompt": [1, 2], "stream": True, **sampling},
            {"model": "tiny", "messages": [{"role": "user", "content": "hi <s>"}], "logprobs": True, **sampling},
            {"model": "tiny", "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}], **more,
             "max_tokens": 2},
        )  # fmt: skip
        return [json.dumps(body).encode() for body in bodies]

    def run(self, raw: bytes) -> str:
        is_chat = b"messages" in raw
        path = "/v1/chat/completions" if is_chat else "/v1/completions"
        answer = self._client.post(path, content=raw, headers={"Content-Type": "application/json"})
        if answer.status_code not in self.known:
            raise AssertionError(f"status {answer.status_code}: {answer.text[:200]}")
        if answer.status_code != 200:
            assert set(answer.json()["error"]) == {"message", "type", "param", "code"}, answer.text[:200]
            return "refused"
        return FORWARD


TARGETS: dict[str, type[Target]] = {
    target.name: target
    for target in (
        GgufTarget, SafetensorsTarget, ConfigTarget, QuantizedConfigTarget, GptqConfigTarget, TokenizerTarget,
        IndexTarget, RecipeTarget, SuiteTarget, RecordsTarget, KVStoreTarget, HttpTarget, ChangedArtifactTarget,
        NormalizerTarget, SpecialFileTarget,
    )
}  # fmt: skip


def corpus_of(name: str) -> Iterator[bytes]:
    """The inputs that once made the target fail."""
    for path in sorted((Path(__file__).parent / "corpus").glob(f"{name}-*")):
        yield path.read_bytes()
