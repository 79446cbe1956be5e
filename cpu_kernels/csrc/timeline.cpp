#include "timeline.h"

#include <ctime>
#include <stdexcept>
#include <string>

#include "names.h"

namespace qk::timeline {

thread_local Recorder* recorder = nullptr;

namespace {

thread_local Recorder of_thread;

double to_seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

Recorder& required() {
    if (!recorder) throw std::runtime_error("timeline: this thread does not record; call timeline_begin first");
    return *recorder;
}

Part part_of(std::string_view name) { return static_cast<Part>(index_of(name, part_names, "part")); }

}  // namespace

Clock::time_point Recorder::now() const {
#if defined(CLOCK_THREAD_CPUTIME_ID)
    if (of_cpu_) {
        timespec time;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        return Clock::time_point(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
    }
#endif
    return Clock::now();
}

Part Recorder::go_to(Part part) {
    const Clock::time_point now = this->now();
    seconds_[static_cast<size_t>(part_)] += to_seconds(now - since_);
    since_ = now;
    const Part before = part_;
    part_ = part;
    return before;
}

void Recorder::move(double seconds, Part to) {
    seconds_[static_cast<size_t>(part_)] -= seconds;
    seconds_[static_cast<size_t>(to)] += seconds;
}

Seconds Recorder::take() {
    go_to(part_);
    const Seconds taken = seconds_;
    seconds_ = {};
    return taken;
}

void begin(bool of_cpu) {
    of_thread = Recorder(of_cpu);
    recorder = &of_thread;
}

void end() { recorder = nullptr; }

void go_to(std::string_view name) { required().go_to(part_of(name)); }

Seconds take() { return required().take(); }

}  // namespace qk::timeline
