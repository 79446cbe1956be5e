#include "fused/attention/choice.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "attention/calls/workspace.h"

namespace qk::fused {
namespace {

// The factors of rows. Bounds: max(q * low, q * high) is q * low if q is negative, else q * high.
void put_vectors(const BlockChoice& choice, const float* query, int64_t heads, int64_t kv_heads, int64_t head_dim,
                 std::vector<float>& vectors) {
    const int64_t group = heads / kv_heads, parts = choice.has_bounds ? 2 : 1;
    vectors.assign(static_cast<size_t>(kv_heads * parts * head_dim), 0.0f);
    for (int64_t h = 0; h < heads; h++) {
        float* const vector = vectors.data() + h / group * parts * head_dim;
        for (int64_t d = 0; d < head_dim; d++) {
            const float value = query[h * head_dim + d];
            vector[choice.has_bounds && value > 0 ? head_dim + d : d] += value;
        }
    }
}

void smooth(const Smoothing& smoothing, int64_t heads, int64_t num_rows, float* scores) {
    if (!smoothing.after) return;
    for (int64_t a = 0; a < heads; a++) {
        float* const own = scores + a * num_rows;
        const float* const before = smoothing.before + a * smoothing.num_before;
        for (int64_t i = 0; i < smoothing.num_before; i++)
            own[i] = smoothing.rest * own[i] + smoothing.share * before[i];
    }
    std::copy_n(scores, heads * num_rows, smoothing.after);
}

bool has_pages(const BlockChoice& choice, const int32_t* table, const std::vector<int64_t>& best) {
    return std::all_of(best.begin(), best.end(), [&](int64_t block) {
        const int32_t* const pages = table + choice.init_pages + block * choice.block_pages;
        return std::all_of(pages, pages + choice.block_pages, [](int32_t page) { return page >= 0; });
    });
}

// Throws unless `count` entries of a block table name pages that there are.
void require_pages(const int32_t* table, int64_t count, int64_t num_pages) {
    for (int64_t i = 0; i < count; i++)
        if (table[i] < 0 || table[i] >= num_pages)
            throw std::invalid_argument("block_table: got page " + std::to_string(table[i]) +
                                        " in a block that was chosen, expected 0 to " + std::to_string(num_pages - 1));
}

}  // namespace

attention::Sequences chosen_pages(const BlockChoice& choice, const attention::Sequences& sequences, const float* query,
                                  int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t num_pages,
                                  std::vector<int32_t>& table, int64_t& end) {
    thread_local std::vector<float> vectors, scores;
    thread_local std::vector<int64_t> best;
    const int64_t choices = choice.rows.heads, limit = choice.rows.num_rows, count = choice.count;
    put_vectors(choice, query, heads, kv_heads, head_dim, vectors);
    scores.resize(static_cast<size_t>(choices * limit));
    best.resize(static_cast<size_t>(choices * count));
    blocks::score(choice.rows, vectors.data(), 1, scores.data(), *choice.impl);
    smooth(choice.smoothing, choices, limit, scores.data());
    blocks::best(scores.data(), 1, choices, limit, &limit, &count, count, best.data());

    if (choice.on_choice && !has_pages(choice, sequences.table, best)) choice.on_choice(best.data());
    if (choice.chosen) std::copy(best.begin(), best.end(), choice.chosen);

    const int64_t used = attention::ceil_div(sequences.ends[0], sequences.page_size);
    const int64_t pages = choice.num_far_pages() + used - choice.first_page;
    const int32_t* const from = sequences.table;
    table.resize(static_cast<size_t>(choices * pages));
    for (int64_t a = 0; a < choices; a++) {
        int32_t* to = std::copy_n(from, choice.init_pages, table.data() + a * pages);
        for (int64_t i = 0; i < count; i++) {
            const int32_t* const pages_of = from + choice.init_pages + best[a * count + i] * choice.block_pages;
            require_pages(pages_of, choice.block_pages, num_pages);
            to = std::copy_n(pages_of, choice.block_pages, to);
        }
        std::copy(from + choice.first_page, from + used, to);
    }
    end = choice.end_of(sequences.ends[0], sequences.page_size);
    attention::Sequences chosen = sequences;
    chosen.table = table.data();
    chosen.pages = pages;
    chosen.ends = &end;
    chosen.table_heads = choices > 1 ? choices : 0;
    return chosen;
}

}  // namespace qk::fused
