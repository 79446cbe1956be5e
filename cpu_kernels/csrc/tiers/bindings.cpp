#include "bindings.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "attention/arguments.h"
#include "checks.h"
#include "tiers/chosen_blocks.h"

namespace qk::tiers {
namespace {

using namespace nb::literals;

using Memory = nb::ndarray<nb::device::cpu>;
using Arrays = std::tuple<Memory, Memory, Memory, Memory, Memory, Memory, Memory, Memory>;
using Scores = std::vector<std::tuple<double, Array, Array>>;  // share, before [1, n], after [1, num_blocks]

template <class Value>
Value* values_of(const Memory& array, const char* name, int64_t size) {
    const std::string expected =
        std::string(std::is_same_v<Value, bool> ? "bool" : "numbers") + " [" + std::to_string(size) + "]";
    require_vector(array, name, nb::dtype<Value>(), expected);
    if (static_cast<int64_t>(array.size()) != size)
        throw std::invalid_argument(std::string(name) + ": got " + describe(array) + ", expected " + expected);
    return static_cast<Value*>(array.data());
}

class BoundBlocks {
public:
    BoundBlocks(nb::object store, Arrays arrays, double log_decay, int descriptor, int64_t stride, int64_t num_ahead,
                int64_t num_at_once)
        : store_(std::move(store)),
          held_(std::move(arrays)),
          blocks_(attention::store_of(store_), checked(held_, log_decay, attention::store_of(store_)), descriptor,
                  checked_stride(stride, attention::store_of(store_)), checked_rows(num_ahead, 0),
                  checked_rows(num_at_once, 1)) {}

    bool bring(int64_t layer, const Array& blocks) {
        require_vector(blocks, "blocks", nb::dtype<int64_t>(), "int64 [n]");
        const BlockArrays& arrays = blocks_.arrays();
        if (layer < 0 || layer >= arrays.num_layers)
            throw std::invalid_argument("layer: got " + std::to_string(layer) + ", expected less than " +
                                        std::to_string(arrays.num_layers));
        const std::span its(static_cast<const int64_t*>(blocks.data()), blocks.size());
        require_below(its, arrays.num_blocks, "blocks");
        nb::gil_scoped_release release;
        return blocks_.bring(layer, its);
    }

    void follow(const Array& chosen, const Array& mass, int64_t init_pages, int64_t block_pages,
                const std::optional<Scores>& scores, int64_t more) {
        const BlockArrays& arrays = blocks_.arrays();
        const int64_t layers = arrays.num_layers, page_size = attention::store_of(store_).page_size();
        require_matrix(chosen, "chosen", nb::dtype<int64_t>(), "int64 [layers, n]");
        attention::require_cube(mass, "mass", nb::dtype<float>(), "float32 [layers, heads, S]", {layers, -1, -1});
        const auto count = static_cast<int64_t>(chosen.shape(1)), heads = static_cast<int64_t>(mass.shape(1)),
                   read = static_cast<int64_t>(mass.shape(2));
        const auto* const best = static_cast<const int64_t*>(chosen.data());
        const bool fits = static_cast<int64_t>(chosen.shape(0)) == layers && init_pages >= 0 && block_pages >= 1 &&
                          init_pages < arrays.num_blocks && block_pages <= arrays.num_blocks && more >= 0 &&
                          (init_pages + count * block_pages) * page_size <= read &&
                          (!scores || static_cast<int64_t>(scores->size()) == layers);
        if (!fits)
            throw std::invalid_argument("chosen, mass, init_pages, block_pages, scores, more: got " + describe(chosen) +
                                        " and " + describe(mass) + " of " + std::to_string(layers) + " layers, " +
                                        std::to_string(init_pages) + " first pages and blocks of " +
                                        std::to_string(block_pages) + ", expected that these match");
        const int64_t num_choices = (arrays.num_blocks - init_pages) / block_pages;
        require_below({best, chosen.size()}, num_choices, "chosen");
        std::vector<LayerChoice> its;
        for (int64_t layer = 0; layer < layers; layer++) {
            LayerChoice choice{
                best + layer * count, static_cast<const float*>(mass.data()) + layer * heads * read, {}, {}};
            if (scores) {
                const auto& [share, before, after] = (*scores)[static_cast<size_t>(layer)];
                choice.before = scores_of(before, num_choices);
                choice.after = scores_of(after, num_choices);
            }
            its.push_back(choice);
        }
        const double share = scores && layers > 0 ? std::get<0>((*scores)[0]) : 0;
        blocks_.follow(its, {count, init_pages, block_pages, page_size, heads, read, more, share});
    }

    void forget(const std::optional<Array>& places) {
        if (!places) {
            blocks_.forget_all();
            return;
        }
        require_vector(*places, "places", nb::dtype<int64_t>(), "int64 [n]");
        blocks_.forget({static_cast<const int64_t*>(places->data()), places->size()});
    }

    std::tuple<int64_t, int64_t, int64_t> take_counts() {
        const std::tuple counts(blocks_.num_loaded, blocks_.num_ahead, blocks_.num_unused);
        blocks_.num_loaded = blocks_.num_ahead = blocks_.num_unused = 0;
        return counts;
    }

    int64_t first_job() const { return blocks_.first_job; }
    void set_first_job(int64_t number) { blocks_.first_job = number; }
    ChosenBlocks& blocks() { return blocks_; }

private:
    static void require_below(std::span<const int64_t> numbers, int64_t end, const char* name) {
        for (const int64_t number : numbers)
            if (number < 0 || number >= end)
                throw std::invalid_argument(std::string(name) + ": got " + std::to_string(number) + ", expected 0 to " +
                                            std::to_string(end - 1));
    }

    static std::span<const float> scores_of(const Array& scores, int64_t most) {
        require_matrix(scores, "scores", nb::dtype<float>(), "float32 [1, n]");
        if (scores.shape(0) != 1 || static_cast<int64_t>(scores.shape(1)) > most)
            throw std::invalid_argument("scores: got " + describe(scores) + ", expected [1, n] of at most " +
                                        std::to_string(most) + " blocks");
        return {static_cast<const float*>(scores.data()), scores.shape(1)};
    }

    static size_t checked_stride(int64_t stride, const attention::Store& store) {
        const auto least = static_cast<int64_t>(store.page_bytes());
        if (stride < least || stride > std::max<int64_t>(least * 2, 1 << 16))
            throw std::invalid_argument("stride: got " + std::to_string(stride) + ", expected a page's bytes, " +
                                        std::to_string(least) + ", or somewhat more");
        return static_cast<size_t>(stride);
    }

    static int64_t checked_rows(int64_t rows, int64_t least) {
        if (rows < least || rows > 1 << 16)
            throw std::invalid_argument("num_ahead, num_at_once: got " + std::to_string(rows) + ", expected " +
                                        std::to_string(least) + " to 65536");
        return rows;
    }

    static BlockArrays checked(const Arrays& arrays, double log_decay, const attention::Store& store) {
        const auto& [page, rank, pins, changed, on_disk, job, owner, has_decayed] = arrays;
        require_matrix(page, "page", nb::dtype<int32_t>(), "int32 [layers, blocks]");
        const auto layers = static_cast<int64_t>(page.shape(0)), size = static_cast<int64_t>(page.size());
        return {layers,
                static_cast<int64_t>(page.shape(1)),
                store.num_pages(),
                static_cast<int32_t*>(page.data()),
                values_of<double>(rank, "rank", size),
                values_of<int32_t>(pins, "pins", size),
                values_of<bool>(changed, "changed", size),
                values_of<bool>(on_disk, "on_disk", size),
                values_of<int64_t>(job, "job", size),
                values_of<int64_t>(owner, "owner", store.num_pages()),
                values_of<bool>(has_decayed, "has_decayed", layers),
                log_decay};
    }

    nb::object store_;
    Arrays held_;
    ChosenBlocks blocks_;
};

}  // namespace

ChosenBlocks& chosen_blocks_of(nb::handle given) {
    BoundBlocks* bound = nullptr;
    if (!nb::try_cast(given, bound) || !bound) throw nb::type_error("tier: expected a ChosenBlocks");
    return bound->blocks();
}

void bind(nb::module_& m) {
    nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
        try {
            std::rethrow_exception(thrown);
        } catch (const std::system_error& error) {
            errno = error.code().value();
            PyErr_SetFromErrno(PyExc_OSError);
        }
    });

    nb::class_<BoundBlocks>(
        m, "ChosenBlocks",
        "Blocks of a KV cache that decode steps choose, in pages of a store, or in a file that is open for direct I/O. "
        "Block n of\nlayer l has the place l * blocks + n in the arrays and in the file.\n\n"
        "store      KVStore\n"
        "arrays     page int32 [layers, blocks], below 0 if a block is in no page; rank float64, pins int32, changed "
        "bool,\n           on_disk bool, job int64, each [layers * blocks]; owner int64 [pages], the place of each "
        "page's block,\n           below 0 if it is free; has_decayed bool [layers]. All are kept and changed\n"
        "log_decay  of ranks, each time that a layer chooses\n"
        "stride     bytes of a block in the file\n"
        "num_ahead, num_at_once    blocks that are read before they are needed, and at once when they are\n"
        "raises     ValueError (shape, numbers), TypeError (dtype), OSError (no such reads on this system)")
        .def(nb::init<nb::object, Arrays, double, int, int64_t, int64_t, int64_t>(), "store"_a, "arrays"_a,
             "log_decay"_a, "descriptor"_a, "stride"_a, "num_ahead"_a, "num_at_once"_a)
        .def_prop_rw("first_job", &BoundBlocks::first_job, &BoundBlocks::set_first_job,
                     "Jobs of the caller's thread from this one on have not ended.")
        .def("bring", &BoundBlocks::bring, "layer"_a, "blocks"_a,
             "Whether the blocks int64 [n] of a layer are in pages now. False, and nothing but ranks has changed, if "
             "one is\nnowhere or has to be written to the file first, or was moved by a job from first_job on.\n\n"
             "raises  ValueError, TypeError, OSError")
        .def("follow", &BoundBlocks::follow, "chosen"_a, "mass"_a, "init_pages"_a, "block_pages"_a,
             "scores"_a.none() = nb::none(), "more"_a = 0,
             "Add to ranks what a step's blocks received, and begin to read those that the next step is likely to "
             "choose.\n\n"
             "chosen   int64 [layers, n]: blocks of block_pages pages after the first init_pages\n"
             "mass     float32 [layers, heads, S]: attention that each token received, those of chosen blocks after "
             "the first\n         ones\n"
             "scores   of each layer the share, and the scores before and after the step, as run_layers takes "
             "`smoothing`\n"
             "more     blocks more than n that are likely\n"
             "raises   ValueError, TypeError, OSError")
        .def("forget", &BoundBlocks::forget, "places"_a.none() = nb::none(),
             "Drop blocks that were read ahead at these places int64 [n], or at all places, before their bytes change.")
        .def("take_counts", &BoundBlocks::take_counts,
             "Blocks from the file, of these those that were read ahead, and blocks that were read ahead and dropped: "
             "since the\nlast call.");
}

}  // namespace qk::tiers
