"""A model read with another KV format than it names."""

from quant.kv import get_kv_format
from quant.kv.scheme import CONFIG_KEY, calibrate_kv
from quant.kv_names import FLOAT32
from quant.models import ModelConfig
from quant.source import SameWeights, Source


class KVSource(SameWeights):
    """`source` with keys and values in the named format; all else is as it was.

    kv_format   one of KV_FORMATS, or FLOAT32: keys and values as they are computed
    raises      InputError for an unknown name, for heads that the format cannot hold, and for calibrated scales
    """

    def __init__(self, source: Source, kv_format: str) -> None:
        super().__init__(source)
        self.config = {key: value for key, value in source.config.items() if key != CONFIG_KEY}
        if kv_format != FLOAT32:
            fmt = get_kv_format(kv_format, others=(FLOAT32,))
            fmt.check(ModelConfig.of(source).head_dim)
            self.config[CONFIG_KEY] = calibrate_kv(fmt, []).config_entry()
