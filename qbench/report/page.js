// Draws the scatters from the JSON in the page, and sorts the tables.

const DATA = JSON.parse(document.getElementById("points").textContent);
const FONT_SIZE = 12.5;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const family = () => getComputedStyle(document.body).fontFamily;

function textWidth(text) {
  const context = document.createElement("canvas").getContext("2d");
  context.font = `500 ${FONT_SIZE}px ${family()}`;
  return context.measureText(text).width;
}

// A divergence of 0 has no place on a log axis: it stands at the floor, a third of a decade below the rest.
function onLogAxis(values) {
  const floor = Math.min(...values.filter((v) => v > 0)) / 2;
  return values.map((v) => (v > 0 ? v : floor));
}

function axis(title, extra) {
  return {
    title: { text: title, standoff: 10, font: { size: 13, color: colour("quiet") } },
    gridcolor: colour("grid"), linecolor: colour("rule"), zeroline: false, showline: true,
    tickfont: { size: 11.5, color: colour("quiet") }, ticks: "outside", ticklen: 4, tickcolor: colour("rule"),
    automargin: true, ...extra,
  };
}

// Room around the points for their names: a share of the span on each side.
function padded(values, share) {
  const low = Math.min(...values), high = Math.max(...values);
  const pad = (high - low || Math.abs(high) || 1) * share;
  return [low - pad, high + pad];
}

function traces(points, xs, ys, plot) {
  const pick = (test) => points.map((p, i) => [p, i]).filter(([p]) => test(p)).map(([, i]) => i);
  const front = pick((p) => p.front[plot.front]).sort((a, b) => xs[a] - xs[b]);
  const at = (indices) => ({
    x: indices.map((i) => xs[i]), y: indices.map((i) => ys[i]),
    text: indices.map((i) => points[i].hover), hovertemplate: "%{text}<extra></extra>", type: "scatter",
  });
  const marker = (indices, style) => ({
    ...at(indices), mode: "markers", marker: { size: 11, ...style }, cliponaxis: false,
    error_y: bars(indices.map((i) => points[i].quality_range), indices.map((i) => ys[i])),
    error_x: bars(indices.map((i) => points[i].x_range[plot.front]), indices.map((i) => xs[i])),
  });
  return [
    { ...at(front), mode: "lines", line: { color: colour("accent"), width: 1.5, dash: "dot" }, hoverinfo: "skip",
      hovertemplate: undefined },
    marker(pick((p) => !p.baseline && !p.front[plot.front]),
      { color: colour("panel"), line: { color: colour("beaten"), width: 2 } }),
    marker(pick((p) => !p.baseline && p.front[plot.front]), { color: colour("accent") }),
    marker(pick((p) => p.baseline), { color: colour("ink"), symbol: "diamond" }),
  ];
}

function bars(ranges, values) {
  return {
    type: "data", symmetric: false, thickness: 1.2, width: 0, color: colour("beaten"),
    array: ranges.map((r, i) => (r ? Math.max(0, r[1] - values[i]) : 0)),
    arrayminus: ranges.map((r, i) => (r ? Math.max(0, values[i] - r[0]) : 0)),
  };
}

async function draw(element, table, plot) {
  const points = table.points.filter((p) => p.x[plot.front] !== null && p.quality !== null);
  const xs = points.map((p) => p.x[plot.front]);
  const isLog = table.log_quality && points.some((p) => p.quality > 0);
  const ys = isLog ? onLogAxis(points.map((p) => p.quality)) : points.map((p) => p.quality);
  const heights = isLog ? ys.map(Math.log10) : ys;
  const ranges = points.flatMap((p) => p.x_range[plot.front] || []);
  const layout = {
    margin: { l: 8, r: 12, t: 14, b: 8 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: family(), color: colour("ink") }, showlegend: false, hovermode: "closest", dragmode: false,
    hoverlabel: { bgcolor: colour("panel"), bordercolor: colour("rule"), align: "left",
      font: { family: family(), size: 13, color: colour("ink") } },
    xaxis: axis(plot.title, { range: padded([...xs, ...ranges], 0.12), fixedrange: true, nticks: 7, separatethousands: true }),
    yaxis: axis(table.quality_title, { range: padded(heights, 0.12), fixedrange: true,
      ...(isLog ? { type: "log", exponentformat: "power", dtick: 1,
        minor: { dtick: "D2", showgrid: false, ticks: "outside", ticklen: 2, tickcolor: colour("rule") } } : {}) }),
  };
  await Plotly.react(element, traces(points, xs, ys, plot), layout, { displayModeBar: false, responsive: true });
  await writeNames(element, points, xs, heights, plot);
}

async function writeNames(element, points, xs, heights, plot) {
  const { xaxis, yaxis } = element._fullLayout;
  const places = points.map((p, i) => ({ x: xaxis.l2p(xs[i]), y: yaxis.l2p(heights[i]), text: p.recipe }));
  const line = places.filter((_, i) => points[i].front[plot.front]).sort((a, b) => a.x - b.x);
  const bars = points.map((p, i) => (p.x_range[plot.front] || []).map((x) => ({ x: xaxis.l2p(x), y: places[i].y })));
  const offsets = placeLabels(places, [line, ...bars], { width: xaxis._length, height: yaxis._length }, textWidth);
  const annotations = points.map((p, i) => {
    const { dx, dy } = offsets[i];
    return {
      x: xs[i], y: heights[i], ax: dx, ay: dy, text: p.recipe, showarrow: true, arrowhead: 0, standoff: 7,
      // A thin leader only where the name stands apart from its point.
      arrowwidth: 1, arrowcolor: Math.abs(dy) > 20 ? colour("beaten") : "rgba(0,0,0,0)",
      font: { size: FONT_SIZE, color: p.baseline ? colour("ink") : colour("quiet") },
    };
  });
  await Plotly.relayout(element, { annotations });
}

function drawAll() {
  const drawn = [];
  for (const table of DATA.tables) {
    for (const plot of table.plots) {
      drawn.push(draw(document.getElementById(`${table.id}-${plot.front}`), table, plot));
    }
  }
  return Promise.all(drawn).then(() => { document.body.dataset.drawn = drawn.length; });
}

function sortable(table) {
  const heads = [...table.querySelectorAll("thead th")];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const descending = head.getAttribute("aria-sort") === "ascending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const numeric = !head.classList.contains("text");
    const rows = [...table.tBodies[0].rows].sort((a, b) => {
      const [x, y] = [a, b].map((row) => row.cells[column].dataset.sort);
      if (x === "" || y === "") return (x === "") - (y === "");  // what was not measured stays last
      return (descending ? -1 : 1) * (numeric ? x - y : x.localeCompare(y));
    });
    table.tBodies[0].append(...rows);
  }));
}

document.querySelectorAll("table").forEach(sortable);
drawAll();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
let pending;
addEventListener("resize", () => { clearTimeout(pending); pending = setTimeout(drawAll, 120); });
