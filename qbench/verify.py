"""An artifact made again from its manifest, calibration included, and compared with the one that is there."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from qbench.calibration.run import Run, choose_basis, quantized_model
from qbench.progress import Progress
from qbench.run.work import CalibrationWork
from qbench.sources import open_source
from quant.artifacts.manifest import changes, versions
from quant.calibrated import Calibration, ImatrixCalibration
from quant.errors import InputError
from quant.job import QuantizationJob, make_job
from quant.source import Source
from quant.verify import check_source, differences, manifest_of, recipe_of


@dataclass(frozen=True, slots=True)
class Verified:
    """differing   name -> difference
    files         file -> difference of its bytes, metadata included; looked at if no tensor differs
    has_digests   whether the manifest holds digests of files
    versions      package -> (then, now) of those that are not the manifest's; with others, bytes may differ
    """

    num_tensors: int
    differing: dict[str, str]
    files: dict[str, str]
    has_digests: bool
    versions: dict[str, tuple[str | None, str | None]]


def verify(
    path: Path,
    *,
    spec: str | None = None,
    text: str | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> Verified:
    """Whether tensors are bit for bit those of the manifest's recipe and source, and files as they were written.

    spec     of the source, if it has moved; text: of the calibration, if that has moved
    raises   InputError if there is no manifest, or source or calibration text is gone or changed
    """
    manifest = manifest_of(path)
    artifact = open_source(str(path))
    source = open_source(spec or manifest.source.spec)
    check_source(source, manifest)
    recipe, by = recipe_of(manifest), None if manifest.calibration is None else manifest.calibration.by
    if recipe is None:
        differing = dict(differences(artifact, source, manifest.container, progress))
    else:
        differing = _differing(artifact, make_job(source, recipe), by, text, threads, progress)
    now = versions()
    unlike = {name: (then, now.get(name)) for name, then in manifest.versions.items() if then != now.get(name)}
    files = {} if differing else changes(path, manifest)
    return Verified(len(artifact.tensors), differing, files, manifest.has_digests, unlike)


def _differing(
    artifact: Source,
    job: QuantizationJob,
    described: Calibration | None,
    text: str | None,
    threads: int,
    progress: Progress | None,
) -> dict[str, str]:
    """Name -> difference, against the artifact that the job makes now. described: the manifest's calibration"""
    options = CalibrationWork()
    if described is not None:
        options = options_of(described, text)
        check_calibration(job, options, described)
    with TemporaryDirectory(prefix="qbench-") as folder:
        model = quantized_model(job, options, Path(folder) / "stage", Run(threads, progress=progress))
        with model as remade:
            return dict(differences(artifact, remade, job.container, progress))


def options_of(described: Calibration, text: str | None) -> CalibrationWork:
    """Options of a calibration that a manifest describes. text: present path of its text, or None"""
    if isinstance(described, ImatrixCalibration):
        return CalibrationWork(imatrix=Path(text or described.imatrix))
    return CalibrationWork(
        text=text or described.text,
        samples=described.asked_samples,
        seq_len=described.seq_len,
        seed=described.seed,
        on=described.on,
        min_expert_tokens=described.min_expert_tokens,
        arithmetic=described.arithmetic,
    )


def check_calibration(job: QuantizationJob, options: CalibrationWork, described: Calibration) -> None:
    """raises InputError where the text gives other tokens than it did, or the importance matrix is another"""
    now = choose_basis(job, options).about.calibration
    if now.sha256 != described.sha256:
        what = options.imatrix or options.text
        raise InputError(
            f"{what} is not what the artifact was calibrated on, or has changed: sha256 {now.sha256[:12]}, the "
            f"manifest's {described.sha256[:12]}; name the right one with --calibration"
        )
