#include "bindings.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include "linear/block.h"
#include "linear/block_weight.h"
#include "linear/crossover.h"
#include "linear/makers.h"
#include "linear/packed_linear.h"
#include "linear/product.h"
#include "linear/switch_points.h"

namespace qk::linear {

// ---- from parts

const Array& part(const Parts& parts, const char* name, std::string_view format) {
    const auto found = parts.find(name);
    if (found != parts.end()) return found->second;
    std::string got;
    for (const auto& [other, array] : parts) got += (got.empty() ? "" : ", ") + other;
    throw std::invalid_argument(std::string(format) + ": got parts " + (got.empty() ? "none" : got) + ", expected " +
                                name);
}

std::optional<Buffer> packed_part(const Parts& parts, size_t size) {
    const auto found = parts.find("packed");
    if (found == parts.end()) return std::nullopt;
    const Array& bytes = found->second;
    const std::string expected = "uint8 [" + std::to_string(size) + "], at a multiple of 64";
    require_vector(bytes, "packed", nb::dtype<uint8_t>(), expected);
    auto* data = const_cast<uint8_t*>(static_cast<const uint8_t*>(bytes.data()));
    if (bytes.shape(0) != size || reinterpret_cast<uintptr_t>(data) % 64)
        throw std::invalid_argument("packed: got " + describe(bytes) + ", expected " + expected);
    return Buffer::over(size, {data, [kept = bytes](uint8_t*) {}});
}

namespace {

constexpr const Maker* all_makers[] = {&block_maker, &group_maker, &linear_int8::int8_maker, &linear_float::float_maker,
                                       &linear_trellis::trellis_maker};

const Maker& find_maker(const std::string& format) {
    for (const Maker* maker : makers())
        if (maker->takes(format)) return *maker;
    throw NotImplemented("format: got " + format + ", of which there are no kernels");
}

bool has_maker(const std::string& format) {
    for (const Maker* maker : makers())
        if (maker->takes(format)) return true;
    return false;
}

Parts parts_of(nb::dict dict) {
    Parts parts;
    for (const auto [key, value] : dict) {
        const auto name = nb::cast<std::string>(key);
        Array array;
        if (!nb::try_cast(value, array)) throw nb::type_error((name + ": expected an array on the CPU").c_str());
        parts.emplace(name, array);
    }
    return parts;
}

}  // namespace

std::span<const Maker* const> makers() { return all_makers; }

// ---- PackedLinear

// Weights whose bytes an address can count: 5 bytes each at most, float32 and a scale, so that no product overflows.
static constexpr int64_t most_weights = int64_t{1} << 48;

static void require_weight_shape(int64_t num_rows, int64_t row_size) {
    if (num_rows < 0 || row_size < 1 || row_size > most_weights || num_rows > most_weights / row_size)
        throw std::invalid_argument("shape: got (" + std::to_string(num_rows) + ", " + std::to_string(row_size) +
                                    "), expected (N, K) with N of 0 and K of 1 or more, and at most 2^48 weights");
}

static size_t packed_linear_bytes(const std::string& format, std::pair<int64_t, int64_t> shape) {
    require_weight_shape(shape.first, shape.second);
    return find_maker(format).packed_bytes(format, shape.first, shape.second);
}

PackedLinear::PackedLinear(const std::string& format, nb::dict parts, std::pair<int64_t, int64_t> shape, bool exact) {
    const auto [num_rows, row_size] = shape;
    require_weight_shape(num_rows, row_size);
    const auto weight = find_maker(format).make(format, parts_of(parts), num_rows, row_size);
    if (exact) weight->require_exact();
    weight_ = weight;
}

// isa and path as Python names them -> the implementation. Throws std::runtime_error, std::invalid_argument; reads the
// environment, so call it with the GIL held.
static Choice choose(const Weight& weight, int64_t num_tokens, const std::optional<std::string>& isa,
                     const std::optional<std::string>& path) {
    return weight.choose(num_tokens, isa ? std::optional<std::string_view>(*isa) : std::nullopt,
                         path ? parse_path(*path) : Path::automatic);
}

nb::tuple PackedLinear::choice(int64_t num_tokens, const std::optional<std::string>& isa,
                               const std::optional<std::string>& path) const {
    if (num_tokens < 0)
        throw std::invalid_argument("num_tokens: got " + std::to_string(num_tokens) + ", expected 0 or more");
    const Choice chosen = choose(*weight_, num_tokens, isa, path);
    return nb::make_tuple(name_of(chosen.isa), name_of(chosen.path));
}

nb::object PackedLinear::matmul(const Array& x, const std::optional<std::string>& isa,
                                const std::optional<std::string>& path, std::optional<nb::object> out) {
    const int64_t row_size = weight_->row_size(), num_rows = weight_->num_rows();
    require_matrix(x, "x", nb::dtype<float>(), "float32 [M, " + std::to_string(row_size) + "]");
    require_columns(x, "x", row_size);
    const auto num_tokens = static_cast<int64_t>(x.shape(0));
    const Choice chosen = choose(*weight_, num_tokens, isa, path);
    if (!out) out = empty_float32(num_tokens, num_rows);
    float* y = require_output(*out, "out", num_tokens, num_rows);
    require_apart(y, num_tokens, num_rows, x, "x");
    const Term term{weight_.get(), chosen, y, num_rows, nullptr, nullptr, 0};
    const auto* data = static_cast<const float*>(x.data());
    Isa ran = chosen.isa;
    {
        nb::gil_scoped_release release;
        const auto row = [&](int64_t token, float*) { return data + token * row_size; };
        multiply({&term, 1}, num_tokens, row_size, row, {&ran, 1});
    }
    last_isa_ = ran;
    return *out;
}

nb::object PackedLinear::bytes(nb::handle self) {
    const auto bytes = nb::cast<const PackedLinear&>(self).weight_->bytes();
    return nb::cast(nb::ndarray<nb::numpy, const uint8_t, nb::ndim<1>>(bytes.data(), {bytes.size()}, self));
}

nb::object PackedLinear::rows(const Array& index) const {
    require_vector(index, "index", nb::dtype<int64_t>(), "int64 [n]");
    const auto num_indices = static_cast<int64_t>(index.shape(0));
    const auto* data = static_cast<const int64_t*>(index.data());
    for (int64_t i = 0; i < num_indices; i++)
        if (data[i] < 0 || data[i] >= weight_->num_rows())
            throw std::invalid_argument("index: got " + std::to_string(data[i]) + ", expected 0 to " +
                                        std::to_string(weight_->num_rows() - 1));
    float* values = nullptr;
    nb::object out = empty_float32(num_indices, weight_->row_size(), &values);
    {
        nb::gil_scoped_release release;
        weight_->rows(data, num_indices, values);
    }
    return out;
}

std::optional<std::string> PackedLinear::last_isa() const {
    const auto isa = last_isa_.load();
    return isa ? std::optional<std::string>(name_of(*isa)) : std::nullopt;
}

// ---- the module

void bind(nb::module_& m) {
    using namespace nb::literals;

    nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
        try {
            std::rethrow_exception(thrown);
        } catch (const NotImplemented& error) {
            PyErr_SetString(PyExc_NotImplementedError, error.what());
        }
    });

    m.def(
        "set_switch_points",
        [](const std::string& op, const std::string& isa, int64_t most_direct, int64_t least_rerounded,
           std::optional<int64_t> least_bf16) {
            switch_points(op).set(parse_isa(isa, "isa"), most_direct, least_rerounded, least_bf16);
        },
        "op"_a, "isa"_a, "most_direct"_a, "least_rerounded"_a, "least_bf16"_a = nb::none(),
        "From now on products of `op` under this instruction set are direct up to most_direct tokens, K-quants are\n"
        "rounded from least_rerounded tokens on, and AMX multiplies bfloat16 from least_bf16 tokens on (None: from\n"
        "the shipped number on). Other instruction sets keep the shipped points; amx and avx512_vnni share theirs.\n\n"
        "raises  ValueError (op, numbers), RuntimeError (isa not on this machine)");
    m.def("clear_switch_points", clear_switch_points, "All ops are back at the shipped switch points.");
    m.def("has_packed_linear", has_maker, "format"_a, "Whether PackedLinear takes weights of this format.");
    m.def("packed_linear_bytes", packed_linear_bytes, "format"_a, "shape"_a,
          "`nbytes` that PackedLinear will have. raises  ValueError for a shape that it refuses");

    nb::class_<PackedLinear>(m, "PackedLinear",
                             "A weight [N, K] in the layout of its kernels.\n\n"
                             "format   as the library above names it: \"q4_k\", \"w4g128-asym\"\n"
                             "parts    its arrays by name, contiguous; copied, not kept. Or \"packed\" in place of\n"
                             "         those with rows: `bytes` of such a weight, which are kept and may change\n"
                             "         between calls\n"
                             "shape    (N, K)\n"
                             "exact    weights are multiplied as stored whatever the number of tokens, so that no\n"
                             "         token's result depends on it; QBENCH_K_QUANT_COMPUTE and\n"
                             "         QBENCH_F16_COMPUTE go before\n"
                             "raises   ValueError (shape, strides, a part that is not there), TypeError (dtype),\n"
                             "         NotImplementedError (a format without kernels)")
        .def(nb::init<const std::string&, nb::dict, std::pair<int64_t, int64_t>, bool>(), "format"_a, "parts"_a,
             "shape"_a, "exact"_a = false)
        .def("matmul", &PackedLinear::matmul, "x"_a, "isa"_a = nb::none(), "path"_a = nb::none(), "out"_a = nb::none(),
             "y = x @ weight.T as cpu_kernels.linear defines it.\n\n"
             "x        [M, K] float32, contiguous\n"
             "isa      implementation by name; None: the best, at most QBENCH_ISA\n"
             "path     \"direct\" or \"tile\"; \"bf16\": both sides rounded to bfloat16, by tile instructions; or of\n"
             "         K-quants and trellis codes \"int8x256\": rounded once more, exact or not; None:\n"
             "         QBENCH_LINEAR_PATH, or the measured crossover\n"
             "out      [M, N] float32, contiguous, written and returned; x itself or apart from it; None: a new\n"
             "         array\n"
             "raises   ValueError (shape, strides, path), TypeError (dtype), RuntimeError (isa not on this machine)")
        .def("choice", &PackedLinear::choice, "num_tokens"_a, "isa"_a = nb::none(), "path"_a = nb::none(),
             "(isa, path) that matmul runs for a number of tokens.")
        .def("rows", &PackedLinear::rows, "index"_a,
             "Rows of the weight in float32, as its stored bytes say.\n\n"
             "index    [n] int64 in [0, N), contiguous\n"
             "returns  [n, K] float32\n"
             "raises   ValueError (shape, strides, a row that is not there), TypeError (dtype)")
        .def_prop_ro("format", &PackedLinear::format, "The format's name.")
        .def_prop_ro("shape", &PackedLinear::shape, "(N, K)")
        .def_prop_ro("nbytes", &PackedLinear::nbytes, "Bytes of the packed layout; N is rounded up to 16.")
        .def_prop_ro("bytes", &PackedLinear::bytes, "The packed layout, uint8 [nbytes]; not writable.")
        .def_prop_ro("last_isa", &PackedLinear::last_isa, "What the kernel of the last matmul said it is.");
}

}  // namespace qk::linear
