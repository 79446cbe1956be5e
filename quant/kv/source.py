"""A model read with another KV format than it names."""

from collections.abc import Mapping
from typing import Any

from quant.kv.formats import KVFormat
from quant.kv.scheme import CONFIG_KEY, calibrate_kv
from quant.models import ModelConfig
from quant.qtensor import QTensor
from quant.source import Source, TensorInfo, TokenizerInfo


class KVSource:
    """`source` with keys and values in `fmt`; all else is as it was.

    raises   InputError for heads that the format cannot hold, and for one whose scales are calibrated
    """

    def __init__(self, source: Source, fmt: KVFormat) -> None:
        self.source = source
        fmt.check(ModelConfig.of(source).head_dim)
        self.config: Mapping[str, Any] = {**source.config, CONFIG_KEY: calibrate_kv(fmt, []).config_entry()}

    @property
    def spec(self) -> str:
        return self.source.spec

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return self.source.tensors

    @property
    def tokenizer(self) -> TokenizerInfo | None:
        return self.source.tokenizer

    def read(self, name: str) -> QTensor:
        return self.source.read(name)

    def fingerprint(self) -> str:
        return self.source.fingerprint()
