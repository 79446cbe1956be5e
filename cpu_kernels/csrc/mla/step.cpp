#include "mla/step.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "thread_pool.h"
#include "timeline.h"

namespace qk::mla {
namespace {

// Panels of a task: 4 of 128 inputs in float16 are 64 KiB, 4 us at 18 GB/s, next to which taking a task is nothing.
constexpr int64_t keys_panels = 4;

// Tokens whose queries and sums are kept at once: of DeepSeek-V2's 128 heads 64 * 128 * (576 + 512) * 4 bytes, 36 MB.
// A head's matrices, read once for so many, are then little next to the work done with them.
constexpr int64_t tokens_at_once = 64;

constexpr float smallest_scale = 0x1p-100f;  // of an all-zero group, as quant.kv.mla_latent has it
constexpr float largest_e4m3 = 448.0f;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

class Call {
public:
    Call(const Step& step, float* out, const Choices& choices)
        : step_(step),
          out_(out),
          choices_(choices),
          heads_(step.keys->heads()),
          rank_(step.keys->outputs()),
          row_size_(rank_ + step.rotated),
          num_rows_(step.sequences.count),
          queries_(static_cast<size_t>(std::min(tokens_at_once, num_rows_) * heads_ * row_size_)),
          sums_(static_cast<size_t>(std::min(tokens_at_once, num_rows_) * heads_ * rank_)) {}

    void run() {
        for (int64_t first = 0; first < num_rows_; first += tokens_at_once)
            attend_to(first, std::min(tokens_at_once, num_rows_ - first));
    }

private:
    // Queries of the tokens [first, first + count); all are stored with the first of them.
    void attend_to(int64_t first, int64_t count) {
        const auto pool = thread_pool();
        const int64_t tasks = ceil_div(step_.keys->panels(), keys_panels), stored = first == 0 ? num_rows_ : 0;
        pool->run(stored + heads_ * tasks, [&](int64_t i) {
            if (i < stored)
                store_row(i);
            else
                absorb((i - stored) / tasks, (i - stored) % tasks, first, count);
        });
        attention::Sequences sequences = step_.sequences;
        sequences.table += first * sequences.pages;
        sequences.ends += first;
        sequences.count = count;
        attention::LatentObserved observed = step_.observed;
        if (observed.lse) observed.lse += first * heads_;
        if (observed.mass) observed.mass += first * observed.slots;
        attention::attend_latents(step_.latents, sequences, queries_.data(), heads_, sums_.data(), step_.softmax_scale,
                                  step_.window, *choices_.attention, observed);
        const int64_t size = step_.values->outputs();
        float* const out = out_ + first * heads_ * size;
        pool->run(heads_ * step_.values->panels(), [&](int64_t i) {
            const int64_t head = i / step_.values->panels(), panel = i % step_.values->panels();
            step_.values->multiply(head, panel, panel + 1,
                                   {sums_.data() + head * rank_, heads_ * rank_, count,
                                    out + head * size + panel * panel_columns, heads_ * size},
                                   choices_.heads->kernels);
        });
    }

    // Pairs of neighbours to entries half a width apart, turned.
    void rotate(const float* pairs, int64_t token, float* to) const {
        const int64_t size = step_.rotated, angles = token * size;
        for (int64_t i = 0; i < size / 2; i++) {
            to[i] = pairs[2 * i];
            to[i + size / 2] = pairs[2 * i + 1];
        }
        choices_.attention->kernels.rotate(to, step_.rotation.cos + angles, step_.rotation.sin + angles, size, to);
    }

    void store_row(int64_t m) const {
        thread_local std::vector<float> row;
        row.resize(static_cast<size_t>(row_size_));
        const float* from = step_.latent + m * step_.latent_stride;
        choices_.rows->kernels.rms_norm(from, step_.norm, step_.eps, rank_, row.data());
        rotate(from + rank_, m, row.data() + rank_);
        const int64_t place = step_.slots ? step_.slots[m] : step_.sequences.ends[m] - 1;
        const int64_t page_size = step_.sequences.page_size;
        const int64_t page = step_.sequences.table[m * step_.sequences.pages + place / page_size];
        encode(row.data(), const_cast<std::byte*>(step_.latents.data) +
                               (page * page_size + place % page_size) * step_.latents.row_bytes);
    }

    void encode(const float* row, std::byte* to) const {
        using attention::LatentFormat;
        const attention::LatentShape& shape = step_.latents.shape;
        switch (shape.format) {
            case LatentFormat::f32: code(attention::Format::f32, row, row_size_, 1.0f, to); break;
            case LatentFormat::f16: code(attention::Format::f16, row, row_size_, 1.0f, to); break;
            case LatentFormat::bf16: code(attention::Format::bf16, row, row_size_, 1.0f, to); break;
            default:
                for (int64_t g = 0; g < rank_ / attention::latent_group(shape.format); g++)
                    encode_group(row + g * attention::latent_group(shape.format), g, to);
                code(attention::Format::bf16, row + rank_, step_.rotated, 1.0f, to + shape.rope_offset());
        }
    }

    void code(attention::Format format, const float* x, int64_t size, float scale, std::byte* codes,
              std::byte* scales = nullptr) const {
        choices_.attention->kernels.encode({format, attention::Scales::given, size}, x, scale, codes, scales);
    }

    // Values that share a scale, of a format that has some.
    void encode_group(const float* x, int64_t g, std::byte* row) const {
        using attention::LatentFormat;
        const attention::LatentShape& shape = step_.latents.shape;
        const int64_t size = attention::latent_group(shape.format);
        std::byte* const scales = row + shape.scales_offset() + g * 4;
        if (shape.format == LatentFormat::fp8) {
            const float scale = choices_.attention->kernels.absmax(x, size) / largest_e4m3;
            const float used = scale < smallest_scale ? smallest_scale : scale;  // NaN stays
            code(attention::Format::e4m3, x, size, used, row + g * size);
            std::memcpy(scales, &used, sizeof used);
        } else if (shape.format == LatentFormat::int8) {
            code(attention::Format::int8, x, size, 1.0f, row + g * size, scales);
        } else {
            constexpr int64_t half = attention::latent_group(LatentFormat::int4) / 2;
            std::byte codes[2 * half];
            code(attention::Format::int4, x, size, 1.0f, codes, scales);
            for (int64_t i = 0; i < half; i++) row[g * half + i] = codes[i] | codes[half + i] << 4;
        }
    }

    void absorb(int64_t head, int64_t task, int64_t first, int64_t count) {
        const int64_t nope = step_.keys->inputs(), panel = task * keys_panels;
        const float* q = step_.q + first * step_.q_stride + head * (nope + step_.rotated);
        float* to = queries_.data() + head * row_size_;
        step_.keys->multiply(head, panel, std::min(panel + keys_panels, step_.keys->panels()),
                             {q, step_.q_stride, count, to + panel * panel_columns, heads_ * row_size_},
                             choices_.heads->kernels);
        if (task > 0) return;
        for (int64_t m = 0; m < count; m++)
            rotate(q + m * step_.q_stride + nope, first + m, to + m * heads_ * row_size_ + rank_);
    }

    const Step& step_;
    float* out_;
    const Choices& choices_;
    int64_t heads_, rank_, row_size_, num_rows_;
    std::vector<float> queries_;  // [tokens_at_once, H, R + D]
    std::vector<float> sums_;     // [tokens_at_once, H, R]
};

}  // namespace

void attend(const Step& step, float* out, const Choices& choices) {
    const timeline::Scope attention(timeline::Part::attention);
    Call(step, out, choices).run();
}

}  // namespace qk::mla
