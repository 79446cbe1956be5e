// IQ4_NL and IQ4_XS: quant/formats/iq4.py, iq4_xs.py.

constexpr Targets iq4_low_fast{-128, 24, 9}, iq4_high_fast{116, 20, 6};
constexpr Targets iq4_low_best{-130, 30, 25}, iq4_high_best{117.5, 22.5, 19};
