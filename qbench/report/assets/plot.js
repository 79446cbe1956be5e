// A plot as SVG: axes, lines, points with whiskers, and the facts of the point below the pointer.

const MARGIN = { top: 12, right: 12, bottom: 50, left: 34 }; // less the numbers of the left axis
const REACH = 20; // pixels between the pointer and a point whose facts it shows

// Corners of a marker and the angle of the first, for a circle of the same area.
const CORNERS = {
  square: [4, 45, 1.25],
  diamond: [4, 0, 1.25],
  "triangle-up": [3, -90, 1.5],
  "triangle-down": [3, 90, 1.5],
  pentagon: [5, -90, 1.15],
  hexagon: [6, -90, 1.1],
};

// The outline of a marker around 0, 0.
function markerPath(symbol, radius) {
  if (!CORNERS[symbol]) return `M${-radius} 0a${radius} ${radius} 0 1 0 ${2 * radius} 0a${radius} ${radius} 0 1 0 ${-2 * radius} 0z`;
  const [corners, first, factor] = CORNERS[symbol];
  const at = Array.from({ length: corners }, (_, i) => ((first + (360 * i) / corners) * Math.PI) / 180);
  const ends = at.map((angle) => [Math.cos(angle), Math.sin(angle)].map((x) => (x * factor * radius).toFixed(2)).join(" "));
  return `M${ends.join("L")}z`;
}

const ink = (name) => `var(--${name})`;
const textWidth = (text, font = `500 ${FONT_SIZE}px ${family()}`) => {
  textWidth.context ??= document.createElement("canvas").getContext("2d");
  textWidth.context.font = font;
  return textWidth.context.measureText(text).width;
};
const family = () => getComputedStyle(document.body).fontFamily;
const FONT_SIZE = 12;

// One plot in an element.
//   axes     {x, y}: {title, range, log, ticks: [{value, text}]}, the range of a log axis in powers of ten
//   series   [{name, line: {colour, dash} or null, points}] with points of {x, y, row, facts, symbol, radius, colour,
//            filled, opacity, xRange, yRange, whisker, mark}; ends of ranges and the mark, a text below, may be missing
class Plot {
  constructor(element, axes, series) {
    const left = MARGIN.left + Math.max(0, ...axes.y.ticks.map(({ text }) => textWidth(text, `11.5px ${family()}`)));
    const [width, height] = [element.clientWidth - left - MARGIN.right, element.clientHeight - MARGIN.top - MARGIN.bottom];
    Object.assign(this, { element, axes, series, width: Math.max(40, width), height, left });
    this.clip = `clip-${element.id}`;
    this.facts = h("div", { class: "facts-box", hidden: true });
    this.inner = svg("g", { transform: `translate(${left} ${MARGIN.top})` }, this.frame(), this.marks());
    const size = { width: "100%", height: "100%", role: "img", "aria-label": `${axes.y.title} against ${axes.x.title}` };
    element.replaceChildren(svg("svg", size, this.inner), this.facts);
    element.series = series;
    element.onpointermove = (event) => this.show(this.near(event));
    element.onpointerleave = () => this.show(null);
  }

  x(value) {
    return this.share(this.axes.x, value) * this.width;
  }

  y(value) {
    return (1 - this.share(this.axes.y, value)) * this.height;
  }

  share({ range: [low, high], log }, value) {
    return ((log ? Math.log10(value) : value) - low) / (high - low);
  }

  frame() {
    const { width, height } = this;
    const across = this.axes.x.ticks.map(({ value, text }) => [this.x(value), text]);
    const up = this.axes.y.ticks.map(({ value, text }) => [this.y(value), text]);
    return svg(
      "g",
      { class: "frame" },
      svg("clipPath", { id: this.clip }, svg("rect", { width, height })),
      svg("rect", { class: "area", width, height }),
      across.map(([x]) => svg("path", { class: "grid", d: `M${x} 0V${height}` })),
      up.map(([y]) => svg("path", { class: "grid", d: `M0 ${y}H${width}` })),
      svg("path", { class: "axis", d: `M0 0V${height}H${width}` }),
      across.map(([x, text]) => tick("xtick", `M${x} ${height}v4`, { x, y: height + 17, "text-anchor": "middle" }, text)),
      up.map(([y, text]) => tick("ytick", `M0 ${y}h-4`, { x: -7, y: y + 4, "text-anchor": "end" }, text)),
      title(this.axes.x.title, `translate(${width / 2} ${height + 39})`),
      title(this.axes.y.title, `translate(${16 - this.left} ${height / 2}) rotate(-90)`),
    );
  }

  marks() {
    const points = this.series.flatMap((each) => each.points);
    return [
      svg(
        "g",
        { "clip-path": `url(#${this.clip})` },
        this.series.map(({ line, points }) => (line && points.length > 1 ? this.line(line, points) : [])),
        points.flatMap((p) => [this.whisker(p, "xerror"), this.whisker(p, "yerror")]),
      ),
      svg(
        "g",
        { class: "points" },
        points.map((p) => this.marker(p)),
      ),
      points.filter((p) => p.mark).map((p) => this.mark(p)),
    ];
  }

  line({ colour, dash, opacity = 1 }, points) {
    const d = points.map((p) => `${this.x(p.x).toFixed(1)} ${this.y(p.y).toFixed(1)}`).join("L");
    const how = { solid: "none", dash: "7 4", dot: "1.5 3.5" };
    return svg("path", { class: "joint", d: `M${d}`, stroke: ink(colour), "stroke-dasharray": how[dash], opacity });
  }

  whisker(p, kind) {
    const [range, along] = kind === "xerror" ? [p.xRange, "x"] : [p.yRange, "y"];
    if (!range || range.includes(null) || range.includes(undefined)) return [];
    const [from, to] = range.map((end) => this[along](end).toFixed(1));
    const d = along === "x" ? `M${from} ${this.y(p.y).toFixed(1)}H${to}` : `M${this.x(p.x).toFixed(1)} ${from}V${to}`;
    return svg("path", { class: kind, d, stroke: ink(p.whisker) });
  }

  marker({ x, y, symbol, radius, colour, filled, opacity = 1 }) {
    return svg("path", {
      d: markerPath(symbol, radius),
      transform: `translate(${this.x(x).toFixed(1)} ${this.y(y).toFixed(1)})`,
      style: `fill: ${ink(filled ? colour : "panel")}; stroke: ${ink(colour)}; opacity: ${opacity}`,
    });
  }

  mark({ x, y, colour, mark }) {
    const place = { x: this.x(x), y: this.y(y) + 18, "text-anchor": "middle", style: `fill: ${ink(colour)}` };
    return svg("text", { class: "mark", ...place }, mark);
  }

  // Write names at these offsets. A name away from its point has a thin leader.
  names(named) {
    const written = named.map(([p, { dx, dy }]) => {
      const [x, y] = [this.x(p.x), this.y(p.y)];
      const far = Math.abs(dy) > 20,
        length = Math.hypot(dx, dy);
      const leader = `M${x + (7 * dx) / length} ${y + (7 * dy) / length}L${x + dx} ${y + dy - 6 * Math.sign(dy)}`;
      const place = { x: x + dx, y: y + dy + 4, "text-anchor": "middle", style: `fill: ${ink(p.baseline ? "ink" : "quiet")}` };
      return [far ? svg("path", { class: "leader", d: leader }) : [], svg("text", { class: "plot-name", ...place }, p.name)];
    });
    this.inner.append(svg("g", null, written.flat(2)));
  }

  // The point next to the pointer, or null.
  near({ clientX, clientY }) {
    const { left, top } = this.element.getBoundingClientRect();
    const [x, y] = [clientX - left - this.left, clientY - top - MARGIN.top];
    let best = null,
      least = REACH;
    for (const { points } of this.series)
      for (const p of points) {
        const distance = Math.hypot(this.x(p.x) - x, this.y(p.y) - y);
        if (distance < least) [best, least] = [p, distance];
      }
    return best;
  }

  show(point) {
    this.facts.hidden = !point;
    this.element.style.cursor = point ? "pointer" : "";
    if (!point || this.shown === point) return;
    this.shown = point;
    const [name, ...lines] = point.facts;
    this.facts.replaceChildren(h("b", null, name), ...lines.map((line) => h("div", null, line)));
    const x = this.left + this.x(point.x),
      y = MARGIN.top + this.y(point.y);
    const { offsetWidth, offsetHeight } = this.facts;
    const before = x + 12 + offsetWidth > this.element.clientWidth;
    this.facts.style.left = `${Math.max(0, before ? x - 12 - offsetWidth : x + 12)}px`;
    this.facts.style.top = `${Math.max(0, Math.min(y - offsetHeight / 2, this.element.clientHeight - offsetHeight))}px`;
  }
}

const tick = (kind, d, place, text) => svg("g", { class: kind }, svg("path", { d }), svg("text", place, text));
const title = (text, transform) => svg("text", { class: "axis-title", transform, "text-anchor": "middle" }, text);

// Draw now, and again when the element's width changes. A click on a point goes to its row.
function drawPlot(element, table, draw) {
  const again = () => {
    element.drawnWidth = element.clientWidth;
    element.plot = draw();
  };
  element.onclick = (event) => {
    const clicked = element.plot.near(event);
    if (clicked) location.hash = rowLink(table, clicked.row);
  };
  element.watched?.disconnect();
  element.watched = new ResizeObserver(() => {
    if (element.clientWidth && element.clientWidth !== element.drawnWidth) again();
  });
  again();
  element.watched.observe(element);
}
