// Groups of comparable rows: the ones that the scatters draw, and their names.

// Beyond these a plot is a cloud.
const MOST_GROUPS = 6,
  MOST_POINTS = 3000;
const SYMBOLS = ["circle", "square", "triangle-up", "pentagon", "triangle-down", "hexagon"];

// The groups to draw, largest first: {name, rows, colour, symbol}, and a sentence about omitted ones.
function drawnGroups(table, rows, quality) {
  const known = rows.filter((row) => table.value(quality.key, row) !== null);
  const all = [...byGroup(table, known).values()].sort((a, b) => b.length - a.length);
  const groups = all.slice(0, MOST_GROUPS);
  const names = groupNames(
    table,
    groups.map((members) => members[0]),
  );
  const left = all.length - groups.length;
  return {
    left: left
      ? `The ${groups.length} largest of ${all.length} groups of comparable rows are drawn; filter to see the others.`
      : "",
    groups: groups.map((members, i) => ({
      rows: members.slice(0, MOST_POINTS),
      name: names[i],
      symbol: SYMBOLS[i],
      colour: groups.length === 1 ? "accent" : `series-${i + 1}`,
    })),
  };
}

const GROUP_WORDS = [
  ["model", String],
  ["machine", (id) => `machine ${id}`],
  ["protocol", String],
  ["protocol_hash", (hash) => `text ${hash.slice(0, 6)}`],
  ["threads", (number) => count(number, "thread")],
  ["device", String],
  ["batch", (size) => `batch ${size}`],
  ["pp", (tokens) => `pp${tokens}`],
  ["tg", (tokens) => `tg${tokens}`],
  ["depth", (tokens) => (tokens ? `depth ${tokens}` : null)],
];

// A name for each group, made of the values that differ between groups.
function groupNames(table, firsts) {
  const kinds = (...keys) =>
    new Set(firsts.map((row) => JSON.stringify(keys.map((key) => table.value(key, row))))).size;
  const differ = GROUP_WORDS.filter(
    ([key]) =>
      kinds(key) > 1 &&
      !(key === "protocol_hash" && kinds("model", "protocol") === kinds("model", "protocol", "protocol_hash")),
  );
  return firsts.map((row) => {
    const known = differ.map(([key, tell]) => [table.value(key, row), tell]).filter(([value]) => value !== null);
    return (
      known
        .map(([value, tell]) => tell(value))
        .filter(Boolean)
        .join(" · ") || `group ${table.value("group", row)}`
    );
  });
}
