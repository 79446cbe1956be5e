"""A model read with another KV format than it names."""

from quant.kv.formats import KVFormat
from quant.kv.scheme import CONFIG_KEY, calibrate_kv
from quant.models import ModelConfig
from quant.source import Source, SourceView


class KVSource(SourceView):
    """`source` with keys and values in `fmt`; all else is as it was.

    raises   InputError for heads that the format cannot hold, and for one whose scales are calibrated
    """

    def __init__(self, source: Source, fmt: KVFormat) -> None:
        super().__init__(source)
        fmt.check(ModelConfig.of(source).head_dim)
        self.config = {**source.config, CONFIG_KEY: calibrate_kv(fmt, []).config_entry()}
