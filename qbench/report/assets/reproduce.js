// The commands that measure a row again: its commit, and a suite of this one case.

// Key of a case -> the suite's key for it, a list of one. Values that the sweep finds by itself are left out.
const AXES = {
  model: "models",
  recipe: "recipes",
  kv_format: "kv_formats",
  cache: "caches",
  policy: "policies",
  prefill_chunk: "prefill_chunks",
  attention: "attention",
  prefill: "prefill",
  kv_ram: "kv_ram",
  question: "question",
  compute: "compute",
  isa: "isa",
  device: "device",
  division: "divisions",
  memory: "memory",
  threads: "threads",
  batch: "batches",
};
const SECTIONS = ["eval", "tasks", "bench", "calibration"];

// JSON is YAML, too: no text needs quoting of another kind.
function suiteText({ case: found }) {
  // In the case the question belongs to the tasks, and a size is a number of bytes.
  const { question = null, ...tasks } = found.tasks || {};
  const kvRam = found.kv_ram ? String(found.kv_ram) : null;
  const measured = { ...found, question, kv_ram: kvRam, tasks: found.tasks ? tasks : null };
  const usual = {
    kv_format: measured.recipe.includes("+kv-") ? measured.kv_format : "f32",
    prefill: "dense",
    isa: "auto",
    device: "cpu",
    batch: 1,
  };
  const axes = Object.entries(AXES)
    .filter(([name]) => measured[name] !== null && measured[name] !== undefined && measured[name] !== usual[name])
    .map(([name, key]) => `${key}: ${JSON.stringify([measured[name]])}`);
  const sections = SECTIONS.filter((name) => measured[name]).map(
    (name) => `${name}: ${JSON.stringify(asGiven(measured[name]))}`,
  );
  return ["name: again", ...axes, ...sections].join("\n");
}

// Without keys that the sweep adds (such as the hash of the text) and keys that were left to it.
function asGiven(section) {
  return Object.fromEntries(
    Object.entries(section).filter(([name, value]) => value !== null && !name.endsWith("_sha256")),
  );
}

function reproduceText(record) {
  const changes = record.dirty ? "  # the tree had changes that are in no commit" : "";
  const commit = record.commit ? [`git checkout ${record.commit.slice(0, 10)}${changes}`] : [];
  return [...commit, "cat > again.yaml <<'EOF'", suiteText(record), "EOF", "qbench sweep again.yaml"].join("\n");
}
