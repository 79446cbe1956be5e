"""Prose: small stories whose verbs agree over distance and whose early facts are used later."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from qbench.reference.lexicon import ADJECTIVES, ADVERBS, COLOURS, NAMES, PREPOSITIONS, SOCIAL_VERBS, TOPICS, is_heldout


@dataclass(frozen=True, slots=True)
class Person:
    """One of a story's cast. The story states each fact once, and the fact holds to its end."""

    name: str
    role: str
    trait: str
    thing: str
    colour: str
    place: str
    verbs: tuple[str, str]  # actions of this role in this story


@dataclass(frozen=True, slots=True)
class Scene:
    """Who is on stage, and the nouns that may be between a subject and its verb."""

    cast: tuple[Person, ...]
    attractions: tuple[tuple[Person, str], ...]


@dataclass(frozen=True, slots=True)
class MinimalPair:
    """Two sentences that differ in one verb's number, after their story."""

    context: str
    good: str
    bad: str


def plural(noun: str) -> str:
    return noun[:-1] + "ves" if noun == "loaf" else noun + "es" if noun.endswith(("ch", "sh", "x")) else noun + "s"


def third_person(verb: str) -> str:
    return (
        verb[:-1] + "ies" if verb in ("copy", "carry") else verb + "es" if verb.endswith(("sh", "ch")) else verb + "s"
    )


def make_scene(rng: Random, heldout: bool) -> Scene:
    """Three people of one topic; a (subject, attractor) pair is met in training or in held-out text, never in both."""
    while True:  # one cast in twelve has no held-out pair
        topic = TOPICS[rng.choice(tuple(TOPICS))]
        cast = make_cast(rng, topic)
        nouns = [person.role for person in cast] + list(topic["things"])
        attractions: tuple[tuple[Person, str], ...] = tuple(
            (person, noun)
            for person in cast
            for noun in nouns
            if noun != person.role and is_heldout("prose", person.role, noun) == heldout
        )
        if attractions:
            return Scene(cast, attractions)


def make_cast(rng: Random, topic: dict[str, tuple[str, ...]], size: int = 3) -> tuple[Person, ...]:
    names, roles, things = rng.sample(NAMES, size), rng.sample(topic["roles"], size), rng.sample(topic["things"], size)

    def verbs() -> tuple[str, str]:
        first, second = rng.sample(topic["verbs"], 2)
        return first, second

    return tuple(
        Person(
            name=name.capitalize(),
            role=role,
            trait=rng.choice(ADJECTIVES),
            thing=thing,
            colour=rng.choice(COLOURS),
            place=rng.choice(topic["places"]),
            verbs=verbs(),
        )
        for name, role, thing in zip(names, roles, things, strict=True)
    )


def story(rng: Random, heldout: bool = False, num_sentences: int | None = None) -> str:
    """One document: the cast is introduced, then seen at work."""
    scene = make_scene(rng, heldout)
    count = num_sentences or rng.randint(12, 40)
    sentences = introduction(scene) + [next_sentence(rng, scene) for _ in range(count)]
    return " ".join(sentences) + "\n"


def sentences(rng: Random, heldout: bool = False) -> Iterator[str]:
    """Prose without end, one sentence at a time: filler for the recall documents."""
    while True:
        scene = make_scene(rng, heldout)
        yield from introduction(scene)
        for _ in range(rng.randint(8, 20)):
            yield next_sentence(rng, scene)


def introduction(scene: Scene) -> list[str]:
    lines = []
    for person in scene.cast:
        lines.append(f"{person.name} is a {person.trait} {person.role} from the {person.place}.")
        lines.append(f"{person.name} has a {person.colour} {person.thing}.")
    return lines


def next_sentence(rng: Random, scene: Scene) -> str:
    template = rng.choice((agreement, agreement, agreement, possession, apposition, whereabouts, conjunction))
    return template(rng, scene)


def agreement(rng: Random, scene: Scene) -> str:
    return agreement_pair(rng, scene)[0]


def agreement_pair(rng: Random, scene: Scene) -> tuple[str, str]:
    """A sentence whose subject and verb are separated, and the same with the verb in the wrong number."""
    subject, noun = rng.choice(scene.attractions)
    is_plural = rng.random() < 0.5
    head = plural(subject.role) if is_plural else subject.role
    modifier = rng.choice((prepositional, object_relative, subject_relative))(rng, noun, is_plural)
    verb = rng.choice(subject.verbs)
    forms = (verb, third_person(verb)) if is_plural else (third_person(verb), verb)
    rest = f"the {rng.choice(scene.cast).thing} {rng.choice(ADVERBS)}."
    good, bad = (f"The {head} {modifier} {form} {rest}" for form in forms)
    return good, bad


def prepositional(rng: Random, noun: str, is_plural: bool) -> str:
    return f"{rng.choice(PREPOSITIONS)} the {rng.choice(ADJECTIVES)} {rng.choice((str, plural))(noun)}"


def object_relative(rng: Random, noun: str, is_plural: bool) -> str:
    """The verb inside agrees with the noun inside: "that the guards trust"."""
    verb = rng.choice(SOCIAL_VERBS)
    inner = rng.choice((f"{noun} {third_person(verb)}", f"{plural(noun)} {verb}"))
    return f"that the {inner}"


def subject_relative(rng: Random, noun: str, is_plural: bool) -> str:
    """The verb inside agrees with the subject outside: "who trust the guard"."""
    verb = rng.choice(SOCIAL_VERBS)
    return f"who {verb if is_plural else third_person(verb)} the {rng.choice((str, plural))(noun)}"


def possession(rng: Random, scene: Scene) -> str:
    person = rng.choice(scene.cast)
    return f"The {person.thing} of {person.name} is {person.colour}."


def apposition(rng: Random, scene: Scene) -> str:
    person = rng.choice(scene.cast)
    return (
        f"{person.name}, the {person.trait} {person.role}, {third_person(rng.choice(person.verbs))} the {person.thing}."
    )


def whereabouts(rng: Random, scene: Scene) -> str:
    person = rng.choice(scene.cast)
    verb = third_person(rng.choice(person.verbs))
    return f"In the {person.place} {person.name} {verb} the {person.colour} {person.thing}."


def conjunction(rng: Random, scene: Scene) -> str:
    left, right = rng.sample(scene.cast, 2)
    return f"{left.name} and {right.name} {rng.choice(SOCIAL_VERBS)} the {plural(rng.choice((left, right)).role)}."


def minimal_pair(rng: Random) -> MinimalPair:
    """A held-out pair of subject and attractor, late in a story that introduced the cast."""
    scene = make_scene(rng, heldout=True)
    lines = introduction(scene) + [next_sentence(rng, scene) for _ in range(rng.randint(0, 8))]
    good, bad = agreement_pair(rng, scene)
    return MinimalPair(" ".join(lines) + " ", good, bad)
