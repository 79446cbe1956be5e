// Changes from one record to another, metric by metric, and reasons if something does not compare.

// {cells: [{name, a, b, kind, change, lower, exact, note, verdict}], unlike: [sentence]}
// launched: speed -> of either side {speed, error, freedom, count} over its launches, null if they are not known
function compareRecords(a, b, launched = {}) {
  const ours = a.metrics || {},
    theirs = b.metrics || {},
    unlike = [],
    cells = [];
  cells.push(...qualityCells(ours, theirs, unlike));
  cells.push(...taskCells(ours.tasks || {}, theirs.tasks || {}, unlike));
  const apart = unlikeSpeeds(a, b);
  if (apart) unlike.push(`Not comparable in speed and memory: ${apart}.`);
  else
    cells.push(
      ...["pp_tok_s", "tg_tok_s"].map((key) => speedCell(key, ours, theirs, launched[key])),
      singleCell("peak_rss_bytes", ours, theirs),
      singleCell("quantize_seconds", ours, theirs),
    );
  if (a.case.model !== b.case.model)
    unlike.push(`Not comparable in size: the models differ (${a.case.model} and ${b.case.model}).`);
  else
    cells.push(...["size_bytes", "bits_per_weight", "kv_bytes_per_token"].map((key) => exactCell(key, ours, theirs)));
  return { cells: judge(cells.filter(Boolean)), unlike };
}

// "window (512 and 2048), bos (...)", or "" if they are the same
function differingFields(a, b) {
  if (!a || !b || a.hash === b.hash) return "";
  const fields = [...new Set([...Object.keys(a), ...Object.keys(b)])].filter(
    (name) => name !== "hash" && plain(a[name]) !== plain(b[name]),
  );
  return (
    fields.map((name) => `${name.replaceAll("_", " ")} (${plain(a[name])} and ${plain(b[name])})`).join(", ") ||
    "their hashes"
  );
}

function unlikeSpeeds(a, b) {
  if (a.machine?.id !== b.machine?.id) return `the machines differ (${a.machine?.id} and ${b.machine?.id})`;
  const [one, other] = [a, b].map((side) => ({ batch: side.case.batch, ...side.case.bench }));
  const fields = ["pp", "tg", "depth", "batch"].filter((name) => plain(one[name]) !== plain(other[name]));
  return fields.map((name) => `${name} (${plain(one[name])} and ${plain(other[name])})`).join(", ");
}

const both = (key, a, b) => Number.isFinite(a[key]) && Number.isFinite(b[key]);

function ratioCell(key, a, b, told) {
  if (!both(key, a, b) || !a[key]) return null;
  const change = estimate(b[key] / a[key]);
  return { column: COLUMN.get(key), a: a[key], b: b[key], kind: "ratio", lower: true, change, ...told };
}

function exactCell(key, a, b) {
  return ratioCell(key, a, b, { exact: true, note: "counted, not estimated" });
}

function singleCell(key, a, b) {
  return ratioCell(key, a, b, { note: "measured once per row: no interval" });
}

// qbench/comparison/comparison.py: samples of one process leave out the spread between processes, so they have no verdict.
function speedCell(key, a, b, launched) {
  const samples = [a, b].map((side) => side.samples?.[key]);
  if (!both(key, a, b)) return null;
  const column = COLUMN.get(key);
  if (launched?.every(Boolean)) {
    const [one, other] = launched;
    return {
      ...{ column, a: one.speed, b: other.speed, kind: "ratio", lower: false, change: launchedRatio(one, other) },
      note: `${one.count} and ${other.count} launches, not interleaved`,
    };
  }
  if (!samples.every((values) => values?.length)) {
    return { ...singleCell(key, a, b), lower: false, note: "no interval: no samples here" };
  }
  const launches = [a, b].map((side) => launchesOf(side, key)),
    severalLaunches = launches.every((side) => side.length >= LEAST_LAUNCHES);
  return {
    ...{ column, a: a[key], b: b[key], kind: "ratio", lower: false },
    change: severalLaunches ? launchRatio(...launches) : estimate(b[key] / a[key]),
    untested: !severalLaunches,
    note: severalLaunches
      ? `${launches[0].length} and ${launches[1].length} launches, not interleaved`
      : "no verdict: measured in one process each",
  };
}

// Seconds of the rounds of each launch; empty if the row has no launches.
const launchesOf = (side, key) =>
  (side.launches || []).map(({ seconds }) => seconds[key.replace("_tok_s", "")]?.[0]).filter((rounds) => rounds?.length);

// Protocol name -> figures under it
function conventions(metrics) {
  if (metrics.protocols && Object.keys(metrics.protocols).length) return metrics.protocols;
  return metrics.protocol ? { [metrics.protocol.name]: metrics } : {};
}

// Quality under every protocol that both have, KLD from one and the same reference.
function qualityCells(a, b, unlike) {
  const [ofA, ofB] = [conventions(a), conventions(b)],
    common = Object.keys(ofA).filter((name) => ofB[name]);
  if (!common.length && a.protocol && b.protocol)
    unlike.push(`Not comparable in quality: the protocols differ in ${differingFields(a.protocol, b.protocol)}.`);
  return common.flatMap((name) => {
    const differ = differingFields(ofA[name].protocol, ofB[name].protocol);
    if (differ) unlike.push(`Not comparable in quality: the protocols differ in ${differ}.`);
    return differ ? [] : conventionCells(ofA[name], ofB[name], common.length > 1 ? ` (${name})` : "", unlike);
  });
}

function conventionCells(a, b, convention, unlike) {
  const cells = [],
    blocks = (what) => pairedBlocks(a.blocks, b.blocks, what);
  const named = (key) => ({ ...COLUMN.get(key), heading: COLUMN.get(key).heading + convention });
  if (both("perplexity", a, b)) {
    const paired = blocks("nll"),
      logs = [a, b].map((side) => side.perplexity_interval?.map(Math.log));
    const change = asRatio(paired || unpaired(Math.log(a.perplexity), Math.log(b.perplexity), ...logs));
    cells.push({
      column: named("perplexity"),
      a: a.perplexity,
      b: b.perplexity,
      kind: "ratio",
      lower: true,
      change,
      note: pairNote(paired, a),
    });
  }
  if (!a.kld || !b.kld) return cells;
  const references = [a, b].map(
    (side) => `${side.reference}${side.kld_reference?.k ? `, top ${side.kld_reference.k}` : ""}`,
  );
  if (a.reference && b.reference && references[0] !== references[1]) {
    unlike.push(`Not comparable in divergence${convention}: the references differ (${references.join(" and ")}).`);
    return cells;
  }
  const paired = blocks("kld"),
    top = blocks("same_top");
  cells.push({
    column: named("kld_mean"),
    a: a.kld.mean,
    b: b.kld.mean,
    kind: "difference",
    lower: true,
    change: paired || unpaired(a.kld.mean, b.kld.mean, a.kld_interval, b.kld_interval),
    note: pairNote(paired, a),
  });
  if (both("same_top", a, b)) {
    cells.push({
      column: named("same_top"),
      a: a.same_top,
      b: b.same_top,
      kind: "difference",
      lower: false,
      change: top || estimate(b.same_top - a.same_top),
      note: top ? pairNote(top, a) : "no interval: these records have no sums by block",
    });
  }
  return cells;
}

const pairNote = (paired, side) =>
  paired
    ? `paired over ${count(side.blocks.tokens.length, side.blocks.unit)}`
    : "not paired: a record has no sums by block, so the interval is wider than need be";

// From the intervals of each: errors add as if the two had seen unlike texts. The shared part makes it narrower.
function unpaired(a, b, ofA, ofB) {
  if (!ofA || !ofB) return estimate(b - a);
  const half = Math.hypot(...[ofA, ofB].map(([low, high]) => (high - low) / 2)),
    change = b - a;
  return estimate(change, change - half, change + half, half ? 2 * normalBeyond((Math.abs(change) / half) * Z) : null);
}

// Student's law of so much freedom is the normal one to six digits.
const normalBeyond = (z) => studentBeyond(z, 1e6);

// A group's items are those of its tasks, which are judged one by one.
function taskCells(a, b, unlike) {
  const cells = commonTasks(a, b, unlike).filter(Boolean);
  const names = new Set(cells.map(({ column }) => column.key));
  return cells.map((cell) =>
    Object.keys(a[cell.column.key].protocol?.tasks || {}).some((name) => names.has(name))
      ? { ...cell, untested: true, note: "no verdict of a group: its tasks are judged one by one" }
      : cell,
  );
}

function commonTasks(a, b, unlike) {
  return Object.keys(a)
    .filter((name) => b[name])
    .map((name) => {
      const [one, other] = [a[name], b[name]];
      if (one.protocol_hash !== other.protocol_hash) {
        const [mine, its] = [one, other].map(({ protocol, protocol_hash: hash }) => ({ ...protocol, hash }));
        unlike.push(`Not comparable in ${name}: the tasks differ in ${differingFields(mine, its)}.`);
        return null;
      }
      const cell = taskChange(one, other, name);
      if (typeof cell !== "string") return { a: one.value, b: other.value, ...cell };
      unlike.push(`Not comparable in ${name}: ${cell}.`);
      return null;
    });
}

// A cell, or a sentence with the reason if there is no cell.
function taskChange(one, other, name) {
  const column = { key: name, heading: `${name} ${one.metric}`, kind: "fixed", digits: 4, scale: 1 };
  if (one.correct && other.correct) {
    const change = accuracyChange(one.correct, other.correct),
      items = `${count(one.correct.length, "item")}: `;
    return {
      column: { ...column, heading: `${column.heading} %`, digits: 2, scale: 100 },
      change,
      kind: "difference",
      lower: false,
      note: `${items}${change.lost} right to wrong, ${change.gained} wrong to right`,
    };
  }
  const found = itemsChange(one, other);
  if (typeof found === "string") return found;
  return { column, ...found, note: `paired over ${count(itemsOf(one).length, "item")}` };
}

// Verdicts after Holm's correction over the whole table.
function judge(cells) {
  const corrected = holm(cells.map(({ change, untested }) => (untested ? null : (change.p ?? null))));
  return cells.map((cell, i) => ({
    ...cell,
    p: corrected[i],
    verdict: verdictOf(cell, cell.exact ? 0 : corrected[i]),
  }));
}

function verdictOf({ change, kind, lower }, p) {
  if (p === null) return null;
  const moved = change.value - (kind === "ratio" ? 1 : 0);
  if (p >= ALPHA || moved === 0) return "same";
  return moved < 0 === lower ? "better" : "worse";
}
