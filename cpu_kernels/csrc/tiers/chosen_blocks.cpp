#include "tiers/chosen_blocks.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <system_error>

namespace qk::tiers {
namespace {

constexpr double least_mass = 1e-30;  // has a logarithm

// A run ends where slots or rows do not follow each other.
void add_to(std::vector<SlotRun>& runs, int64_t slot, int64_t row) {
    if (!runs.empty()) {
        SlotRun& last = runs.back();
        if (slot == last.slot + last.count && row == last.row + last.count) {
            last.count++;
            return;
        }
    }
    runs.push_back({slot, row, 1});
}

double log_of_sum(double a, double b) {
    const double high = std::max(a, b), low = std::min(a, b);
    return high + std::log1p(std::exp(low - high));
}

void require_below(int64_t number, int64_t end, const char* name) {
    if (number >= end)
        throw std::invalid_argument(std::string(name) + ": got " + std::to_string(number) + ", expected less than " +
                                    std::to_string(end));
}

}  // namespace

ChosenBlocks::ChosenBlocks(attention::Store& store, const BlockArrays& arrays, int descriptor, size_t stride,
                           int64_t num_ahead_rows, int64_t num_at_once)
    : store_(store),
      arrays_(arrays),
      reads_(descriptor, stride, num_ahead_rows + num_at_once),
      num_at_once_(num_at_once),
      place_of_row_(static_cast<size_t>(num_ahead_rows), -1),
      last_likely_(place_of_row_.size(), 0),
      is_kept_(static_cast<size_t>(arrays.num_pages)) {}

void ChosenBlocks::decay(int64_t layer) {
    if (arrays_.has_decayed[layer]) return;
    arrays_.has_decayed[layer] = true;
    double* const rank = arrays_.rank + layer * arrays_.num_blocks;
    for (int64_t i = 0; i < arrays_.num_blocks; i++) rank[i] += arrays_.log_decay;
}

bool ChosenBlocks::bring(int64_t layer, std::span<const int64_t> blocks) {
    decay(layer);  // so that blocks that were not chosen again make room for these
    away_.clear();
    std::fill(is_kept_.begin(), is_kept_.end(), uint8_t{0});
    for (const int64_t block : blocks) {
        const int64_t place = layer * arrays_.num_blocks + block;
        if (const int32_t page = arrays_.page[place]; page >= 0) {
            require_below(page, arrays_.num_pages, "page");
            is_kept_[static_cast<size_t>(page)] = 1;
        } else if (arrays_.on_disk[place] && arrays_.job[place] < first_job) {
            away_.push_back(place);
        } else {
            return false;
        }
    }
    const auto count = static_cast<int64_t>(away_.size());
    if (count == 0) return true;
    if (!find_room(count)) return false;
    for (size_t i = 0; i < away_.size(); i++) {
        int64_t& owner = arrays_.owner[room_[i]];
        if (owner >= 0) arrays_.page[owner] = -1;
        owner = away_[i];
    }
    try {
        load(away_, room_);
    } catch (...) {
        for (const int32_t page : room_) arrays_.owner[page] = -1;
        throw;
    }
    for (size_t i = 0; i < away_.size(); i++) arrays_.page[away_[i]] = room_[i];
    num_loaded += count;
    return true;
}

// Free pages first, then those of the lowest ranks; of equal ranks the first pages.
bool ChosenBlocks::find_room(int64_t count) {
    room_.clear();
    victims_.clear();
    for (int32_t page = 0; page < arrays_.num_pages; page++) {
        const int64_t owner = arrays_.owner[page];
        require_below(owner, arrays_.num_layers * arrays_.num_blocks, "owner");
        if (owner < 0)
            room_.push_back(page);
        else if (arrays_.pins[owner] == 0 && !is_kept_[static_cast<size_t>(page)])
            victims_.push_back(page);
        if (static_cast<int64_t>(room_.size()) == count) return true;
    }
    const auto needed = static_cast<size_t>(count) - room_.size();
    if (victims_.size() < needed) return false;
    const auto is_lower = [this](int32_t a, int32_t b) {
        const double of_a = arrays_.rank[arrays_.owner[a]], of_b = arrays_.rank[arrays_.owner[b]];
        return of_a < of_b || (of_a == of_b && a < b);
    };
    std::partial_sort(victims_.begin(), victims_.begin() + static_cast<int64_t>(needed), victims_.end(), is_lower);
    for (size_t i = 0; i < needed; i++) {
        const int64_t owner = arrays_.owner[victims_[i]];
        if (arrays_.changed[owner] || !arrays_.on_disk[owner] || arrays_.job[owner] >= first_job) return false;
        room_.push_back(victims_[i]);
    }
    return true;
}

// Those that are not on their way are begun before the others are waited for.
void ChosenBlocks::load(std::span<const int64_t> places, std::span<const int32_t> pages) {
    rest_.clear();
    rest_pages_.clear();
    for (size_t i = 0; i < places.size(); i++) {
        if (row_of(places[i]) >= 0) continue;
        rest_.push_back(places[i]);
        rest_pages_.push_back(pages[i]);
    }
    const auto at_once = static_cast<size_t>(num_at_once_), num_rest = rest_.size();
    const auto begin = [this](size_t first, size_t last) {
        runs_.clear();
        for (size_t i = first; i < last; i++)
            add_to(runs_, rest_[i], static_cast<int64_t>(place_of_row_.size() + i - first));
        reads_.begin(runs_);
    };
    begin(0, std::min(at_once, num_rest));
    for (size_t i = 0; i < places.size(); i++) {
        const int64_t row = row_of(places[i]);
        if (row < 0) continue;
        const int error = reads_.wait(row);
        if (error) throw std::system_error(error, std::generic_category(), "KV cache");
        store_.write_page(pages[i], reads_.row(row));
        place_of_row_[static_cast<size_t>(row)] = -1;
        num_ahead++;
    }
    for (size_t first = 0; first < num_rest; first += at_once) {
        const size_t last = std::min(first + at_once, num_rest);
        if (first > 0) begin(first, last);
        for (size_t i = first; i < last; i++) {
            const auto row = static_cast<int64_t>(place_of_row_.size() + i - first);
            if (const int error = reads_.wait(row)) throw std::system_error(error, std::generic_category(), "KV cache");
            store_.write_page(rest_pages_[i], reads_.row(row));
        }
    }
}

void ChosenBlocks::follow(std::span<const LayerChoice> layers, const StepSizes& sizes) {
    likely_.clear();
    for (size_t layer = 0; layer < layers.size(); layer++) credit(static_cast<int64_t>(layer), layers[layer], sizes);
    for (size_t layer = 0; layer < layers.size(); layer++)
        add_likely(static_cast<int64_t>(layer), layers[layer], sizes);
    begin_likely();
}

void ChosenBlocks::credit(int64_t layer, const LayerChoice& choice, const StepSizes& sizes) {
    decay(layer);
    arrays_.has_decayed[layer] = false;
    double* const rank = arrays_.rank + layer * arrays_.num_blocks + sizes.init_pages;
    for (int64_t i = 0; i < sizes.count * sizes.block_pages; i++) {
        double received = 0;
        for (int64_t head = 0; head < sizes.heads; head++) {
            const float* const its = choice.mass + head * sizes.num_read + (sizes.init_pages + i) * sizes.page_size;
            for (int64_t t = 0; t < sizes.page_size; t++) received += its[t];
        }
        double& of_page = rank[choice.chosen[i / sizes.block_pages] * sizes.block_pages + i % sizes.block_pages];
        of_page = log_of_sum(of_page, std::log(std::max(received, least_mass)));
    }
}

// Scores go on as they went, and some more blocks are likely than a step chooses.
void ChosenBlocks::add_likely(int64_t layer, const LayerChoice& choice, const StepSizes& sizes) {
    scored_.clear();
    const auto num_before = static_cast<int64_t>(choice.before.size()), num = static_cast<int64_t>(choice.after.size());
    const auto share = static_cast<float>(sizes.share);
    for (int64_t i = 0; i < num; i++) {
        const float after = choice.after[i], next = i < num_before ? after + share * (after - choice.before[i]) : after;
        scored_.emplace_back(std::isnan(next) ? std::numeric_limits<float>::infinity() : next, i);
    }
    const int64_t count = std::min(sizes.count + sizes.more, num);
    std::nth_element(scored_.begin(), scored_.begin() + std::max<int64_t>(count - 1, 0), scored_.end(),
                     std::greater<>());
    const auto add = [&](int64_t block) {
        for (int64_t page = 0; page < sizes.block_pages; page++)
            likely_.push_back(layer * arrays_.num_blocks + sizes.init_pages + block * sizes.block_pages + page);
    };
    if (num == 0)
        for (int64_t i = 0; i < sizes.count; i++) add(choice.chosen[i]);
    else
        for (int64_t i = 0; i < count; i++) add(scored_[i].second);
}

// Guesses that are likely no more stay until their rows are needed: blocks at the edge of a choice come and go.
void ChosenBlocks::begin_likely() {
    const auto can_wait = [this](int64_t place) {
        return arrays_.page[place] >= 0 || !arrays_.on_disk[place] || arrays_.job[place] >= first_job;
    };
    likely_.erase(std::remove_if(likely_.begin(), likely_.end(), can_wait), likely_.end());
    if (likely_.size() > place_of_row_.size()) likely_.resize(place_of_row_.size());
    std::sort(likely_.begin(), likely_.end());  // neighbours are one read
    num_follows_++;
    size_t num_known = 0;
    for (const int64_t place : likely_)
        if (const int64_t row = row_of(place); row >= 0) {
            last_likely_[static_cast<size_t>(row)] = num_follows_;
            num_known++;
        }
    make_rows(likely_.size() - num_known);
    runs_.clear();
    size_t row = 0;
    for (const int64_t place : likely_) {
        if (row_of(place) >= 0) continue;
        while (place_of_row_[row] >= 0) row++;
        place_of_row_[row] = place;
        last_likely_[row] = num_follows_;
        add_to(runs_, place, static_cast<int64_t>(row));
    }
    try {
        reads_.begin(runs_);
    } catch (...) {
        std::fill(place_of_row_.begin(), place_of_row_.end(), -1);
        throw;
    }
}

// Makes that number of rows free; those whose blocks were likely the longest time ago are dropped first.
void ChosenBlocks::make_rows(size_t count) {
    auto num_free = static_cast<size_t>(std::count(place_of_row_.begin(), place_of_row_.end(), -1));
    for (; num_free < count; num_free++) {
        int64_t oldest = -1;
        for (size_t row = 0; row < place_of_row_.size(); row++)
            if (place_of_row_[row] >= 0 &&
                (oldest < 0 || last_likely_[row] < last_likely_[static_cast<size_t>(oldest)]))
                oldest = static_cast<int64_t>(row);
        drop(oldest);
    }
}

int64_t ChosenBlocks::row_of(int64_t place) const {
    const auto found = std::find(place_of_row_.begin(), place_of_row_.end(), place);
    return found == place_of_row_.end() ? -1 : found - place_of_row_.begin();
}

void ChosenBlocks::drop(int64_t row) {
    place_of_row_[static_cast<size_t>(row)] = -1;
    num_unused++;
}

void ChosenBlocks::forget(std::span<const int64_t> places) {
    for (const int64_t place : places)
        if (const int64_t row = row_of(place); row >= 0) drop(row);
}

void ChosenBlocks::forget_all() {
    for (size_t row = 0; row < place_of_row_.size(); row++)
        if (place_of_row_[row] >= 0) drop(static_cast<int64_t>(row));
}

}  // namespace qk::tiers
