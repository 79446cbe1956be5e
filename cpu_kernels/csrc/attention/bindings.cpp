#include "bindings.h"

#include <algorithm>
#include <cstdlib>

#include "attention/arguments.h"
#include "attention/calls/workspace.h"

namespace qk::attention {

const Impl<Kernels>& chosen(const OptionalName& isa) {
    const auto& impl = choose("attention", table(), isa ? std::optional<std::string_view>(*isa) : std::nullopt);
    const char* asked = std::getenv("QBENCH_F16_COMPUTE");  // refused by linear_float if it is neither
    return asked && std::string_view(asked) == "float32" ? without_rounded_f16(impl) : impl;
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

namespace {

float* writable_cube(nb::handle out, const char* name, const std::string& expected, const int64_t (&shape)[3],
                     int64_t* columns = nullptr) {
    Output array;
    if (!nb::try_cast(out, array))
        throw nb::type_error((std::string(name) + ": expected a writable " + expected).c_str());
    require_cube(array, name, nb::dtype<float>(), expected, shape);
    if (columns) *columns = static_cast<int64_t>(array.shape(2));
    return static_cast<float*>(array.data());
}

}  // namespace

Observed mass_of(nb::handle mass, int64_t mass_queries, const Sequences& sequences, int64_t num_kv_heads) {
    if (mass_queries < 0)
        throw std::invalid_argument("mass_queries: got " + std::to_string(mass_queries) + ", expected 0 or more");
    Observed observed;
    observed.mass_queries = mass_queries;
    if (mass.is_none()) return observed;
    const int64_t num_ends = sequences.num_ends();
    const int64_t longest = num_ends ? *std::max_element(sequences.ends, sequences.ends + num_ends) : 0;
    const std::string expected = "float32 [" + std::to_string(sequences.count) + ", " + std::to_string(num_kv_heads) +
                                 ", " + std::to_string(longest) + " or more]";
    observed.mass = writable_cube(mass, "mass", expected, {sequences.count, num_kv_heads, -1}, &observed.slots);
    if (observed.slots < longest)
        throw std::invalid_argument("mass: got " + std::to_string(observed.slots) + " slots, expected " + expected);
    return observed;
}

float* lse_of(nb::handle lse, const Heads<const float>& q) {
    if (lse.is_none()) return nullptr;
    const std::string expected =
        "float32 [" + std::to_string(q.batch) + ", " + std::to_string(q.heads) + ", " + std::to_string(q.tokens) + "]";
    return writable_cube(lse, "lse", expected, {q.batch, q.heads, q.tokens});
}

namespace {

void require_in_table(const char* what, int32_t number, int64_t count) {
    if (number >= 0 && number < count) return;
    throw std::invalid_argument("block_table: got " + std::string(what) + " " + std::to_string(number) +
                                ", expected 0 to " + std::to_string(count - 1));
}

void check_sequence(const Sequences& sequences, int64_t b, int64_t g, int64_t tokens, int64_t window, int64_t sinks,
                    int64_t num_pages, const char* name, const Rings& rings) {
    const int64_t length = sequences.end(b, g), in_pages = rings.count ? rings.layout->num_encoded(length) : length;
    const int64_t room = (sequences.pages - sequences.ring_columns) * sequences.page_size;
    if (length < tokens || in_pages > room)
        throw std::invalid_argument(
            std::string(name) + ": got " + std::to_string(length) + ", expected " + std::to_string(tokens) + " to " +
            std::to_string(rings.count ? room / group_tokens * group_tokens + ring_tokens - 1 : room));
    const int32_t* const row = sequences.pages_of(b, g);
    if (rings.count) require_in_table("ring", row[0], rings.count);
    const int64_t first = window ? std::max<int64_t>(0, length - tokens + 1 - window) : 0;
    for (int64_t i = 0; i * sequences.page_size < in_pages; i++) {
        if (i * sequences.page_size >= sinks && (i + 1) * sequences.page_size <= first) continue;
        require_in_table("page", row[sequences.ring_columns + i], num_pages);
    }
}

// [count + 1] int64: the first row of each sequence among all `tokens` of [1, tokens].
const int64_t* checked_cu_seqlens(const Array& cu_seqlens, int64_t count, int64_t batch, int64_t tokens) {
    const std::string expected = "int64 [" + std::to_string(count + 1) + "]";
    require_vector(cu_seqlens, "cu_seqlens", nb::dtype<int64_t>(), expected);
    const auto* rows = static_cast<const int64_t*>(cu_seqlens.data());
    bool rises = static_cast<int64_t>(cu_seqlens.shape(0)) == count + 1 && rows[0] == 0 && rows[count] == tokens;
    for (int64_t b = 0; rises && b < count; b++) rises = rows[b] < rows[b + 1];
    if (!rises || batch != 1)
        throw std::invalid_argument("cu_seqlens: got " + describe(cu_seqlens) + " for a batch of " +
                                    std::to_string(batch) + ", expected " + expected + " that rises from 0 to " +
                                    std::to_string(tokens) + ", and a batch of 1");
    return rows;
}

}  // namespace

// Every page that a call reads or writes is looked up here once, so that the kernels need not.
Sequences checked_sequences(const Array& table, const Array& ends, int64_t batch, int64_t tokens, int64_t window,
                            int64_t num_pages, int64_t page_size, const OptionalArray& cu_seqlens, int64_t num_heads,
                            int64_t sinks, const char* name, bool may_differ, const Rings& rings) {
    if (window < 0) throw std::invalid_argument("window: got " + std::to_string(window) + ", expected 0 or more");
    const bool has_head_pages = may_differ && table.ndim() == 3;
    if (has_head_pages)
        require_cube(table, "block_table", nb::dtype<int32_t>(), "int32 [B, G, pages]", {-1, num_heads, -1});
    else
        require_matrix(table, "block_table", nb::dtype<int32_t>(), "int32 [B, pages]");
    const bool is_per_head = num_heads > 0 && ends.ndim() == 2;
    if (is_per_head)
        require_matrix(ends, name, nb::dtype<int64_t>(), "int64 [B] or [B, G]");
    else
        require_vector(ends, name, nb::dtype<int64_t>(), num_heads > 0 ? "int64 [B] or [B, G]" : "int64 [B]");
    if (is_per_head) require_columns(ends, name, num_heads);
    const int64_t* rows = nullptr;
    if (cu_seqlens) {
        const auto count = static_cast<int64_t>(ends.shape(0));
        rows = checked_cu_seqlens(*cu_seqlens, count, batch, tokens);
        batch = count;
    }
    if (static_cast<int64_t>(table.shape(0)) != batch || static_cast<int64_t>(ends.shape(0)) != batch)
        throw std::invalid_argument("block_table, " + std::string(name) + ": got " + describe(table) + " and " +
                                    describe(ends) + ", expected a row and a length for each of " +
                                    std::to_string(batch) + " sequences");
    if (rings.count && table.shape(1) < 1)
        throw std::invalid_argument("block_table: got " + describe(table) + ", expected a ring before the pages");
    const Sequences sequences{static_cast<const int32_t*>(table.data()),
                              static_cast<const int64_t*>(ends.data()),
                              batch,
                              static_cast<int64_t>(table.shape(has_head_pages ? 2 : 1)),
                              page_size,
                              rows,
                              is_per_head ? num_heads : 0,
                              false,
                              has_head_pages ? num_heads : 0,
                              rings.count ? 1 : 0};
    const int64_t heads = is_per_head || has_head_pages ? num_heads : 1;
    for (int64_t i = 0; i < batch * heads && tokens > 0; i++) {
        const int64_t b = i / heads;
        check_sequence(sequences, b, i % heads, sequences.new_tokens(b, tokens), window, sinks, num_pages, name, rings);
    }
    return sequences;
}

BlockLists lists_of(const Array& offsets, const Array& indices, const Heads<const float>& q, int64_t end,
                    int64_t key_block, int64_t query_block) {
    if (key_block < 1 || key_block % block_tokens || query_block < 1)
        throw std::invalid_argument("key_block, query_block: got " + std::to_string(key_block) + " and " +
                                    std::to_string(query_block) + ", expected a multiple of " +
                                    std::to_string(block_tokens) + ", and 1 or more");
    const int64_t query_blocks = ceil_div(q.tokens, query_block), most = ceil_div(end, key_block);
    const std::string expected = "int64 [1 or " + std::to_string(q.heads) + ", " + std::to_string(query_blocks + 1) +
                                 "] that rises to at most the number of indices";
    require_matrix(offsets, "offsets", nb::dtype<int64_t>(), expected);
    require_vector(indices, "indices", nb::dtype<int32_t>(), "int32 [n]");
    const auto rows = static_cast<int64_t>(offsets.shape(0)), count = static_cast<int64_t>(indices.shape(0));
    const auto* first = static_cast<const int64_t*>(offsets.data());
    const auto* index = static_cast<const int32_t*>(indices.data());
    const BlockLists lists{first, index, rows, query_blocks, query_block, key_block};
    bool fits = (rows == 1 || rows == q.heads) && static_cast<int64_t>(offsets.shape(1)) == query_blocks + 1;
    for (int64_t i = 0; fits && i < rows * (query_blocks + 1); i++)
        fits = first[i] >= (i % (query_blocks + 1) ? first[i - 1] : 0) && first[i] <= count;
    if (!fits) throw std::invalid_argument("offsets: got " + describe(offsets) + ", expected " + expected);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t block = 0; block < query_blocks; block++) {
            int32_t before = -1;
            for (const int32_t key : lists.of(row, block)) {
                if (key <= before || key >= most)
                    throw std::invalid_argument("indices: got " + std::to_string(key) + " after " +
                                                std::to_string(before) + ", expected lists that rise from 0 to " +
                                                std::to_string(most - 1) + " at most");
                before = key;
            }
        }
    return lists;
}

const Impl<Kernels>& choose_attention() { return chosen(std::nullopt); }

void require_sinks(const Store& store, int64_t sinks) {
    if (store.ring())
        throw std::invalid_argument("sinks: got " + std::to_string(sinks) + " for format " +
                                    format_names[static_cast<int>(store.layout().format)] +
                                    ", expected 0, as its tokens are encoded together");
}

void bind(nb::module_& m) {
    bind_latents(m);
    bind_store(m);
}

}  // namespace qk::attention
