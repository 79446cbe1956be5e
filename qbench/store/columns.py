"""The flat columns of a sweep's rows: name, place in a record, and SQL type."""

from dataclasses import dataclass, fields

from qbench.run.axes import AXES, Axis, Heading
from qbench.run.case import Case

NUMBER, COUNT, TEXT, FLAG, JSON = "DOUBLE", "BIGINT", "VARCHAR", "BOOLEAN", "JSON"
INTERVAL = "DOUBLE[]"
AS_JSON = "to_json({})"
MAP_OF_TEXT = "MAP(VARCHAR, VARCHAR)"


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    path        its place in the record, names joined by dots; "case", "metrics" and "machine" are the whole of them
    stored      SQL type there
    expression  conversion, with {} for the value; lists count from 1
    """

    path: str
    stored: str = NUMBER
    expression: str = "{}"

    @property
    def is_json(self) -> bool:
        return self.stored == JSON or self.expression == AS_JSON


def _metrics(stored: str, *names: str) -> dict[str, Column]:
    return {name: Column(f"metrics.{name}", stored) for name in names}


def _case(stored: str, *names: str) -> dict[str, Column]:
    return {name: Column(f"case.{name}", stored) for name in names}


def _interval(name: str, path: str) -> dict[str, Column]:
    return {f"{name}_{end}": Column(path, INTERVAL, f"{{}}[{i}]") for i, end in enumerate(("low", "high"), start=1)}


def _phase(phase: str) -> dict[str, Column]:
    speed = f"{phase}_tok_s"
    spread = {f"{phase}_{end}": Column(f"metrics.spread.{speed}.{end}") for end in ("min", "max")}
    return {**_metrics(NUMBER, speed), **spread}


def keys_of_axis(axis: Axis) -> tuple[str, ...]:
    """Its place in the document of a case."""
    return (*([Case.json_keys.get(axis.part, axis.part)] if axis.part else []), axis.field)


def _axis(axis: Axis, heading: Heading) -> Column:
    """The column of an axis; a record lacks the key of a usual value that `Case.json_omits` names."""
    usual = None if axis.part else DEFAULTS[axis.field]
    is_omitted = usual is not None and axis.field in Case.json_omits
    return Column(
        heading.path or ".".join(("case", *keys_of_axis(axis))),
        COUNT if axis.kind is int or axis.name == "kv_ram" else TEXT,
        f"coalesce({{}}, '{usual}')" if is_omitted else "{}",
    )


DEFAULTS = {one.name: one.default for one in fields(Case)}
OF_AXES = {axis.heading.column or axis.name: _axis(axis, axis.heading) for axis in AXES if axis.heading is not None}
STATISTICS = ("mean", "median", "p90", "p99", "p999", "max")
# Columns of entries with names of their own per row, as far as a table shows them: items and blocks stay in the
# records.
TASKS = (
    "MAP(VARCHAR, STRUCT(metric VARCHAR, value DOUBLE, error DOUBLE, interval DOUBLE[], num_items BIGINT, "
    "protocol_hash VARCHAR))"
)
PROTOCOLS = "MAP(VARCHAR, STRUCT(perplexity DOUBLE, perplexity_interval DOUBLE[], protocol STRUCT(hash VARCHAR)))"

COLUMNS: dict[str, Column] = {
    **OF_AXES,
    **_case(TEXT, "fingerprint"),
    **{name: Column(name, TEXT) for name in ("status", "error")},
    **_metrics(NUMBER, "bits_per_weight"),
    **_metrics(COUNT, "size_bytes"),
    **_metrics(TEXT, "artifact"),
    **_metrics(NUMBER, "perplexity"),
    **_interval("perplexity", "metrics.perplexity_interval"),
    **_metrics(COUNT, "num_tokens", "non_finite"),
    **{f"kld_{name}": Column(f"metrics.kld.{name}") for name in STATISTICS},
    **_interval("kld", "metrics.kld_interval"),
    **_metrics(NUMBER, "same_top"),
    **{name: Column(f"case.bench.{name}", COUNT) for name in ("pp", "tg")},
    **_phase("pp"),
    **_phase("tg"),
    **_interval("tg", "metrics.interval.tg_tok_s"),
    **_metrics(NUMBER, "ttft_ms", "tpot_ms"),
    **{f"roofline_{phase}": Column(f"metrics.roofline.{phase}") for phase in ("pp", "tg")},
    "roofline_of": Column("metrics.roofline.bandwidth_of", TEXT),
    "roofline_units": Column(
        "metrics.roofline.units", MAP_OF_TEXT, "nullif(array_to_string(map_values({}), ', '), '')"
    ),
    **_metrics(COUNT, "peak_rss_bytes", "baseline_rss_bytes", "peak_device_bytes"),
    "predicted_bytes": Column("metrics.predicted_bytes.total", COUNT),
    **_metrics(NUMBER, "kv_bytes_per_token", "quantize_seconds"),
    **_metrics(COUNT, "quantize_peak_rss_bytes"),
    **_metrics(NUMBER, "seconds", "wall_seconds", "overhead_seconds", "machine_peaks_seconds"),
    "impls": Column("metrics.impls", "MAP(VARCHAR, BIGINT)", "nullif(array_to_string(map_keys({}), ', '), '')"),
    **_metrics(NUMBER, "prefill_blocks", "prefill_mass"),
    **_metrics(COUNT, "kv_bytes_held", "kv_peak_bytes"),
    **_metrics(NUMBER, "tokens_read", "kv_blocks_loaded", "kv_bytes_read", "kv_hit_share"),
    **{f"{name}_bytes": Column(f"metrics.offload.{name}_bytes", COUNT) for name in ("memory_limit", "streamed")},
    **_case(COUNT, "context"),
    "load_average": Column("metrics.load_average.before", "DOUBLE[]", "{}[1]"),
    "protocol": Column("metrics.protocol.name", TEXT),
    "protocol_hash": Column("metrics.protocol.hash", TEXT),
    "tasks": Column("metrics.tasks", TASKS, AS_JSON),
    "protocols": Column("metrics.protocols", PROTOCOLS, AS_JSON),
    "machine": Column("machine.id", TEXT),
    "cpu": Column("machine.cpu", TEXT),
    "processor": Column("machine.processor", TEXT),
    "cores": Column("machine.cores", COUNT),
    **{name: Column(name, TEXT) for name in ("commit", "code", "time", "key")},
    "dirty": Column("dirty", FLAG),
    "versions": Column("versions", JSON),
}

ORIGIN: dict[str, Column] = {
    "machine": Column("machine.id", TEXT),
    "cpu": Column("machine.cpu", TEXT),
    **{name: Column(name, TEXT) for name in ("commit", "time", "key")},
}

OURS = "{}['qbench']."
CONTENDERS = (
    "MAP(VARCHAR, STRUCT(how VARCHAR, ms DOUBLE, gb_s DOUBLE, tera_ops DOUBLE, share DOUBLE, "
    "ratio STRUCT(median DOUBLE, min DOUBLE, max DOUBLE)))"
)
# Records of `qbench kernels`.
KERNEL_COLUMNS: dict[str, Column] = {
    **_case(TEXT, "op", "shape"),
    **_case(COUNT, "tokens", "threads"),
    **_case(TEXT, "clock"),
    **{name: Column("metrics.contenders", CONTENDERS, OURS + name) for name in ("ms", "gb_s", "tera_ops", "share")},
    "impl": Column("metrics.contenders", CONTENDERS, OURS + "how"),
    **_metrics(TEXT, "bound_by", "arithmetic", "unit", "isa"),
    **_metrics(COUNT, "moved_bytes", "operations"),
    "protocol_hash": COLUMNS["protocol_hash"],
    "contenders": Column("metrics.contenders", CONTENDERS, AS_JSON),
    **ORIGIN,
}


def _versus(phase: str) -> dict[str, Column]:
    sides = {f"{phase}_{side}_tok_s": Column(f"metrics.{side}.{phase}_tok_s") for side in ("ours", "theirs")}
    ends = {"": "median", "_min": "min", "_max": "max"}
    return sides | {f"{phase}_ratio{end}": Column(f"metrics.ratio.{phase}.{name}") for end, name in ends.items()}


# Records of `qbench race --vs`.
VERSUS_COLUMNS: dict[str, Column] = {
    **_case(TEXT, "peer", "model"),
    **_case(COUNT, "pp", "tg", "depth", "threads"),
    **_case(TEXT, "kv_format", "clock"),
    **_versus("pp"),
    **_versus("tg"),
    **_metrics(NUMBER, "bits_per_weight", "kv_bits"),
    **_metrics(COUNT, "size_bytes"),
    "impls": COLUMNS["impls"],
    **ORIGIN,
}

# Rows as they are: the keys that define them, and everything else as JSON.
WHOLE_COLUMNS: dict[str, Column] = {
    **{name: Column(name, TEXT) for name in ("key", "time", "status", "error")},
    "kind": Column("case.kind", TEXT),
    **_case(TEXT, "model", "recipe"),
    "case": Column("case", JSON),
    "metrics": Column("metrics", JSON),
    "machine": Column("machine", JSON),
    "machine_id": Column("machine.id", TEXT),
    "commit": Column("commit", TEXT),
    "dirty": Column("dirty", FLAG),
    "code": Column("code", TEXT),
    "versions": Column("versions", JSON),
    "schema_version": Column("schema_version", COUNT),
}
