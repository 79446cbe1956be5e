// Which rows no other beats, among those that compare.

// A figure on an axis: its column, its title, whether less of it is better, and whether it spans powers of ten.
const QUALITIES = [
  { key: "kld_mean", title: "mean KLD, nats", name: "mean KLD", log: true, sign: 1 },
  { key: "kld_p99", title: "p99 KLD, nats", name: "p99 KLD", log: true, sign: 1 },
  { key: "perplexity", title: "perplexity", name: "perplexity", log: false, sign: 1 },
  { key: "same_top", title: "same top token, %", name: "same top", log: false, sign: -1 },
];
const COSTS = [
  { front: "size", key: "size_bytes", title: "size of the weights, MB", caption: "Quality against size", sign: 1 },
  { front: "speed", key: "tg_tok_s", title: "decode, tokens per second", caption: "Quality against speed", sign: -1 },
  {
    front: "memory",
    key: "peak_rss_bytes",
    title: "peak memory of the process, MB",
    caption: "Quality against memory",
    sign: 1,
  },
];

// Sizes of different models do not compare, and the small ones would share a corner: their bits per weight do.
function comparableCost(table, groups, cost) {
  const models = new Set(groups.map(({ rows }) => table.value("model", rows[0])));
  if (cost.front !== "size" || models.size < 2) return cost;
  return { ...cost, key: "bits_per_weight", title: "bits per weight" };
}

const number = (table, key, row) => table.value(key, row) ?? NaN;

// costs [N] pairs, less is better; NaN is on no front. Returns the indices on the front.
function paretoFront(pairs) {
  const order = pairs
    .map((_, i) => i)
    .filter((i) => !pairs[i].some(Number.isNaN))
    .sort((a, b) => pairs[a][0] - pairs[b][0] || pairs[a][1] - pairs[b][1]);
  const front = [];
  let least = Infinity,
    twin = null; // the least second cost so far, and the pair that has it
  for (const i of order) {
    const [x, y] = pairs[i];
    if (y < least) {
      least = y;
      twin = x;
      front.push(i);
    } else if (y === least && x === twin) front.push(i);
  }
  return front;
}

// {size: Set of rows, speed: ..., memory: ...}: the fronts of each group among these rows, joined
function frontsOf(table, rows, quality) {
  const groups = byGroup(table, rows);
  return Object.fromEntries(
    COSTS.map((cost) => {
      const found = new Set();
      for (const members of groups.values()) {
        const pairs = members.map((row) => [
          cost.sign * number(table, cost.key, row),
          quality.sign * number(table, quality.key, row),
        ]);
        for (const i of paretoFront(pairs)) found.add(members[i]);
      }
      return [cost.front, found];
    }),
  );
}

function byGroup(table, rows) {
  const { codes } = table.column("group"),
    groups = new Map();
  for (const row of rows) {
    const members = groups.get(codes[row]);
    if (members) members.push(row);
    else groups.set(codes[row], [row]);
  }
  return groups;
}

// The qualities that any of these rows has.
function qualitiesOf(table, rows) {
  return QUALITIES.filter(({ key }) => rows.some((row) => table.value(key, row) !== null));
}
