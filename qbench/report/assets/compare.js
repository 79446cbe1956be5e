// Two rows side by side: what changed from A to B, how sure that is, and why something does not compare.

async function comparePage(table, a, b) {
  const sides = await Promise.all([a, b].map((row) => RECORDS.of(row)));
  const name = (row) => h("a", { href: rowLink(table, row) }, table.value("recipe", row));
  const head = h("h1", null, name(a), h("span", { class: "of" }, " against "), name(b));
  const models = new Set([a, b].map((row) => table.value("model", row)));
  const crumbs = h("p", { class: "crumbs" }, h("a", { href: "#/" }, "All rows"), " / ", [...models].map((model, i) => [i ? " and " : "", h("a", { href: modelLink(model) }, model)]));
  const swap = h("a", { class: "button", href: compareLink(table, b, a) }, "Swap A and B");
  if (sides.includes(null)) {
    return h("article", null, crumbs, head, h("p", { class: "note" }, "This page has no room for the record of "
      + `${sides.map((side, i) => (side ? null : "AB"[i])).filter(Boolean).join(" and ")}, so that no interval of their difference can be told. `
      + "Make a page of fewer records, or run `qbench compare`."));
  }
  const { cells, unlike } = compareRecords(...sides);
  return h("article", null, crumbs, head, h("p", { class: "actions" }, swap),
    unlike.map((text) => h("p", { class: "failure" }, text)), comparisonTable(cells, table, a, b),
    h("p", { class: "note" }, "Better, same or worse is said of B, after p values are corrected for one another (Holm); intervals are 95 %. "
      + "Quality is paired block by block of the text, tasks item by item. Speeds were measured in runs of their own: what changed on the machine between them is in no interval."));
}

// {cells: [{name, a, b, kind, change, lower, exact, note, verdict}], unlike: [sentence]}
function compareRecords(a, b) {
  const ours = a.metrics || {}, theirs = b.metrics || {}, unlike = [], cells = [];
  cells.push(...qualityCells(ours, theirs, unlike));
  cells.push(...taskCells(ours.tasks || {}, theirs.tasks || {}, unlike));
  const apart = unlikeSpeeds(a, b);
  if (apart) unlike.push(`Not comparable in speed and memory: ${apart}.`);
  else cells.push(...["pp_tok_s", "tg_tok_s"].map((key) => speedCell(key, ours, theirs)), singleCell("peak_rss_bytes", ours, theirs), singleCell("quantize_seconds", ours, theirs));
  if (a.case.model !== b.case.model) unlike.push(`Not comparable in size: the models differ (${a.case.model} and ${b.case.model}).`);
  else cells.push(...["size_bytes", "bits_per_weight", "kv_bytes_per_token"].map((key) => exactCell(key, ours, theirs)));
  return { cells: judge(cells.filter(Boolean)), unlike };
}

// "window (512 and 2048), bos (...)", or "" where they are one and the same
function differingFields(a, b) {
  if (!a || !b || a.hash === b.hash) return "";
  const fields = [...new Set([...Object.keys(a), ...Object.keys(b)])].filter((name) => name !== "hash" && plain(a[name]) !== plain(b[name]));
  return fields.map((name) => `${name.replaceAll("_", " ")} (${plain(a[name])} and ${plain(b[name])})`).join(", ") || "their hashes";
}

function unlikeSpeeds(a, b) {
  if (a.machine?.id !== b.machine?.id) return `the machines differ (${a.machine?.id} and ${b.machine?.id})`;
  const settings = (side) => ({ threads: side.case.threads, batch: side.case.batch, context: side.case.context, device: side.case.device, ...side.case.bench });
  const one = settings(a), other = settings(b);
  const fields = [...new Set([...Object.keys(one), ...Object.keys(other)])].filter((name) => name !== "repetitions" && plain(one[name]) !== plain(other[name]));
  return fields.map((name) => `${name} (${plain(one[name])} and ${plain(other[name])})`).join(", ");
}

const both = (key, a, b) => Number.isFinite(a[key]) && Number.isFinite(b[key]);

function exactCell(key, a, b) {
  if (!both(key, a, b) || !a[key]) return null;
  const ratio = b[key] / a[key];
  return { column: COLUMN.get(key), a: a[key], b: b[key], kind: "ratio", lower: true, exact: true, change: estimate(ratio), note: "counted, not estimated" };
}

function singleCell(key, a, b) {
  if (!both(key, a, b) || !a[key]) return null;
  return { column: COLUMN.get(key), a: a[key], b: b[key], kind: "ratio", lower: true, change: estimate(b[key] / a[key]), note: "measured once a row: no interval" };
}

function speedCell(key, a, b) {
  const samples = [a, b].map((side) => side.samples?.[key]);
  if (!both(key, a, b) || !samples.every((values) => values?.length)) return null;
  return { column: COLUMN.get(key), a: a[key], b: b[key], kind: "ratio", lower: false, change: speedRatio(...samples),
    note: `${samples[0].length} and ${samples[1].length} samples, not interleaved` };
}

// Protocol name -> what was measured under it
function conventions(metrics) {
  if (metrics.protocols && Object.keys(metrics.protocols).length) return metrics.protocols;
  return metrics.protocol ? { [metrics.protocol.name]: metrics } : {};
}

// Quality under every protocol that both have, KLD from one and the same reference.
function qualityCells(a, b, unlike) {
  const [ofA, ofB] = [conventions(a), conventions(b)], common = Object.keys(ofA).filter((name) => ofB[name]);
  if (!common.length && a.protocol && b.protocol) unlike.push(`Not comparable in quality: the protocols differ in ${differingFields(a.protocol, b.protocol)}.`);
  return common.flatMap((name) => {
    const differ = differingFields(ofA[name].protocol, ofB[name].protocol);
    if (differ) unlike.push(`Not comparable in quality: the protocols differ in ${differ}.`);
    return differ ? [] : conventionCells(ofA[name], ofB[name], common.length > 1 ? ` (${name})` : "", unlike);
  });
}

function conventionCells(a, b, convention, unlike) {
  const cells = [], blocks = (what) => pairedBlocks(a.blocks, b.blocks, what);
  const named = (key) => ({ ...COLUMN.get(key), heading: COLUMN.get(key).heading + convention });
  if (both("perplexity", a, b)) {
    const paired = blocks("nll"), logs = [a, b].map((side) => side.perplexity_interval?.map(Math.log));
    const change = asRatio(paired || unpaired(Math.log(a.perplexity), Math.log(b.perplexity), ...logs));
    cells.push({ column: named("perplexity"), a: a.perplexity, b: b.perplexity, kind: "ratio", lower: true, change, note: pairNote(paired, a) });
  }
  if (!a.kld || !b.kld) return cells;
  const references = [a, b].map((side) => `${side.reference}${side.kld_reference?.k ? `, top ${side.kld_reference.k}` : ""}`);
  if (references[0] !== references[1]) {
    unlike.push(`Not comparable in divergence${convention}: the references differ (${references.join(" and ")}).`);
    return cells;
  }
  const paired = blocks("kld"), top = blocks("same_top");
  cells.push({ column: named("kld_mean"), a: a.kld.mean, b: b.kld.mean, kind: "difference", lower: true,
    change: paired || unpaired(a.kld.mean, b.kld.mean, a.kld_interval, b.kld_interval), note: pairNote(paired, a) });
  if (both("same_top", a, b)) {
    cells.push({ column: named("same_top"), a: a.same_top, b: b.same_top, kind: "difference", lower: false,
      change: top || estimate(b.same_top - a.same_top), note: top ? pairNote(top, a) : "no interval: these records have no sums by block" });
  }
  return cells;
}

const pairNote = (paired, side) => (paired ? `paired over ${count(side.blocks.tokens.length, side.blocks.unit)}` : "not paired: a record has no sums by block, so the interval is wider than need be");

// From the intervals of each: errors add as if the two had seen unlike texts. What both share makes the true one narrower.
function unpaired(a, b, ofA, ofB) {
  if (!ofA || !ofB) return estimate(b - a);
  const half = Math.hypot(...[ofA, ofB].map(([low, high]) => (high - low) / 2)), change = b - a;
  return estimate(change, change - half, change + half, half ? 2 * normalBeyond(Math.abs(change) / half * Z) : null);
}

// Student's law of so much freedom is the normal one to six digits.
const normalBeyond = (z) => studentBeyond(z, 1e6);

function taskCells(a, b, unlike) {
  return Object.keys(a).filter((name) => b[name]).map((name) => {
    const [one, other] = [a[name], b[name]];
    if (one.protocol_hash !== other.protocol_hash) {
      const [mine, its] = [one, other].map(({ protocol, protocol_hash: hash }) => ({ ...protocol, hash }));
      unlike.push(`Not comparable in ${name}: the tasks differ in ${differingFields(mine, its)}.`);
      return null;
    }
    return { ...taskChange(one, other, name), a: one.value, b: other.value, kind: "difference", lower: one.higher_is_better === false };
  });
}

function taskChange(one, other, name) {
  const column = { key: name, heading: name, kind: "fixed", digits: 4, scale: 1 };
  if (one.correct && other.correct) {
    const change = accuracyChange(one.correct, other.correct), items = `${count(one.correct.length, "item")}: `;
    return { column: { ...column, digits: 2, scale: 100 }, change, note: `${items}${change.lost} right to wrong, ${change.gained} wrong to right` };
  }
  if (one.values && other.values && !one.weights) {
    const change = blockMean(other.values.map((value, i) => value - one.values[i]), one.values.map(() => 1));
    return { column, change, note: `paired over ${count(one.values.length, "item")}` };
  }
  return { column, change: estimate(other.value - one.value), note: "no interval: kept without its items" };
}

// Verdicts after Holm's correction over the whole table.
function judge(cells) {
  const corrected = holm(cells.map(({ change }) => change.p ?? null));
  return cells.map((cell, i) => ({ ...cell, p: corrected[i], verdict: verdictOf(cell, cell.exact ? 0 : corrected[i]) }));
}

function verdictOf({ change, kind, lower }, p) {
  if (p === null) return null;
  const moved = change.value - (kind === "ratio" ? 1 : 0);
  if (p >= ALPHA || moved === 0) return "same";
  return (moved < 0) === lower ? "better" : "worse";
}

const VERDICTS = { better: "▲ better", same: "≈ same", worse: "▼ worse" };

function comparisonTable(cells, table, a, b) {
  const head = ["", "A", "B", "B against A [95 %]", "B is", ""];
  const sign = (value, text) => (value > 0 ? `+${text}` : text.replace("-", "−"));
  const tell = ({ column, kind }, value) => {
    if (kind === "ratio") return `×${value.toFixed(Math.abs(value - 1) < 0.1 ? 4 : 3)}`;
    return sign(value, column.kind === "scientific" ? scientific(value) : (value * column.scale).toFixed(column.digits + 1));
  };
  const changeOf = (cell) => [h("b", null, tell(cell, cell.change.value)),
    cell.change.low === null || cell.exact ? null : h("small", null, `${tell(cell, cell.change.low)} to ${tell(cell, cell.change.high)}`)];
  return h("div", { class: "scroll plain" }, h("table", { class: "comparison" },
    h("thead", null, h("tr", null, head.map((text, i) => h("th", { scope: "col", class: i === 0 || i > 3 ? "text" : "" }, text,
      i === 1 || i === 2 ? h("small", null, table.value("recipe", i === 1 ? a : b)) : null)))),
    h("tbody", null, cells.map((cell) => h("tr", null, h("th", { scope: "row", class: "text" }, cell.column.heading),
      h("td", null, written(cell.column, cell.a)), h("td", null, written(cell.column, cell.b)), h("td", null, changeOf(cell)),
      h("td", { class: `text verdict ${cell.verdict || "open"}` }, cell.verdict ? VERDICTS[cell.verdict] : "open", cell.p === null ? null : h("small", null, `p ${tellP(cell.p)}`)),
      h("td", { class: "text note" }, cell.note))))));
}

const tellP = (p) => (p < 0.001 ? "< 0.001" : p.toFixed(3));
