#include "attention/arguments.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "attention/calls/workspace.h"
#include "bindings.h"
#include "fused/attention/arguments.h"
#include "fused/group/linear_group.h"
#include "fused/layers/layers.h"
#include "linear/switch_points.h"
#include "tiers/chosen_blocks.h"
#include "timeline.h"

namespace qk::fused {
namespace {

using namespace nb::literals;

std::vector<float> copy_of(const std::optional<Array>& array, const char* name, int64_t size) {
    if (!array) return {};
    const float* data = vector_of(*array, name, size);
    return {data, data + size};
}

// Groups and norms of one layer; Python keeps the groups alive as long as it.
class DecoderLayer {
public:
    DecoderLayer(const LinearGroup& qkv, const LinearGroup& output, const LinearGroup& gate_up, const LinearGroup& down,
                 const Array& attention_norm, const Array& feed_forward_norm, float eps, int64_t head_dim,
                 const std::optional<Array>& q_norm, const std::optional<Array>& k_norm, float head_eps)
        : groups_{&qkv, &output, &gate_up, &down},
          attention_norm_(copy_of(attention_norm, "attention_norm", group(0).row_size())),
          feed_forward_norm_(copy_of(feed_forward_norm, "feed_forward_norm", group(0).row_size())),
          q_norm_(copy_of(q_norm, "q_norm", head_dim)),
          k_norm_(copy_of(k_norm, "k_norm", head_dim)),
          eps_(eps),
          head_eps_(head_eps),
          head_dim_(head_dim) {
        require_feed_forward(group(2), group(3));
        const int64_t width = row_size();
        if (group(1).num_rows(0) != width || group(2).row_size() != width || group(3).num_rows(0) != width)
            throw std::invalid_argument("DecoderLayer: got output of " + std::to_string(group(1).num_rows(0)) +
                                        " rows, gate and up that read " + std::to_string(group(2).row_size()) +
                                        " and down of " + std::to_string(group(3).num_rows(0)) + ", expected " +
                                        std::to_string(width) + " for all, as q, k and v read");
    }

    int64_t row_size() const { return group(0).row_size(); }

    // Checked against the store; reads the environment. version: of the environment and the switch points
    Layer layer(nb::handle kv_store, int64_t num_tokens, int64_t num_sequences, int64_t version) const {
        attention::Store& store = attention::store_of(kv_store);
        if (store.layout().head_dim != head_dim_)
            throw std::invalid_argument("stores: got heads of " + std::to_string(store.layout().head_dim) +
                                        ", expected " + std::to_string(head_dim_));
        require_attention(group(0), group(1), store);
        return {&group(0),
                &group(1),
                &group(2),
                &group(3),
                {attention_norm_.data(), eps_},
                {feed_forward_norm_.data(), eps_},
                {q_norm_.empty() ? nullptr : q_norm_.data(), k_norm_.empty() ? nullptr : k_norm_.data(), head_eps_},
                &store,
                {},
                nullptr,
                {},
                std::nullopt,
                choices({num_tokens, num_sequences, version})};
    }

private:
    // All that the choice of implementations depends on.
    struct Given {
        int64_t num_tokens, num_sequences, version;

        bool operator==(const Given&) const = default;
    };

    // Those of the last call if they hold: a decode step does not search the environment for every weight. The GIL is
    // held, and another call that still runs keeps its own.
    std::shared_ptr<const LayerChoices> choices(const Given& given) const {
        if (chosen_ && given == given_) return chosen_;
        const RowSteps& steps = choose_steps(std::nullopt).kernels;
        const auto net = [&](int64_t count) {
            return FeedForwardChoices{group(2).choose(count), group(3).choose(count), steps};
        };
        chosen_ = std::make_shared<const LayerChoices>(
            LayerChoices{{group(0).choose(given.num_tokens), group(1).choose(given.num_tokens), steps,
                          &attention::choose_attention()},
                         net(given.num_tokens),
                         net(given.num_sequences)});
        given_ = given;
        return chosen_;
    }

    const Group& group(int i) const { return groups_[i]->group(); }

    const LinearGroup* groups_[4];
    std::vector<float> attention_norm_, feed_forward_norm_, q_norm_, k_norm_;
    float eps_, head_eps_;
    int64_t head_dim_;
    mutable Given given_{};
    mutable std::shared_ptr<const LayerChoices> chosen_;
};

// The callable, for a thread that does not hold the GIL.
std::function<void(size_t)> with_lock(const std::optional<nb::callable>& before_layer) {
    if (!before_layer) return {};
    return [&call = *before_layer](size_t layer) {
        nb::gil_scoped_acquire acquire;
        call(layer);
    };
}

using GivenChoice = std::tuple<Array, int64_t, int64_t, int64_t, int64_t, int64_t>;

// A choice is made for one query over pages that the heads of its sequence share.
void require_one_query(const attention::Store& store, const attention::Sequences& sequences, int64_t num_tokens,
                       int64_t window) {
    if (num_tokens != 1 || sequences.count != 1 || store.ring())
        throw std::invalid_argument("choices: got " + std::to_string(num_tokens) + " tokens of " +
                                    std::to_string(sequences.count) +
                                    " sequences, expected 1 of 1, in a store that keeps each token by itself");
    if (sequences.end_heads || sequences.table_heads)
        throw std::invalid_argument("choices: got ends or pages for each of " + std::to_string(store.num_heads()) +
                                    " heads, expected those that all heads of a sequence share");
    if (window)
        throw std::invalid_argument("choices: got a window of " + std::to_string(window) + ", expected 0 (none)");
}

void require_blocks(const BlockChoice& choice, int64_t used) {
    const int64_t num_rows = choice.rows.num_rows;
    const auto is_count = [used](int64_t value, int64_t least) { return value >= least && value <= used; };
    // Numbers that are no larger than the pages of a sequence, so that their product does not overflow.
    if (!is_count(num_rows, 1) || num_rows > choice.rows.room || choice.count < 1 || choice.count > num_rows ||
        !is_count(choice.init_pages, 0) || !is_count(choice.block_pages, 1) ||
        choice.init_pages + num_rows * choice.block_pages > choice.first_page || choice.first_page >= used)
        throw std::invalid_argument("choices: got " + std::to_string(choice.count) + " of " + std::to_string(num_rows) +
                                    " blocks of " + std::to_string(choice.block_pages) + " pages after " +
                                    std::to_string(choice.init_pages) + " and before page " +
                                    std::to_string(choice.first_page) + ", expected blocks that lie between them, in " +
                                    std::to_string(used) + " pages and " + std::to_string(choice.rows.room) + " rows");
}

// Calls with the number of the layer and its best blocks [heads, count] int64, for a thread that does not hold the GIL.
std::function<void(const int64_t*)> with_lock(const std::optional<nb::callable>& on_choice, size_t layer,
                                              const BlockChoice& choice) {
    if (!on_choice) return {};
    return [&call = *on_choice, layer, heads = choice.rows.heads, count = choice.count](const int64_t* best) {
        nb::gil_scoped_acquire acquire;
        const size_t shape[] = {static_cast<size_t>(heads), static_cast<size_t>(count)};
        call(layer, nb::ndarray<nb::numpy, const int64_t>(best, 2, shape, nb::handle()));
    };
}

// Has `tier` bring the chosen blocks of a layer, and calls `otherwise` if it cannot.
std::function<void(const int64_t*)> brought_by(nb::handle tier, std::function<void(const int64_t*)> otherwise,
                                               size_t layer, const BlockChoice& choice) {
    if (tier.is_none()) return otherwise;
    tiers::ChosenBlocks& blocks = tiers::chosen_blocks_of(tier);
    const int64_t num_pages = choice.init_pages + choice.rows.num_rows * choice.block_pages;
    if (!otherwise || choice.rows.heads != 1 || static_cast<int64_t>(layer) >= blocks.arrays().num_layers ||
        num_pages > blocks.arrays().num_blocks)
        throw std::invalid_argument("tier: got layer " + std::to_string(layer) + " and " + std::to_string(num_pages) +
                                    " pages that " + std::to_string(choice.rows.heads) +
                                    " heads choose from, expected on_choice, a layer of the tier, pages that it has "
                                    "and one choice for all heads");
    return [&blocks, otherwise = std::move(otherwise), layer, count = choice.count, first = choice.init_pages,
            size = choice.block_pages](const int64_t* best) {
        thread_local std::vector<int64_t> pages;
        pages.clear();
        for (int64_t i = 0; i < count; i++)
            for (int64_t page = 0; page < size; page++) pages.push_back(first + best[i] * size + page);
        if (!blocks.bring(static_cast<int64_t>(layer), pages)) otherwise(best);
    };
}

// share, before [A, n] float32, after [A, num_rows] float32.
Smoothing smoothing_of(nb::handle given, const blocks::Rows& rows) {
    std::tuple<double, Array, attention::Output> parts;
    if (given.is_none()) return {};
    if (!nb::try_cast(given, parts)) throw nb::type_error("smoothing: expected (share, before, after)");
    const auto& [share, before, after] = parts;
    if (!(share >= 0 && share < 1))
        throw std::invalid_argument("smoothing: got a share of " + std::to_string(share) +
                                    ", expected at least 0 and less than 1");
    require_matrix(before, "smoothing", nb::dtype<float>(), "float32 [A, n]");
    require_shape(after, "smoothing", nb::dtype<float>(), "float32", rows.heads, rows.num_rows);
    const auto heads = static_cast<int64_t>(before.shape(0)), num_before = static_cast<int64_t>(before.shape(1));
    if (heads != rows.heads || num_before > rows.num_rows)
        throw std::invalid_argument("smoothing: got scores " + describe(before) + ", expected [" +
                                    std::to_string(rows.heads) + ", n] of at most " + std::to_string(rows.num_rows) +
                                    " blocks");
    return {static_cast<float>(share), static_cast<float>(1 - share), static_cast<const float*>(before.data()),
            num_before, static_cast<float*>(after.data())};
}

// [A, count] int64 of `given`; null for None.
int64_t* chosen_of(nb::handle given, const BlockChoice& choice) {
    attention::Output chosen;
    if (given.is_none()) return nullptr;
    if (!nb::try_cast(given, chosen)) throw nb::type_error("chosen: expected an array for each layer");
    require_shape(chosen, "chosen", nb::dtype<int64_t>(), "int64", choice.rows.heads, choice.count);
    return static_cast<int64_t*>(chosen.data());
}

// Window and sinks that leave out the blocks among which a sequence chooses; of arguments that are checked later.
std::pair<int64_t, int64_t> seen_of(nb::handle given, const Array& ends, int64_t page_size) {
    GivenChoice choice;
    if (!nb::try_cast(given, choice)) return {0, 0};
    const int64_t init_pages = std::get<3>(choice), first_page = std::get<5>(choice);
    const bool has_end = ends.dtype() == nb::dtype<int64_t>() && ends.ndim() == 1 && ends.shape(0) > 0;
    const int64_t end = has_end ? static_cast<const int64_t*>(ends.data())[0] : 0;
    const auto tokens = [&](int64_t pages) { return std::clamp<int64_t>(pages, 0, end / page_size) * page_size; };
    return {std::max<int64_t>(1, end - tokens(first_page)), tokens(init_pages)};
}

// The same with an array of rows of `size`.
std::function<void(float*, int64_t)> with_lock(const std::optional<nb::callable>& add_ranks, int64_t size) {
    if (!add_ranks) return {};
    return [&call = *add_ranks, size](float* x, int64_t rows) {
        nb::gil_scoped_acquire acquire;
        const size_t shape[] = {static_cast<size_t>(rows), static_cast<size_t>(size)};
        call(nb::cast(nb::ndarray<nb::numpy, float>(x, 2, shape), nb::rv_policy::reference));
    };
}

// rows [A, room, C] uint16, num_rows, count, init_pages, block_pages, first_page; checked against a layer's store.
BlockChoice choice_of(nb::handle given, const attention::Store& store, const attention::Sequences& sequences,
                      int64_t num_tokens, int64_t window) {
    GivenChoice parts;
    if (!nb::try_cast(given, parts))
        throw nb::type_error("choices: expected (rows, num_rows, count, init_pages, block_pages, first_page)");
    const auto& [rows, num_rows, count, init_pages, block_pages, first_page] = parts;
    attention::require_cube(rows, "choices", nb::dtype<uint16_t>(), "uint16 [A, room, C]", {-1, -1, -1});
    const auto heads = static_cast<int64_t>(rows.shape(0)), room = static_cast<int64_t>(rows.shape(1)),
               size = static_cast<int64_t>(rows.shape(2));
    const int64_t kv_heads = store.num_heads(), head_dim = store.layout().head_dim;
    const bool has_bounds = heads == kv_heads && size == 2 * head_dim;
    if ((!has_bounds && (heads != 1 || size != kv_heads * head_dim)) || size % blocks::lanes)
        throw std::invalid_argument("choices: got rows " + describe(rows) + ", expected [" + std::to_string(kv_heads) +
                                    ", room, " + std::to_string(2 * head_dim) + "] or [1, room, " +
                                    std::to_string(kv_heads * head_dim) + "]");
    require_one_query(store, sequences, num_tokens, window);
    const BlockChoice choice{{static_cast<const uint16_t*>(rows.data()), heads, room, num_rows, size},
                             has_bounds,
                             count,
                             init_pages,
                             block_pages,
                             first_page,
                             &choose("block_scores", blocks::table(), std::nullopt)};
    require_blocks(choice, attention::ceil_div(sequences.ends[0], sequences.page_size));
    return choice;
}

nb::object run(const std::vector<const DecoderLayer*>& layers, const std::vector<nb::object>& stores, const Array& x,
               const Array& cos, const Array& sin, nb::handle tables, nb::handle ends, float softmax_scale,
               int64_t window, bool last_only, const std::optional<Array>& cu_seqlens, nb::handle slots,
               nb::handle mass, int64_t mass_queries, int64_t sinks, const std::optional<Array>& sink_cos,
               const std::optional<Array>& sink_sin, const std::optional<nb::callable>& before_layer,
               nb::handle choices, const std::optional<nb::callable>& on_choice, nb::handle chosen,
               nb::handle smoothing, nb::handle tier, const std::optional<nb::callable>& add_ranks) {
    const timeline::Scope calls(timeline::Part::calls);
    if (layers.empty() || layers.size() != stores.size())
        throw std::invalid_argument("layers, stores: got " + std::to_string(layers.size()) + " and " +
                                    std::to_string(stores.size()) + ", expected as many of both, 1 or more");
    for (size_t i = 0; i < layers.size(); i++)
        if (!layers[i])
            throw nb::type_error(("layer " + std::to_string(i) + ": got None, expected DecoderLayer").c_str());
    const PerLayer all_tables(tables, "block_table", layers.size(), is_array(tables)),
        all_ends(ends, "ends", layers.size(), is_vector(ends));
    const PerLayer all_slots(slots, "slots", layers.size(), false), all_mass(mass, "mass", layers.size(), false),
        all_choices(choices, "choices", layers.size(), false), all_chosen(chosen, "chosen", layers.size(), false),
        all_smoothing(smoothing, "smoothing", layers.size(), false);
    const Array first_ends = all_ends.required(0);
    const Source source(x, layers[0]->row_size(), std::nullopt, 0);
    const int64_t count = source.x.count;
    const auto [batch, tokens] = shape_of(first_ends, x, count, cu_seqlens.has_value());
    const auto num_sequences = static_cast<int64_t>(first_ends.shape(0));
    const int64_t version = environment_version() + linear::switch_points_version();  // either one only grows
    std::vector<Layer> chain;
    chain.reserve(layers.size());
    for (size_t i = 0; i < layers.size(); i++) {
        if (layers[i]->row_size() != layers[0]->row_size())
            throw std::invalid_argument("layers: got widths of " + std::to_string(layers[0]->row_size()) + " and " +
                                        std::to_string(layers[i]->row_size()) + ", expected one");
        Layer layer = layers[i]->layer(stores[i], count, num_sequences, version);
        const nb::handle choice = all_choices[i];
        // If a sequence chooses, only the pages before and after its blocks have to be there yet.
        const auto [seen, first] = choice.is_none() ? std::pair{window, sinks}
                                                    : seen_of(choice, all_ends.required(i), layer.store->page_size());
        layer.sequences = attention::sequences_of(stores[i], all_tables.required(i), all_ends.required(i), batch,
                                                  tokens, seen, cu_seqlens, first);
        if (i > 0 && layer.sequences.page_size != chain[0].sequences.page_size)
            throw std::invalid_argument("stores: got pages of " + std::to_string(chain[0].sequences.page_size) +
                                        " tokens and of " + std::to_string(layer.sequences.page_size) +
                                        ", expected one size");
        if (const auto its_slots = all_slots.array(i))
            layer.slots = attention::slots_of(*its_slots, *layer.store, layer.sequences, tokens);
        attention::Sequences read = layer.sequences;
        int64_t end = 0;
        if (!choice.is_none()) {
            layer.choice = choice_of(choice, *layer.store, layer.sequences, count, window);
            layer.choice->smoothing = smoothing_of(all_smoothing[i], layer.choice->rows);
            layer.choice->on_choice = brought_by(tier, with_lock(on_choice, i, *layer.choice), i, *layer.choice);
            layer.choice->chosen = chosen_of(all_chosen[i], *layer.choice);
            end = layer.choice->end_of(read.ends[0], read.page_size);
            read.ends = &end;
        }
        layer.observed = attention::mass_of(all_mass[i], mass_queries, read, layer.store->num_heads());
        chain.push_back(std::move(layer));
    }
    const attention::Store& first = *chain[0].store;
    const Past past{rotation_of(cos, sin, tokens, first.layout().head_dim),
                    softmax_scale,
                    require_window(window),
                    sinks_of(sinks, sink_cos, sink_sin, tokens, first),
                    with_lock(before_layer),
                    with_lock(add_ranks, source.x.size)};
    float* out = nullptr;
    nb::object result = empty_float32(last_only && count > 0 ? num_sequences : count, source.x.size, &out);
    {
        nb::gil_scoped_release release;
        if (count > 0) run_layers(chain, source.x, past, last_only, out);
    }
    return result;
}

}  // namespace

void bind_layers(nb::module_& m) {
    nb::class_<DecoderLayer>(
        m, "DecoderLayer",
        "A layer of a dense decoder: attention_step and feed_forward, each with its norm and its residual.\n\n"
        "qkv, output          LinearGroup as attention_step takes them\n"
        "gate_up, down        LinearGroup as feed_forward takes them\n"
        "attention_norm, feed_forward_norm    [K] float32; copied\n"
        "q_norm, k_norm       [head_dim] float32 or None; copied\n"
        "raises               ValueError (shapes), TypeError (dtype)")
        .def(nb::init<const LinearGroup&, const LinearGroup&, const LinearGroup&, const LinearGroup&, const Array&,
                      const Array&, float, int64_t, const std::optional<Array>&, const std::optional<Array>&, float>(),
             nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>(), nb::keep_alive<1, 5>(), "qkv"_a,
             "output"_a, "gate_up"_a, "down"_a, "attention_norm"_a, "feed_forward_norm"_a, "eps"_a, "head_dim"_a,
             "q_norm"_a = nb::none(), "k_norm"_a = nb::none(), "head_eps"_a = 0.0f);
    m.def(
        "run_layers", run, "layers"_a, "stores"_a, "x"_a, "cos"_a, "sin"_a, "block_table"_a, "ends"_a,
        "softmax_scale"_a, "window"_a = 0, "last_only"_a = false, "cu_seqlens"_a = nb::none(),
        "slots"_a.none() = nb::none(), "mass"_a.none() = nb::none(), "mass_queries"_a = 0, "sinks"_a = 0,
        "sink_cos"_a = nb::none(), "sink_sin"_a = nb::none(), "before_layer"_a = nb::none(),
        "choices"_a.none() = nb::none(), "on_choice"_a = nb::none(), "chosen"_a.none() = nb::none(),
        "smoothing"_a.none() = nb::none(), "tier"_a.none() = nb::none(), "add_ranks"_a = nb::none(),
        "x through every DecoderLayer, each with its KVStore; all stores are of one page size.\n\n"
        "x        [B * T, K] float32, each row contiguous; the other arguments as for attention_step\n"
        "block_table    int32 [B, pages] for all layers, or a list of one for each\n"
        "ends     int64 [B] for all layers, or one for each: an array [layers, B], or a list of [B] or [B, G]\n"
        "slots    int64 [layers, B, G], or a list of an array [B, G] or None for each layer; None: no layer has any\n"
        "mass     a list of a float32 [B, G, S] or None for each layer, as attend of the store writes it\n"
        "before_layer    called with the number of each layer before it runs, to bring its weights\n"
        "choices  a list of a tuple or None for each layer, for one new token of one sequence, that reads only some "
        "blocks:\n         rows uint16 [A, room, C] as score_blocks takes them, num_rows, count, init_pages, "
        "block_pages, first_page\n"
        "on_choice      called with the number of a layer and its best blocks int64 [A, count], valid during the "
        "call, if\n         pages of them are not in the block table of the layer, to bring them there\n"
        "chosen         a list of an int64 [A, count] or None for each layer that chooses, which gets its best "
        "blocks\n"
        "smoothing      a list of a tuple or None for each layer that chooses: share, before float32 [A, n] and after "
        "float32\n         [A, num_rows]; after = (1 - share) * score + share * before of the first n blocks, by which "
        "they are chosen\n"
        "tier           ChosenBlocks that brings missing pages, or None; on_choice is called if it cannot\n"
        "add_ranks    called with the float32 [rows, K] that `output` or `down` made of some input features, to add "
        "those\n         of other ranks in place; the residual comes after it. The array is only valid in the call\n"
        "returns  float32, as many rows as x; with last_only [B, K], of each sequence's last token\n"
        "raises   ValueError (shape, strides, ends, pages), TypeError (dtype)");
}

}  // namespace qk::fused
