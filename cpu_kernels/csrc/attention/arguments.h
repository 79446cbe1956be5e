// Arguments of attention from Python, checked.
#pragma once

#include <optional>
#include <string>

#include "attention/attention.h"
#include "checks.h"

namespace qk::attention {

using OptionalArray = std::optional<Array>;
using Output = nb::ndarray<nb::device::cpu>;
using OptionalName = std::optional<std::string>;

const Impl<Kernels>& chosen(const OptionalName& isa);

// [B, heads, T, D] float32 whose last axis is contiguous; the others may have any strides.
template <class Value, class AnyArray>
Heads<Value> heads_of(const AnyArray& array, const char* name, int64_t head_dim) {
    const std::string got = std::string(name) + ": got " + describe(array);
    const std::string expected = "float32 [B, heads, T, " + std::to_string(head_dim) + "]";
    require_type(array, 4, got, nb::dtype<float>(), expected);
    const auto size = [&](size_t axis) { return static_cast<int64_t>(array.shape(axis)); };
    if (size(3) != head_dim) throw std::invalid_argument(got + ", expected " + expected);
    if (array.size() > 0 && head_dim > 1 && array.stride(3) != 1)
        throw std::invalid_argument(got + " with a last stride of " + std::to_string(array.stride(3)) + ", expected 1");
    return {static_cast<Value*>(array.data()),
            size(0),
            size(1),
            size(2),
            size(3),
            array.stride(0),
            array.stride(1),
            array.stride(2)};
}

// A writable array of the shape of `like`.
Heads<float> output_of(nb::handle out, const char* name, const Heads<const float>& like);

// An axis of one entry may have any stride.
template <class AnyArray>
bool is_contiguous(const AnyArray& array) {
    int64_t stride = 1;
    for (size_t axis = array.ndim(); axis-- > 0; stride *= static_cast<int64_t>(array.shape(axis)))
        if (array.shape(axis) > 1 && array.stride(axis) != stride) return array.size() == 0;
    return true;
}

// Throws unless the array is a contiguous [shape[0], shape[1], shape[2]]; any size at an axis whose entry is -1.
template <class AnyArray>
void require_cube(const AnyArray& array, const char* name, nb::dlpack::dtype dtype, const std::string& expected,
                  const int64_t (&shape)[3]) {
    const std::string got = std::string(name) + ": got " + describe(array);
    require_type(array, 3, got, dtype, expected);
    bool fits = is_contiguous(array);
    for (size_t axis = 0; axis < 3; axis++)
        fits = fits && (shape[axis] < 0 || static_cast<int64_t>(array.shape(axis)) == shape[axis]);
    if (!fits) throw std::invalid_argument(got + ", expected contiguous " + expected);
}

// A writable float32 [B, heads, T] of q, contiguous; null for None.
float* lse_of(nb::handle lse, const Heads<const float>& q);

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
