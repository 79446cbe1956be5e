#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cmath>
#include <vector>

#include "attention/arguments.h"

namespace qk::attention {
namespace {

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
    if (scales == "per_head")
        layout.scales = Scales::per_head;
    else if (scales == "per_tensor")
        layout.scales = Scales::per_tensor;
    else if (scales != "given")
        throw std::invalid_argument("scales: got " + scales + ", expected given, per_head or per_tensor");
    if (!holds(layout.format, head_dim))
        throw std::invalid_argument("head_dim: got " + std::to_string(head_dim) + ", expected " +
                                    held_heads(layout.format));
    return layout;
}

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

    void append(const Array& k, const Array& v, const Array& table, const Array& ends, const OptionalArray& cu_seqlens,
                const OptionalName& isa) {
        const auto k_heads = heads_of<const float>(k, "k", head_dim());
        const Heads<const float> no_queries{nullptr, k_heads.batch, 0, k_heads.tokens, head_dim(), 0, 0, 0};
        const Heads<float> no_output{nullptr, k_heads.batch, 0, k_heads.tokens, head_dim(), 0, 0, 0};
        run_append(no_queries, k_heads, v, {nullptr, nullptr}, table, ends, cu_seqlens, no_output, isa);
    }

    void rope_append(const Array& q, const Array& k, const Array& v, const Array& cos, const Array& sin,
                     const Array& table, const Array& ends, nb::handle q_out, const OptionalArray& cu_seqlens,
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
                   table, ends, cu_seqlens, output_of(q_out, "q_out", q_heads), isa);
    }

    void attend(const Array& q, const Array& table, const Array& ends, nb::handle out, float softmax_scale,
                int64_t window, const OptionalArray& cu_seqlens, const OptionalName& isa, int64_t sinks,
                const OptionalArray& sink_q) {
        const auto q_heads = heads_of<const float>(q, "q", head_dim());
        if (q_heads.heads < 1 || q_heads.heads % store_.num_heads())
            throw std::invalid_argument("q: got " + describe(q) + ", expected a multiple of " +
                                        std::to_string(store_.num_heads()) + " heads");
        const Sequences sequences = checked_sequences(table, ends, q_heads.batch, q_heads.tokens, window,
                                                      store_.num_pages(), store_.page_size(), cu_seqlens, sinks);
        const Sinks beside = sinks_of(sinks, sink_q, q_heads);
        const Heads<float> output = output_of(out, "out", q_heads);
        const auto& impl = chosen(isa);
        nb::gil_scoped_release release;
        store_.last_isa =
            qk::attention::attend(store_, sequences, q_heads, output, softmax_scale, window, impl, beside);
    }

    void read(const Array& table, const Array& ends, nb::handle k, nb::handle v) const {
        Output k_array, v_array;
        if (!nb::try_cast(k, k_array) || !nb::try_cast(v, v_array))
            throw nb::type_error("k, v: expected writable float32 [B, G, S, D]");
        const auto k_heads = heads_of<float>(k_array, "k", head_dim());
        const auto v_heads = heads_of<float>(v_array, "v", head_dim());
        require_same(describe(k_array), k_heads, describe(v_array), v_heads);
        const Sequences sequences = sequences_of(table, ends, k_heads.batch, k_heads.tokens, 0, std::nullopt);
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

    Sequences sequences_of(const Array& table, const Array& ends, int64_t batch, int64_t tokens, int64_t window,
                           const OptionalArray& cu_seqlens) const {
        return checked_sequences(table, ends, batch, tokens, window, store_.num_pages(), store_.page_size(),
                                 cu_seqlens);
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
    void require_same(const std::string& k, const Heads<A>& k_heads, const std::string& v,
                      const Heads<B>& v_heads) const {
        if (k_heads.heads != store_.num_heads() || v_heads.heads != k_heads.heads || v_heads.batch != k_heads.batch ||
            v_heads.tokens != k_heads.tokens)
            throw std::invalid_argument("k, v: got " + k + " and " + v + ", expected both [B, " +
                                        std::to_string(store_.num_heads()) + ", T, D]");
    }

    void run_append(const Heads<const float>& q, const Heads<const float>& k, const Array& v, const Rotation& rotation,
                    const Array& table, const Array& ends, const OptionalArray& cu_seqlens, const Heads<float>& q_out,
                    const OptionalName& isa) {
        const auto v_heads = heads_of<const float>(v, "v", head_dim());
        require_same("k", k, describe(v), v_heads);
        const Sequences sequences = sequences_of(table, ends, k.batch, k.tokens, k.tokens > 0 ? 1 : 0, cu_seqlens);
        const auto& impl = chosen(isa);
        nb::gil_scoped_release release;
        qk::attention::append(store_, sequences, q, k, v_heads, rotation, q_out, impl);
    }

    Store store_;
};

BoundStore& bound(nb::handle kv_store) {
    if (!nb::isinstance<BoundStore>(kv_store)) throw nb::type_error("store: expected a KVStore");
    return nb::cast<BoundStore&>(kv_store);
}

}  // namespace

Store& store_of(nb::handle kv_store) { return bound(kv_store).store(); }

Sequences sequences_of(nb::handle kv_store, const Array& table, const Array& ends, int64_t batch, int64_t tokens,
                       int64_t window, const OptionalArray& cu_seqlens) {
    return bound(kv_store).sequences_of(table, ends, batch, tokens, window, cu_seqlens);
}

void bind_store(nb::module_& m) {
    using namespace nb::literals;
    m.def(
        "has_kv_store",
        [](const std::string& format, int64_t head_dim) { return holds(parse_format(format), head_dim); }, "format"_a,
        "head_dim"_a, "Whether a KVStore of this format holds heads of this size.");
    nb::class_<BoundStore>(
        m, "KVStore",
        "Keys and values of one layer in pages; cpu_kernels.attention says how they are kept and attended to.\n\n"
        "format           f32, f16, bf16, e4m3, e5m2, int8 or int4\n"
        "num_pages        of page_size tokens (a multiple of 16) of all num_heads kv heads\n"
        "head_dim         a multiple of 16, of 32 for int4; at most 256 for int8 and int4\n"
        "scales           of float8: 'given' (k_scale, v_scale [num_heads or 1] float32), or found for each token\n"
        "                 'per_head' or 'per_tensor'\n"
        "float8 with given scales keeps what is beyond the largest finite code, infinities too, as that code: a token\n"
        "that overflows weighs too little and does not make all that see it NaN, as torch's cast to e5m2 would, which\n"
        "is infinite from 61440 on. A scale found for a token with an infinity makes all of it NaN. int8 and int4 "
        "keep\n"
        "an infinity as the largest that their scale and minimum reach, and lose the rest of its group. NaN stays.\n"
        "raises           ValueError")
        .def(nb::init<const std::string&, int64_t, int64_t, int64_t, int64_t, const std::string&,
                      const std::optional<Array>&, const std::optional<Array>&>(),
             "format"_a, "num_pages"_a, "page_size"_a, "num_heads"_a, "head_dim"_a, "scales"_a = "given",
             "k_scale"_a.none() = nb::none(), "v_scale"_a.none() = nb::none())
        .def("append", &BoundStore::append, "k"_a, "v"_a, "block_table"_a, "ends"_a, "cu_seqlens"_a.none() = nb::none(),
             "isa"_a.none() = nb::none(),
             "Stores k and v as the last T tokens of each sequence.\n\n"
             "k, v         [B, G, T, D] float32, last axis contiguous\n"
             "block_table  [B, pages] int32: the page of each page_size tokens; of pages not needed anything\n"
             "ends         [B] int64: tokens of each sequence, the new ones included\n"
             "cu_seqlens   [B + 1] int64: a varlen call, k and v [1, G, N, D], of which rows cu_seqlens[b]\n"
             "             up to cu_seqlens[b + 1] are sequence b's, one or more; None: T new tokens for each\n"
             "isa          implementation by name; None: the best, at most QBENCH_ISA\n"
             "raises       ValueError (shape, strides, ends, pages), TypeError (dtype), RuntimeError (isa)")
        .def("rope_append", &BoundStore::rope_append, "q"_a, "k"_a, "v"_a, "cos"_a, "sin"_a, "block_table"_a, "ends"_a,
             "q_out"_a, "cu_seqlens"_a.none() = nb::none(), "isa"_a.none() = nb::none(),
             "append of k turned, and q turned into q_out: pair (i, i + D / 2) by its angle.\n\n"
             "q, q_out     [B, H, T, D] float32, last axis contiguous; q_out may be q\n"
             "cos, sin     [T, D] float32, of a varlen call [N, D]; sin with the sign of the swap, negative in the\n"
             "             first half")
        .def("attend", &BoundStore::attend, "q"_a, "block_table"_a, "ends"_a, "out"_a, "softmax_scale"_a,
             "window"_a = 0, "cu_seqlens"_a.none() = nb::none(), "isa"_a.none() = nb::none(), "sinks"_a = 0,
             "sink_q"_a.none() = nb::none(),
             "out = softmax(q k^T * softmax_scale) v, as attention_ref defines it.\n\n"
             "q, out       [B, H, T, D] float32, last axis contiguous; the last T tokens of each sequence, or of a\n"
             "             varlen call (see append) [1, H, N, D]: a query's result is that of its sequence alone\n"
             "window       tokens that a query sees, itself included; 0: all before it\n"
             "sinks        the first tokens, that each query sees, too, as sink_attention_ref defines it\n"
             "sink_q       as q: what meets their keys; None: there are no sinks")
        .def("read", &BoundStore::read, "block_table"_a, "ends"_a, "k"_a, "v"_a,
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
