// The three scatters: quality against size, speed and memory, of the rows that the table shows.

// With more points not all are named, then only the best, then no intervals are drawn.
const ALL_NAMED = 12,
  MOST_NAMES = 40,
  MOST_BARS = 80;

// The ends of a point's whisker, if whiskers are drawn. One that nears 0 ends a power of ten below its point.
function whiskerOf({ y, yRange }, numPoints, isLog) {
  if (!yRange || numPoints > MOST_BARS) return null;
  return isLog ? yRange.map((end) => Math.max(end, y / 10)) : yRange;
}

// Room around the points for their names: a share of the span on each side.
function padded(values, share) {
  let low = Infinity,
    high = -Infinity;
  for (const value of values) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  const pad = (high - low || Math.abs(high) || 1) * share;
  return [low - pad, high + pad];
}

// {row, x, y, xRange, yRange, group, onFront, baseline} of all that has both figures
function pointsOf(table, groups, quality, cost, front) {
  const xColumn = COLUMN.get(cost.key),
    yColumn = COLUMN.get(quality.key);
  const range = (column, row) => {
    const [low, high] = (column.ends || []).map((end) => table.value(end, row));
    return low === undefined || low === null || high === null ? null : [low * column.scale, high * column.scale];
  };
  const points = groups
    .flatMap((group) =>
      group.rows.map((row) => ({
        row,
        group,
        x: number(table, cost.key, row) * xColumn.scale,
        y: number(table, quality.key, row) * yColumn.scale,
        xRange: range(xColumn, row),
        yRange: range(yColumn, row),
        onFront: front.has(row),
        name: recipeAs(table, row),
        baseline: table.value("is_baseline", row) === true,
      })),
    )
    .filter((p) => !Number.isNaN(p.x) && !Number.isNaN(p.y));
  const isLog = quality.log && points.some((p) => p.y > 0);
  // A divergence of 0 has no place on a log axis: it is drawn at the floor, below the rest.
  const floor = isLog ? points.reduce((least, p) => (p.y > 0 ? Math.min(least, p.y) : least), Infinity) / 2 : null;
  for (const p of points) if (isLog && !(p.y > 0)) p.y = floor;
  // On the page of a recipe its name adds nothing.
  if (new Set(points.map((p) => p.name)).size === 1 && points.length > 1)
    for (const p of points) p.name = table.value("model", p.row);
  return { points, isLog };
}

function seriesOf(table, points, groups, isLog) {
  const one = groups.length === 1;
  const drawn = (p, solid, crowded) => ({
    ...p,
    ...markerOf(p, solid, one),
    opacity: crowded && !p.onFront && !p.baseline ? 0.5 : 1,
    facts: factsOf(table, p),
    xRange: points.length > MOST_BARS ? null : p.xRange,
    yRange: whiskerOf(p, points.length, isLog),
    whisker: "beaten",
  });
  return groups.flatMap((group) => {
    const members = points.filter((p) => p.group === group).map((p) => drawn(p, group.colour, points.length > 200));
    const front = members.filter((p) => p.onFront).sort((a, b) => a.x - b.x);
    return [
      { name: group.name, line: { colour: group.colour, dash: "dot" }, points: front },
      { name: group.name, line: null, points: members.filter((p) => !p.onFront) },
    ];
  });
}

const markerOf = (p, solid, one) =>
  p.baseline
    ? { symbol: "diamond", radius: 5.5, colour: "ink", filled: true }
    : { symbol: p.group.symbol, radius: 5, colour: one && !p.onFront ? "beaten" : solid, filled: p.onFront };

// A name, and the figures that belong to it.
function factsOf(table, { row, name }) {
  const known = FACTS.filter((key) => table.value(key, row) !== null);
  return [name, ...known.map((key) => fact(table, key, row)), table.value("model", row)];
}

const FACTS = ["bits_per_weight", "size_bytes", "kld_mean", "perplexity", "same_top", "tg_tok_s", "peak_rss_bytes"];
const fact = (table, key, row) => `${COLUMN.get(key).heading} ${written(COLUMN.get(key), table.value(key, row))}`;

function drawScatter(element, table, groups, quality, cost, front) {
  const { points, isLog } = pointsOf(table, groups, quality, cost, front);
  const better = quality.sign > 0 ? "down" : "up";
  element.previousSibling.lastChild.textContent = `One dot per row, whiskers as in the table; better is ${better} and
  to the ${cost.sign > 0 ? "left" : "right"}`;
  const ends = (p) => whiskerOf(p, points.length, isLog) || [];
  const scaled = (value) => (isLog ? Math.log10(value) : value);
  const across = padded(points.flatMap((p) => [p.x, ...(p.xRange || [])]), 0.12); // prettier-ignore
  const up = padded(points.flatMap((p) => [p.y, ...ends(p)].map(scaled)), 0.12); // prettier-ignore
  const axes = {
    x: { title: cost.title, range: across, ticks: roundTicks(...across, 6) },
    y: { title: quality.title, range: up, log: isLog, ticks: isLog ? logTicks(up) : roundTicks(...up, 6) },
  };
  const series = seriesOf(table, points, groups, isLog);
  drawPlot(element, table, () => {
    const plot = new Plot(element, axes, series);
    writeNames(plot);
    return plot;
  });
}

// The first point of each name in each group.
function onePerName(points) {
  const first = new Map();
  for (const p of points) {
    const key = `${p.group.symbol} ${p.name}`;
    if (!first.has(key)) first.set(key, p);
  }
  return [...first.values()];
}

// Names of all points if they are few, otherwise of the best as far as there is room, each name once.
function writeNames(plot) {
  const points = plot.series.flatMap((each) => each.points),
    few = points.length <= ALL_NAMED;
  const best = points.filter((p) => p.onFront || p.baseline),
    others = points.filter((p) => !p.onFront && !p.baseline);
  const named = few ? points : onePerName([...best.sort((a, b) => b.onFront - a.onFront), ...others]).slice(0, MOST_NAMES);
  const place = (p, x = p.x, y = p.y) => ({ x: plot.x(x), y: plot.y(y), text: p.name });
  const lines = plot.series.filter(({ line }) => line).map((each) => each.points.map((p) => place(p)));
  const whiskers = named.flatMap((p) => [
    (p.xRange || []).map((x) => place(p, x)),
    (p.yRange || []).map((y) => place(p, p.x, y)),
  ]);
  const nameless = points.filter((p) => !named.includes(p)).map((p) => place(p));
  const offsets = placeLabels(named.map((p) => place(p)), [...lines, ...whiskers], nameless, plot, textWidth, !few); // prettier-ignore
  plot.names(named.map((p, i) => [p, offsets[i]]).filter(([, offset]) => offset));
}
