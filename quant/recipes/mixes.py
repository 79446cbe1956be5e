"""The rows of llama.cpp's mixes, and a plain mix for each block format that no such mix starts from.

source   llama.cpp, src/llama-quant.cpp: llama_ftype_get_default_type and llama_tensor_get_type_impl
"""

from quant.formats import BLOCK_FORMATS
from quant.recipes.llama_mix import HEAD_FORMAT, LlamaMix, Raise
from quant.recipes.roles import Role

V, DOWN, OUTPUT = Role.ATTN_V, Role.FFN_DOWN, Role.ATTN_OUTPUT
Q, K, EMBEDDING = Role.ATTN_Q, Role.ATTN_K, Role.EMBEDDING

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

MANY_QUERIES = Raise(V, "q4_k", lambda site: site.many_queries, SHARED_VALUES)


def _two_bits(wider: str, *outputs: Raise) -> tuple[Raise, ...]:
    """wider: the format of values, early ffn_down and the embedding"""
    return (
        Raise(V, "q4_k", lambda site: site.many_queries or site.num_experts >= 4, "4 or more queries or experts"),
        Raise(V, wider),
        Raise(K, "q4_k", lambda site: site.eight_experts, "8 experts"),
        Raise(DOWN, wider, lambda site: site.downs < site.num_layers // 8, "first eighth"),
        EIGHT_EXPERTS,
        *outputs,
        Raise(EMBEDDING, wider),
    )


IQ2_S = _two_bits("iq3_s", Raise(OUTPUT, "iq3_s"))
IQ3_XXS = (
    MANY_QUERIES,
    Raise(V, "iq3_s", lambda site: not site.calibrated, "no importance"),
    Raise(K, "iq2_s"),
    Raise(Q, "iq2_s"),
    _guarded("q4_k", calibrated=False),
    Raise(DOWN, "q3_k", lambda site: not site.calibrated, "no importance"),
    EIGHT_EXPERTS,
    Raise(OUTPUT, "iq3_s"),
    Raise(EMBEDDING, "iq3_s"),
)
IQ3_XS = (
    MANY_QUERIES,
    *(Raise(role, "iq3_xxs") for role in (K, Q)),
    EIGHT_EXPERTS,
    *(Raise(role, "iq3_xxs", lambda site: site.middle, "middle layers") for role in (Role.FFN_GATE, Role.FFN_UP)),
)
IQ3_M = (
    Raise(V, "q4_k"),
    _early(DOWN, "q4_k"),
    Raise(DOWN, "q4_k", lambda site: site.eight_experts and site.more_bits, "8 experts, more bits"),
    EIGHT_EXPERTS,
    Raise(OUTPUT, "q4_k"),
)

# label, default, raises
ROWS: tuple[tuple[str, str, tuple[Raise, ...]], ...] = (
    (
        "Q2_K",
        "q2_k",
        (
            MANY_QUERIES,
            Raise(V, "q3_k"),
            Raise(DOWN, "q3_k"),
            EIGHT_EXPERTS,
            Raise(OUTPUT, "q3_k"),
        ),
    ),
    ("Q2_K_S", "q2_k", (MANY_QUERIES, _early(DOWN, "q4_k"))),
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
    ("IQ2_XXS", "iq2_xxs", _two_bits("q2_k")),
    ("IQ2_XS", "iq2_xs", _two_bits("q2_k")),
    ("IQ2_S", "iq2_xs", IQ2_S),
    ("IQ2_M", "iq2_s", IQ2_S),
    ("IQ3_XXS", "iq3_xxs", IQ3_XXS),
    ("IQ3_XS", "iq3_s", IQ3_XS),
    ("IQ3_S", "iq3_s", (MANY_QUERIES, EIGHT_EXPERTS)),
    ("IQ3_M", "iq3_s", IQ3_M),
    ("IQ4_NL", "iq4_nl", IQ4),
    ("IQ4_XS", "iq4_xs", IQ4),
    ("Q5_0", "q5_0", (_guarded("q5_1", calibrated=True),)),
    ("Q5_1", "q5_1", ()),
    ("Q5_K_S", "q5_k", ()),
    ("Q5_K_M", "q5_k", MORE_BITS),
    ("Q6_K", "q6_k", ()),
    ("Q8_0", "q8_0", ()),
    ("TQ1_0", "tq1_0", (Raise(EMBEDDING, "q4_k"),)),
    ("TQ2_0", "tq2_0", (Raise(EMBEDDING, "q4_k"),)),
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
    two_bits = label.startswith("IQ2")
    head = "q5_k" if two_bits or label == "IQ3_XXS" else HEAD_FORMAT
    return LlamaMix(label, default, raises, calibrated, head, two_bits)
