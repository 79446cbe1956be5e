"""An artifact's examination: tensor by tensor, then as a whole."""

from collections.abc import Callable
from pathlib import Path

from quant.artifacts.gguf_reader import GGUFSource
from quant.artifacts.gguf_rope import rows_to_pairs
from quant.artifacts.manifest import Manifest, changes, hash_tensor, read_manifest
from quant.doctor.findings import Finding
from quant.doctor.inventory import open_or_explain
from quant.doctor.measure import measure
from quant.doctor.model_checks import expert_coverage, kv_scales, manifest_tensors, tied_weights
from quant.doctor.reference import Reference, reference_of
from quant.doctor.report import Report
from quant.doctor.tensor_checks import FLIPS_FOUND, TENSOR_CHECKS
from quant.errors import InputError
from quant.models import HEAD, ModelConfig, expected_tensors
from quant.models.encoder_decoder import is_encoder_decoder
from quant.qtensor import QTensor
from quant.source import Source

Progress = Callable[[int, int, str], None]  # tensors done, tensors in all, name


def examine(
    path: Path, open_source: Callable[[str], Source], *, spec: str | None = None, progress: Progress | None = None
) -> Report:
    """Contents and errors of an artifact; peak memory is one tensor and its source's.

    open_source   how specs of models are opened
    spec          of the model that it was made from; None: the source in the manifest, if that still exists
    raises        InputError for a path that is no model, a manifest that is damaged, and a source of another model
    """
    report = Report()
    manifest = read_manifest(path)
    artifact, report.findings = open_or_explain(path, open_source)
    if artifact is None:
        report.skipped["tensors"] = "the structure is not whole"
        return report
    reference = reference_of(artifact, manifest, spec, open_source)
    if reference.why_not is not None:
        report.skipped["sqnr"] = reference.why_not
    for index, name in enumerate(artifact.tensors):
        if progress is not None:
            progress(index, len(artifact.tensors), name)
        _examine_tensor(report, artifact, name, reference, manifest)
    _examine_model(report, artifact, manifest)
    if manifest is not None and not report.findings:  # damage that was found shows in the digests, too
        report.findings += [Finding("files", name, why) for name, why in changes(path, manifest).items()]
    return report


def _examine_tensor(
    report: Report, artifact: Source, name: str, reference: Reference, manifest: Manifest | None
) -> None:
    try:
        qtensor = artifact.read(name)
    except InputError as error:
        report.findings.append(Finding("readable", name, str(error)))
        return
    if manifest is not None and name in manifest.tensors:
        if stored_hash(artifact, name, qtensor) != manifest.tensors[name].sha256:
            report.findings.append(Finding("hash", name, "its bytes are not those that the manifest was written for"))
    measured = measure(name, qtensor, reference.read(name))
    report.tensors.append(measured)
    for check, find in TENSOR_CHECKS.items():
        message = find(measured)
        if message is not None:
            apart = check == "sqnr" and name == HEAD and reference.tied
            report.findings.append(Finding("tied weights" if apart else check, name, message))


def _examine_model(report: Report, artifact: Source, manifest: Manifest | None) -> None:
    if is_encoder_decoder(artifact.config):
        report.skipped["KV scales"] = "an encoder-decoder has none"
    else:
        report.findings += [*tied_weights(artifact), *kv_scales(artifact)]
    if manifest is None:
        report.skipped |= dict.fromkeys(("hash", "files", "manifest", "expert coverage"), "there is no manifest")
        report.skipped["hash"] += f"; {FLIPS_FOUND}"
        return
    if not manifest.has_digests:
        report.skipped["files"] = "the manifest is of an older version, without digests of files"
    report.findings += [*manifest_tensors(artifact, manifest), *expert_coverage(manifest)]
    if manifest.calibration is None or not manifest.calibration.experts:
        report.skipped["expert coverage"] = "nothing of experts was calibrated"


def stored_hash(artifact: Source, name: str, qtensor: QTensor) -> str:
    """The tensor's hash as manifests have it: rows in the order in which the file keeps them."""
    if isinstance(artifact, GGUFSource):
        heads = expected_tensors(ModelConfig.of(artifact))[name].heads
        if heads:
            qtensor = qtensor.take_rows(rows_to_pairs(qtensor.shape[0], heads))
    return hash_tensor(qtensor)
