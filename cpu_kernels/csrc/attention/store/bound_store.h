// KVStore in Python: a Store whose arguments are checked.
#pragma once

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <numeric>
#include <vector>

#include "attention/store/arguments.h"

namespace qk::attention {

class BoundStore {
public:
    BoundStore(const std::string& format, int64_t num_pages, int64_t page_size, int64_t num_heads, int64_t head_dim,
               const std::string& scales, const std::optional<Array>& k_scale, const std::optional<Array>& v_scale,
               int64_t num_rings, bool exact)
        : store_(layout_of(format, head_dim, scales), require_positive(num_pages, "num_pages"),
                 require_page_size(page_size), require_positive(num_heads, "num_heads"),
                 given_scale(k_scale, "k_scale", num_heads), given_scale(v_scale, "v_scale", num_heads),
                 require_rings(num_rings, layout_of(format, head_dim, scales))) {
        const bool takes = is_float8(store_.layout().format) && store_.layout().scales == Scales::given;
        if (takes != (k_scale.has_value() && v_scale.has_value()) || k_scale.has_value() != v_scale.has_value())
            throw std::invalid_argument("k_scale, v_scale: expected both for float8 with given scales, else none");
        if (exact) store_.require_exact();
    }

    void append(const Array& k, const Array& v, const Array& table, const Array& ends, const OptionalArray& cu_seqlens,
                const OptionalName& isa, const OptionalArray& slots) {
        const auto k_heads = heads_of<const float>(k, "k", head_dim());
        const Heads<const float> no_queries{nullptr, k_heads.batch, 0, k_heads.tokens, head_dim(), 0, 0, 0};
        const Heads<float> no_output{nullptr, k_heads.batch, 0, k_heads.tokens, head_dim(), 0, 0, 0};
        run_append(no_queries, k_heads, v, {nullptr, nullptr}, table, ends, cu_seqlens, no_output, isa, slots);
    }

    void rope_append(const Array& q, const Array& k, const Array& v, const Array& cos, const Array& sin,
                     const Array& table, const Array& ends, nb::handle q_out, const OptionalArray& cu_seqlens,
                     const OptionalName& isa, const OptionalArray& slots) {
        const auto q_heads = heads_of<const float>(q, "q", head_dim());
        const auto k_heads = heads_of<const float>(k, "k", head_dim());
        require_queries(q, q_heads, k, k_heads);
        const Rotation rotation = rotation_of(cos, sin, k_heads.tokens);
        run_append(q_heads, k_heads, v, rotation, table, ends, cu_seqlens, output_of(q_out, "q_out", q_heads), isa,
                   slots);
    }

    void attend(const Array& q, const Array& table, const Array& ends, nb::handle out, float softmax_scale,
                int64_t window, const OptionalArray& cu_seqlens, const OptionalName& isa, int64_t sinks,
                const OptionalArray& sink_q, nb::handle lse, nb::handle mass, int64_t mass_queries) {
        const auto [q_heads, sequences, far] = asked(q, table, ends, window, cu_seqlens, sinks, sink_q);
        const Heads<float> output = output_of(out, "out", q_heads);
        Observed observed = mass_of(mass, mass_queries, sequences, store_.num_heads());
        observed.lse = lse_of(lse, q_heads);
        const auto& impl = chosen(isa);
        nb::gil_scoped_release release;
        store_.last_isa =
            qk::attention::attend(store_, sequences, q_heads, output, softmax_scale, window, impl, far, observed);
    }

    void attend_blocks(const Array& q, const Array& table, const Array& ends, nb::handle out, float softmax_scale,
                       const Array& offsets, const Array& indices, int64_t key_block, int64_t query_block,
                       nb::handle lse, const OptionalName& isa) {
        if (store_.ring())
            throw std::invalid_argument("attend_blocks: got format " + format() +
                                        ", expected one that encodes each token by itself");
        const auto [q_heads, sequences, far] = asked(q, table, ends, 0, std::nullopt, 0, std::nullopt);
        if (sequences.count != 1 || sequences.end_heads)
            throw std::invalid_argument("ends: got " + describe(ends) + ", expected int64 [1], of one sequence");
        const BlockLists lists = lists_of(offsets, indices, q_heads, sequences.end(0, 0), key_block, query_block);
        const Heads<float> output = output_of(out, "out", q_heads);
        Observed observed;
        observed.lse = lse_of(lse, q_heads);
        const auto& impl = chosen(isa);
        nb::gil_scoped_release release;
        store_.last_isa =
            qk::attention::attend_blocks(store_, sequences, q_heads, output, softmax_scale, lists, impl, observed);
    }

    void key_mass(const Array& q, const Array& table, const Array& ends, const Array& lse, nb::handle mass,
                  float softmax_scale, int64_t window, const OptionalArray& cu_seqlens, const OptionalName& isa,
                  int64_t sinks, const OptionalArray& sink_q) {
        const auto [q_heads, sequences, far] = asked(q, table, ends, window, cu_seqlens, sinks, sink_q);
        require_cube(lse, "lse", nb::dtype<float>(), "float32 [B, H, T] of q",
                     {q_heads.batch, q_heads.heads, q_heads.tokens});
        const Observed observed = mass_of(mass, 0, sequences, store_.num_heads());
        std::vector<int64_t> which(static_cast<size_t>(sequences.count));
        std::iota(which.begin(), which.end(), 0);
        const auto& impl = chosen(isa);
        nb::gil_scoped_release release;
        store_.last_isa = qk::attention::key_mass(store_, sequences, q_heads, static_cast<const float*>(lse.data()),
                                                  observed, softmax_scale, window, impl, far, which);
    }

    void append_attend(const Array& q, const Array& k, const Array& v, const OptionalArray& cos,
                       const OptionalArray& sin, const Array& table, const Array& ends, nb::handle q_out,
                       nb::handle out, float softmax_scale, int64_t window, const OptionalArray& cu_seqlens,
                       const OptionalName& isa) {
        const auto q_heads = queries_of(q);
        const auto k_heads = heads_of<const float>(k, "k", head_dim()),
                   v_heads = heads_of<const float>(v, "v", head_dim());
        require_same(describe(k), k_heads, describe(v), v_heads);
        require_queries(q, q_heads, k, k_heads);
        if (cos.has_value() != sin.has_value()) throw std::invalid_argument("cos, sin: expected both or neither");
        const Rotation rotation = cos ? rotation_of(*cos, *sin, k_heads.tokens) : Rotation{nullptr, nullptr};
        const Sequences sequences = sequences_of(table, ends, k_heads.batch, k_heads.tokens, window, cu_seqlens);
        const Heads<float> turned = output_of(q_out, "q_out", q_heads), output = output_of(out, "out", q_heads);
        const auto& impl = chosen(isa);
        nb::gil_scoped_release release;
        store_.last_isa = qk::attention::append_attend(store_, sequences, q_heads, k_heads, v_heads, rotation, turned,
                                                       output, softmax_scale, window, impl);
    }

    void truncate(const Array& table, const Array& ends, const Array& held) {
        if (!store_.ring())
            throw std::invalid_argument("truncate: got format " + format() + ", expected one with a residual");
        const auto count = static_cast<int64_t>(ends.shape(0));
        const Sequences sequences = sequences_of(table, ends, count, 0, 0, std::nullopt);
        const std::string expected = "int64 [" + std::to_string(count) + "] of numbers from 0 to ends";
        require_vector(held, "held", nb::dtype<int64_t>(), expected);
        const auto* kept = static_cast<const int64_t*>(held.data());
        bool fits = static_cast<int64_t>(held.shape(0)) == count;
        for (int64_t b = 0; b < count && fits; b++) fits = kept[b] >= 0 && kept[b] <= sequences.ends[b];
        if (!fits) throw std::invalid_argument("held: got " + describe(held) + ", expected " + expected);
        const auto& impl = chosen(std::nullopt);
        nb::gil_scoped_release release;
        qk::attention::truncate(store_, sequences, kept, impl);
    }

    void compact(const Array& table, const Array& num_held, const Array& keep) {
        if (store_.ring())
            throw std::invalid_argument("compact: got format " + format() +
                                        ", expected one that encodes each token by itself");
        const std::string expected = "int64 [B, " + std::to_string(store_.num_heads()) + ", n]";
        require_cube(keep, "keep", nb::dtype<int64_t>(), expected, {-1, store_.num_heads(), -1});
        const auto batch = static_cast<int64_t>(keep.shape(0)), count = static_cast<int64_t>(keep.shape(2));
        const Sequences sequences =
            checked_sequences(table, num_held, batch, std::min<int64_t>(count, 1), 0, store_.num_pages(),
                              store_.page_size(), std::nullopt, store_.num_heads(), 0, "num_held");
        const int64_t* slots = keep_of(keep, store_, sequences);
        nb::gil_scoped_release release;
        qk::attention::compact(store_, sequences, slots, count);
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

    void resize(int64_t page_size) { store_.resize(require_page_size(page_size)); }

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
        require_bytes(array, "out", store_.page_bytes());
        require_page(page);
        store_.read_page(page, static_cast<std::byte*>(array.data()));
    }

    void write_page(int64_t page, const Array& data) {
        require_bytes(data, "data", store_.page_bytes());
        require_page(page);
        store_.write_page(page, static_cast<const std::byte*>(data.data()));
    }

    void read_ring(int64_t ring, nb::handle out) const {
        Output array;
        if (!nb::try_cast(out, array)) throw nb::type_error("out: expected a writable uint8 array");
        require_bytes(array, "out", ring_bytes());
        require_ring(ring);
        store_.ring()->read_page(ring, static_cast<std::byte*>(array.data()));
    }

    void write_ring(int64_t ring, const Array& data) {
        require_bytes(data, "data", ring_bytes());
        require_ring(ring);
        store_.ring()->write_page(ring, static_cast<const std::byte*>(data.data()));
    }

    void read_pages(const Array& pages, nb::handle out) const {
        Output array;
        if (!nb::try_cast(out, array)) throw nb::type_error("out: expected a writable uint8 array");
        const int32_t* const which = require_page_rows(pages, array, "out");
        nb::gil_scoped_release release;
        for (size_t i = 0; i < pages.shape(0); i++)
            store_.read_page(which[i], static_cast<std::byte*>(array.data()) + i * array.shape(1));
    }

    void write_pages(const Array& pages, const Array& data) {
        const int32_t* const which = require_page_rows(pages, data, "data");
        nb::gil_scoped_release release;
        for (size_t i = 0; i < pages.shape(0); i++)
            store_.write_page(which[i], static_cast<const std::byte*>(data.data()) + i * data.shape(1));
    }

    Sequences sequences_of(const Array& table, const Array& ends, int64_t batch, int64_t tokens, int64_t window,
                           const OptionalArray& cu_seqlens, int64_t sinks = 0) const {
        const Sequences sequences =
            checked_sequences(table, ends, batch, tokens, window, store_.num_pages(), store_.page_size(), cu_seqlens,
                              store_.num_heads(), sinks, "ends", false, rings());
        for (int64_t b = 0; sequences.end_heads && b < sequences.count; b++)
            require_same_slots(store_, "ends", sequences.ends + b * sequences.end_heads, 1);
        require_one_page(store_, sequences);
        return sequences;
    }

    Store& store() { return store_; }
    int64_t head_dim() const { return store_.layout().head_dim; }
    int64_t page_size() const { return store_.page_size(); }
    size_t nbytes() const { return store_.nbytes(); }
    size_t page_bytes() const { return store_.page_bytes(); }
    size_t ring_bytes() const { return store_.num_rings() ? store_.ring()->page_bytes() : 0; }
    std::string format() const { return format_names[static_cast<int>(store_.layout().format)]; }
    OptionalName last_isa() const {
        const auto isa = store_.last_isa.load();
        return isa ? OptionalName(name_of(*isa)) : std::nullopt;
    }

private:
    Rings rings() const { return {store_.num_rings(), store_.num_rings() ? &store_.layout() : nullptr}; }

    void require_page(int64_t page) const {
        if (page < 0 || page >= store_.num_pages())
            throw std::invalid_argument("page: got " + std::to_string(page) + ", expected 0 to " +
                                        std::to_string(store_.num_pages() - 1));
    }

    void require_ring(int64_t ring) const {
        if (ring < 0 || ring >= store_.num_rings())
            throw std::invalid_argument("ring: got " + std::to_string(ring) + ", expected one of " +
                                        std::to_string(store_.num_rings()) + " rings apart from the pages");
    }

    template <class AnyArray>
    static void require_bytes(const AnyArray& array, const char* name, size_t size) {
        const std::string expected = "uint8 [" + std::to_string(size) + "]";
        require_vector(array, name, nb::dtype<uint8_t>(), expected);
        if (array.shape(0) != size)
            throw std::invalid_argument(std::string(name) + ": got " + describe(array) + ", expected " + expected);
    }

    // pages [n] int32, and a contiguous uint8 array with a row of page_bytes or more for each
    template <class AnyArray>
    const int32_t* require_page_rows(const Array& pages, const AnyArray& rows, const char* name) const {
        require_vector(pages, "pages", nb::dtype<int32_t>(), "int32 [n]");
        const std::string expected =
            "uint8 [" + std::to_string(pages.shape(0)) + ", " + std::to_string(store_.page_bytes()) + " or more]";
        require_matrix(rows, name, nb::dtype<uint8_t>(), expected);
        if (rows.shape(0) != pages.shape(0) || rows.shape(1) < store_.page_bytes())
            throw std::invalid_argument(std::string(name) + ": got " + describe(rows) + ", expected " + expected);
        const auto* which = static_cast<const int32_t*>(pages.data());
        for (size_t i = 0; i < pages.shape(0); i++) require_page(which[i]);
        return which;
    }

    // Queries, whose they are, and the sinks that they meet.
    struct Asked {
        Heads<const float> q;
        Sequences sequences;
        Sinks far;
    };

    Asked asked(const Array& q, const Array& table, const Array& ends, int64_t window, const OptionalArray& cu_seqlens,
                int64_t sinks, const OptionalArray& sink_q) const {
        const auto q_heads = queries_of(q);
        const Sequences sequences =
            checked_sequences(table, ends, q_heads.batch, q_heads.tokens, window, store_.num_pages(),
                              store_.page_size(), cu_seqlens, store_.num_heads(), sinks, "ends", true, rings());
        const Sinks far = sinks_of(sinks, sink_q, q_heads);
        require_one_page(store_, sequences);
        require_one_run(store_, sequences, q_heads.tokens);
        return {q_heads, sequences, far};
    }

    Heads<const float> queries_of(const Array& q) const {
        const auto heads = heads_of<const float>(q, "q", head_dim());
        if (heads.heads < 1 || heads.heads % store_.num_heads())
            throw std::invalid_argument("q: got " + describe(q) + ", expected a multiple of " +
                                        std::to_string(store_.num_heads()) + " heads");
        return heads;
    }

    Sinks sinks_of(int64_t count, const OptionalArray& sink_q, const Heads<const float>& q) const {
        if (count < 0 || (count > 0) != sink_q.has_value())
            throw std::invalid_argument("sinks, sink_q: got " + std::to_string(count) + " and " +
                                        (sink_q ? describe(*sink_q) : "None") + ", expected both or neither");
        if (count == 0) return {};
        require_sinks(store_, count);
        const auto far = heads_of<const float>(*sink_q, "sink_q", head_dim());
        if (far.batch != q.batch || far.heads != q.heads || far.tokens != q.tokens)
            throw std::invalid_argument("sink_q: got " + describe(*sink_q) + ", expected the shape of q");
        return {count, far};
    }

    static void require_queries(const Array& q, const Heads<const float>& q_heads, const Array& k,
                                const Heads<const float>& k_heads) {
        if (q_heads.batch != k_heads.batch || q_heads.tokens != k_heads.tokens)
            throw std::invalid_argument("q: got " + describe(q) + ", expected the batch and tokens of k " +
                                        describe(k));
    }

    Rotation rotation_of(const Array& cos, const Array& sin, int64_t tokens) const {
        for (const auto& [angles, name] : {std::pair{&cos, "cos"}, {&sin, "sin"}}) {
            require_matrix(*angles, name, nb::dtype<float>(), "float32 [T, D]");
            require_columns(*angles, name, head_dim());
            if (static_cast<int64_t>(angles->shape(0)) != tokens)
                throw std::invalid_argument(std::string(name) + ": got " + describe(*angles) + ", expected " +
                                            std::to_string(tokens) + " rows");
        }
        return {static_cast<const float*>(cos.data()), static_cast<const float*>(sin.data())};
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
                    const OptionalName& isa, const OptionalArray& slots) {
        const auto v_heads = heads_of<const float>(v, "v", head_dim());
        require_same("k", k, describe(v), v_heads);
        const Sequences sequences = sequences_of(table, ends, k.batch, k.tokens, k.tokens > 0 ? 1 : 0, cu_seqlens);
        if (slots && store_.ring())
            throw std::invalid_argument("slots: got format " + format() +
                                        ", expected one that encodes each token by itself");
        const int64_t* places = slots ? slots_of(*slots, store_, sequences, k.tokens) : nullptr;
        const auto& impl = chosen(isa);
        nb::gil_scoped_release release;
        qk::attention::append(store_, sequences, q, k, v_heads, rotation, q_out, impl, places);
    }

    Store store_;
};

}  // namespace qk::attention
