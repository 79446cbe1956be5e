// Raw samples as small dots on a line, with the interval or the range behind them and the middle marked.

const STRIP = { width: 320, height: 34, margin: 8 };

// samples: numbers; middle: a number; low, high: the ends, or null
function strip(samples, middle, low, high, label) {
  const all = [...samples, middle, low, high].filter((value) => Number.isFinite(value));
  const least = Math.min(...all),
    span = Math.max(...all) - least || 1;
  const x = (value) => (STRIP.margin + ((value - least) / span) * (STRIP.width - 2 * STRIP.margin)).toFixed(1);
  const y = STRIP.height / 2;
  const parts = [svg("line", { x1: STRIP.margin, x2: STRIP.width - STRIP.margin, y1: y, y2: y, class: "strip-axis" })];
  if (Number.isFinite(low) && Number.isFinite(high))
    parts.push(svg("line", { x1: x(low), x2: x(high), y1: y, y2: y, class: "strip-range" }));
  // Dots that would hide one another are moved apart, alternately up and down.
  samples.forEach((value, i) =>
    parts.push(svg("circle", { cx: x(value), cy: y + ((i % 3) - 1) * 5, r: 2.6, class: "strip-dot" })),
  );
  if (Number.isFinite(middle))
    parts.push(svg("line", { x1: x(middle), x2: x(middle), y1: y - 12, y2: y + 12, class: "strip-middle" }));
  return svg(
    "svg",
    { viewBox: `0 0 ${STRIP.width} ${STRIP.height}`, class: "strip", role: "img", "aria-label": label },
    parts,
  );
}
