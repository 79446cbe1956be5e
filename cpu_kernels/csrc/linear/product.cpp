#include "linear/product.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "buffer.h"
#include "thread_pool.h"
#include "timeline.h"

namespace qk::linear {
namespace {

// Tokens prepared at a time. The weights stream from memory once a chunk, at 2 * 512 operations per byte about fifty
// times those that the bandwidth asks for; the chunk itself, 2.5 MiB at K = 2048, stays in the L3.
constexpr int64_t chunk_tokens = 512;

// Below this one thread prepares the activations sooner than a second one wakes (about 2 us).
constexpr int64_t parallel_prepare_size = 1 << 15;

// Tasks a thread: enough that a thread which loses its core for a while leaves the rest to the others.
constexpr int64_t tasks_per_thread = 16;
// And if a task should rather have many panels.
constexpr int64_t least_tasks_per_thread = 2;

// The shared input of some terms of a call.
struct Prepared {
    const InputFormat* format;
    Isa isa;
    std::byte* tokens;
    float shared;
};

struct Task {
    int term;
    int64_t begin, end;  // panels
};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The larger one; NaN wins.
float larger(float a, float b) { return std::isnan(a) || a > b ? a : b; }

void add(float* __restrict sum, const float* __restrict x, int64_t size) {
    for (int64_t n = 0; n < size; n++) sum[n] += x[n];
}

class Product {
public:
    Product(std::span<const Term> terms, int64_t num_tokens, int64_t row_size, const RowSource& row)
        : terms_(terms), num_tokens_(num_tokens), row_size_(row_size), row_(row), pool_(thread_pool()) {
        for (const Term& term : terms_) {
            const InputFormat& format = term.weight->input(term.choice);
            const auto found = std::find_if(inputs_.begin(), inputs_.end(),
                                            [&](const Prepared& input) { return input.format->equals(format); });
            input_of_.push_back(static_cast<int>(found - inputs_.begin()));
            if (found == inputs_.end()) inputs_.push_back({&format, term.choice.isa, nullptr, 0});
        }
        share();
        make_tasks();
    }

    void run(std::span<Isa> ran) {
        for (int64_t token = 0; token < num_tokens_; token += chunk_tokens) {
            const int64_t tokens = std::min(chunk_tokens, num_tokens_ - token);
            prepare(token, tokens);
            multiply(token, tokens, ran);
        }
    }

private:
    // Calls task(token, scratch) for each of so many tokens.
    template <class TokenTask>
    void for_tokens(int64_t num_tokens, const TokenTask& task) {
        const auto run_one = [&](int64_t token) {
            thread_local std::vector<float> scratch;
            if (scratch.size() < static_cast<size_t>(row_size_)) scratch.resize(row_size_);
            task(token, scratch.data());
        };
        if (num_tokens * row_size_ >= parallel_prepare_size)
            pool_->run(num_tokens, run_one);
        else
            for (int64_t token = 0; token < num_tokens; token++) run_one(token);
    }

    void share() {
        for (Prepared& input : inputs_) {
            if (!input.format->shares()) continue;
            std::vector<float> shares(num_tokens_);
            for_tokens(num_tokens_, [&](int64_t token, float* scratch) {
                shares[token] = input.format->share_of(row_(token, scratch), input.isa);
            });
            for (const float share : shares) input.shared = larger(share, input.shared);
        }
    }

    void prepare(int64_t first, int64_t num_tokens) {
        thread_local Buffer buffer;  // kept: a decode step allocates nothing
        size_t needed = 0;
        for (const Prepared& input : inputs_) needed += padded(input.format->bytes(num_tokens));
        if (buffer.size() < needed) buffer = Buffer(needed);
        std::byte* next = reinterpret_cast<std::byte*>(buffer.data());
        for (Prepared& input : inputs_) {
            input.tokens = next;
            next += padded(input.format->bytes(num_tokens));
        }
        const timeline::Scope rounding(timeline::Part::rounding);
        for_tokens(num_tokens, [&](int64_t token, float* scratch) {
            const float* const x = [&] {
                const timeline::Scope norms(timeline::Part::norms);
                return row_(first + token, scratch);
            }();
            for (const Prepared& input : inputs_)
                input.format->prepare(x, {input.tokens, num_tokens, token}, input.shared, input.isa);
        });
    }

    void make_tasks() {
        int64_t num_panels = 0;
        for (const Term& term : terms_) num_panels += term.weight->num_panels();
        const int64_t panels = std::max<int64_t>(1, num_panels / (tasks_per_thread * pool_->num_threads()));
        const int64_t most = std::max<int64_t>(1, num_panels / (least_tasks_per_thread * pool_->num_threads()));
        for (int i = 0; i < static_cast<int>(terms_.size()); i++) {
            const Weight& weight = *terms_[i].weight;
            const int64_t count = weight.num_panels(), layout = weight.panels_a_task();
            // Whole runs of the layout, and as many of them as share a cache and leave each thread some tasks.
            const int64_t shared = std::min<int64_t>(weight.panels_at_once(terms_[i].choice), most);
            const int64_t together = shared <= layout ? layout : ceil_div(shared, 2 * layout) * 2 * layout;
            const int64_t runs = ceil_div(count, together), parts = ceil_div(runs, ceil_div(panels, together));
            for (int64_t part = 0; part < parts; part++)
                tasks_.push_back(
                    {i, runs * part / parts * together, std::min(count, runs * (part + 1) / parts * together)});
        }
    }

    void multiply(int64_t first, int64_t num_tokens, std::span<Isa> ran) {
        const timeline::Scope products(timeline::Part::products);
        pool_->run(static_cast<int64_t>(tasks_.size()), [&](int64_t i) {
            const Task& task = tasks_[i];
            const Term& term = terms_[task.term];
            const Prepared& input = inputs_[input_of_[task.term]];
            const Input x = input.format->view(input.tokens, num_tokens, 0, num_tokens);
            const Isa who = multiply_term(term, task, x, first);
            if (!ran.empty()) std::atomic_ref(ran[task.term]).store(who, std::memory_order_relaxed);
        });
    }

    Isa multiply_term(const Term& term, const Task& task, const Input& x, int64_t first) {
        float* y = term.y + first * term.y_stride;
        if (!term.bias && !term.residual)
            return term.weight->multiply(task.begin, task.end, x, y, term.y_stride, term.choice);
        // The addend may be y itself, so the product has a place of its own.
        const int64_t first_row = task.begin * panel_rows;
        const int64_t rows = std::min(term.weight->num_rows(), task.end * panel_rows) - first_row;
        thread_local std::vector<float> product;
        if (product.size() < static_cast<size_t>(x.num_tokens * rows)) product.resize(x.num_tokens * rows);
        const Isa who = term.weight->multiply(task.begin, task.end, x, product.data() - first_row, rows, term.choice);
        for (int64_t token = 0; token < x.num_tokens; token++) {
            float* sum = product.data() + token * rows;
            if (term.bias) add(sum, term.bias + first_row, rows);
            if (term.residual) add(sum, term.residual + (first + token) * term.residual_stride + first_row, rows);
            std::copy_n(sum, rows, y + token * term.y_stride + first_row);
        }
        return who;
    }

    static size_t padded(size_t bytes) { return (bytes + 63) / 64 * 64; }

    std::span<const Term> terms_;
    int64_t num_tokens_, row_size_;
    const RowSource& row_;
    std::shared_ptr<ThreadPool> pool_;
    std::vector<Prepared> inputs_;
    std::vector<int> input_of_;  // [terms]
    std::vector<Task> tasks_;
};

}  // namespace

void multiply(std::span<const Term> terms, int64_t num_tokens, int64_t row_size, const RowSource& row,
              std::span<Isa> ran) {
    Product(terms, num_tokens, row_size, row).run(ran);
}

}  // namespace qk::linear
