"""Others' kernels, which are timed next to ours if they are installed, and are not listed otherwise."""

from importlib import metadata, util

from gpu_kernels.proof.problems import Peer

# Module -> the distribution that brings it.
DISTRIBUTIONS = {"flashinfer": "flashinfer-python", "vllm": "vllm"}


def where_installed(module: str, peers: dict[str, Peer]) -> dict[str, Peer]:
    """The peers, whose code imports the module when it runs; {} without it."""
    return peers if util.find_spec(module) else {}


def peer_versions() -> dict[str, str]:
    """Versions of those that are installed, by module."""
    return {module: metadata.version(name) for module, name in DISTRIBUTIONS.items() if util.find_spec(module)}
