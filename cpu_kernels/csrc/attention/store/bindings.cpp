#include "attention/store/bound_store.h"

namespace qk::attention {
namespace {

BoundStore& bound(nb::handle kv_store) {
    if (!nb::isinstance<BoundStore>(kv_store)) throw nb::type_error("store: expected a KVStore");
    return nb::cast<BoundStore&>(kv_store);
}

}  // namespace

Store& store_of(nb::handle kv_store) { return bound(kv_store).store(); }

Sequences sequences_of(nb::handle kv_store, const Array& table, const Array& ends, int64_t batch, int64_t tokens,
                       int64_t window, const OptionalArray& cu_seqlens, int64_t sinks) {
    return bound(kv_store).sequences_of(table, ends, batch, tokens, window, cu_seqlens, sinks);
}

// One slot of each head, for the one new token of each sequence.
const int64_t* slots_of(const Array& array, const Store& store, const Sequences& sequences, int64_t tokens) {
    const int64_t heads = store.num_heads();
    require_shape(array, "slots", nb::dtype<int64_t>(), "int64", sequences.count, heads);
    const auto* slots = static_cast<const int64_t*>(array.data());
    for (int64_t b = 0; b < sequences.count; b++) {
        if (sequences.new_tokens(b, tokens) != 1)
            throw std::invalid_argument("slots: got " + std::to_string(sequences.new_tokens(b, tokens)) +
                                        " new tokens for a sequence, expected 1");
        for (int64_t g = 0; g < heads; g++) {
            const int64_t slot = slots[b * heads + g];
            if (slot < 0 || slot >= sequences.end(b, g))
                throw std::invalid_argument("slots: got " + std::to_string(slot) + ", expected 0 to " +
                                            std::to_string(sequences.end(b, g) - 1));
            const int64_t page = sequences.locate(b, slot).first;
            if (page < 0 || page >= store.num_pages())
                throw std::invalid_argument("block_table: got page " + std::to_string(page) + ", expected 0 to " +
                                            std::to_string(store.num_pages() - 1));
        }
        require_same_slots(store, "slots", slots + b * heads, 1);
    }
    return slots;
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
        "format           f32, f16, bf16, e4m3, e5m2, int8, int4, kivi4 or kivi2. A page of kivi holds one sequence:\n"
        "                 the 128 to 159 most recent tokens as f16, the groups of 32 before them encoded\n"
        "num_pages        of page_size tokens (a multiple of 16) of all num_heads kv heads\n"
        "head_dim         a multiple of 16, of 32 for int4 and kivi; at most 256 for int8, int4 and kivi\n"
        "scales           of float8: 'given' (k_scale, v_scale [num_heads or 1] float32), or found for each token\n"
        "                 'per_head' or 'per_tensor'\n"
        "num_rings        of kivi: 0, or sequences that have several pages each, of encoded tokens alone. The first\n"
        "                 column of their block table is the ring of recent tokens of each\n"
        "exact            tiles of AMX, which round more, multiply nothing: a query has the bits that it has alone,\n"
        "                 whatever QBENCH_F16_COMPUTE says\n"
        "float8 with given scales keeps what is beyond the largest finite code, infinities too, as that code: a token\n"
        "that overflows weighs too little and does not make all that see it NaN, as torch's cast to e5m2 would, which\n"
        "is infinite from 61440 on. A scale found for a token with an infinity makes all of it NaN. int8 and int4 "
        "keep\n"
        "an infinity as the largest that their scale and minimum reach, and lose the rest of its group. NaN stays.\n"
        "raises           ValueError")
        .def(nb::init<const std::string&, int64_t, int64_t, int64_t, int64_t, const std::string&,
                      const std::optional<Array>&, const std::optional<Array>&, int64_t, bool>(),
             "format"_a, "num_pages"_a, "page_size"_a, "num_heads"_a, "head_dim"_a, "scales"_a = "given",
             "k_scale"_a.none() = nb::none(), "v_scale"_a.none() = nb::none(), "num_rings"_a = 0, "exact"_a = false)
        .def(
            "append", &BoundStore::append, "k"_a, "v"_a, "block_table"_a, "ends"_a, "cu_seqlens"_a.none() = nb::none(),
            "isa"_a.none() = nb::none(), "slots"_a.none() = nb::none(),
            "Stores k and v as the last T tokens of each sequence.\n\n"
            "k, v         [B, G, T, D] float32, last axis contiguous\n"
            "block_table  [B, pages] int32: the page of each page_size tokens; of pages not needed anything\n"
            "ends         [B] int64: tokens of each sequence, the new ones included; or [B, G], of each of its heads\n"
            "cu_seqlens   [B + 1] int64: a varlen call, k and v [1, G, N, D], of which rows cu_seqlens[b]\n"
            "             up to cu_seqlens[b + 1] are sequence b's, one or more; None: T new tokens for each\n"
            "isa          implementation by name; None: the best, at most QBENCH_ISA\n"
            "slots        [B, G] int64, if each sequence has one new token: the slot of each head that it takes, from\n"
            "             0 to ends - 1; the same for all heads if scales are per_tensor; None: slot ends - 1\n"
            "raises       ValueError (shape, strides, ends, pages), TypeError (dtype), RuntimeError (isa)")
        .def("rope_append", &BoundStore::rope_append, "q"_a, "k"_a, "v"_a, "cos"_a, "sin"_a, "block_table"_a, "ends"_a,
             "q_out"_a, "cu_seqlens"_a.none() = nb::none(), "isa"_a.none() = nb::none(), "slots"_a.none() = nb::none(),
             "append of k turned, and q turned into q_out: pair (i, i + D / 2) by its angle.\n\n"
             "q, q_out     [B, H, T, D] float32, last axis contiguous; q_out may be q\n"
             "cos, sin     [T, D] float32, of a varlen call [N, D]; sin with the sign of the swap, negative in the\n"
             "             first half")
        .def("attend", &BoundStore::attend, "q"_a, "block_table"_a, "ends"_a, "out"_a, "softmax_scale"_a,
             "window"_a = 0, "cu_seqlens"_a.none() = nb::none(), "isa"_a.none() = nb::none(), "sinks"_a = 0,
             "sink_q"_a.none() = nb::none(), "lse"_a.none() = nb::none(), "mass"_a.none() = nb::none(),
             "mass_queries"_a = 0,
             "out = softmax(q k^T * softmax_scale) v, as attention_ref defines it.\n\n"
             "q, out       [B, H, T, D] float32, last axis contiguous; the last T tokens of each sequence, or of a\n"
             "             varlen call (see append) [1, H, N, D]: a query's result is that of its sequence alone\n"
             "block_table  [B, pages] int32 as append takes it, or [B, G, pages], of each kv head\n"
             "window       tokens that a query sees, itself included; 0: all before it\n"
             "sinks        the first tokens, that each query sees, too, as sink_attention_ref defines it\n"
             "sink_q       as q: what meets their keys; None: there are no sinks\n"
             "lse          [B, H, T] float32, contiguous, written unless it is None: see Attended\n"
             "mass         [B, G, S] float32, contiguous, S at least max(ends), written unless it is None: the weight "
             "of\n"
             "             each slot, summed over queries and the heads of a group; 0 in slots from ends on\n"
             "mass_queries number of last new queries of each sequence that count in mass; 0: all")
        .def("attend_blocks", &BoundStore::attend_blocks, "q"_a, "block_table"_a, "ends"_a, "out"_a, "softmax_scale"_a,
             "offsets"_a, "indices"_a, "key_block"_a = 128, "query_block"_a = 128, "lse"_a.none() = nb::none(),
             "isa"_a.none() = nb::none(),
             "attend of one sequence over listed blocks of its keys, as block_attention_ref defines it. If all blocks\n"
             "are listed, the bits are those of attend.\n\n"
             "q, out       [1, H, T, D] float32, last axis contiguous; the last T tokens of the sequence\n"
             "ends         [1] int64\n"
             "offsets      [L, N + 1] int64: list i of row l is indices[offsets[l, i] : offsets[l, i + 1]], N the\n"
             "             number of query blocks; L is 1 if all heads share their lists, else H\n"
             "indices      [n] int32: key blocks, ascending in each list\n"
             "key_block    tokens of a key block, a multiple of 16\n"
             "query_block  tokens of a query block\n"
             "lse          [1, H, T] float32, contiguous, written unless it is None; minus infinity for a query that\n"
             "             sees no token, whose out is 0\n"
             "raises       ValueError (shape, lists, a format with a residual), TypeError, RuntimeError (isa)")
        .def("key_mass", &BoundStore::key_mass, "q"_a, "block_table"_a, "ends"_a, "lse"_a, "mass"_a, "softmax_scale"_a,
             "window"_a = 0, "cu_seqlens"_a.none() = nb::none(), "isa"_a.none() = nb::none(), "sinks"_a = 0,
             "sink_q"_a.none() = nb::none(),
             "The mass of the last T queries of each sequence, from their lse, as key_mass_ref defines it.\n\n"
             "q, lse       [B, H, T, D] and [B, H, T] float32, or of a varlen call [1, H, N, D] and [1, H, N]\n"
             "mass         [B, G, S] float32, contiguous, written; the other arguments as for attend")
        .def("append_attend", &BoundStore::append_attend, "q"_a, "k"_a, "v"_a, "cos"_a.none(), "sin"_a.none(),
             "block_table"_a, "ends"_a, "q_out"_a, "out"_a, "softmax_scale"_a, "window"_a = 0,
             "cu_seqlens"_a.none() = nb::none(), "isa"_a.none() = nb::none(),
             "rope_append, then attend of q_out. kivi takes any number of new tokens here, and the results are the\n"
             "same as for one token after the other; attend takes no more than see the same tokens encoded.\n\n"
             "cos, sin     as rope_append takes them; None: q and k are turned already\n"
             "raises       as append")
        .def("truncate", &BoundStore::truncate, "block_table"_a, "ends"_a, "held"_a,
             "Sequences of kivi that hold `ends` tokens hold the first `held` of them from now on, both [B] int64.\n"
             "Encoded tokens that are recent again are decoded and rounded to f16.\n\n"
             "raises  ValueError")
        .def(
            "compact", &BoundStore::compact, "block_table"_a, "num_held"_a, "keep"_a,
            "Moves the kept tokens of each head to its first slots, with their scales; in place.\n"
            "No other sequence may have the pages, as their tokens move, too.\n\n"
            "num_held     [B] int64: tokens that each sequence holds; or [B, G], that each of its heads holds\n"
            "keep         [B, G, n] int64, contiguous, rising and below num_held: slot i then holds the token of slot\n"
            "             keep[b, g, i]; -1 at the end of a head that keeps fewer; the same for all heads if scales "
            "are\n"
            "             per_tensor\n"
            "raises       ValueError (shape, slots, pages), TypeError (dtype)")
        .def("read", &BoundStore::read, "block_table"_a, "ends"_a, "k"_a, "v"_a,
             "The first S tokens of each sequence as they are kept, into k and v [B, G, S, D] float32.")
        .def("resize", &BoundStore::resize, "page_size"_a,
             "Gives every page room for another number of tokens, a multiple of 16. The tokens that fit stay.\n\n"
             "raises  ValueError for an impossible size")
        .def("add_pages", &BoundStore::add_pages, "num_pages"_a,
             "So many pages from now on; what those hold that there are stays.\n\nraises  ValueError for fewer")
        .def("copy_page", &BoundStore::copy_page, "source"_a, "target"_a,
             "All that one page holds into another.\n\nraises  ValueError for a page that is not there")
        .def("read_page", &BoundStore::read_page, "page"_a, "out"_a,
             "All that a page holds, into uint8 [page_bytes].\n\nraises  ValueError, TypeError")
        .def("write_page", &BoundStore::write_page, "page"_a, "data"_a,
             "What read_page read, of any page of any store of the same sizes.\n\nraises  ValueError, TypeError")
        .def("read_pages", &BoundStore::read_pages, "pages"_a, "out"_a,
             "As read_page, of pages int32 [n] into the rows of uint8 [n, page_bytes or more].\n\n"
             "raises  ValueError, TypeError")
        .def("write_pages", &BoundStore::write_pages, "pages"_a, "data"_a,
             "What read_pages read, into pages int32 [n].\n\nraises  ValueError, TypeError")
        .def_prop_ro("page_size", &BoundStore::page_size)
        .def("read_ring", &BoundStore::read_ring, "ring"_a, "out"_a,
             "All that a ring apart from the pages holds, into uint8 [ring_bytes].\n\nraises  ValueError, TypeError")
        .def("write_ring", &BoundStore::write_ring, "ring"_a, "data"_a,
             "What read_ring gave, into a ring.\n\nraises  ValueError, TypeError")
        .def_prop_ro("page_bytes", &BoundStore::page_bytes, "Bytes of a page, scales included.")
        .def_prop_ro("ring_bytes", &BoundStore::ring_bytes, "Bytes of a ring that is apart from the pages.")
        .def_prop_ro("format", &BoundStore::format)
        .def_prop_ro("nbytes", &BoundStore::nbytes, "Bytes of all pages, scales included.")
        .def_prop_ro("last_isa", &BoundStore::last_isa, "What the kernel of the last attend said it is.");
}

}  // namespace qk::attention
