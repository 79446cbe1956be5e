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
    Product(std::span<const Term> terms, int64_t num_tokens)
        : terms_(terms), num_tokens_(num_tokens), pool_(thread_pool()) {
        for (const Term& term : terms_) {
            const InputFormat& format = term.weight->input(term.choice);
            const auto found = std::find_if(inputs_.begin(), inputs_.end(),
                                            [&](const Prepared& input) { return input.format->equals(format); });
            input_of_.push_back(static_cast<int>(found - inputs_.begin()));
            if (found == inputs_.end()) inputs_.push_back({&format, term.choice.isa, nullptr, 0});
        }
        make_tasks();
    }

    void run(int64_t row_size, const RowSource& row, std::span<Isa> ran) {
        const Source source{row_size, row};
        share(source);
        for (int64_t token = 0; token < num_tokens_; token += chunk_tokens) {
            const int64_t tokens = std::min(chunk_tokens, num_tokens_ - token);
            prepare(source, token, tokens);
            multiply({0, tokens, tokens}, token, ran);
        }
    }

    void run_prepared(std::byte* tokens, std::span<Isa> ran) {
        for (Prepared& input : inputs_) input.tokens = tokens;
        for (int64_t token = 0; token < num_tokens_; token += chunk_tokens)
            multiply({token, std::min(chunk_tokens, num_tokens_ - token), num_tokens_}, token, ran);
    }

private:
    struct Source {
        int64_t row_size;
        const RowSource& row;
    };
    // Tokens of a prepared input: `count` of them from `first` on, of num_tokens that it has.
    struct Chunk { int64_t first, count, num_tokens; };

    // Calls task(token, scratch) for each of num_tokens tokens.
    template <class TokenTask>
    void for_tokens(int64_t num_tokens, int64_t row_size, const TokenTask& task) {
        const auto run_one = [&](int64_t token) {
            thread_local std::vector<float> scratch;
            if (scratch.size() < static_cast<size_t>(row_size)) scratch.resize(row_size);
            task(token, scratch.data());
        };
        if (num_tokens * row_size >= parallel_prepare_size)
            pool_->run(num_tokens, run_one);
        else
            for (int64_t token = 0; token < num_tokens; token++) run_one(token);
    }

    void share(const Source& source) {
        for (Prepared& input : inputs_) {
            if (!input.format->shares()) continue;
            std::vector<float> shares(num_tokens_);
            for_tokens(num_tokens_, source.row_size, [&](int64_t token, float* scratch) {
                shares[token] = input.format->share_of(source.row(token, scratch), input.isa);
            });
            for (const float share : shares) input.shared = larger(share, input.shared);
        }
    }

    void prepare(const Source& source, int64_t first, int64_t num_tokens) {
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
        for_tokens(num_tokens, source.row_size, [&](int64_t token, float* scratch) {
            const float* const x = [&] {
                const timeline::Scope norms(timeline::Part::norms);
                return source.row(first + token, scratch);
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
            const int at_once = weight.panels_at_once(terms_[i].choice) / (terms_[i].gated.up ? 2 : 1);
            const int64_t shared = std::min<int64_t>(at_once, most);
            const int64_t together = shared <= layout ? layout : ceil_div(shared, 2 * layout) * 2 * layout;
            const int64_t runs = ceil_div(count, together), parts = ceil_div(runs, ceil_div(panels, together));
            for (int64_t part = 0; part < parts; part++)
                tasks_.push_back(
                    {i, runs * part / parts * together, std::min(count, runs * (part + 1) / parts * together)});
        }
    }

    // first: of the chunk, in the outputs
    void multiply(const Chunk& chunk, int64_t first, std::span<Isa> ran) {
        const timeline::Scope products(timeline::Part::products);
        pool_->run(static_cast<int64_t>(tasks_.size()), [&](int64_t i) {
            const Task& task = tasks_[i];
            const Term& term = terms_[task.term];
            const Prepared& input = inputs_[input_of_[task.term]];
            const Input x = input.format->view(input.tokens, chunk.num_tokens, chunk.first, chunk.count);
            const Isa who = multiply_term(term, task, x, first);
            if (!ran.empty()) std::atomic_ref(ran[task.term]).store(who, std::memory_order_relaxed);
        });
    }

    Isa multiply_term(const Term& term, const Task& task, const Input& x, int64_t first) {
        if (const Gated& gated = term.gated; gated.up)
            return term.weight->multiply_gated(*gated.up, task.begin, task.end, x, *gated.format,
                                               {gated.tokens, num_tokens_, first}, term.choice);
        float* y = term.y + first * term.y_stride;
        if (!term.bias && !term.residual)
            return term.weight->multiply(task.begin, task.end, x, y, term.y_stride, term.choice);
        const float* residual = term.residual ? term.residual + first * term.residual_stride : nullptr;
        return term.weight->multiply_and_add(task.begin, task.end, x, y, term.y_stride,
                                             {term.bias, residual, term.residual_stride}, term.choice);
    }

    static size_t padded(size_t bytes) { return (bytes + 63) / 64 * 64; }

    std::span<const Term> terms_;
    int64_t num_tokens_;
    std::shared_ptr<ThreadPool> pool_;
    std::vector<Prepared> inputs_;
    std::vector<int> input_of_;  // [terms]
    std::vector<Task> tasks_;
};

}  // namespace

Isa Weight::multiply_and_add(int64_t begin, int64_t end, const Input& x, float* y, int64_t y_stride,
                             const Addends& addends, const Choice& choice) const {
    const int64_t first = begin * panel_rows, rows = std::min(num_rows(), end * panel_rows) - first;
    thread_local std::vector<float> product;
    if (product.size() < static_cast<size_t>(x.num_tokens * rows)) product.resize(x.num_tokens * rows);
    const Isa who = multiply(begin, end, x, product.data() - first, rows, choice);
    for (int64_t token = 0; token < x.num_tokens; token++) {
        float* sum = product.data() + token * rows;
        if (addends.bias) add(sum, addends.bias + first, rows);
        if (addends.residual) add(sum, addends.residual + token * addends.residual_stride + first, rows);
        std::copy_n(sum, rows, y + token * y_stride + first);
    }
    return who;
}

void multiply(std::span<const Term> terms, int64_t num_tokens, int64_t row_size, const RowSource& row,
              std::span<Isa> ran) {
    Product(terms, num_tokens).run(row_size, row, ran);
}

void multiply_prepared(std::span<const Term> terms, int64_t num_tokens, std::byte* tokens, std::span<Isa> ran) {
    Product(terms, num_tokens).run_prepared(tokens, ran);
}

}  // namespace qk::linear
