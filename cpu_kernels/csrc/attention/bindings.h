// Attention as Python sees it.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>

#include "attention/attention.h"
#include "checks.h"

namespace qk::attention {

using OptionalArray = std::optional<Array>;

void bind(nanobind::module_& m);  // both of these
void bind_store(nanobind::module_& m);
void bind_latents(nanobind::module_& m);

// For bindings that take a KVStore: the store itself, its sequences with `tokens` new ones each (or, with cu_seqlens,
// all together), and the kernels that run. They throw nb::type_error, std::invalid_argument; the last reads the
// environment.
Store& store_of(nanobind::handle kv_store);
Sequences sequences_of(nanobind::handle kv_store, const Array& table, const Array& ends, int64_t batch, int64_t tokens,
                       int64_t window, const OptionalArray& cu_seqlens, int64_t sinks = 0);
// Lists of key blocks of a sequence of `end` tokens, all checked.
BlockLists lists_of(const Array& offsets, const Array& indices, const Heads<const float>& q, int64_t end,
                    int64_t key_block, int64_t query_block);

const Impl<Kernels>& choose_attention();

// A number of sinks above 0. They need a store that keeps each token by itself.
void require_sinks(const Store& store, int64_t sinks);

// slots [B, G] as append takes them, for sequences with `tokens` new ones each.
const int64_t* slots_of(const Array& slots, const Store& store, const Sequences& sequences, int64_t tokens);

// mass [B, G, S] as attend takes it, or None; mass_queries of 0 or more.
Observed mass_of(nanobind::handle mass, int64_t mass_queries, const Sequences& sequences, int64_t num_kv_heads);

// The same for bindings that take rows of latents: the array of a format, [pages, page_size, row], contiguous, of whose
// row the first value_dim channels are values; and sequences in it with `tokens` new ones each. `ends` [B], or if
// num_heads is above 0 [B, num_heads] too; errors call it `name`. may_differ: each kv head may have pages of its
// own, so that `table` is [B, pages] or [B, num_heads, pages]. rings: those that are apart from the pages.
struct Rings {
    int64_t count = 0;
    const Layout* layout = nullptr;  // of the pages, which hold encoded tokens alone
};
Latents latents_of(const std::string& format, const Array& array, int64_t head_dim, int64_t value_dim);
Sequences checked_sequences(const Array& table, const Array& ends, int64_t batch, int64_t tokens, int64_t window,
                            int64_t num_pages, int64_t page_size, const OptionalArray& cu_seqlens,
                            int64_t num_heads = 0, int64_t sinks = 0, const char* name = "ends",
                            bool may_differ = false, const Rings& rings = {});

// mass [B, S] of queries over latents, or None; slots [B] that their rows take, each of its own sequence, or nothing.
LatentObserved latent_mass_of(nanobind::handle mass, const Sequences& sequences);
const int64_t* latent_slots_of(const OptionalArray& slots, const Sequences& sequences);

}  // namespace qk::attention
