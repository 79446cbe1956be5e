"""Output of `qbench sweep --dry-run`: a line per recipe, then time, memory and disk; with --json an object per case."""

import click

from qbench.cli.output import print_json, readable_bytes, readable_duration
from qbench.run.axes import SUITE_AXES
from qbench.run.case import Case
from qbench.words.read import markdown_grid

HEADINGS = ("model", "recipe", "cases", "measured", "quality", "speed", "takes", "says", "memory", "artifacts")
NUMERIC = (False, False, True, True, True, True, True, False, True, True)
# distance of the measured cases, the largest first
BASES = {
    "unfit": "will fail",
    "unknown": "nothing yet",
    "probed": "a probe",
    "alike": "records of others like it",
    "measured": "its records",
}


def print_forecast(suite, forecast, as_json: bool) -> None:
    if as_json:
        for case in forecast.cases:
            print_json(forecast_row(case))
        return
    click.echo(f"{suite.name} {suite.version}: {suite.description}".rstrip(": ") + "\n")
    by_recipe: dict[tuple[str, str], list] = {}
    for case in forecast.cases:
        by_recipe.setdefault((case.selected.point.model, case.selected.point.recipe), []).append(case)
    click.echo(markdown_grid([HEADINGS, *(recipe_line(*names, cases) for names, cases in by_recipe.items())], NUMERIC))
    click.echo("\n" + "\n".join(summary(suite, forecast)))


def forecast_row(case) -> dict:
    return {axis.name: axis.value(case.selected.point) for axis in SUITE_AXES} | {
        "measures": list(case.selected.sections),
        "is_measured": case.basis == "done",
        "seconds": case.seconds,
        "basis": case.basis,
        "reason": case.reason,
        "peak_rss_bytes": case.peak_rss_bytes,
        "artifact_bytes": case.artifact_bytes,
    }


def point_text(point: Case) -> str:
    return f"{point.model} {point.recipe}"


def recipe_line(model: str, recipe: str, cases: list) -> list[str]:
    waiting = [case for case in cases if case.basis != "done"]
    measures = [section for case in cases for section in case.selected.sections]
    known = [case.seconds for case in waiting if case.seconds is not None]
    basis = next((text for name, text in BASES.items() if any(case.basis == name for case in waiting)), "")
    return [
        model,
        recipe,
        str(len(cases)),
        str(len(cases) - len(waiting)),
        str(measures.count("eval")),
        str(measures.count("bench")),
        readable_duration(sum(known)) if known or not waiting else "?",
        basis,
        readable_bytes(max((case.peak_rss_bytes for case in waiting), default=0)),
        readable_bytes(sum(case.artifact_bytes for case in cases)),
    ]


def time_text(forecast) -> str:
    """Time of cases like measured ones, and the number of the others."""
    unknown = sum(case.seconds is None for case in forecast.waiting)
    if unknown and unknown == len(forecast.waiting):
        return "unknown: records have no case like these; the first one that ends shows how long the others take"
    without = f", without {unknown} cases of unknown time" if unknown else ""
    return f"about {readable_duration(forecast.seconds)}{without}"


def summary(suite, forecast) -> list[str]:
    """Time, memory and disk, and those that the machine lacks."""
    disk = forecast.artifact_bytes + forecast.temporary_bytes
    artifacts, beside = readable_bytes(forecast.artifact_bytes), readable_bytes(forecast.temporary_bytes)
    lines = [
        f"to measure  {len(forecast.waiting)} of {len(forecast.cases)} cases",
        f"time        {time_text(forecast)}",
        f"memory      {readable_bytes(forecast.peak_rss_bytes)} at most, of {readable_bytes(forecast.memory_bytes)}",
        f"disk        {artifacts} of artifacts, {beside} more while it runs; "
        f"{readable_bytes(forecast.free_disk_bytes)} are free",
    ]
    lines += [f"will fail   {point_text(case.selected.point)}: {case.reason}" for case in forecast.cases if case.reason]
    if forecast.peak_rss_bytes > forecast.memory_bytes:
        lines.append("warning: that is more memory than this machine has; leave cases out with `exclude` or --only")
    if disk > forecast.free_disk_bytes:
        lines.append("warning: that is more disk than is free; make room, or choose another folder with -o")
    if suite.eval and any(model.startswith("rand:") for model in suite.axes["model"]):
        lines.append("rand: models are never evaluated: random weights predict nothing")
    return lines
