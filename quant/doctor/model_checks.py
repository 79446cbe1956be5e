"""Checks that need more than one tensor: the manifest's list, experts, tied weights, scales of keys and values."""

from collections.abc import Iterator
from statistics import median

from quant.artifacts.hf_reader import HFSource
from quant.artifacts.manifest import Manifest
from quant.doctor.findings import Finding
from quant.errors import InputError
from quant.kv import KVScheme
from quant.models import HEAD, ModelConfig
from quant.source import Source

# Tokens that an expert was calibrated on, over its layer's mean: with fewer its statistics are noise compared with the
# others'.
LEAST_EXPERT_SHARE = 0.01
# Between a layer's scale and the median layer's. Keys of real models differ by a hundred; a flipped bit by far more.
KV_SCALE_RATIO = 2.0**11


def manifest_tensors(artifact: Source, manifest: Manifest) -> Iterator[Finding]:
    """The names, formats and shapes that the manifest lists against those that are there."""
    listed = manifest.tensors
    for name in listed.keys() - artifact.tensors.keys():
        yield Finding("manifest", name, "the manifest lists the tensor, and the artifact has it not")
    for name, info in artifact.tensors.items():
        if name not in listed:
            yield Finding("manifest", name, "the tensor is not in the manifest")
        elif (listed[name].format, listed[name].shape) != (info.format, info.shape):
            wanted = f"{listed[name].format} {list(listed[name].shape)}"
            yield Finding("manifest", name, f"it is {info.format} {list(info.shape)}, the manifest says {wanted}")


def expert_coverage(manifest: Manifest) -> Iterator[Finding]:
    """Experts that calibration hardly reached."""
    experts = None if manifest.calibration is None else manifest.calibration.experts
    for layer, row in (experts or {}).items():
        least = LEAST_EXPERT_SHARE * sum(row.tokens) / len(row.tokens)
        for expert, count in enumerate(row.tokens):
            if count == 0 or count < least:
                yield Finding(
                    "expert coverage",
                    f"layer {layer}, expert {expert}",
                    f"calibrated on {count} tokens, its layer's mean is {least / LEAST_EXPERT_SHARE:.0f}",
                )


def tied_weights(artifact: Source) -> Iterator[Finding]:
    """A head that a directory keeps in addition to the embedding, though its config says that they are one."""
    if isinstance(artifact, HFSource) and artifact.has_untied_head:
        yield Finding("tied weights", HEAD, "config.json says that it is the embedding, and its values differ")


def kv_scales(artifact: Source) -> Iterator[Finding]:
    """Scales of a calibrated cache that are missing, impossible, or far from those of the other layers."""
    try:
        scheme = KVScheme.of(artifact.config, ModelConfig.of(artifact), "config")
    except InputError as error:
        yield Finding("KV scales", "model", str(error))
        return
    if scheme is None:
        return
    for what, scales in (("k_scale", scheme.k_scale), ("v_scale", scheme.v_scale)):
        if scales is None:
            continue
        middle = median(scales.max(axis=1).tolist())
        for layer, row in enumerate(scales):
            if not middle / KV_SCALE_RATIO < row.max() < middle * KV_SCALE_RATIO:
                message = f"{what} is {row.max():.4g}, the median layer's {middle:.4g}"
                yield Finding("KV scales", f"layer {layer}", message)
