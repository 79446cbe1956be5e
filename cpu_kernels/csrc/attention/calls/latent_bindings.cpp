#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>

#include "attention/arguments.h"

namespace qk::attention {
namespace {

LatentFormat parse_latent_format(const std::string& name) {
    std::string known;
    for (int i = 0; i < num_latent_formats; i++) {
        if (name == latent_format_names[i]) return static_cast<LatentFormat>(i);
        known += (i ? ", " : "") + std::string(latent_format_names[i]);
    }
    throw std::invalid_argument("format: got " + name + ", expected one of " + known);
}

nb::dlpack::dtype dtype_of(LatentFormat format) {
    switch (format) {
        case LatentFormat::f32: return nb::dtype<float>();
        case LatentFormat::f16: return {static_cast<uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
        case LatentFormat::bf16: return nb::dtype<uint16_t>();
        default: return nb::dtype<uint8_t>();
    }
}

}  // namespace

Latents latents_of(const std::string& format, const Array& array, int64_t head_dim, int64_t value_dim) {
    const LatentShape shape{parse_latent_format(format), head_dim, value_dim};
    const std::string got = "latents: got " + describe(array);
    const nb::dlpack::dtype dtype = dtype_of(shape.format);
    require_type(array, 3, got, dtype, "[pages, page_size, row] of " + format);
    const int64_t columns = shape.row_bytes() / (dtype.bits / 8);
    if (static_cast<int64_t>(array.shape(2)) != columns || !is_contiguous(array))
        throw std::invalid_argument(got + ", expected contiguous rows of " + std::to_string(columns));
    const int64_t value_step = is_coded(shape.format) ? std::max(latent_step, latent_group(shape.format)) : latent_step;
    if (head_dim % channel_step || value_dim % value_step || value_dim < 1 || value_dim > head_dim ||
        head_dim > max_head)
        throw std::invalid_argument("q, out: got " + std::to_string(head_dim) + " and " + std::to_string(value_dim) +
                                    " channels, expected multiples of 16 and " + std::to_string(value_step) +
                                    ", up to 1024");
    return {shape, static_cast<const std::byte*>(array.data()), shape.row_bytes()};
}

LatentObserved latent_mass_of(nb::handle mass, const Sequences& sequences) {
    LatentObserved observed;
    if (mass.is_none()) return observed;
    const int64_t longest = sequences.count ? *std::max_element(sequences.ends, sequences.ends + sequences.count) : 0;
    Output array;
    observed.slots = nb::try_cast(mass, array) && array.ndim() == 2 ? static_cast<int64_t>(array.shape(1)) : longest;
    observed.mass = require_output(mass, "mass", sequences.count, observed.slots);
    if (observed.slots < longest)
        throw std::invalid_argument("mass: got " + std::to_string(observed.slots) + " slots, expected " +
                                    std::to_string(longest) + " or more");
    return observed;
}

const int64_t* latent_slots_of(const OptionalArray& slots, const Sequences& sequences) {
    if (!slots) return nullptr;
    require_vector(*slots, "slots", nb::dtype<int64_t>(), "int64 [M]");
    if (static_cast<int64_t>(slots->shape(0)) != sequences.count)
        throw std::invalid_argument("slots: got " + describe(*slots) + ", expected one for each of " +
                                    std::to_string(sequences.count) + " tokens");
    const auto* data = static_cast<const int64_t*>(slots->data());
    for (int64_t m = 0; m < sequences.count; m++)
        if (data[m] < 0 || data[m] >= sequences.ends[m])
            throw std::invalid_argument("slots: got " + std::to_string(data[m]) + ", expected 0 to " +
                                        std::to_string(sequences.ends[m] - 1));
    return data;
}

namespace {

const float* floats_of(const Array& array, const char* name, int64_t batch, int64_t heads) {
    const std::string got = std::string(name) + ": got " + describe(array);
    require_type(array, 3, got, nb::dtype<float>(), "float32 [B, H, channels]");
    const auto size = [&](size_t axis) { return static_cast<int64_t>(array.shape(axis)); };
    if (size(0) != batch || size(1) != heads || !is_contiguous(array))
        throw std::invalid_argument(got + ", expected contiguous [" + std::to_string(batch) + ", " +
                                    std::to_string(heads) + ", channels]");
    return static_cast<const float*>(array.data());
}

std::string attend_latents_bound(const Array& q, const std::string& format, const Array& latents, const Array& table,
                                 const Array& ends, nb::handle out, float softmax_scale, int64_t window,
                                 const OptionalName& isa, nb::handle lse, nb::handle mass, bool exact) {
    if (q.ndim() != 3) throw std::invalid_argument("q: got " + describe(q) + ", expected float32 [B, H, channels]");
    const auto batch = static_cast<int64_t>(q.shape(0)), heads = static_cast<int64_t>(q.shape(1));
    if (heads < 1) throw std::invalid_argument("q: got " + describe(q) + ", expected one head or more");
    const float* queries = floats_of(q, "q", batch, heads);
    Output out_array;
    if (!nb::try_cast(out, out_array)) throw nb::type_error("out: expected a writable float32 [B, H, channels]");
    auto* output = const_cast<float*>(floats_of(Array(out_array), "out", batch, heads));
    Latents rows =
        latents_of(format, latents, static_cast<int64_t>(q.shape(2)), static_cast<int64_t>(out_array.shape(2)));
    rows.is_exact = exact;
    const Sequences sequences = checked_sequences(table, ends, batch, 1, window, static_cast<int64_t>(latents.shape(0)),
                                                  static_cast<int64_t>(latents.shape(1)), std::nullopt);
    LatentObserved observed = latent_mass_of(mass, sequences);
    if (!lse.is_none()) observed.lse = require_output(lse, "lse", batch, heads);
    const auto& impl = chosen(isa);
    nb::gil_scoped_release release;
    return name_of(
        qk::attention::attend_latents(rows, sequences, queries, heads, output, softmax_scale, window, impl, observed));
}

}  // namespace

void bind_latents(nb::module_& m) {
    using namespace nb::literals;
    m.def(
        "attend_latents", attend_latents_bound, "q"_a, "format"_a, "latents"_a, "block_table"_a, "ends"_a, "out"_a,
        "softmax_scale"_a, "window"_a = 0, "isa"_a.none() = nb::none(), "lse"_a.none() = nb::none(),
        "mass"_a.none() = nb::none(), "exact"_a = false,
        "One query of every head over rows that all heads share, as latent_attention_ref defines it.\n\n"
        "q            [B, H, K] float32, contiguous, H of 1 or more\n"
        "format       f32, f16, bf16 (as uint16), or fp8, int8, int4 (as uint8): rows as attention/kernels.h draws\n"
        "             them\n"
        "latents      [pages, page_size, row] of that format, contiguous: K floats, or a row's bytes\n"
        "block_table  [B, pages] int32; ends [B] int64, 1 or more\n"
        "out          [B, H, V] float32, contiguous, written\n"
        "window       tokens that are seen, the last; 0: all\n"
        "lse          [B, H] float32, contiguous, written unless it is None: log of the sum of exp(scores)\n"
        "mass         [B, S] float32, contiguous, S at least max(ends), written unless it is None: the weight of each\n"
        "             row, summed over heads; 0 for rows that are not seen\n"
        "exact        tiles of AMX, which round more, multiply nothing\n"
        "returns      the instruction set that ran\n"
        "raises       ValueError (shape, strides, ends, pages), TypeError (dtype), RuntimeError (isa)");
}

}  // namespace qk::attention
