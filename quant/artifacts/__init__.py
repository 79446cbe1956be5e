"""Models on disk: read and written as GGUF files and Hugging Face directories."""

from quant.artifacts.gguf_reader import GGUFSource
from quant.artifacts.hf_reader import HFSource
from quant.artifacts.manifest import read_manifest
from quant.artifacts.output import make_artifact_job
from quant.artifacts.write import copy_artifact, write_artifact

__all__ = ["GGUFSource", "HFSource", "copy_artifact", "make_artifact_job", "read_manifest", "write_artifact"]
