// Where the time of a thread goes, part by part, as `qbench breakdown` prints it. Off unless begun; a thread
// that does not record pays one load for a scope.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string_view>

namespace qk::timeline {

// The first and the last two follow from no scope:
// python     the caller between its calls of kernels
// sampling   from logits to the next token; the caller opens it by name
// calls      argument checks and the code that joins the steps of a layer
// rounding   activations to the format that a product reads
// wake_ups   from the start of a job until its other threads begin
// waits      threads that have no task left while others still work
enum class Part : uint8_t { python, sampling, calls, products, attention, norms, rounding, wake_ups, waits };

inline constexpr int num_parts = 9;
inline constexpr const char* part_names[num_parts] = {"python", "sampling", "calls",    "products", "attention",
                                                      "norms",  "rounding", "wake_ups", "waits"};

using Clock = std::chrono::steady_clock;
using Seconds = std::array<double, num_parts>;

// The time of one thread. Each moment belongs to one part, so that all parts sum to the time since the start.
class Recorder {
public:
    // of_cpu: the thread's time on a processor alone, for busy machines; wake-ups and waits are zero
    explicit Recorder(bool of_cpu = false) : of_cpu_(of_cpu), since_(now()) {}

    bool is_wall() const { return !of_cpu_; }
    // The time until now goes to the part that ends; returns that part.
    Part go_to(Part part);
    // Time that was counted for the part under way.
    void move(double seconds, Part to);
    // The time of each part until now; starts again from zero.
    Seconds take();

private:
    Clock::time_point now() const;

    bool of_cpu_;
    Part part_ = Part::python;
    Clock::time_point since_;
    Seconds seconds_{};
};

// The recorder of this thread; null while it does not record.
extern thread_local Recorder* recorder;

// A part, until the end of the block.
class Scope {
public:
    explicit Scope(Part part) : recorder_(recorder) {
        if (recorder_) before_ = recorder_->go_to(part);
    }
    ~Scope() {
        if (recorder_) recorder_->go_to(before_);
    }
    Scope(const Scope&) = delete;

private:
    Recorder* recorder_;
    Part before_ = Part::python;
};

// This thread records from now on, from zero. of_cpu: as Recorder
void begin(bool of_cpu);
// Ends that. No effect if it does not record.
void end();
// The part of this name begins. Throws std::invalid_argument for an unknown name, std::runtime_error if this thread
// does not record.
void go_to(std::string_view name);
// Recorder::take of this thread. Throws std::runtime_error if it does not record.
Seconds take();

}  // namespace qk::timeline
