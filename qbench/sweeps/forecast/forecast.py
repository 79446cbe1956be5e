"""Forecast of a sweep before it runs: time, memory and disk, case by case."""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import psutil

from qbench.measure.host.machine import machine
from qbench.measure.host.memory import current_rss_bytes
from qbench.measure.records.record import case_key, read_records
from qbench.measure.records.record_files import record_files
from qbench.quality.evaluate import prepare, read_text
from qbench.quality.kld.reference_logits import default_mode, kept_bytes
from qbench.quality.protocols.conventions import DEFAULT
from qbench.quality.protocols.forward import batch_size, scoring_bytes
from qbench.quality.protocols.scoring import GPTQ_WINDOW, Scoring
from qbench.run.cache_spec import DEFAULT_CACHE, CacheSpec
from qbench.run.case import Case
from qbench.run.work import CalibrationWork
from qbench.runtime.memory import MemoryPredictor
from qbench.sources import open_source
from qbench.sources.planned import PlannedSource, foreseen_scheme
from qbench.speed.case_memory import parts_of_case
from qbench.sweeps.case_runner import CaseRunner
from qbench.sweeps.forecast.past import Past
from qbench.sweeps.job import ModelProbe, ProbeJob
from qbench.sweeps.job_runner import JobFailed, run_job
from qbench.sweeps.messages import JobRequest
from qbench.sweeps.suite.cases import Selected
from qbench.sweeps.suite.grid import chosen_kv_format
from qbench.sweeps.suite.suite import Suite
from qbench.sweeps.sweep import Selection, measured_keys, selected_cases
from quant.errors import InputError
from quant.job import make_job
from quant.models import ModelConfig
from quant.present import present
from quant.recipes import get_recipe
from quant.source import Source

PROBE_BUDGET_S = 15.0  # for the recipes of one model: somebody waits for the forecast
OnProbe = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class CaseForecast:
    """seconds          None: nothing like it was measured, and the probe failed or the case has tasks, whose texts no
                     probe reads
    basis            "done", "measured", `"alike"`, "probed", "unknown", or "unfit" for one that will fail
    reason           why it will
    artifact_bytes   written for this case, 0 where the artifact is there or another case makes it
    """

    selected: Selected
    seconds: float | None
    basis: str
    peak_rss_bytes: int
    artifact_bytes: int
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class SweepForecast:
    """The cases in their order, and the resources of this machine.

    temporary_bytes   of logits that are stored next to the artifacts while it runs
    """

    cases: list[CaseForecast]
    temporary_bytes: int
    free_disk_bytes: int
    memory_bytes: int

    @property
    def waiting(self) -> list[CaseForecast]:
        return [case for case in self.cases if case.basis != "done"]

    @property
    def seconds(self) -> float:
        """Seconds of the cases to measure; cases without any basis are left out."""
        return sum(case.seconds or 0.0 for case in self.cases)

    @property
    def peak_rss_bytes(self) -> int:
        return max((case.peak_rss_bytes for case in self.waiting), default=0)

    @property
    def artifact_bytes(self) -> int:
        return sum(case.artifact_bytes for case in self.cases)


def forecast_sweep(
    suite: Suite,
    out_dir: Path,
    selection: Selection,
    kept: Path,
    on_probe: OnProbe | None = None,
) -> SweepForecast:
    """The work that `run_sweep` would do with the same arguments; nothing is written.

    kept       folder of kept records, which show how long cases take on this machine, as those of the run do
    on_probe   called for the short runs of models that have no record
    raises     as `run_sweep` before it makes its folder
    """
    selected, cases = selected_cases(suite, selection)
    here, records = {machine().id}, out_dir / "records.jsonl"
    past = read_past(here, records, kept)
    keys = set() if selection.fresh else measured_keys(records, here)
    held = {index for index, case in enumerate(cases) if case_key(case) in keys}
    waiting = [case for index, case in enumerate(cases) if index not in held]
    runner = CaseRunner(out_dir / "artifacts", out_dir / "tmp")
    told = _Forecaster(past, probe_unknown(waiting, past, runner, on_probe), runner)
    forecasts = [
        told.done(selected[index]) if index in held else told.case(selected[index], case)
        for index, case in enumerate(cases)
    ]
    place = next(parent for parent in (out_dir, *out_dir.absolute().parents) if parent.exists())
    return SweepForecast(forecasts, told.temporary_bytes, shutil.disk_usage(place).free, psutil.virtual_memory().total)


def read_past(machines: set[str], records: Path, kept: Path) -> Past:
    """The rows of the run itself, and those kept from earlier runs."""
    past = Past(machines)
    places = [place for place in (records, kept) if place.is_file() or any(place.rglob("*.jsonl"))]
    for file in record_files(places):
        past.read(read_records(file, machines))
    return past


def probe_unknown(
    cases: Sequence[Case], past: Past, runner: CaseRunner, on_probe: OnProbe | None
) -> dict[str, ModelProbe]:
    """A probe of each model that has a case without any record like it, or a recipe to quantize by that no record has.

    A model whose probe fails is left out.
    """
    probes = {}
    unmade = [case for case in cases if past.quantizing(case) is None and runner.made(case) is None]
    unmeasured = [case for case in cases if not case.tasks and past.measuring(case) is None]
    unknown = {case.model for case in (*unmade, *unmeasured)}
    for model in dict.fromkeys(case.model for case in cases if case.model in unknown):
        of_model = [case for case in cases if case.model == model]
        recipes = list(dict.fromkeys(present(case.recipe) for case in unmade if case.model == model))
        threads = max(case.threads or 1 for case in of_model)
        job = ProbeJob(model, tuple(recipes), of_model[0].calibration, threads, PROBE_BUDGET_S)

        def progress(done: int, total: int, what: str, model: str = model) -> None:
            if on_probe:
                on_probe(done, total, f"probe {model}: {what}")

        progress(0, 0, "a few passes")
        with tempfile.TemporaryDirectory(prefix="qbench-") as folder:
            try:
                request = JobRequest(job.name, job.to_json())
                probes[model] = job.answer(run_job(request, Path(folder) / "log", progress=progress))
            except JobFailed:
                continue  # its cases are shown as unknown; the sweep's rows will say why
    return probes


class _Forecaster:
    """One case after another: an artifact, and a reference, are the first case's that needs them."""

    def __init__(self, past: Past, probes: dict[str, ModelProbe], runner: CaseRunner) -> None:
        self.past, self.probes, self.runner = past, probes, runner
        self.artifacts: set[tuple[Path, CalibrationWork | None]] = set()
        self.folders: set[Path] = set()
        self.references: set[str] = set()
        self.scorings: dict[tuple[str, str | None], list[Scoring]] = {}
        self.temporary_bytes = 0
        self.source = cache(open_source)
        self.planned_source, self.predictor = cache(self._planned_source), cache(self._predictor)
        self.baseline = current_rss_bytes()  # this process has torch loaded, as a worker has

    def done(self, selected: Selected) -> CaseForecast:
        return CaseForecast(selected, 0.0, "done", 0, 0)

    def case(self, selected: Selected, case: Case) -> CaseForecast:
        try:
            return self.fitting_case(selected, case)
        except InputError as error:  # the recipe, or the KV format, does not fit this model
            return CaseForecast(selected, 0.0, "unfit", 0, 0, str(error))

    def fitting_case(self, selected: Selected, case: Case) -> CaseForecast:
        measuring, basis = self.measuring(case)
        before: list[float] = []  # seconds of making the artifact and the reference
        artifact_bytes = 0
        folder = self.runner.folder(case)
        if (folder, case.calibration) not in self.artifacts:
            self.artifacts.add((folder, case.calibration))
            if self.runner.made(case) is None:
                before.append(self.quantizing(case))
                if folder not in self.folders:  # another calibration replaces the file
                    planned = self.planned_source(case.model, present(case.recipe))
                    artifact_bytes = sum(info.size_bytes for info in planned.tensors.values())
                self.folders.add(folder)
        if case.quality and case.model not in self.references:
            self.references.add(case.model)
            before.append(self.referencing(case))
        seconds = None if measuring is None else measuring + sum(before)
        return CaseForecast(selected, seconds, basis, self.peak_rss_bytes(case), artifact_bytes)

    def measuring(self, case: Case) -> tuple[float | None, str]:
        known, probe = self.past.measuring(case), self.probes.get(case.model)
        if known:
            return known.seconds, known.basis
        if probe is None or case.tasks:
            return None, "unknown"
        speed, seconds = case.speed, probe.load_s
        if speed:
            prompts = case.batch * speed.pp * probe.token_s
            rounds = speed.repetitions + 1  # one warms up
            seconds += rounds * (prompts + speed.tg * probe.step_s)
            seconds += case.batch * speed.depth * probe.token_s
        if case.quality:
            seconds += self.eval_tokens(case) * probe.judged_token_s
        return seconds, "probed"

    def quantizing(self, case: Case) -> float:
        """As this recipe took before, else as the probe says of it, else as the mean of those that it tried."""
        known, probe = self.past.quantizing(case), self.probes.get(case.model)
        if known is not None or probe is None:
            return known or 0.0
        tried = probe.quantize_s
        return tried.get(present(case.recipe), sum(tried.values()) / max(1, len(tried)))

    def referencing(self, case: Case) -> float:
        vocab_size = ModelConfig.of(self.source(case.model)).vocab_size
        for scoring in self.eval_scorings(case):
            self.temporary_bytes += kept_bytes(scoring, vocab_size, default_mode(scoring, vocab_size))
        known, probe = self.past.referencing(case), self.probes.get(case.model)
        if known is not None or probe is None:
            return known or 0.0
        return self.eval_tokens(case) * probe.token_s

    def eval_tokens(self, case: Case) -> int:
        return sum(len(window.tokens) for scoring in self.eval_scorings(case) for window in scoring.windows)

    def eval_scorings(self, case: Case) -> list[Scoring]:
        """The tokens that the case's protocols score, made once per model and text."""
        settings = present(case.quality)
        place = case.model, settings.text
        if place not in self.scorings:
            text, protocols = read_text(settings.text, case.model), settings.protocols or (DEFAULT,)
            self.scorings[place] = prepare(self.source(case.model), text, settings.max_windows, protocols)
        return self.scorings[place]

    def _planned_source(self, model: str, recipe: str) -> Source:
        return PlannedSource(make_job(self.source(model), get_recipe(recipe)))

    def _predictor(self, model: str, recipe: str | None, spec: CacheSpec | None = None) -> MemoryPredictor:
        """Predictor of the model as the recipe leaves it, or of the reference that it is compared with."""
        if recipe is None:
            return MemoryPredictor(self.source(model), impl="reference")
        return MemoryPredictor(self.planned_source(model, recipe), spec=spec or DEFAULT_CACHE)

    def predictor_of(self, case: Case) -> MemoryPredictor:
        """raises InputError where recipe, KV format or cache policy do not fit the model"""
        own, chosen = self.predictor(case.model, case.recipe, case.cache_spec), chosen_kv_format(case)
        return own if chosen is None else own.with_scheme(foreseen_scheme(self.source(case.model), chosen))

    def peak_rss_bytes(self, case: Case) -> int:
        """The measured peak, else the predicted bytes of the runtime plus those of an empty worker."""
        known, predictor = self.past.peak_rss_bytes(case), self.predictor_of(case)
        parts = [known or 0]
        if case.tasks and not known:
            window = min(GPTQ_WINDOW, predictor.config.max_positions)
            parts.append(predictor.at(window, case.batch).total_bytes + self.baseline)
        if case.speed and not known:
            parts.append(parts_of_case(predictor, replace(case.speed, batch=case.batch)).total_bytes + self.baseline)
        if case.quality:
            config = predictor.config
            window = min(GPTQ_WINDOW, config.max_positions)
            batch = batch_size(window, config.vocab_size)
            both = (one.at(window, batch).total_bytes for one in (predictor, self.predictor(case.model, None)))
            scoring = scoring_bytes(window * batch, config.vocab_size, num_models=2)
            parts.append(max(both) + scoring + self.baseline)
        return max(parts)
