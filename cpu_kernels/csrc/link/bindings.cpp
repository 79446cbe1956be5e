#include "bindings.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "checks.h"
#include "link/link.h"

namespace qk::link {
namespace {

using namespace nb::literals;

using Memory = nb::ndarray<nb::device::cpu>;
using Sent = std::vector<std::pair<int64_t, Array>>;
using Received = std::vector<std::pair<int64_t, Memory>>;

template <class AnyArray>
void require_floats(const AnyArray& array, const char* name) {
    const std::string got = std::string(name) + ": got " + describe(array), expected = "float32 [...], contiguous";
    require_type(array, array.ndim(), got, nb::dtype<float>(), expected);
    int64_t stride = 1;
    for (size_t i = array.ndim(); i-- > 0; stride *= static_cast<int64_t>(array.shape(i)))
        if (array.shape(i) > 1 && array.stride(i) != stride && array.size() > 0)
            throw std::invalid_argument(got + ", expected " + expected);
}

class SharedLink {
public:
    SharedLink(Memory memory, int64_t num_ranks, int64_t rank)
        : memory_(std::move(memory)), link_(checked(memory_, num_ranks, rank)), num_ranks_(num_ranks), rank_(rank) {}

    void begin(const Sent& sent, const Received& received) {
        std::vector<Transfer> begun;
        for (const auto& [rank, array] : sent) add(begun, rank, array, "sent", true);
        for (const auto& [rank, array] : received) add(begun, rank, array, "received", false);
        transfers_ = std::move(begun);
        sent_ = sent;
        received_ = received;
        terms_.clear();
    }

    void begin_sum(const std::vector<int64_t>& ranks, const Memory& x) {
        require_floats(x, "x");
        if (std::count(ranks.begin(), ranks.end(), rank_) != 1)
            throw std::invalid_argument("ranks: expected " + std::to_string(rank_) + ", this process's, once");
        parts_.resize(x.size() * (ranks.size() - 1));
        std::vector<Transfer> begun;
        std::vector<const float*> terms;
        float* part = parts_.data();
        for (const int64_t rank : ranks) {
            if (rank == rank_) {
                terms.push_back(nullptr);
                continue;
            }
            add(begun, rank, x, "ranks", true);
            begun.push_back({rank, false, reinterpret_cast<std::byte*>(part), x.size() * sizeof(float)});
            terms.push_back(part);
            part += x.size();
        }
        transfers_ = std::move(begun);
        sent_.clear();
        received_ = {{rank_, x}};
        terms_ = std::move(terms);
    }

    int64_t move(double seconds) {
        nb::gil_scoped_release release;
        const int64_t late = link_.move(transfers_, seconds);
        if (late >= 0 || terms_.empty()) return late;
        const Memory& x = received_[0].second;
        Link::add(terms_, static_cast<float*>(x.data()), static_cast<int64_t>(x.size()));
        terms_.clear();
        if (parts_.size() > most_kept) parts_ = {};
        return late;
    }

private:
    static Link checked(const Memory& memory, int64_t num_ranks, int64_t rank) {
        require_vector(memory, "memory", nb::dtype<uint8_t>(), "uint8 [bytes]");
        const auto bytes = static_cast<int64_t>(memory.size());
        if (num_ranks < 1 || num_ranks > 1024 || rank < 0 || rank >= num_ranks)
            throw std::invalid_argument("num_ranks, rank: got " + std::to_string(num_ranks) + " and " +
                                        std::to_string(rank) + ", expected 1 to 1024, and less than that");
        const int64_t of_channel = bytes / (num_ranks * num_ranks);
        const auto capacity = of_channel - static_cast<int64_t>(sizeof(Channel));
        if (bytes % (num_ranks * num_ranks) || of_channel % 64 || capacity < 64 ||
            reinterpret_cast<uintptr_t>(memory.data()) % 64)
            throw std::invalid_argument("memory: got " + describe(memory) +
                                        ", expected num_ranks^2 equal channels of " + std::to_string(sizeof(Channel)) +
                                        " bytes and a ring, in multiples of 64, at one of 64");
        return {static_cast<std::byte*>(memory.data()), num_ranks, capacity, rank};
    }

    template <class AnyArray>
    void add(std::vector<Transfer>& begun, int64_t rank, const AnyArray& array, const char* name, bool is_sent) const {
        require_floats(array, name);
        if (rank < 0 || rank >= num_ranks_ || rank == rank_)
            throw std::invalid_argument(std::string(name) + ": got rank " + std::to_string(rank) +
                                        ", expected another of " + std::to_string(num_ranks_));
        for (const Transfer& other : begun)
            if (other.rank == rank && other.is_sent == is_sent)
                throw std::invalid_argument(std::string(name) + ": got rank " + std::to_string(rank) +
                                            " twice, expected it once");
        // A sent array is only read.
        auto* const data = static_cast<std::byte*>(const_cast<void*>(static_cast<const void*>(array.data())));
        begun.push_back({rank, is_sent, data, array.size() * sizeof(float)});
    }

    Memory memory_;
    Link link_;
    int64_t num_ranks_, rank_;
    std::vector<Transfer> transfers_;
    Sent sent_;  // these two keep the arrays alive
    Received received_;
    std::vector<float> parts_;         // of a sum, those of the other ranks
    std::vector<const float*> terms_;  // of a sum, in order; see Link::add
    static constexpr size_t most_kept = 1 << 18;  // 1 MiB: those of decode steps
};

}  // namespace

void bind(nb::module_& m) {
    m.attr("LINK_CHANNEL_BYTES") = sizeof(Channel);
    nb::class_<SharedLink>(m, "SharedLink",
                           "One process's end of the channels between the ranks of a host, in memory that all map.\n\n"
                           "memory     uint8 [num_ranks^2 x (LINK_CHANNEL_BYTES + ring)], writable, zeros at first\n"
                           "num_ranks  1 to 1024\n"
                           "rank       of this process\n"
                           "raises     ValueError (sizes, ranks), TypeError (dtype)")
        .def(nb::init<Memory, int64_t, int64_t>(), "memory"_a, "num_ranks"_a, "rank"_a)
        .def("begin", &SharedLink::begin, "sent"_a, "received"_a,
             "Begins to send and receive at the same time; transfers under way are dropped.\n\n"
             "sent, received  [(rank, float32 [...], contiguous)], each rank once in each; kept until the next call\n"
             "raises          ValueError (ranks, strides), TypeError (dtype)")
        .def("begin_sum", &SharedLink::begin_sum, "ranks"_a, "x"_a,
             "Begins to add the x of these ranks, in their order, into x of each; `move` ends it.\n\n"
             "ranks   this one among them; the same on all of them\n"
             "x       float32 [...], contiguous, writable\n"
             "raises  ValueError (ranks, strides), TypeError (dtype)")
        .def("move", &SharedLink::move, "seconds"_a,
             "Moves the transfers on, for at most this time. Returns the rank of a transfer that is not done, or -1.");
}

}  // namespace qk::link
