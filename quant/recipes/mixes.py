"""The rows of llama.cpp's mixes, and a plain mix for each block format that no such mix starts from.

source   llama.cpp, src/llama-quant.cpp: llama_ftype_get_default_type and llama_tensor_get_type_impl
"""

from quant.formats import BLOCK_FORMATS
from quant.recipes.llama_mix import LlamaMix, Raise
from quant.recipes.roles import Role

V, DOWN, OUTPUT = Role.ATTN_V, Role.FFN_DOWN, Role.ATTN_OUTPUT

MORE_BITS = tuple(Raise(role, "q6_k", lambda site: site.more_bits, "more bits") for role in (V, DOWN))
EIGHT_EXPERTS = Raise(OUTPUT, "q5_k", lambda site: site.eight_experts, "8 experts")
SHARED_VALUES = "4 or more queries a value"


def _early(role: Role, format_name: str) -> Raise:
    return Raise(role, format_name, lambda site: site.first_eighth, "first eighth")


def _guarded(format_name: str, *, calibrated: bool) -> Raise:
    """The first layers' ffn_down in a wider format, if there is an importance matrix, or if there is no importance
    matrix.
    """
    words = f"first eighth, {'with' if calibrated else 'no'} importance"
    return Raise(DOWN, format_name, lambda site: site.first_eighth and site.calibrated == calibrated, words)


IQ4 = (
    Raise(V, "q5_k", lambda site: site.many_queries, SHARED_VALUES),
    _guarded("q5_k", calibrated=False),
    EIGHT_EXPERTS,
)

# label, default, raises
ROWS: tuple[tuple[str, str, tuple[Raise, ...]], ...] = (
    (
        "Q2_K",
        "q2_k",
        (
            Raise(V, "q4_k", lambda site: site.many_queries, SHARED_VALUES),
            Raise(V, "q3_k"),
            Raise(DOWN, "q3_k"),
            EIGHT_EXPERTS,
            Raise(OUTPUT, "q3_k"),
        ),
    ),
    ("Q2_K_S", "q2_k", (Raise(V, "q4_k", lambda site: site.many_queries, SHARED_VALUES), _early(DOWN, "q4_k"))),
    ("Q3_K_S", "q3_k", (EIGHT_EXPERTS,)),
    (
        "Q3_K_M",
        "q3_k",
        (
            Raise(V, "q5_k", lambda site: site.layer < 2, "first two"),
            Raise(V, "q4_k"),
            Raise(DOWN, "q5_k", lambda site: site.first_sixteenth, "first sixteenth"),
            Raise(DOWN, "q4_k"),
            EIGHT_EXPERTS,
            Raise(OUTPUT, "q4_k"),
        ),
    ),
    (
        "Q3_K_L",
        "q3_k",
        (
            Raise(V, "q5_k"),
            Raise(DOWN, "q5_k"),
            Raise(OUTPUT, "q5_k", lambda site: not site.eight_experts),
        ),
    ),
    ("Q4_0", "q4_0", (_guarded("q4_1", calibrated=True),)),
    ("Q4_1", "q4_1", ()),
    (
        "Q4_K_S",
        "q4_k",
        (Raise(V, "q5_k", lambda site: site.layer < 4, "first four"), _early(DOWN, "q5_k"), EIGHT_EXPERTS),
    ),
    ("Q4_K_M", "q4_k", (*MORE_BITS, EIGHT_EXPERTS)),
    ("IQ4_NL", "iq4_nl", IQ4),
    ("IQ4_XS", "iq4_xs", IQ4),
    ("Q5_0", "q5_0", (_guarded("q5_1", calibrated=True),)),
    ("Q5_1", "q5_1", ()),
    ("Q5_K_S", "q5_k", ()),
    ("Q5_K_M", "q5_k", MORE_BITS),
    ("Q6_K", "q6_k", ()),
    ("Q8_0", "q8_0", ()),
)

LABELS = tuple(row[0] for row in ROWS)

# llama.cpp has no mix of these for all matrices: MXFP4_MOE gives MXFP4 to experts only.
OWN_ROWS: tuple[tuple[str, str, tuple[Raise, ...]], ...] = tuple(
    (name.upper(), name, ())
    for name, fmt in BLOCK_FORMATS.items()
    if fmt.writes and fmt.block_size > 1 and name not in {default for _, default, _ in ROWS}
)


def mix(label: str, *, calibrated: bool = False) -> LlamaMix:
    """The mix of llama.cpp's name, or a format's own."""
    default, raises = next((default, raises) for name, default, raises in ROWS + OWN_ROWS if name == label)
    return LlamaMix(label, default, raises, calibrated)
