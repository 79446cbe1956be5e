#include "bindings.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "attention/arguments.h"
#include "checks.h"
#include "fused/arguments.h"
#include "mla/mla_heads.h"
#include "thread_pool.h"

namespace qk::mla {
namespace {

void require_matrices(const Array& array, const char* name) {
    const std::string got = std::string(name) + ": got " + describe(array);
    require_type(array, 3, got, nb::dtype<float>(), "float32 [heads, rows, rank]");
    int64_t stride = 1;
    for (size_t axis = 3; axis-- > 0; stride *= static_cast<int64_t>(array.shape(axis)))
        if (array.size() == 0 || (array.shape(axis) > 1 && array.stride(axis) != stride))
            throw std::invalid_argument(got + ", expected contiguous, and nothing empty");
}

// [heads, rows, rank] as [heads, inputs, outputs]: turned if the rank is the input.
HeadMatrices matrices(const Array& array, const char* name, Format format, bool turned) {
    require_matrices(array, name);
    const auto size = [&](size_t axis) { return static_cast<int64_t>(array.shape(axis)); };
    const auto* data = static_cast<const float*>(array.data());
    if (format == Format::int8 && !std::all_of(data, data + array.size(), [](float x) { return std::isfinite(x); }))
        throw std::invalid_argument(std::string(name) + ": got infinities or NaN, which int8 does not hold");
    if (turned) return {format, data, size(0), size(2), size(1), 1, size(2)};
    return {format, data, size(0), size(1), size(2), size(2), 1};
}

}  // namespace

const Impl<Kernels>& choose_heads(const OptionalName& isa) {
    return choose("mla_heads", table(), isa ? std::optional<std::string_view>(*isa) : std::nullopt);
}

Choices choose_all() {
    return {&choose_heads(std::nullopt), &fused::choose_steps(std::nullopt), &attention::choose_attention()};
}

attention::Rotation rotation_of(const Array& cos, const Array& sin, int64_t count, int64_t rotated) {
    for (const auto& [angles, name] : {std::pair{&cos, "cos"}, {&sin, "sin"}})
        require_shape(*angles, name, nb::dtype<float>(), "float32", count, rotated);
    return {static_cast<const float*>(cos.data()), static_cast<const float*>(sin.data())};
}

attention::Sequences sequences_in(nb::handle rows, const Array& block_table, const Array& ends, int64_t count,
                                  int64_t window) {
    const auto pages = nb::cast<Array>(rows);
    return attention::checked_sequences(block_table, ends, count, 1, window, static_cast<int64_t>(pages.shape(0)),
                                        static_cast<int64_t>(pages.shape(1)), std::nullopt);
}

MlaHeads::MlaHeads(const Array& keys, const Array& values, const std::string& format, bool exact)
    : keys_(matrices(keys, "keys", parse_format(format), false)),
      values_(matrices(values, "values", parse_format(format), true)),
      is_exact_(exact) {
    if (keys_.heads() != values_.heads() || keys_.outputs() != values_.inputs())
        throw std::invalid_argument("keys, values: got " + describe(keys) + " and " + describe(values) +
                                    ", expected as many heads of one rank");
}

attention::Latents MlaHeads::latents_in(const std::string& format, nb::handle rows, int64_t rotated) const {
    nb::ndarray<nb::device::cpu> writable;
    if (!nb::try_cast(rows, writable)) throw nb::type_error("rows: expected a writable array");
    attention::Latents latents =
        attention::latents_of(format, Array(writable), keys_.outputs() + rotated, keys_.outputs());
    latents.is_exact = is_exact_;
    return latents;
}

nb::object MlaHeads::attend(const Array& q, const Array& latent, const Array& norm, float eps, const Array& cos,
                            const Array& sin, const std::string& format, nb::handle rows, const Array& block_table,
                            const Array& ends, float softmax_scale, int64_t window, const std::optional<Array>& slots,
                            nb::handle mass) {
    const fused::Rows queries = fused::rows_of(q, "q"), latents = fused::rows_of(latent, "latent");
    const int64_t rank = keys_.outputs(), rotated = latents.size - rank;
    const int64_t count = queries.count;
    if (rotated < 2 || rotated % 2 || queries.size != keys_.heads() * (keys_.inputs() + rotated) ||
        latents.count != count)
        throw std::invalid_argument("q, latent: got " + describe(q) + " and " + describe(latent) +
                                    ", expected [M, heads * (rows of keys + D)] and [M, rank + D], D even");
    const attention::Rotation rotation = rotation_of(cos, sin, count, rotated);
    const attention::Latents held = latents_in(format, rows, rotated);
    const attention::Sequences sequences = sequences_in(rows, block_table, ends, count, window);
    const Step step{&keys_,
                    &values_,
                    rotated,
                    queries.data,
                    queries.stride,
                    latents.data,
                    latents.stride,
                    fused::vector_of(norm, "norm", rank),
                    eps,
                    rotation,
                    held,
                    sequences,
                    softmax_scale,
                    window,
                    attention::latent_slots_of(slots, sequences),
                    attention::latent_mass_of(mass, sequences)};
    const Choices choices = choose_all();
    float* out;
    nb::object y = empty_float32(count, keys_.heads() * values_.outputs(), &out);
    nb::gil_scoped_release release;
    qk::mla::attend(step, out, choices);
    return y;
}

OptionalName MlaHeads::last_isa() const {
    const auto ran = ran_.load();
    return ran ? OptionalName(name_of(*ran)) : std::nullopt;
}

// x [M, heads * inputs] -> [M, heads * outputs]
nb::object MlaHeads::multiply(const HeadMatrices& matrices, const Array& x, const char* name, const OptionalName& isa) {
    const fused::Rows rows = fused::rows_of(x, name);
    require_columns(x, name, matrices.heads() * matrices.inputs());
    const auto& impl = choose_heads(isa);
    float* y;
    const int64_t columns = matrices.heads() * matrices.outputs();
    nb::object out = empty_float32(rows.count, columns, &y);
    if (rows.count == 0) return out;
    nb::gil_scoped_release release;
    thread_pool()->run(matrices.heads(), [&](int64_t head) {
        ran_ = matrices.multiply(
            head, 0, matrices.panels(),
            {rows.data + head * matrices.inputs(), rows.stride, rows.count, y + head * matrices.outputs(), columns},
            impl.kernels);
    });
    return out;
}

void bind(nb::module_& m) {
    using namespace nb::literals;
    nb::class_<MlaHeads>(
        m, "MlaHeads",
        "Every head's up-projections of keys and values, and absorbed latent attention through them.\n\n"
        "keys     [H, N, R] float32, contiguous: the unrotated key of head h is keys[h] @ latent\n"
        "values   [H, V, R] float32, contiguous: its value is values[h] @ latent\n"
        "format   f32, f16, bf16 or int8 (with a scale for 128 inputs of an output channel, as round_heads_ref has\n"
        "         it): how they are kept; int8 needs finite ones\n"
        "exact    tiles of AMX, which round more, multiply no latents\n"
        "raises   ValueError (shape, strides, format), TypeError (dtype)")
        .def(nb::init<const Array&, const Array&, const std::string&, bool>(), "keys"_a, "values"_a, "format"_a,
             "exact"_a = false)
        .def("absorb", &MlaHeads::absorb, "q"_a, "isa"_a = nb::none(),
             "q [M, H * N] float32 -> [M, H * R]: q[h] @ keys[h]; isa: implementation by name")
        .def("values_of", &MlaHeads::values_of, "latents"_a, "isa"_a = nb::none(),
             "latents [M, H * R] float32 -> [M, H * V]: values[h] @ latents[h]; isa: implementation by name")
        .def("attend", &MlaHeads::attend, "q"_a, "latent"_a, "norm"_a, "eps"_a, "cos"_a, "sin"_a, "format"_a, "rows"_a,
             "block_table"_a, "ends"_a, "softmax_scale"_a, "window"_a = 0, "slots"_a.none() = nb::none(),
             "mass"_a.none() = nb::none(),
             "Stores the rows of M new tokens, of any sequences, and attends, as latent_step_ref defines it.\n\n"
             "q            [M, H * (N + D)] float32 as projected, each head's last D in pairs of neighbours\n"
             "latent       [M, R + D] float32 as projected; rows of both contiguous\n"
             "norm, eps    [R] float32, of the latent\n"
             "cos, sin     [M, D] float32, sin negative in the first half\n"
             "format       of rows: f32, f16, bf16 (as uint16), or fp8, int8, int4 (as uint8)\n"
             "rows         [pages, page_size, width] as attend_latents takes them, written\n"
             "block_table  [M, pages] int32: where each token's sequence lies\n"
             "ends         [M] int64: tokens up to and with each\n"
             "window       of those, the last ones that it sees, itself among them; 0: all\n"
             "slots        [M] int64: the slot of each row; None: the last one of its sequence\n"
             "mass         [M, S] float32, contiguous, S at least max(ends), written unless it is None: the weight of\n"
             "             each slot, summed over heads; 0 for slots that are not seen\n"
             "returns      [M, H * V] float32\n"
             "raises       ValueError (shape, strides, ends, pages), TypeError (dtype)")
        .def_prop_ro("nbytes", &MlaHeads::nbytes)
        .def_prop_ro("last_isa", &MlaHeads::last_isa, "What the kernel of the last product said it is.");
    bind_layers(m);
}

}  // namespace qk::mla
