#include "attention/bindings.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "attention/attention.h"
#include "checks.h"

namespace qk::attention {
namespace {

using namespace nb::literals;
using Output = nb::ndarray<nb::device::cpu>;
using OptionalName = std::optional<std::string>;

const Impl<Kernels>& chosen(const OptionalName& isa) {
    return choose("attention", table(), isa ? std::optional<std::string_view>(*isa) : std::nullopt);
}

// [B, heads, T, D] float32 whose last axis is contiguous; the others may lie as they like.
template <class Value, class AnyArray>
Heads<Value> heads_of(const AnyArray& array, const char* name, int64_t head_dim) {
    const std::string got = std::string(name) + ": got " + describe(array);
    const std::string expected = "float32 [B, heads, T, " + std::to_string(head_dim) + "]";
    require_type(array, 4, got, nb::dtype<float>(), expected);
    const auto size = [&](size_t axis) { return static_cast<int64_t>(array.shape(axis)); };
    if (size(3) != head_dim) throw std::invalid_argument(got + ", expected " + expected);
    if (array.size() > 0 && head_dim > 1 && array.stride(3) != 1)
        throw std::invalid_argument(got + " with a last stride of " + std::to_string(array.stride(3)) +
                                    ", expected 1");
    return {static_cast<Value*>(array.data()), size(0), size(1), size(2), size(3), array.stride(0), array.stride(1),
            array.stride(2)};
}

Heads<float> output_of(nb::handle out, const char* name, const Heads<const float>& like) {
    Output array;
    if (!nb::try_cast(out, array))
        throw nb::type_error((std::string(name) + ": expected a writable float32 [B, heads, T, D]").c_str());
    const Heads<float> heads = heads_of<float>(array, name, like.head_dim);
    if (heads.batch != like.batch || heads.heads != like.heads || heads.tokens != like.tokens)
        throw std::invalid_argument(std::string(name) + ": got " + describe(array) + ", expected the shape of q");
    return heads;
}

std::vector<float> given_scale(const std::optional<Array>& scale, const char* name, int64_t num_heads) {
    if (!scale) return {};
    require_vector(*scale, name, nb::dtype<float>(), "float32 [G or 1]");
    const auto count = static_cast<int64_t>(scale->shape(0));
    if (count != 1 && count != num_heads)
        throw std::invalid_argument(std::string(name) + ": got " + describe(*scale) + ", expected 1 or " +
                                    std::to_string(num_heads) + " scales");
    const auto* data = static_cast<const float*>(scale->data());
    for (int64_t i = 0; i < count; i++)
        if (!(data[i] > 0) || std::isinf(data[i]))
            throw std::invalid_argument(std::string(name) + ": got " + std::to_string(data[i]) +
                                        ", expected numbers above 0");
    std::vector<float> all(static_cast<size_t>(num_heads));
    for (int64_t g = 0; g < num_heads; g++) all[g] = data[count == 1 ? 0 : g];
    return all;
}

Layout layout_of(const std::string& format, int64_t head_dim, const std::string& scales) {
    Layout layout{parse_format(format), Scales::given, head_dim};
    if (scales == "per_head") layout.scales = Scales::per_head;
    else if (scales == "per_tensor") layout.scales = Scales::per_tensor;
    else if (scales != "given")
        throw std::invalid_argument("scales: got " + scales + ", expected given, per_head or per_tensor");
    if (!holds(layout.format, head_dim))
        throw std::invalid_argument("head_dim: got " + std::to_string(head_dim) + ", expected " +
                                    held_heads(layout.format));
    return layout;
}

void check_sequence(const Sequences& sequences, int64_t b, int64_t tokens, int64_t window, int64_t sinks,
                    int64_t num_pages) {
    const int64_t length = sequences.lengths[b], most = sequences.pages * sequences.page_size;
    if (length < tokens || length > most)
        throw std::invalid_argument("lengths: got " + std::to_string(length) + ", expected " +
                                    std::to_string(tokens) + " to " + std::to_string(most));
    const int64_t first = window ? std::max<int64_t>(0, length - tokens + 1 - window) : 0;
    for (int64_t i = 0; i * sequences.page_size < length; i++) {
        if (i * sequences.page_size >= sinks && (i + 1) * sequences.page_size <= first) continue;
        const int32_t page = sequences.table[b * sequences.pages + i];
        if (page < 0 || page >= num_pages)
            throw std::invalid_argument("block_table: got page " + std::to_string(page) + ", expected 0 to " +
                                        std::to_string(num_pages - 1));
    }
}

// [count + 1] int64: where each sequence's rows begin among all `tokens` of [1, tokens].
const int64_t* checked_starts(const Array& starts, int64_t count, int64_t batch, int64_t tokens) {
    const std::string expected = "int64 [" + std::to_string(count + 1) + "]";
    require_vector(starts, "starts", nb::dtype<int64_t>(), expected);
    const auto* rows = static_cast<const int64_t*>(starts.data());
    bool rises = static_cast<int64_t>(starts.shape(0)) == count + 1 && rows[0] == 0 && rows[count] == tokens;
    for (int64_t b = 0; rises && b < count; b++) rises = rows[b] < rows[b + 1];
    if (!rises || batch != 1)
        throw std::invalid_argument("starts: got " + describe(starts) + " for a batch of " + std::to_string(batch) +
                                    ", expected " + expected + " that rises from 0 to " + std::to_string(tokens) +
                                    ", and a batch of 1");
    return rows;
}

}  // namespace

// Every page that a call reads or writes is looked up here once, so that the kernels need not.
Sequences checked_sequences(const Array& table, const Array& lengths, int64_t batch, int64_t tokens, int64_t window,
                            int64_t num_pages, int64_t page_size, const OptionalArray& starts, int64_t sinks) {
    if (window < 0) throw std::invalid_argument("window: got " + std::to_string(window) + ", expected 0 or more");
    require_matrix(table, "block_table", nb::dtype<int32_t>(), "int32 [B, pages]");
    require_vector(lengths, "lengths", nb::dtype<int64_t>(), "int64 [B]");
    const int64_t* rows = nullptr;
    if (starts) {
        const auto count = static_cast<int64_t>(lengths.shape(0));
        rows = checked_starts(*starts, count, batch, tokens);
        batch = count;
    }
    if (static_cast<int64_t>(table.shape(0)) != batch || static_cast<int64_t>(lengths.shape(0)) != batch)
        throw std::invalid_argument("block_table, lengths: got " + describe(table) + " and " + describe(lengths) +
                                    ", expected a row and a length for each of " + std::to_string(batch) +
                                    " sequences");
    const Sequences sequences{static_cast<const int32_t*>(table.data()), static_cast<const int64_t*>(lengths.data()),
                              batch, static_cast<int64_t>(table.shape(1)), page_size, rows};
    for (int64_t b = 0; b < batch && tokens > 0; b++)
        check_sequence(sequences, b, sequences.new_tokens(b, tokens), window, sinks, num_pages);
    return sequences;
}

namespace {

class BoundStore {
public:
    BoundStore(const std::string& format, int64_t num_pages, int64_t page_size, int64_t num_heads, int64_t head_dim,
               const std::string& scales, const std::optional<Array>& k_scale, const std::optional<Array>& v_scale)
        : store_(layout_of(format, head_dim, scales), require_positive(num_pages, "num_pages"),
                 require_page_size(page_size), require_positive(num_heads, "num_heads"),
                 given_scale(k_scale, "k_scale", num_heads), given_scale(v_scale, "v_scale", num_heads)) {
        const bool takes = is_float8(store_.layout().format) && store_.layout().scales == Scales::given;
        if (takes != (k_scale.has_value() && v_scale.has_value()) || k_scale.has_value() != v_scale.has_value())
            throw std::invalid_argument("k_scale, v_scale: expected both for float8 with given scales, else none");
    }

    void append(const Array& k, const Array& v, const Array& table, const Array& lengths, const OptionalArray& starts,
                const OptionalName& isa) {
        const auto k_heads = heads_of<const float>(k, "k", head_dim());
        const Heads<const float> no_queries{nullptr, k_heads.batch, 0, k_heads.tokens, head_dim(), 0, 0, 0};
        const Heads<float> no_output{nullptr, k_heads.batch, 0, k_heads.tokens, head_dim(), 0, 0, 0};
        run_append(no_queries, k_heads, v, {nullptr, nullptr}, table, lengths, starts, no_output, isa);
    }

    void rope_append(const Array& q, const Array& k, const Array& v, const Array& cos, const Array& sin,
                     const Array& table, const Array& lengths, nb::handle q_out, const OptionalArray& starts,
                     const OptionalName& isa) {
        const auto q_heads = heads_of<const float>(q, "q", head_dim());
        const auto k_heads = heads_of<const float>(k, "k", head_dim());
        if (q_heads.batch != k_heads.batch || q_heads.tokens != k_heads.tokens)
            throw std::invalid_argument("q: got " + describe(q) + ", expected the batch and tokens of k " +
                                        describe(k));
        for (const auto& [angles, name] : {std::pair{&cos, "cos"}, {&sin, "sin"}}) {
            require_matrix(*angles, name, nb::dtype<float>(), "float32 [T, D]");
            require_columns(*angles, name, head_dim());
            if (static_cast<int64_t>(angles->shape(0)) != k_heads.tokens)
                throw std::invalid_argument(std::string(name) + ": got " + describe(*angles) + ", expected " +
                                            std::to_string(k_heads.tokens) + " rows");
        }
        run_append(q_heads, k_heads, v, {static_cast<const float*>(cos.data()), static_cast<const float*>(sin.data())},
                   table, lengths, starts, output_of(q_out, "q_out", q_heads), isa);
    }

    void attend(const Array& q, const Array& table, const Array& lengths, nb::handle out, float softmax_scale,
                int64_t window, const OptionalArray& starts, const OptionalName& isa, int64_t sinks,
                const OptionalArray& sink_q) {
        const auto q_heads = heads_of<const float>(q, "q", head_dim());
        if (q_heads.heads < 1 || q_heads.heads % store_.num_heads())
            throw std::invalid_argument("q: got " + describe(q) + ", expected a multiple of " +
                                        std::to_string(store_.num_heads()) + " heads");
        const Sequences sequences = checked_sequences(table, lengths, q_heads.batch, q_heads.tokens, window,
                                                      store_.num_pages(), store_.page_size(), starts, sinks);
        const Sinks beside = sinks_of(sinks, sink_q, q_heads);
        const Heads<float> output = output_of(out, "out", q_heads);
        const auto& impl = chosen(isa);
        nb::gil_scoped_release release;
        store_.last_isa = qk::attention::attend(store_, sequences, q_heads, output, softmax_scale, window, impl, beside);
    }

    void read(const Array& table, const Array& lengths, nb::handle k, nb::handle v) const {
        Output k_array, v_array;
        if (!nb::try_cast(k, k_array) || !nb::try_cast(v, v_array))
            throw nb::type_error("k, v: expected writable float32 [B, G, S, D]");
        const auto k_heads = heads_of<float>(k_array, "k", head_dim());
        const auto v_heads = heads_of<float>(v_array, "v", head_dim());
        require_same(describe(k_array), k_heads, describe(v_array), v_heads);
        const Sequences sequences = sequences_of(table, lengths, k_heads.batch, k_heads.tokens, 0, std::nullopt);
        qk::attention::read(store_, sequences, k_heads, v_heads);
    }

    void grow(int64_t page_size) {
        if (require_page_size(page_size) < store_.page_size())
            throw std::invalid_argument("page_size: got " + std::to_string(page_size) + ", expected at least " +
                                        std::to_string(store_.page_size()));
        store_.grow(page_size);
    }

    void add_pages(int64_t num_pages) {
        if (num_pages < store_.num_pages())
            throw std::invalid_argument("num_pages: got " + std::to_string(num_pages) + ", expected at least " +
                                        std::to_string(store_.num_pages()));
        store_.add_pages(num_pages);
    }

    void copy_page(int64_t from, int64_t to) {
        for (const int64_t page : {from, to}) require_page(page);
        store_.copy_page(from, to);
    }

    void read_page(int64_t page, nb::handle out) const {
        Output array;
        if (!nb::try_cast(out, array)) throw nb::type_error("out: expected a writable uint8 array");
        require_page_bytes(array, "out");
        require_page(page);
        store_.read_page(page, static_cast<std::byte*>(array.data()));
    }

    void write_page(int64_t page, const Array& data) {
        require_page_bytes(data, "data");
        require_page(page);
        store_.write_page(page, static_cast<const std::byte*>(data.data()));
    }

    Sequences sequences_of(const Array& table, const Array& lengths, int64_t batch, int64_t tokens, int64_t window,
                           const OptionalArray& starts) const {
        return checked_sequences(table, lengths, batch, tokens, window, store_.num_pages(), store_.page_size(),
                                 starts);
    }

    Store& store() { return store_; }
    int64_t head_dim() const { return store_.layout().head_dim; }
    int64_t page_size() const { return store_.page_size(); }
    size_t nbytes() const { return store_.nbytes(); }
    size_t page_bytes() const { return store_.page_bytes(); }
    std::string format() const { return format_names[static_cast<int>(store_.layout().format)]; }
    OptionalName last_isa() const {
        const auto isa = store_.last_isa.load();
        return isa ? OptionalName(name_of(*isa)) : std::nullopt;
    }

private:
    void require_page(int64_t page) const {
        if (page < 0 || page >= store_.num_pages())
            throw std::invalid_argument("page: got " + std::to_string(page) + ", expected 0 to " +
                                        std::to_string(store_.num_pages() - 1));
    }

    template <class AnyArray>
    void require_page_bytes(const AnyArray& array, const char* name) const {
        const std::string expected = "uint8 [" + std::to_string(store_.page_bytes()) + "]";
        require_vector(array, name, nb::dtype<uint8_t>(), expected);
        if (array.shape(0) != store_.page_bytes())
            throw std::invalid_argument(std::string(name) + ": got " + describe(array) + ", expected " + expected);
    }

    static int64_t require_positive(int64_t value, const char* name) {
        if (value < 1)
            throw std::invalid_argument(std::string(name) + ": got " + std::to_string(value) + ", expected 1 or more");
        return value;
    }

    static int64_t require_page_size(int64_t page_size) {
        if (page_size < 1 || page_size % block_tokens)
            throw std::invalid_argument("page_size: got " + std::to_string(page_size) + ", expected a multiple of " +
                                        std::to_string(block_tokens));
        return page_size;
    }

    Sinks sinks_of(int64_t count, const OptionalArray& sink_q, const Heads<const float>& q) const {
        if (count < 0 || (count > 0) != sink_q.has_value())
            throw std::invalid_argument("sinks, sink_q: got " + std::to_string(count) + " and " +
                                        (sink_q ? describe(*sink_q) : "None") + ", expected both or neither");
        if (count == 0) return {};
        const auto far = heads_of<const float>(*sink_q, "sink_q", head_dim());
        if (far.batch != q.batch || far.heads != q.heads || far.tokens != q.tokens)
            throw std::invalid_argument("sink_q: got " + describe(*sink_q) + ", expected the shape of q");
        return {count, far};
    }

    template <class A, class B>
    void require_same(const std::string& k, const Heads<A>& k_heads, const std::string& v, const Heads<B>& v_heads)
        const {
        if (k_heads.heads != store_.num_heads() || v_heads.heads != k_heads.heads ||
            v_heads.batch != k_heads.batch || v_heads.tokens != k_heads.tokens)
            throw std::invalid_argument("k, v: got " + k + " and " + v + ", expected both [B, " +
                                        std::to_string(store_.num_heads()) + ", T, D]");
    }

    void run_append(const Heads<const float>& q, const Heads<const float>& k, const Array& v, const Rotation& rotation,
                    const Array& table, const Array& lengths, const OptionalArray& starts, const Heads<float>& q_out,
                    const OptionalName& isa) {
        const auto v_heads = heads_of<const float>(v, "v", head_dim());
        require_same("k", k, describe(v), v_heads);
        const Sequences sequences = sequences_of(table, lengths, k.batch, k.tokens, k.tokens > 0 ? 1 : 0, starts);
        const auto& impl = chosen(isa);
        nb::gil_scoped_release release;
        qk::attention::append(store_, sequences, q, k, v_heads, rotation, q_out, impl);
    }

    Store store_;
};

// ---- latents

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

// An axis of one entry may have any stride.
bool is_contiguous(const Array& array) {
    int64_t stride = 1;
    for (size_t axis = array.ndim(); axis-- > 0; stride *= static_cast<int64_t>(array.shape(axis)))
        if (array.shape(axis) > 1 && array.stride(axis) != stride) return array.size() == 0;
    return true;
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
                                 const Array& lengths, nb::handle out, float softmax_scale, int64_t window,
                                 const OptionalName& isa) {
    if (q.ndim() != 3) throw std::invalid_argument("q: got " + describe(q) + ", expected float32 [B, H, channels]");
    const auto batch = static_cast<int64_t>(q.shape(0)), heads = static_cast<int64_t>(q.shape(1));
    const float* queries = floats_of(q, "q", batch, heads);
    Output out_array;
    if (!nb::try_cast(out, out_array)) throw nb::type_error("out: expected a writable float32 [B, H, channels]");
    auto* output = const_cast<float*>(floats_of(Array(out_array), "out", batch, heads));
    const Latents rows = latents_of(format, latents, static_cast<int64_t>(q.shape(2)),
                                    static_cast<int64_t>(out_array.shape(2)));
    const Sequences sequences = checked_sequences(table, lengths, batch, 1, window,
                                                  static_cast<int64_t>(latents.shape(0)),
                                                  static_cast<int64_t>(latents.shape(1)), std::nullopt);
    const auto& impl = chosen(isa);
    nb::gil_scoped_release release;
    return name_of(qk::attention::attend_latents(rows, sequences, queries, heads, output, softmax_scale, window, impl));
}

}  // namespace

static BoundStore& bound(nb::handle kv_store) {
    if (!nb::isinstance<BoundStore>(kv_store)) throw nb::type_error("store: expected a KVStore");
    return nb::cast<BoundStore&>(kv_store);
}

Store& store_of(nb::handle kv_store) { return bound(kv_store).store(); }

Sequences sequences_of(nb::handle kv_store, const Array& table, const Array& lengths, int64_t batch, int64_t tokens,
                       int64_t window, const OptionalArray& starts) {
    return bound(kv_store).sequences_of(table, lengths, batch, tokens, window, starts);
}

const Impl<Kernels>& choose_attention() { return chosen(std::nullopt); }

void bind(nb::module_& m) {
    m.def("attend_latents", attend_latents_bound, "q"_a, "format"_a, "latents"_a, "block_table"_a, "lengths"_a, "out"_a,
          "softmax_scale"_a, "window"_a = 0, "isa"_a.none() = nb::none(),
          "One query of every head over rows that all heads share, as latent_attention_ref defines it.\n\n"
          "q            [B, H, K] float32, contiguous\n"
          "format       f32, f16, bf16 (as uint16), or fp8, int8, int4 (as uint8): rows as attention/kernels.h draws them\n"
          "latents      [pages, page_size, row] of that format, contiguous: K floats, or a row's bytes\n"
          "block_table  [B, pages] int32; lengths [B] int64, 1 or more\n"
          "out          [B, H, V] float32, contiguous, written\n"
          "window       tokens that are seen, the last; 0: all\n"
          "returns      the instruction set that ran\n"
          "raises       ValueError (shape, strides, lengths, pages), TypeError (dtype), RuntimeError (isa)");
    m.def("has_kv_store", [](const std::string& format, int64_t head_dim) {
        return holds(parse_format(format), head_dim);
    }, "format"_a, "head_dim"_a, "Whether a KVStore of this format holds heads of this size.");
    nb::class_<BoundStore>(
        m, "KVStore",
        "Keys and values of one layer in pages; cpu_kernels.attention says how they are kept and attended to.\n\n"
        "format           f32, f16, bf16, e4m3, e5m2, int8 or int4\n"
        "num_pages        of page_size tokens (a multiple of 16) of all num_heads kv heads\n"
        "head_dim         a multiple of 16, of 32 for int4; at most 256 for int8 and int4\n"
        "scales           of float8: 'given' (k_scale, v_scale [num_heads or 1] float32), or found for each token\n"
        "                 'per_head' or 'per_tensor'\n"
        "raises           ValueError")
        .def(nb::init<const std::string&, int64_t, int64_t, int64_t, int64_t, const std::string&,
                      const std::optional<Array>&, const std::optional<Array>&>(),
             "format"_a, "num_pages"_a, "page_size"_a, "num_heads"_a, "head_dim"_a, "scales"_a = "given",
             "k_scale"_a.none() = nb::none(), "v_scale"_a.none() = nb::none())
        .def("append", &BoundStore::append, "k"_a, "v"_a, "block_table"_a, "lengths"_a,
             "starts"_a.none() = nb::none(), "isa"_a.none() = nb::none(),
             "Stores k and v as the last T tokens of each sequence.\n\n"
             "k, v         [B, G, T, D] float32, last axis contiguous\n"
             "block_table  [B, pages] int32: the page of each page_size tokens; of pages not needed anything\n"
             "lengths      [B] int64: tokens of each sequence, the new ones included\n"
             "starts       [B + 1] int64: a ragged call, k and v [1, G, N, D], of which rows starts[b] up to\n"
             "             starts[b + 1] are sequence b's, one or more; None: T new tokens for each\n"
             "isa          implementation by name; None: the best, at most QBENCH_ISA\n"
             "raises       ValueError (shape, strides, lengths, pages), TypeError (dtype), RuntimeError (isa)")
        .def("rope_append", &BoundStore::rope_append, "q"_a, "k"_a, "v"_a, "cos"_a, "sin"_a, "block_table"_a,
             "lengths"_a, "q_out"_a, "starts"_a.none() = nb::none(), "isa"_a.none() = nb::none(),
             "append of k turned, and q turned into q_out: pair (i, i + D / 2) by its angle.\n\n"
             "q, q_out     [B, H, T, D] float32, last axis contiguous; q_out may be q\n"
             "cos, sin     [T, D] float32, of a ragged call [N, D]; sin with the sign of the swap, negative in the first half")
        .def("attend", &BoundStore::attend, "q"_a, "block_table"_a, "lengths"_a, "out"_a, "softmax_scale"_a,
             "window"_a = 0, "starts"_a.none() = nb::none(), "isa"_a.none() = nb::none(), "sinks"_a = 0,
             "sink_q"_a.none() = nb::none(),
             "out = softmax(q k^T * softmax_scale) v, as attention_ref defines it.\n\n"
             "q, out       [B, H, T, D] float32, last axis contiguous; the last T tokens of each sequence, or of a\n"
             "             ragged call (see append) [1, H, N, D]: a query's result is that of its sequence alone\n"
             "window       tokens that a query sees, itself included; 0: all before it\n"
             "sinks        the first tokens, that each query sees, too, as sink_attention_ref defines it\n"
             "sink_q       as q: what meets their keys; None: there are no sinks")
        .def("read", &BoundStore::read, "block_table"_a, "lengths"_a, "k"_a, "v"_a,
             "The first S tokens of each sequence as they are kept, into k and v [B, G, S, D] float32.")
        .def("grow", &BoundStore::grow, "page_size"_a, "Makes every page larger; what it holds stays.")
        .def("add_pages", &BoundStore::add_pages, "num_pages"_a,
             "So many pages from now on; what those hold that there are stays.\n\nraises  ValueError for fewer")
        .def("copy_page", &BoundStore::copy_page, "source"_a, "target"_a,
             "All that one page holds into another.\n\nraises  ValueError for a page that is not there")
        .def("read_page", &BoundStore::read_page, "page"_a, "out"_a,
             "All that a page holds, into uint8 [page_bytes].\n\nraises  ValueError, TypeError")
        .def("write_page", &BoundStore::write_page, "page"_a, "data"_a,
             "What read_page read, of any page of any store of the same sizes.\n\nraises  ValueError, TypeError")
        .def_prop_ro("page_size", &BoundStore::page_size)
        .def_prop_ro("page_bytes", &BoundStore::page_bytes, "Bytes of a page, scales included.")
        .def_prop_ro("format", &BoundStore::format)
        .def_prop_ro("nbytes", &BoundStore::nbytes, "Bytes of all pages, scales included.")
        .def_prop_ro("last_isa", &BoundStore::last_isa, "What the kernel of the last attend said it is.");
}

}  // namespace qk::attention
