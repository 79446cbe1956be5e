// The values of codes before their scale: quant/formats/levels.py.

template <int lowest, int highest>
struct WholeLevels {
    static constexpr float reach = -lowest > highest ? -lowest : highest;

    static Float nearest(Float y) { return round(clamp(y, lowest, highest)); }

    // The nearest level, counted from the lowest.
    static Int code(Float y) { return to_int(nearest(y) - splat(lowest)); }
};

struct Iq4Levels {
    static constexpr auto& values = layout::iq4_nl::levels;
    static constexpr float reach = 127;

    static constexpr float middle(int i) { return static_cast<float>(values[i] + values[i + 1]) / 2; }

    // Steps up from the lowest value for each middle that y is above: no table look-ups, which AVX2 has for 8 floats.
    static Float nearest(Float y) {
        Float value = splat(values[0]);
        for (int i = 0; i < 15; i++)
            value = value + select(y > splat(middle(i)), splat(values[i + 1] - values[i]), splat(0.0f));
        return value;
    }

    static Int code(Float y) {
        Int count = splat_int(0);
        for (int i = 0; i < 15; i++) count = count + select(y > splat(middle(i)), splat_int(1), splat_int(0));
        return count;
    }
};
