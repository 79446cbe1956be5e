// To be preloaded: a clock that sleeps 20 us before it returns the time. kt-kernel's idle workers ask the clock in a
// loop; with as many workers as cores that keeps its dispatching thread from running for whole time slices.
#include <sys/prctl.h>
#include <time.h>

#include <chrono>

static long long nanoseconds_after_nap(clockid_t clock) {
    static thread_local bool precise = false;
    if (!precise) {
        prctl(PR_SET_TIMERSLACK, 1);
        precise = true;
    }
    const timespec nap{0, 20000};
    nanosleep(&nap, nullptr);
    timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

namespace std::chrono::_V2 {

system_clock::time_point system_clock::now() noexcept {
    return time_point(duration(nanoseconds_after_nap(CLOCK_REALTIME)));
}

steady_clock::time_point steady_clock::now() noexcept {
    return time_point(duration(nanoseconds_after_nap(CLOCK_MONOTONIC)));
}

}  // namespace std::chrono::_V2
