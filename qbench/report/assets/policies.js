// Policies of the KV cache: quality against the bytes that the cache holds, and against decode speed.

const POLICY_COSTS = [
  {
    front: "held",
    caption: "Quality against bytes held by the cache",
    title: "bytes that the cache holds, log",
    better: "better is down and to the left",
    key: "kv_bytes_held",
    sign: 1,
  },
  {
    front: "decode",
    caption: "Quality against decode speed",
    title: "decode, tokens per second",
    better: "better is down and to the right",
    key: "tg_tok_s",
    sign: -1,
  },
];
const FULL = "full",
  MOST_POLICY_GROUPS = 4,
  MOST_POLICY_BARS = 24; // with more points only the Pareto points have whiskers, as they would hide one another
// The sixth colour of the series resembles the first.
const POLICY_COLOURS = ["series-1", "series-2", "series-3", "series-4", "series-5", "quiet"];
const HOW_TO_READ =
  "Each point is one policy at one budget, and a line joins the budgets of a policy. " +
  "A filled point is a Pareto point: no other point of its plot is better in both figures.";

// "snapkv:budget=64,window=16" -> ["snapkv:window=16", "64"], as split_policy in policy_rows.py
function splitPolicy(text) {
  const [name] = text.split(":", 1),
    options = text.slice(name.length + 1).split(",").filter(Boolean);
  const isBudget = (option, i) => option.startsWith("budget=") || (i === 0 && !option.includes("="));
  const others = options.filter((option, i) => !isBudget(option, i));
  return [
    others.length ? `${name}:${others.join(",")}` : name,
    (options.find(isBudget) || "").replace(/^budget=/, ""),
  ];
}

// Two plots for each of these groups of comparable rows.
function drawPolicies(element, table, groups) {
  const firsts = groups.map(([row]) => row),
    names = groupNames(table, firsts);
  // Groups of the same name are the recipes of one group.
  const headings = firsts.map((row, i) => {
    const isAlone = names.filter((name) => name === names[i]).length === 1;
    if (isAlone) return names[i];
    const recipe = table.value("recipe", row);
    return new Set(names).size > 1 ? `${names[i]} · ${recipe}` : recipe;
  });
  element.hidden = !groups.length;
  element.replaceChildren();
  for (const [i, members] of groups.entries()) {
    const points = policyPoints(table, members),
      atFloor = toFloor(points);
    const figures = POLICY_COSTS.filter((cost) => points.some((p) => table_has(table, cost.key, p.row))).map((cost) => {
      const plot = h("div", { class: "plot", id: `plot-${cost.front}${i || ""}` });
      return [cost, plot, h("figure", null, h("figcaption", null, cost.caption, h("span", null, cost.better)), plot)];
    });
    element.append(
      h("h2", null, groups.length > 1 ? `KV-cache policies: ${headings[i]}` : "KV-cache policies"),
      h("p", { class: "note" }, HOW_TO_READ, whiskersAre(points), atFloor),
      policyKey(points),
      h(
        "div",
        { class: "plots" },
        figures.map(([, , figure]) => figure),
      ),
    );
    for (const [cost, plot] of figures) drawPolicyPlot(plot, table, points, cost);
  }
}

const whiskersAre = (points) =>
  points.length > MOST_POLICY_BARS ? " Whiskers are 95 % intervals of Pareto points." : " Whiskers are 95 % intervals.";

// The rows of each group that have a divergence; caches that were measured with the policy full alone are left out.
function policyGroups(table, rows) {
  if (table.distinct("policy").every((policy) => policy === FULL)) return [];
  const known = rows.filter((row) => table_has(table, "kld_mean", row) && table_has(table, "kv_bytes_held", row));
  const found = [];
  for (const members of byGroup(table, known).values()) {
    const evicting = new Set(members.filter((row) => !isFull(table, row)).map((row) => cacheOf(table, row)));
    const shown = members.filter((row) => evicting.has(cacheOf(table, row)));
    if (evicting.size > SYMBOLS.length) found.push(...byRecipe(table, shown));
    else if (shown.length) found.push(shown);
  }
  return found.sort((a, b) => b.length - a.length).slice(0, MOST_POLICY_GROUPS);
}

// One plot has too few symbols for more caches, so each recipe gets separate plots.
function byRecipe(table, rows) {
  const recipes = new Map();
  for (const row of rows) {
    const recipe = table.value("recipe", row);
    recipes.set(recipe, [...(recipes.get(recipe) || []), row]);
  }
  return [...recipes.values()];
}

const isFull = (table, row) => table.value("policy", row) === FULL;

// The fields that all points of a line share, without the policy: "kv-int8 · q4_k_m".
function cacheOf(table, row) {
  const [kv, recipe, cache, chunk] = ["kv_format", "recipe", "cache", "prefill_chunk"].map((key) =>
    table.value(key, row),
  );
  const parts = [kv, recipe, cache === "dynamic" ? null : cache, chunk ? `prompts in chunks of ${chunk}` : null];
  return parts.filter(Boolean).join(" · ");
}

// {row, policy, budget, cache, kld, low, high, colour, dash, symbol}: colour by policy, symbol by KV format and recipe
function policyPoints(table, rows) {
  const points = rows.map((row) => {
    const [policy, budget] = splitPolicy(table.value("policy", row));
    const [kld, low, high] = ["kld_mean", "kld_low", "kld_high"].map((key) => table.value(key, row));
    return { row, policy, budget, cache: cacheOf(table, row), kld, low, high, isFull: isFull(table, row) };
  });
  const distinct = (key, members) => [...new Set(members.map((p) => p[key]))];
  const policies = distinct(
      "policy",
      points.filter((p) => !p.isFull),
    ),
    caches = distinct("cache", points);
  for (const p of points) {
    const place = policies.indexOf(p.policy);
    p.colour = p.isFull ? "ink" : POLICY_COLOURS[place % POLICY_COLOURS.length];
    p.dash = place < POLICY_COLOURS.length ? "solid" : "dash";
    p.symbol = SYMBOLS[caches.indexOf(p.cache) % SYMBOLS.length];
  }
  return points;
}

// A point this many times below all others would squeeze them into a strip.
const FAR_BELOW = 30;

// Heights on the log axis. Points far below the evicting policies, and divergences of 0, are drawn at the lower edge.
// Returns the sentence that gives their values.
function toFloor(points) {
  const least = (members) => Math.min(...members.map((p) => p.kld)),
    evicting = points.filter((p) => !p.isFull && p.kld > 0);
  const far = evicting.length ? least(evicting) / FAR_BELOW : 0;
  const [below, drawn] = [points.filter((p) => p.kld <= far), points.filter((p) => p.kld > far)];
  const floor = (drawn.length ? least(drawn) : 1) / (below.length ? 3 : 1);
  for (const p of points) p.height = Math.max(p.kld, floor);
  points.floor = floor;
  if (!below.length) return "";
  const [low, high] = [least(below), Math.max(...below.map((p) => p.kld))].map(scientific);
  const who = below.every((p) => p.isFull) ? "The full cache" : "A point with an arrow";
  return ` ${who} is drawn at the lower edge: mean KLD ${low === high ? low : `${low} to ${high}`}.`;
}

function policyKey(points) {
  const firsts = (key) => [...new Map(points.map((p) => [p[key], p])).values()];
  const policies = firsts("policy").sort((a, b) => a.isFull - b.isFull),
    caches = firsts("cache");
  // Parts that all caches have in common say nothing.
  const parts = caches.map((p) => p.cache.split(" · "));
  const differ = (part) => !parts.every((other) => other.includes(part));
  return h(
    "ul",
    { class: "key" },
    policies.map((p) =>
      h(
        "li",
        null,
        h("i", { class: `line ${p.dash}`, style: `border-color: var(--${p.colour})` }),
        p.isFull ? "full cache" : p.policy,
      ),
    ),
    caches.length > 1 &&
      caches.map(({ symbol }, i) =>
        h("li", null, symbolOf({ symbol, colour: "quiet" }), parts[i].filter(differ).join(" · ")),
      ),
  );
}

function drawPolicyPlot(element, table, all, cost) {
  const value = (p) => table.value(cost.key, p.row);
  const points = all.filter((p) => value(p) !== null).map((p) => ({ ...p, x: value(p) }));
  const isCrowded = all.length > MOST_POLICY_BARS;
  for (const p of points) p.xRange = COLUMN.get(cost.key).ends?.map((end) => table.value(end, p.row));
  const front = new Set(paretoFront(points.map((p) => [p.kld, cost.sign * p.x])).map((i) => points[i]));
  const lines = new Map();
  for (const p of points) {
    const key = `${p.policy} ${p.cache}`;
    lines.set(key, [...(lines.get(key) || []), p]);
  }
  const tops = points.map((p) => Math.max(p.height, p.high ?? 0));
  const yRange = [all.floor / 1.8, Math.max(...tops) * 1.2],
    isLog = cost.sign > 0 && points.every((p) => p.x > 0);
  const xs = points.flatMap((p) => [p.x, ...(p.xRange || []).filter((end) => end !== null)]);
  const xRange = isLog ? padded(xs.map(Math.log10), 0.06) : padded(xs, 0.06);
  const rows = points.map((p) => p.row),
    work = headingOf(table, COLUMN.get("tg_tok_s"), rows).replace(" tok/s", ""); // "tg32@896"
  const series = [...lines.values()].map((members) => policySeries(table, members, front, yRange[0], isCrowded));
  const y = { title: "mean KLD, nats, log", range: yRange.map(Math.log10), log: true };
  y.ticks = ticks125(...yRange, shortNumber, false);
  drawPlot(element, table, () => {
    const narrow = element.clientWidth < 440;
    const ticks = isLog
      ? ticks125(10 ** xRange[0], 10 ** xRange[1], bytesText, narrow)
      : roundTicks(...xRange, narrow ? 4 : 6);
    return new Plot(element, { x: { title: `${cost.title} (${work})`, range: xRange, log: isLog, ticks }, y }, series);
  });
}

function policySeries(table, members, front, bottom, isCrowded) {
  members.sort((a, b) => table.value("kv_bytes_held", a.row) - table.value("kv_bytes_held", b.row));
  const { policy, colour, dash } = members[0];
  return {
    name: policy,
    line: { colour, dash, opacity: 0.65 },
    points: members.map((p) => {
      const isBelow = p.height > p.kld,
        isBare = isCrowded && !front.has(p);
      return {
        row: p.row,
        x: p.x,
        y: p.height,
        facts: policyFacts(table, p),
        symbol: p.symbol,
        radius: p.isFull ? 5.5 : 4.5,
        colour,
        filled: front.has(p),
        whisker: colour,
        mark: isBelow ? "\u2193" : "", // an arrow marks a point below the axis
        xRange: isBare ? null : p.xRange,
        // An end at 0 has no place on a log axis: the whisker leaves the plot.
        yRange: isBare || isBelow || p.low === null || p.high === null ? null : [Math.max(p.low, bottom / 10), p.high],
      };
    }),
  };
}

function policyFacts(table, p) {
  const known = ["kld_mean", "kv_bytes_held", "same_top", "tg_tok_s"].filter((key) => table.value(key, p.row) !== null);
  const range = ends(COLUMN.get("kld_mean"), table, p.row);
  const told = (key) => fact(table, key, p.row) + (key === "kld_mean" && range ? ` [${range.join(", ")}]` : "");
  return [`${p.isFull ? "full cache" : p.policy}${p.budget ? ` budget ${p.budget}` : ""}`, ...known.map(told), p.cache];
}
