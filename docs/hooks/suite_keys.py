"""The meaning of every key of a suite. A test compares the keys with the classes that read them."""

from qbench.run.axes import SUITE_AXES

SUITE_KEYS = {
    "name": "Name of the suite, and of its folder under `runs/`.",
    "description": "One line about the suite.",
    "schema": "Version of this list of keys; 2.",
    "version": "A number to raise when the suite measures something else, so that old and new rows stay separate.",
    "models": "Models: a directory, a GGUF file, `ref:NAME`, `rand:SHAPE` or `hf:ORG/NAME`. Required.",
    "recipes": "Recipes by name, or YAML files relative to the suite. Required.",
    "exclude": "Rules that remove combinations: each maps axes to a value or a list; `*` matches anything. "
    "A rule with `eval: true`, `tasks: true` or `bench: true` removes that measurement only.",
    "eval": "Measure quality, see below.",
    "tasks": "Run tasks of lm-eval, see below.",
    "bench": "Measure speed and memory, see below.",
    "launches": "Number of processes that measure each speed, 1 by default; `qbench sweep --launches` overrides it.",
    "calibration": "Text for recipes that need calibration, see below.",
}
AXIS_KEYS = {axis.key: axis.in_suites for axis in SUITE_AXES}
SECTION_KEYS = {
    "eval": {
        "text": "Text file, relative to the suite. Default for reference models: their held-out text.",
        "max_windows": "Number of text windows to score. Default: the whole text.",
        "protocols": "Perplexity protocols, as in `qbench eval --protocol`.",
    },
    "tasks": {
        "names": "Names of tasks or groups; `*` matches many. Required.",
        "limit": "Score the first items of each task only.",
        "num_fewshot": "Solved examples before each item.",
        "include": "Folders with task files of your own.",
        "metadata": 'Values for tasks that ask for them, for example `{"max_seq_lengths": [4096]}`.',
        "question": "As the axis `question`; give one of the two.",
    },
    "bench": {
        "pp": "Prompt tokens (prefill). Default: 512.",
        "tg": "Generated tokens (decode). Default: 128.",
        "depth": "Tokens in the cache before each phase. Default: 0.",
        "repetitions": "Timed repetitions. Default: 5.",
        "batch": "Sequences at once. Default: 1.",
        "precision": "Repeat until each 95 % interval is within this share of its value, for example 0.02.",
        "budget_s": "Stop repeating after this many seconds. Needs `precision`.",
    },
    "calibration": {
        "text": "Text file, `hf:DATASET` or `generated`. Default for reference models: their own text.",
        "samples": "Largest number of text windows. Default: 128.",
        "seq_len": "Tokens per window. Default: 512, or less for a shorter context.",
        "seed": "Seed of the choice of windows. Default: 0.",
    },
}
