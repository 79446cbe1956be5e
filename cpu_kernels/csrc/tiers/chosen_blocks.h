// Blocks of a KV cache that decode steps choose: which of them are in pages, and their reads from a file if they are not.
//
// The caller owns the arrays and does all that writes to the file; here are the steps that only read. Block n of layer l
// has the place l * num_blocks + n in the arrays and in the file.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "attention/attention.h"
#include "tiers/slot_reads.h"

namespace qk::tiers {

struct BlockArrays {
    int64_t num_layers, num_blocks, num_pages;
    int32_t* page;  // [layers * num_blocks], below 0: not in memory
    double* rank;  // [layers * num_blocks]; of those in memory the lowest makes room first
    const int32_t* pins;  // [layers * num_blocks], above 0: stays
    const bool* changed;  // [layers * num_blocks] since the block was written to the file
    const bool* on_disk;  // [layers * num_blocks]
    const int64_t* job;  // [layers * num_blocks], of the caller's thread that moved the block last
    int64_t* owner;  // [num_pages] place of the block of each page, below 0: free
    bool* has_decayed;  // [layers] since the last credit
    double log_decay;  // of rank, per choice of the layer
};

// A step's choice in a layer, and the scores of all blocks before and after it, if they change slowly.
struct LayerChoice {
    const int64_t* chosen;  // [count]
    const float* mass;  // [heads, num_read]: attention that each token received
    std::span<const float> before, after;
};

// The same for all layers, as BlockChoice has them. share: of the scores before in those after. more: blocks more than `count`
// that are likely.
struct StepSizes {
    int64_t count, init_pages, block_pages, page_size, heads, num_read, more;
    double share;
};

class ChosenBlocks {
public:
    // num_ahead_rows, num_at_once: slots that are read before they are needed, and when they are.
    ChosenBlocks(attention::Store& store, const BlockArrays& arrays, int descriptor, size_t stride,
                 int64_t num_ahead_rows, int64_t num_at_once);

    // Have these blocks of a layer in pages; ascending. False, and nothing has changed but ranks, if the caller has to
    // do it: a block is nowhere, or one that makes room is not in the file yet. Throws std::system_error.
    bool bring(int64_t layer, std::span<const int64_t> blocks);

    // Note the attention that chosen blocks received, and begin to read those that the next step is likely to choose.
    void follow(std::span<const LayerChoice> layers, const StepSizes& sizes);

    // The file's bytes of these places change; all: of every place.
    void forget(std::span<const int64_t> places);
    void forget_all();

    const BlockArrays& arrays() const { return arrays_; }

    int64_t first_job = 0;  // jobs of the caller's thread from this one on have not ended
    int64_t num_loaded = 0;  // blocks that came from the file
    int64_t num_ahead = 0;  // of these, those that were on their way before
    int64_t num_unused = 0;  // blocks that were read ahead and not needed

private:
    void decay(int64_t layer);
    bool find_room(int64_t count);
    void load(std::span<const int64_t> places, std::span<const int32_t> pages);
    void read(std::span<const int64_t> places, std::span<const int32_t> pages);
    void credit(int64_t layer, const LayerChoice& choice, const StepSizes& sizes);
    void add_likely(int64_t layer, const LayerChoice& choice, const StepSizes& sizes);
    void begin_likely();
    void make_rows(size_t count);
    int64_t row_of(int64_t place) const;
    void drop(int64_t row);

    attention::Store& store_;
    BlockArrays arrays_;
    SlotReads reads_;
    int64_t num_at_once_;
    std::vector<int64_t> place_of_row_;  // of rows that are read ahead; -1 if a row is free
    std::vector<int64_t> last_likely_;  // number of the step after which a row's block was likely
    int64_t num_follows_ = 0;
    std::vector<int64_t> away_, likely_, rest_;
    std::vector<int32_t> room_, victims_, rest_pages_;
    std::vector<uint8_t> is_kept_;
    std::vector<SlotRun> runs_;
    std::vector<std::pair<float, int64_t>> scored_;
};

}  // namespace qk::tiers
