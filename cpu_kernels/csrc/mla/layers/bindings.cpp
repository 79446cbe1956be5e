#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "attention/arguments.h"
#include "bindings.h"
#include "fused/arguments.h"
#include "fused/group/linear_group.h"
#include "mla/mla_heads.h"
#include "mla/layers/layers.h"
#include "timeline.h"
#include "moe/net.h"
#include "moe/packed_experts.h"

namespace qk::mla {
namespace {

using namespace nb::literals;
using fused::Group;
using fused::LinearGroup;

std::vector<float> copy_of(const Array& array, const char* name, int64_t size) {
    const float* data = fused::vector_of(array, name, size);
    return {data, data + size};
}

void require(bool holds, const std::string& message) {
    if (!holds) throw std::invalid_argument("MlaLayer: " + message);
}

// Groups, heads and norms of one layer; Python keeps all but the norms alive as long as it.
class MlaLayer {
public:
    MlaLayer(const LinearGroup& down, const MlaHeads& heads, const LinearGroup& output, const Array& norm,
             const Array& kv_norm, const Array& net_norm, float eps, float latent_eps,
             const std::optional<Array>& q_norm, const LinearGroup* q_up)
        : down_(&down.group()),
          q_up_(q_up ? &q_up->group() : nullptr),
          output_(&output.group()),
          heads_(&heads),
          norm_(copy_of(norm, "norm", width())),
          kv_norm_(copy_of(kv_norm, "kv_norm", rank())),
          net_norm_(copy_of(net_norm, "net_norm", width())),
          eps_(eps),
          latent_eps_(latent_eps) {
        require(down_->size() == 2 && output_->size() == 1 && (!q_up_ || q_up_->size() == 1),
                "got groups of other sizes, expected 2 linears in down and 1 in output and q_up");
        require(!q_up_ == !q_norm, "got q_norm or q_up, expected both or neither");
        if (q_norm) q_norm_ = copy_of(*q_norm, "q_norm", down_->num_rows(0));
        const HeadMatrices &keys = heads.keys(), &values = heads.values();
        require(rotated() >= 2 && rotated() % 2 == 0 && (q_up_ ? q_up_->row_size() == down_->num_rows(0) : true) &&
                    (q_up_ ? q_up_ : down_)->num_rows(0) == keys.heads() * (keys.inputs() + rotated()) &&
                    output_->row_size() == keys.heads() * values.outputs() && output_->num_rows(0) == width(),
                "got queries of " + std::to_string((q_up_ ? q_up_ : down_)->num_rows(0)) + ", latents of " +
                    std::to_string(down_->num_rows(1)) + " and an output of " + std::to_string(output_->row_size()) +
                    ", which do not go with " + std::to_string(keys.heads()) + " heads of rank " +
                    std::to_string(rank()));
    }

    void set_net(const LinearGroup& gate_up, const LinearGroup& down) {
        fused::require_feed_forward(gate_up.group(), down.group());
        require(gate_up.group().row_size() == width() && down.group().num_rows(0) == width(),
                "got a net of another width than " + std::to_string(width()));
        gate_up_ = &gate_up.group();
        net_down_ = &down.group();
    }

    void set_experts(const moe::Router& router, const moe::PackedExperts& experts) {
        moe::require_router(router, experts.experts());
        require(experts.experts().hidden_size() == width(),
                "got experts of another width than " + std::to_string(width()));
        experts_ = {&router.group(), &router.routing(), &experts.experts()};
    }

    int64_t width() const { return down_->row_size(); }
    int64_t rank() const { return heads_->keys().outputs(); }
    int64_t rotated() const { return down_->num_rows(1) - rank(); }

    // Reads the environment.
    Layer layer(const std::string& format, nb::handle rows, int64_t num_tokens) const {
        return {down_,
                q_up_,
                output_,
                {norm_.data(), eps_},
                {q_norm_.data(), latent_eps_},
                {kv_norm_.data(), latent_eps_},
                &heads_->keys(),
                &heads_->values(),
                heads_->latents_in(format, rows, rotated()),
                {},
                nullptr,
                {},
                down_->choose(num_tokens),
                q_up_ ? q_up_->choose(num_tokens) : std::vector<linear::Choice>{},
                output_->choose(num_tokens),
                net(num_tokens)};
    }

private:
    std::function<void(const fused::Rows&, float*)> net(int64_t num_tokens) const {
        const fused::RowSteps& steps = fused::choose_steps(std::nullopt).kernels;
        const fused::Norm norm{net_norm_.data(), eps_};
        if (experts_.experts) {
            const moe::NetChoices choices{experts_.router->choose(num_tokens), steps, moe::with_environment};
            return [net = experts_, norm, choices](const fused::Rows& x, float* out) {
                moe::feed_forward(net, x, norm, x, out, choices);
            };
        }
        const fused::FeedForwardChoices choices{gate_up_->choose(num_tokens), net_down_->choose(num_tokens), steps};
        return [this, norm, choices](const fused::Rows& x, float* out) {
            fused::feed_forward(*gate_up_, *net_down_, x, norm, x, out, choices);
        };
    }

    const Group *down_, *q_up_, *output_;
    const MlaHeads* heads_;
    const Group *gate_up_ = nullptr, *net_down_ = nullptr;
    moe::Net experts_{};  // or a net
    std::vector<float> norm_, kv_norm_, net_norm_, q_norm_;
    float eps_, latent_eps_;
};

nb::object run(const std::vector<const MlaLayer*>& layers, const std::vector<nb::object>& rows,
               const std::string& format, const Array& x, const Array& cos, const Array& sin, const Array& block_table,
               nb::handle ends, float softmax_scale, int64_t window, nb::handle slots, nb::handle mass) {
    if (layers.empty() || layers.size() != rows.size())
        throw std::invalid_argument("layers, rows: got " + std::to_string(layers.size()) + " and " +
                                    std::to_string(rows.size()) + ", expected as many of both, 1 or more");
    for (const MlaLayer* layer : layers)
        if (!layer) throw nb::type_error("layers: got None, expected MlaLayer");
    const fused::Source source(x, layers[0]->width(), std::nullopt, 0);
    const int64_t count = source.x.count;
    const fused::PerLayer all_ends(ends, "ends", layers.size(), fused::is_vector(ends));
    const fused::PerLayer all_slots(slots, "slots", layers.size(), false), all_mass(mass, "mass", layers.size(), false);
    std::vector<Layer> chain;
    const Past past{rotation_of(cos, sin, count, layers[0]->rotated()), softmax_scale, window};
    for (size_t i = 0; i < layers.size(); i++) {
        if (layers[i]->width() != layers[0]->width() || layers[i]->rotated() != layers[0]->rotated())
            throw std::invalid_argument("layers: got layer " + std::to_string(i) +
                                        " of another width or rotation than layer 0, expected one");
        chain.push_back(layers[i]->layer(format, rows[i], count));
        Layer& layer = chain.back();
        layer.sequences = sequences_in(rows[i], block_table, all_ends.required(i), count, window);
        layer.slots = attention::latent_slots_of(all_slots.array(i), layer.sequences);
        layer.observed = attention::latent_mass_of(all_mass[i], layer.sequences);
    }
    const timeline::Scope calls(timeline::Part::calls);
    const Choices choices = choose_all();
    float* out = nullptr;
    nb::object result = empty_float32(count, source.x.size, &out);
    {
        nb::gil_scoped_release release;
        if (count > 0) run_layers(chain, source.x, past, out, choices);
    }
    return result;
}

template <class First, class Second, void (MlaLayer::*set)(const First&, const Second&)>
void init(MlaLayer* self, const LinearGroup& down, const MlaHeads& heads, const LinearGroup& output, const First& first,
          const Second& second, const Array& norm, const Array& kv_norm, const Array& net_norm, float eps,
          float latent_eps, const std::optional<Array>& q_norm, const LinearGroup* q_up) {
    MlaLayer layer(down, heads, output, norm, kv_norm, net_norm, eps, latent_eps, q_norm, q_up);
    (layer.*set)(first, second);
    new (self) MlaLayer(std::move(layer));
}

// Both kinds of nets take the same arguments except two.
template <class First, class Second, void (MlaLayer::*set)(const First&, const Second&)>
void bind_init(nb::class_<MlaLayer>& layer, const char* first, const char* second) {
    layer.def("__init__", &init<First, Second, set>, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(),
              nb::keep_alive<1, 4>(), nb::keep_alive<1, 5>(), nb::keep_alive<1, 6>(), nb::keep_alive<1, 13>(), "down"_a,
              "heads"_a, "output"_a, nb::arg(first), nb::arg(second), "norm"_a, "kv_norm"_a, "net_norm"_a, "eps"_a,
              "latent_eps"_a, "q_norm"_a = nb::none(), "q_up"_a = nb::none());
}

}  // namespace

void bind_layers(nb::module_& m) {
    nb::class_<MlaLayer> layer(
        m, "MlaLayer",
        "A layer of a decoder with latent attention: that and a net, each with its norm and its residual.\n\n"
        "down         LinearGroup of two: queries, or their latent where there is q_up; the latent of keys and values\n"
        "heads        MlaHeads\n"
        "output       LinearGroup of one\n"
        "gate_up, net_down    LinearGroup as feed_forward takes them, or\n"
        "router, experts      Router and PackedExperts\n"
        "norm, net_norm       [K] float32, with eps\n"
        "kv_norm, q_norm      float32 of the latents' widths, with latent_eps; all norms are copied\n"
        "q_up         LinearGroup of one, or None\n"
        "raises       ValueError (shapes), TypeError (dtype)");
    bind_init<LinearGroup, LinearGroup, &MlaLayer::set_net>(layer, "gate_up", "net_down");
    bind_init<moe::Router, moe::PackedExperts, &MlaLayer::set_experts>(layer, "router", "experts");
    m.def("run_mla_layers", run, "layers"_a, "rows"_a, "format"_a, "x"_a, "cos"_a, "sin"_a, "block_table"_a, "ends"_a,
          "softmax_scale"_a, "window"_a = 0, "slots"_a.none() = nb::none(), "mass"_a.none() = nb::none(),
          "M new tokens, of any sequences, through every MlaLayer, each with its rows; absorbed, as\n"
          "latent_step_ref defines it.\n\n"
          "rows     [pages, page_size, width] of each layer in `format`, as MlaHeads.attend takes them, written\n"
          "x        [M, K] float32, each row contiguous\n"
          "cos, sin, block_table, softmax_scale, window    as for MlaHeads.attend\n"
          "ends     int64 [M] for all layers, or one for each: an array [layers, M], or a list of [M]\n"
          "slots    int64 [layers, M], or a list of an array [M] or None for each layer; None: no layer has any\n"
          "mass     a list of a float32 [M, S] or None for each layer, as MlaHeads.attend writes it\n"
          "returns  [M, K] float32\n"
          "raises   ValueError (shape, strides, ends, pages), TypeError (dtype)");
}

}  // namespace qk::mla
