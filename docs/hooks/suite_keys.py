"""The meaning of every key of a suite. A test compares the keys with the classes that read them."""

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
AXIS_KEYS = {
    "models": "As above. The first axis turns slowest. Each axis takes a list or one value.",
    "recipes": "As above.",
    "kv_formats": "KV formats. Default: the one of the recipe, or `f32`.",
    "caches": "Cache layouts: `dynamic`, `static`, `paged` or `none`. Default: `dynamic`.",
    "policies": "Cache policies, for example `window:1024`. Default: `full`.",
    "prefill_chunks": "Largest number of prompt tokens per forward pass. Default: the whole prompt.",
    "prefill": "Prefill patterns, for example `star:25%`. Default: `dense`.",
    "kv_ram": "Memory of the KV cache, for example `2MiB`; the rest is on a disk. Default: `all`.",
    "attention": "Attention code: `textbook`, `sdpa`, `kernel` or `triton`. Default: the best for the model.",
    "question": "For tasks under a policy: `visible`, `hidden` or `second`.",
    "compute": "Precision of matmuls: `fast`, `exact` or `float32`. Default: `fast`.",
    "isa": "Instruction sets, for example `avx2`. Default: the best of the machine.",
    "device": "`cpu` or `cuda`. Default: `cpu`.",
    "divisions": "Divisions of the model among ranks: `tp`, `gather`, `pp`, `ep` or `sp`, over all ranks that "
    "`torchrun` started. Default: one rank.",
    "memory": "Memory limits of the process, for example `2GiB`, `40%` of the bytes of the weights, or `none`. "
    "Default: `none`.",
    "threads": "Numbers of threads, or `all`. Default: every core that the process may use.",
    "batches": "Sequences at once. Default: 1.",
    "contexts": "Tokens in the cache before the timed phases. Default: `depth` of `bench`.",
}
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
