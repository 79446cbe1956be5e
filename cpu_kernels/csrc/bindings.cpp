#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <initializer_list>
#include <string>
#include <tuple>
#include <utility>

#include "attention/kernels.h"
#include "bindings.h"
#include "blocks/blocks.h"
#include "decode/decode.h"
#include "encode/encode.h"
#include "fused/group/group.h"
#include "gptq/gptq.h"
#include "gram/gram.h"
#include "group_quant/group_quant.h"
#include "isa.h"
#include "linear/block.h"
#include "linear_float/linear_float.h"
#include "linear_int8/linear_int8.h"
#include "llm_int8/llm_int8.h"
#include "mla/kernels.h"
#include "moe/net.h"
#include "roofline/roofline.h"
#include "scratch.h"
#include "thread_pool.h"
#include "timeline.h"
#include "trellis/trellis.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

nb::tuple names_in(qk::Features features) {
    nb::list names;
    for (int i = 0; i < qk::num_isas; i++)
        if (features >> i & 1) names.append(qk::isa_names[i]);
    return nb::tuple(names);
}

// ---- timeline

nb::dict timeline_parts() {
    const qk::timeline::Seconds seconds = qk::timeline::take();
    nb::dict parts;
    for (int i = 0; i < qk::timeline::num_parts; i++) parts[qk::timeline::part_names[i]] = seconds[i];
    return parts;
}

// ---- op table

std::vector<qk::OpRow> op_rows() {
    std::vector<qk::OpRow> rows;
    for (const auto& format : qk::linear::block_formats()) qk::append_rows(rows, format.op, format.table);
    for (const auto& format : qk::linear::group_formats()) qk::append_rows(rows, format.op, format.table);
    for (const auto& format : qk::linear::trellis_formats()) qk::append_rows(rows, format.op, format.table);
    qk::append_rows(rows, "linear_w8a8", qk::linear_int8::table());
    qk::append_rows(rows, "linear_llm_int8", qk::llm_int8::table());
    for (const auto& [op, kind] : qk::linear_float::ops) qk::append_rows(rows, op, qk::linear_float::table(kind));
    for (const auto& encoder : qk::encode::encoders()) qk::append_rows(rows, encoder.op, encoder.table);
    for (const auto& decoder : qk::decode::decoders()) qk::append_rows(rows, decoder.op, decoder.table);
    qk::append_rows(rows, "group_quant", qk::group_quant::table());
    qk::append_rows(rows, "fused_rows", qk::fused::row_steps_table());
    qk::append_rows(rows, "gptq", qk::gptq::table());
    qk::append_rows(rows, "gram", qk::gram::table());
    qk::append_rows(rows, "trellis", qk::trellis::table());
    qk::append_rows(rows, "attention", qk::attention::table());
    qk::append_rows(rows, "mla_heads", qk::mla::table());
    qk::append_rows(rows, "block_scores", qk::blocks::table());
    qk::append_rows(rows, "read_bandwidth", qk::roofline::read_table());
    qk::append_rows(rows, "int8_peak", qk::roofline::int8_table());
    qk::append_rows(rows, "int16_peak", qk::roofline::int16_table());
    qk::append_rows(rows, "bf16_peak", qk::roofline::bf16_table());
    qk::append_rows(rows, "fp32_peak", qk::roofline::fp32_table());
    return rows;
}

nb::list op_table() {
    nb::list table;
    for (const auto& row : op_rows()) {
        nb::dict entry;
        entry["op"] = row.op;
        entry["impl"] = qk::name_of(row.isa);
        entry["required"] = names_in(row.required);
        entry["available"] = row.available;
        entry["chosen"] = row.chosen;
        table.append(entry);
    }
    return table;
}

std::string chosen_isa(const std::string& op) {
    std::string known;
    for (const auto& row : op_rows()) {
        if (row.op == op && row.chosen) return qk::name_of(row.isa);
        if (row.chosen) known += (known.empty() ? "" : ", ") + row.op;
    }
    throw std::invalid_argument("op: got " + op + ", expected one of " + known);
}

}  // namespace

NB_MODULE(_ext, m) {
    m.def(
        "features", [] { return names_in(qk::detect()); },
        "Names of the instruction sets this machine and process may use, weakest first.");
    m.def(
        "emulated_features", [] { return names_in(qk::emulated()); },
        "Those of features() that a test's emulator executes instead of the processor.");
    m.def("op_table", op_table,
          "One row an implementation, best first within its op: op, impl, required, available, chosen.");
    m.def("chosen_isa", chosen_isa, "op"_a, "The instruction set that `op` runs under now (QBENCH_ISA obeyed).");
    nb::set_leak_warnings(false);  // objects that are left at the end of the program are the system's to free
    m.def("set_num_threads", qk::set_num_threads, "num_threads"_a, nb::call_guard<nb::gil_scoped_release>(),
          "Threads of every kernel from now on; results do not depend on it. raises ValueError below 1.");
    m.def("get_num_threads", [] { return qk::thread_pool()->num_threads(); }, "Threads of every kernel.");

    m.def("timeline_begin", qk::timeline::begin, "cpu_time"_a = false,
          "From now on this thread records which part its time goes to; it begins in `python`.\n\n"
          "cpu_time  the time that the thread is on a processor, without waits, instead of wall time");
    m.def("timeline_go_to", qk::timeline::go_to, "part"_a,
          "This part begins. raises ValueError (unknown part), RuntimeError (this thread does not record)");
    m.def("timeline_parts", timeline_parts,
          "Seconds of each part since the start or the last call, by name.\n\n"
          "wake_ups, waits  of the pool's jobs: time in which threads had not begun or had no task left, over the "
          "number\n                 of threads; the other parts are what the jobs would take without\n"
          "raises           RuntimeError if this thread does not record");
    m.def("timeline_end", qk::timeline::end, "This thread records no longer.");

    // Sizes that memory plans and error bounds are computed from.
    m.attr("NET_TOKENS") = qk::fused::net_tokens;
    m.attr("EXPERT_TOKENS") = qk::moe::call_tokens;
    m.attr("MOST_KEPT_BYTES") = qk::Scratch::most_kept;
    m.attr("ATTENTION_CHUNK_TOKENS") = qk::attention::chunk_tokens;
    m.attr("ATTENTION_TILED_ROWS") = qk::attention::least_tiled_rows;
    m.attr("MLA_GROUP_INPUTS") = qk::mla::group_inputs;

#define QK_BIND(folder) qk::folder::bind(m);
    QK_BOUND(QK_BIND)
#undef QK_BIND

    m.def("measure_read_bandwidth", qk::roofline::read_bandwidth, "threads"_a, "seconds"_a = 0.3,
          nb::call_guard<nb::gil_scoped_release>(),
          "Bytes/s read from memory by this many threads, best within the given seconds.");
    using Measure = qk::roofline::Peak (*)(int64_t);
    for (const auto& [name, measure, of] : std::initializer_list<std::tuple<const char*, Measure, const char*>>{
             {"measure_int8_peak", qk::roofline::int8_peak, "int8 multiply-adds"},
             {"measure_int16_peak", qk::roofline::int16_peak, "int16 multiply-adds"},
             {"measure_bf16_peak", qk::roofline::bf16_peak, "bf16 multiply-adds, or fp32 if there are none"},
             {"measure_fp32_peak", qk::roofline::fp32_peak, "fp32 multiply-adds"}}) {
        const std::string doc = std::string(of) +
                                " from registers: (operations/s, two each; cores that the threads had), of the fastest "
                                "run in 0.3 s.";
        m.def(
            name,
            [measure = measure](int64_t threads) {
                const qk::roofline::Peak found = measure(threads);
                return std::pair(found.ops_per_s, found.cores);
            },
            "threads"_a, nb::call_guard<nb::gil_scoped_release>(), doc.c_str());
    }
}
