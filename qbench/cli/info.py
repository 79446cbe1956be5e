"""`qbench info`: this machine as the records describe it, and what its kernels can do."""

import click

from qbench.cli.output import json_option, print_json, print_pairs, readable_bytes
from qbench.cli.progress import progress_bar
from qbench.measure.host.machine import machine


@click.command("info")
@click.option("--measure/--no-measure", default=True, show_default=True, help="Measure bandwidth and peaks (seconds).")
@json_option
def command(measure: bool, as_json: bool) -> None:
    """This machine: processor, instruction sets, kernels, bandwidth and arithmetic peaks."""
    info = describe(measure)
    if as_json:
        print_json(info)
        return
    machine_peaks = info.pop("machine_peaks")
    kernels = info.pop("kernels")
    print_pairs(info)
    for op in kernels:
        state = "chosen" if op["chosen"] else "available" if op["available"] else "not on this machine"
        click.echo(f"kernel  {op['op']}  {op['impl']}  {state}")
    for threads, row in machine_peaks.items():
        click.echo(
            f"{threads} thread(s): read {readable_bytes(row['read_bytes_s'])}/s, "
            f"int8 {row['int8_op_s'] / 1e12:.3f} TOPS, fp32 {row['fp32_op_s'] / 1e12:.3f} TFLOPS"
        )


def describe(measure: bool) -> dict:
    """Machine fingerprint, the kernel table, and the machine peaks measured now (empty where not measured)."""
    import cpu_kernels

    info = machine().to_json()
    info["kernels"] = cpu_kernels.op_table()
    info["machine_peaks"] = {}
    if measure:
        counts = sorted({1, info["cores"]})
        with progress_bar("measuring") as update:
            for done, threads in enumerate(counts):
                update(done, len(counts), f"bandwidth and peaks, {threads} thread(s)")
                info["machine_peaks"][str(threads)] = {
                    "read_bytes_s": cpu_kernels.measure_read_bandwidth(threads),
                    "int8_op_s": cpu_kernels.measure_int8_peak(threads),
                    "fp32_op_s": cpu_kernels.measure_fp32_peak(threads),
                }
    return info
