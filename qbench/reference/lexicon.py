"""The words of the invented language, and which items are held out. Plurals and verb endings are regular: add an s."""

from zlib import crc32

# A topic holds words that belong together, so that a document is about something: roles act, things are acted on.
KINDS = ("roles", "things", "verbs", "places")
_TOPICS = """mill: miller baker farmer carter; loaf sack barrel oven basket wheel; grind bake weigh stack sift; mill
    barn bakery. harbour: sailor fisher pilot diver; boat net anchor rope lantern oar; row mend moor haul
    steer; harbour pier island. castle: guard king herald squire; gate banner shield tower horn crown; defend
    raise salute polish lower; castle court moat. school: teacher pupil writer clerk; book letter slate map
    desk pen; read copy draw fold sign; school library yard. forest: hunter ranger woodcutter scout; trap
    arrow axe trail log tent; follow carve hide split track; forest clearing camp. garden: gardener painter
    widow beekeeper; rose hive spade ladder bench fence; water trim paint plant admire; garden orchard meadow.
    market: trader porter tailor potter; coat jar cart coin scale carpet; sell lift count trade wrap; market
    square cellar. stage: singer dancer drummer juggler; drum song mask curtain flute ribbon; tune play wear
    spin practise; theatre hall tavern."""
TOPICS: dict[str, dict[str, tuple[str, ...]]] = {
    name.strip(): {kind: tuple(cell.split()) for kind, cell in zip(KINDS, text.split(";"), strict=True)}
    for name, text in (topic.split(":") for topic in _TOPICS.rstrip(".").split("."))
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
HELDOUT_ONE_IN = 10


def is_heldout(*item: str | int) -> bool:
    """True for one item in ten, chosen by content: the same in every process and for every seed."""
    return crc32("\x1f".join(map(str, item)).encode()) % HELDOUT_ONE_IN == 0
