#include "llm_int8/llm_int8.h"

#include <algorithm>
#include <atomic>

#include "thread_pool.h"
#include "timeline.h"

namespace qk::llm_int8 {

using linear::panel_rows;

static constexpr Impl<Kernels> impls[] = {
#if QK_X86_KERNELS
    {Isa::amx,
     bit(Isa::amx) | bit(Isa::avx512),
     {avx512::scan, avx512::codes, linear_int8::amx::multiply, linear_float::avx512::multiply_f32}},
    {Isa::avx512_vnni,
     bit(Isa::avx512) | bit(Isa::avx512_vnni),
     {avx512::scan, avx512::codes, linear_int8::avx512_vnni::multiply, linear_float::avx512::multiply_f32}},
    {Isa::avx512,
     bit(Isa::avx512),
     {avx512::scan, avx512::codes, linear_int8::avx512::multiply, linear_float::avx512::multiply_f32}},
    {Isa::avx_vnni,
     bit(Isa::avx2) | bit(Isa::avx_vnni),
     {avx2::scan, avx2::codes, linear_int8::avx_vnni::multiply, linear_float::avx2::multiply_f32}},
    {Isa::avx2,
     bit(Isa::avx2),
     {avx2::scan, avx2::codes, linear_int8::avx2::multiply, linear_float::avx2::multiply_f32}},
#endif
    {Isa::scalar,
     bit(Isa::scalar),
     {scalar::scan, scalar::codes, linear_int8::scalar::multiply, linear_float::scalar::multiply_f32}},
};

std::span<const Impl<Kernels>> table() { return impls; }

// As in the driver of all other products (linear/product.cpp).
static constexpr int64_t chunk_tokens = 512;
static constexpr int64_t parallel_prepare_size = 1 << 15;
static constexpr int64_t tasks_per_thread = 16;

// Panels whose outlier columns are gathered at a time: the width of the widest tile.
static constexpr int64_t gathered_panels = 4;

// A thread's own memory, kept: a decode step allocates nothing.
static std::byte* scratch_of(Buffer& buffer, size_t size) {
    if (buffer.size() < size) buffer = Buffer(size);
    return reinterpret_cast<std::byte*>(buffer.data());
}

Weight::Weight(const int8_t* codes, const float* absmax, int64_t num_rows, int64_t row_size,
               const uint16_t* outlier_weight, std::vector<int32_t> features)
    : packed_(codes, absmax, num_rows, row_size),
      outlier_weight_(linear_float::Kind::f16, reinterpret_cast<const std::byte*>(outlier_weight), num_rows,
                      static_cast<int64_t>(features.size())),
      features_(std::move(features)),
      known_(static_cast<size_t>(row_size)) {
    for (const int32_t feature : features_) known_[feature] = 1;
}

size_t Weight::nbytes() const {
    return packed_.nbytes() + outlier_weight_.bytes().size() + features_.size() * sizeof(int32_t) + known_.size();
}

// The shared input of all threads of a call.
struct Weight::Call {
    const Weight& weight;
    const Kernels& kernels;
    ThreadPool& pool;
    const float* x;
    std::vector<float> absmax{};      // [M]
    std::vector<int32_t> features{};  // outliers of this call, next to the known

    int64_t row_size() const { return weight.row_size(); }
    int64_t num_columns() const { return static_cast<int64_t>(features.size() + weight.features_.size()); }
    size_t column_bytes() const { return linear::token_stride(static_cast<size_t>(num_columns()) * sizeof(float)); }

    template <class Task>
    void for_tokens(int64_t count, const Task& task) const {
        if (count * row_size() >= parallel_prepare_size)
            pool.run(count, task);
        else
            for (int64_t token = 0; token < count; token++) task(token);
    }

    void find_outliers(int64_t num_tokens) {
        std::vector<uint8_t> flags(static_cast<size_t>(row_size()));
        absmax.resize(static_cast<size_t>(num_tokens));
        for_tokens(num_tokens, [&](int64_t token) {
            absmax[token] = kernels.scan(x + token * row_size(), weight.known_.data(), row_size(), flags.data());
        });
        for (int64_t k = 0; k < row_size(); k++)
            if (flags[k]) features.push_back(static_cast<int32_t>(k));
    }

    // Codes and tail of a token.
    void round(int64_t token, const linear_int8::CodePlaces& places, const linear::Place& to) const {
        thread_local std::vector<int8_t> row;
        row.resize(static_cast<size_t>(linear_int8::padded_row(row_size())));
        int8_t* const codes = row.data();
        // Divided as torch divides a number by a tensor: reciprocal times number. 1 / 0 makes NaN of zeros, code 0.
        const float per_unit = 1 / absmax[token] * 127;
        int32_t sum = kernels.codes(x + token * row_size(), weight.known_.data(), row_size(), per_unit, codes);
        for (const int32_t feature : features) {
            sum -= codes[feature];
            codes[feature] = 0;
        }
        std::fill(row.begin() + row_size(), row.end(), int8_t{0});
        places.put(codes, {absmax[token], -linear_int8::code_bias * sum}, to);
    }

    void gather(int64_t token, float* out) const {
        const float* row = x + token * row_size();
        for (const int32_t feature : features) *out++ = row[feature];
        for (const int32_t feature : weight.features_) *out++ = row[feature];
    }
};

Isa Weight::multiply(const float* x, int64_t num_tokens, float* y, const Impl<Kernels>& impl) const {
    const std::shared_ptr<ThreadPool> pool = thread_pool();
    Call call{*this, impl.kernels, *pool, x};
    call.find_outliers(num_tokens);

    const timeline::Scope products(timeline::Part::products);
    thread_local Buffer code_buffer, column_buffer;
    const int64_t chunk = std::min(chunk_tokens, num_tokens);
    const linear_int8::CodePlaces places(row_size(), impl.isa == Isa::amx);
    const size_t column_bytes = call.column_bytes();
    std::byte* codes = scratch_of(code_buffer, places.bytes(chunk));
    std::byte* columns = scratch_of(column_buffer, static_cast<size_t>(chunk) * column_bytes);
    const linear::Panels panels = packed_.panels();
    const int64_t num_panels = (num_rows() + panel_rows - 1) / panel_rows;
    const int64_t num_groups = (num_panels + gathered_panels - 1) / gathered_panels;
    const int64_t num_tasks = std::min(num_groups, tasks_per_thread * pool->num_threads());
    std::atomic<Isa> ran{impl.isa};

    for (int64_t first = 0; first < num_tokens; first += chunk) {
        const int64_t tokens = std::min(chunk, num_tokens - first);
        call.for_tokens(tokens, [&](int64_t token) {
            call.round(first + token, places, {codes, tokens, token});
            call.gather(first + token, reinterpret_cast<float*>(columns + token * column_bytes));
        });
        float* y_chunk = y + first * num_rows();
        const linear_int8::Target target{packed_.scales(), linear_int8::padded_row(row_size()), y_chunk, num_rows(),
                                         linear_int8::Scaling::llm_int8};
        pool->run(num_tasks, [&](int64_t task) {
            const int64_t begin = gathered_panels * (num_groups * task / num_tasks);
            const int64_t last = std::min(num_panels, gathered_panels * (num_groups * (task + 1) / num_tasks));
            const Isa who = call.kernels.multiply(panels, begin, last, places.view(codes, tokens, 0, tokens), target);
            ran.store(who, std::memory_order_relaxed);
            if (call.num_columns() == 0) return;
            for (int64_t panel = begin; panel < last; panel += gathered_panels) {
                const int64_t end = std::min(panel + gathered_panels, last);
                thread_local Buffer buffer;
                const int64_t column_panel = call.num_columns() * panel_rows * static_cast<int64_t>(sizeof(float));
                std::byte* weights = scratch_of(buffer, static_cast<size_t>(gathered_panels * column_panel));
                gather_columns(panel, end - panel, call.features, reinterpret_cast<float*>(weights));
                const int64_t row = panel * panel_rows;
                call.kernels.multiply_outliers({weights, column_panel, call.num_columns(), num_rows() - row}, 0,
                                               end - panel, {columns, column_bytes, tokens},
                                               {y_chunk + row, num_rows(), true});
            }
        });
    }
    return ran.load(std::memory_order_relaxed);
}

void Weight::gather_columns(int64_t panel, int64_t count, const std::vector<int32_t>& features, float* out) const {
    for (int64_t i = panel; i < panel + count; i++) {
        const float* absmax = packed_.scales() + i * panel_rows;
        for (const int32_t feature : features)
            for (int64_t row = 0; row < panel_rows; row++)
                *out++ = static_cast<float>(packed_.code(i * panel_rows + row, feature)) * absmax[row] * per_code;
        for (size_t f = 0; f < features_.size(); f++)
            for (int64_t row = 0; row < panel_rows; row++)
                *out++ = outlier_weight_.value(i * panel_rows + row, static_cast<int64_t>(f));
    }
}

void Weight::row(int64_t row, float* out) const {
    for (int64_t k = 0; k < row_size(); k++)
        out[k] = static_cast<float>(packed_.code(row, k)) * packed_.scales()[row] * per_code;
    for (size_t f = 0; f < features_.size(); f++)
        out[features_[f]] = outlier_weight_.value(row, static_cast<int64_t>(f));
}

void Weight::rows(const int64_t* index, int64_t num_indices, float* out) const {
    thread_pool()->run(num_indices, [&](int64_t i) { row(index[i], out + i * row_size()); });
}

}  // namespace qk::llm_int8
