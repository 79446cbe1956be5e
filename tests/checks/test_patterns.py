import pytest

from checks.patterns import PATTERNS, TEST_NAME, without_code

HARD = {
    "what-as-noun": ["What is stored per row.", "It checks what\n  a layer holds.", "what runs there now"],
    "where-as-condition": ["Zero where it is masked.", "where\nthere is no page", "Where nothing is left, stop."],
    "archaic": [
        "measured anew",
        "two of them alike",
        "beside it",
        "page 7 lies there",
        "as told before",
        "but for one",
    ],
    "a-for-per": [
        "4 bytes a token",
        "one a layer",
        "[N, bytes a row]",
        "twice a step",
        "1.5 GB a second",
        "two a\n row",
    ],
    "of-sentence": ["Of the text.", "It ends. Of these, two stay."],
    "none-as-pronoun": ["none of them", "see none after themselves", "None has a scale."],
    "those-that": ["rows, and those that are left", "Those of the first layer"],
    "alone-at-the-end": ["on the CPU alone.", "for one rank alone, then"],
    "so-many": ["after so many steps", "holds so much memory"],
    "parameter-first": ["text   spec of the text", "pp, tg  numbers of tokens"],
}
PLAIN = {
    "what-as-noun": ["Says what to do.", "what if it fails", "What is a page?", "somewhat", "`what is`"],
    "where-as-condition": ["the folder where records are kept", "`where it`", "everywhere it goes"],
    "archaic": ["a standard value", "besides", "stand-in", "retold", "unlike", "`told`", "believes"],
    "a-for-per": [
        "4 bytes per token",
        "gives bytes to a token",
        "two of a kind",
        "adds a row",
        "times a matrix of rows",
    ],
    "of-sentence": ["a set of rows", "Of course not.", "Off", "Out-Of-memory"],
    "none-as-pronoun": [
        "returns None if absent",
        "cache `none`",
        "--cache=none-given",
        'the "none" layout',
        "nonetheless",
    ],
    "those-that": ["the rows that are left", "those rows", "`those that`"],
    "alone-at-the-end": ["runs alone on a rank", "one rank alone has it", "stand-alone rank"],
    "so-many": ["so few", "as many steps", "so that many"],
    "parameter-first": ["Text of a rank.", "a text  of two spaces is no parameter list of one word"],
}


@pytest.mark.parametrize(("pattern", "text"), [(p, text) for p, texts in HARD.items() for text in texts])
def test_hard_english_is_found_only_by_its_pattern(pattern, text):
    assert [name for name, expression in PATTERNS.items() if expression.search(without_code(text))] == [pattern]


@pytest.mark.parametrize(("pattern", "text"), [(p, text) for p, texts in PLAIN.items() for text in texts])
def test_plain_english_passes(pattern, text):
    assert not PATTERNS[pattern].search(without_code(text))


def test_every_pattern_has_examples_of_both_kinds():
    assert HARD.keys() == PLAIN.keys() == PATTERNS.keys()


def test_blanked_code_keeps_every_other_character_in_place():
    text = "a `b` c\n``d `e\n``<!-- f\n -->g"
    assert without_code(text) == "a ___ c\n______\n________\n____g"


@pytest.mark.parametrize(
    "name",
    [
        "empty",
        "what is not finite",
        "bytes are those of the codec",
        "an instruction set that is none",
        "every recipe is told",
        "f16 says where it rounds",
        "nothing is aligned however it lies",
        "cuts stop where they merge",
        "as many as are allowed",
        "of equal experts the first",
        "written over its like",
        "only lanes have it",
        "on rank 0 alone",
        "heads with lengths of their own",
        "options that cannot be",
        "one runs and the other does not",
    ],
)
def test_old_words_in_the_name_of_a_test_are_found(name):
    assert TEST_NAME.search(name)


@pytest.mark.parametrize(
    "name",
    [
        "empty file is refused",
        "layers wait on a standard page",
        "alone on a rank it runs",
        "each owner has its own page",
        "the folder where records are kept is listed",
        "many tokens are of one scale",
        "a row that does not fit is refused",
    ],
)
def test_plain_names_of_tests_pass(name):
    assert not TEST_NAME.search(name)
