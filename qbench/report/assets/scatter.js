// The three scatters: quality against size, speed and memory, of the rows that the table shows.

const FONT_SIZE = 12;
// With more points not all are named, then only the best, then no intervals are drawn.
const ALL_NAMED = 12,
  MOST_NAMES = 40,
  MOST_BARS = 80;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const family = () => getComputedStyle(document.body).fontFamily;
const asPlotText = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

function textWidth(text, font = `500 ${FONT_SIZE}px ${family()}`) {
  textWidth.context ??= document.createElement("canvas").getContext("2d");
  textWidth.context.font = font;
  return textWidth.context.measureText(text).width;
}

function axis(title, extra) {
  return {
    title: { text: title, standoff: 8, font: { size: 12.5, color: colour("quiet") } },
    gridcolor: colour("grid"),
    linecolor: colour("rule"),
    zeroline: false,
    showline: true,
    tickfont: { size: 11.5, color: colour("quiet") },
    ticks: "outside",
    ticklen: 4,
    tickcolor: colour("rule"),
    automargin: true,
    fixedrange: true,
    ...extra,
  };
}

// Every power of ten; within less than three of them, digits between as well.
function logTicks([low, high]) {
  if (high - low < 2.5) {
    const ticks = ticks125(10 ** low, 10 ** high, shortNumber, false);
    return ticks.tickvals.length > 1 ? ticks : { dtick: "D1" };
  }
  return { dtick: 1, minor: { dtick: "D2", showgrid: false, ticks: "outside", ticklen: 2, tickcolor: colour("rule") } };
}

// The points and, if they are drawn, their whiskers. A whisker that nears 0 ends a power of ten below its point.
function heightsOf(points, isLog) {
  return points.flatMap((p) => {
    const ends = points.length <= MOST_BARS ? p.yRange || [] : [];
    const heights = isLog ? ends.map((end) => Math.log10(Math.max(end, p.y / 10))) : ends;
    return [p.height, ...heights];
  });
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

// {row, x, y, height (y as the axis counts it), xRange, yRange, group, onFront, baseline} of all that has both figures
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
        name: [table.value("recipe", row), keptAs(table, row)].filter(Boolean).join(" "),
        baseline: table.value("is_baseline", row) === true,
      })),
    )
    .filter((p) => !Number.isNaN(p.x) && !Number.isNaN(p.y));
  const isLog = quality.log && points.some((p) => p.y > 0);
  // A divergence of 0 has no place on a log axis: it is drawn at the floor, below the rest.
  const floor = isLog ? points.reduce((least, p) => (p.y > 0 ? Math.min(least, p.y) : least), Infinity) / 2 : null;
  for (const p of points) {
    if (isLog && !(p.y > 0)) p.y = floor;
    p.height = isLog ? Math.log10(p.y) : p.y;
  }
  // On the page of a recipe its name adds nothing.
  if (new Set(points.map((p) => p.name)).size === 1 && points.length > 1)
    for (const p of points) p.name = table.value("model", p.row);
  return { points, isLog };
}

function traces(table, points, groups) {
  const markers = (members, marker) => ({
    x: members.map((p) => p.x),
    y: members.map((p) => p.y),
    customdata: members.map((p) => p.row),
    text: members.map((p) => hoverText(table, p)),
    hovertemplate: "%{text}<extra></extra>",
    type: "scatter",
    mode: "markers",
    marker: { size: 10, ...marker },
    cliponaxis: false,
    error_x: bars(members, "x", "xRange", points.length),
    error_y: bars(members, "y", "yRange", points.length),
  });
  return groups.flatMap((group) => {
    const members = points.filter((p) => p.group === group),
      solid = colour(group.colour);
    const front = members.filter((p) => p.onFront).sort((a, b) => a.x - b.x);
    return [
      {
        x: front.map((p) => p.x),
        y: front.map((p) => p.y),
        mode: "lines",
        type: "scatter",
        hoverinfo: "skip",
        line: { color: solid, width: 1.5, dash: "dot" },
      },
      markers(
        members.filter((p) => !p.onFront && !p.baseline),
        {
          symbol: group.symbol,
          color: colour("panel"),
          line: { color: groups.length === 1 ? colour("beaten") : solid, width: 1.6 },
          opacity: members.length > 200 ? 0.5 : 1,
        },
      ),
      markers(
        members.filter((p) => p.onFront && !p.baseline),
        { symbol: group.symbol, color: solid },
      ),
      markers(
        members.filter((p) => p.baseline),
        {
          symbol: "diamond",
          size: 11,
          color: colour("ink"),
          line: { color: solid, width: groups.length === 1 ? 0 : 2 },
        },
      ),
    ];
  });
}

// Intervals as lines through the points, unless there are so many that they would hide them.
function bars(members, axisName, rangeName, numPoints) {
  const shown = numPoints <= MOST_BARS;
  const length = (p, end) =>
    p[rangeName] ? Math.max(0, end ? p[rangeName][1] - p[axisName] : p[axisName] - p[rangeName][0]) : 0;
  return {
    type: "data",
    symmetric: false,
    thickness: 1.1,
    width: 0,
    color: colour("beaten"),
    visible: shown,
    array: shown ? members.map((p) => length(p, 1)) : [],
    arrayminus: shown ? members.map((p) => length(p, 0)) : [],
  };
}

function hoverText(table, { row, name, group }) {
  const lines = [`<b>${asPlotText(name)}</b>`];
  for (const key of [
    "bits_per_weight",
    "size_bytes",
    "kld_mean",
    "perplexity",
    "same_top",
    "tg_tok_s",
    "peak_rss_bytes",
  ]) {
    const value = table.value(key, row),
      column = COLUMN.get(key);
    if (value !== null) lines.push(`${column.heading} ${written(column, value)}`);
  }
  return [...lines, asPlotText(table.value("model", row))].join("<br>");
}

async function drawScatter(element, table, groups, quality, cost, front) {
  const { points, isLog } = pointsOf(table, groups, quality, cost, front);
  element.points = points;
  const better = quality.sign > 0 ? "down" : "up";
  element.previousSibling.lastChild.textContent = `One dot per recipe, whiskers as in the table; better is ${better} and
  to the ${cost.sign > 0 ? "left" : "right"}`;
  const heights = padded(heightsOf(points, isLog), 0.12);
  const axes = {
    xaxis: axis(cost.title, {
      range: padded(
        points.flatMap((p) => [p.x, ...(p.xRange || [])]),
        0.12,
      ),
      nticks: 6,
      separatethousands: true,
    }),
    yaxis: axis(quality.title, {
      range: heights,
      ...(isLog ? { type: "log", exponentformat: "power", ...logTicks(heights) } : {}),
    }),
  };
  await drawPlot(element, table, traces(table, points, groups), axes);
  await writeNames(element, points, groups);
}

// The traces over these axes; a click on a point goes to its row.
async function drawPlot(element, table, traces, axes) {
  const layout = {
    margin: { l: 8, r: 12, t: 12, b: 8 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: family(), color: colour("ink") },
    showlegend: false,
    hovermode: "closest",
    dragmode: false,
    hoverlabel: {
      bgcolor: colour("panel"),
      bordercolor: colour("rule"),
      align: "left",
      font: { family: family(), size: 12.5, color: colour("ink") },
    },
    ...axes,
  };
  await Plotly.react(element, traces, layout, { displayModeBar: false, responsive: true });
  element.removeAllListeners("plotly_click");
  element.on("plotly_click", ({ points: [clicked] }) => {
    location.hash = rowLink(table, clicked.customdata);
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
async function writeNames(element, points, groups) {
  const few = points.length <= ALL_NAMED,
    best = points.filter((p) => p.onFront || p.baseline);
  const others = points.filter((p) => !p.onFront && !p.baseline);
  const named = few ? points : onePerName([...best.sort((a, b) => b.onFront - a.onFront), ...others]).slice(0, MOST_NAMES);
  const { xaxis, yaxis } = element._fullLayout;
  const place = (p, x = p.x, height = p.height) => ({ x: xaxis.l2p(x), y: yaxis.l2p(height), text: p.name });
  const lines = groups.map((group) =>
    points
      .filter((p) => p.group === group && p.onFront)
      .sort((a, b) => a.x - b.x)
      .map((p) => place(p)),
  );
  const hasBars = points.length <= MOST_BARS;
  const ranges = named.flatMap((p) => [
    (p.xRange || []).map((x) => place(p, x)),
    hasBars ? heightsOf([p], yaxis.type === "log").slice(1).map((height) => place(p, p.x, height)) : [],
  ]);
  const nameless = points.filter((p) => !named.includes(p)).map((p) => place(p));
  const offsets = placeLabels(
    named.map((p) => place(p)),
    [...lines, ...ranges],
    nameless,
    { width: xaxis._length, height: yaxis._length },
    textWidth,
    !few,
  );
  const annotations = named.flatMap((p, i) => {
    if (!offsets[i]) return [];
    const { dx, dy } = offsets[i];
    return [
      {
        x: p.x,
        y: p.height,
        ax: dx,
        ay: dy,
        text: asPlotText(p.name),
        showarrow: true,
        arrowhead: 0,
        standoff: 7,
        // A thin leader only if the name is away from its point.
        arrowwidth: 1,
        arrowcolor: Math.abs(dy) > 20 ? colour("beaten") : "rgba(0,0,0,0)",
        font: { size: FONT_SIZE, color: p.baseline ? colour("ink") : colour("quiet") },
      },
    ];
  });
  await Plotly.relayout(element, { annotations });
}
