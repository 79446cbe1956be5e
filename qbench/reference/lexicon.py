"""The words of the invented language. Plurals and verb endings are regular: add an s."""

# A topic holds words that belong together, so that a document is about something: roles act, things are acted on.
TOPICS: dict[str, dict[str, tuple[str, ...]]] = {
    "mill": {
        "roles": ("miller", "baker", "farmer", "carter"),
        "things": ("loaf", "sack", "barrel", "oven", "basket", "wheel"),
        "verbs": ("grind", "bake", "weigh", "stack", "sift"),
        "places": ("mill", "barn", "bakery"),
    },
    "harbour": {
        "roles": ("sailor", "fisher", "pilot", "diver"),
        "things": ("boat", "net", "anchor", "rope", "lantern", "oar"),
        "verbs": ("row", "mend", "moor", "haul", "steer"),
        "places": ("harbour", "pier", "island"),
    },
    "castle": {
        "roles": ("guard", "king", "herald", "squire"),
        "things": ("gate", "banner", "shield", "tower", "horn", "crown"),
        "verbs": ("defend", "raise", "salute", "polish", "lower"),
        "places": ("castle", "court", "moat"),
    },
    "school": {
        "roles": ("teacher", "pupil", "writer", "clerk"),
        "things": ("book", "letter", "slate", "map", "desk", "pen"),
        "verbs": ("read", "copy", "draw", "fold", "sign"),
        "places": ("school", "library", "yard"),
    },
    "forest": {
        "roles": ("hunter", "ranger", "woodcutter", "scout"),
        "things": ("trap", "arrow", "axe", "trail", "log", "tent"),
        "verbs": ("follow", "carve", "hide", "split", "track"),
        "places": ("forest", "clearing", "camp"),
    },
    "garden": {
        "roles": ("gardener", "painter", "widow", "beekeeper"),
        "things": ("rose", "hive", "spade", "ladder", "bench", "fence"),
        "verbs": ("water", "trim", "paint", "plant", "admire"),
        "places": ("garden", "orchard", "meadow"),
    },
    "market": {
        "roles": ("trader", "porter", "tailor", "potter"),
        "things": ("coat", "jar", "cart", "coin", "scale", "carpet"),
        "verbs": ("sell", "lift", "count", "trade", "wrap"),
        "places": ("market", "square", "cellar"),
    },
    "stage": {
        "roles": ("singer", "dancer", "drummer", "juggler"),
        "things": ("drum", "song", "mask", "curtain", "flute", "ribbon"),
        "verbs": ("tune", "play", "wear", "spin", "practise"),
        "places": ("theatre", "hall", "tavern"),
    },
}

ADJECTIVES = ("old", "young", "tall", "quiet", "clever", "tired", "proud", "kind", "lazy", "brave", "poor", "merry")
COLOURS = ("red", "green", "blue", "white", "black", "yellow", "brown", "grey")
ADVERBS = ("slowly", "gladly", "again", "together", "carefully", "before noon", "every day", "in silence")
SOCIAL_VERBS = ("know", "like", "trust", "help", "miss", "thank")
PREPOSITIONS = ("near", "behind", "beside", "with")

# Values of keys. Single tokens, which do not occur in the prose.
VALUES = tuple(
    """acorn amber apple arch ash badge ball band bark bay bead bean bear beech bell belt berry birch bird bolt bone
    bowl box brick bridge bronze broom brush bud bull cake calf candle cane cape card cat cave chain chair chalk cheese
    cherry chest chin clay cliff cloak cloud clover coal cob comb coral cork corn cow crab crane creek crow cup dawn
    deer dew dish dog door dove duck dune dust eagle ear egg elm ember fan feather fern field fig finch fire fish flag
    flame flint flour fog foot fork fox frog frost glass glove goat gold goose grain grape grass gull hail hare hat
    hawk hay hazel heart hedge hen hill honey hook horse ice
    iron ivy jewel key kite knot lake lamb lamp lark leaf lemon lily""".split()
)[:128]

# Names are syllables put together, so that they are short, many and nobody's.
_FIRST = ("ba", "do", "fe", "ga", "hi", "ka", "lo", "mi", "na", "po", "ru", "sa", "te", "vo", "wi", "zu")
_LAST = ("bel", "dran", "kin", "lor", "mus", "ret", "sil", "vam")
NAMES = tuple(first + last for first in _FIRST for last in _LAST)  # 128
KEYS = NAMES  # the recall lines use the names in lower case, the prose capitalises them
