"""Models on disk: read and written as GGUF files and Hugging Face directories."""

from quant.artifacts.gguf_reader import GGUFSource
from quant.artifacts.hf_reader import HFSource
from quant.artifacts.manifest import read_manifest
from quant.artifacts.write import write_artifact

__all__ = ["GGUFSource", "HFSource", "read_manifest", "write_artifact"]
