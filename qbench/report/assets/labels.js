// Where to write each point's name so that names cover neither points nor one another.

// points: [{x, y, text}] in pixels; lines: lists of [{x, y}] that are joined; others: [{x, y}] without a name;
// box: {width, height} of the plot area.
// Returns [{dx, dy}], from each point to the centre of its name. If names may be left out, the first points are placed
// first, and it is null for a name that would cover another one or the numbers of an axis. Otherwise the most crowded
// points are placed first: they have the fewest places.
function placeLabels(points, lines, others, box, measure, mayLeaveOut) {
  const markers = [...points, ...others].map((p) => square(p, 7));
  const steps = lines.flatMap(along).map((p) => square(p, 2));
  const placed = [];
  const crowding = (p) => points.filter((q) => Math.hypot(p.x - q.x, p.y - q.y) < 70).length;
  const order = points.map((_, i) => i);
  if (!mayLeaveOut) order.sort((a, b) => crowding(points[b]) - crowding(points[a]));
  const offsets = [];
  for (const i of order) {
    const half = measure(points[i].text) / 2 + 2;
    let best = null;
    for (const candidate of candidates(half)) {
      const area = around(points[i].x + candidate.dx, points[i].y + candidate.dy, half);
      const cost =
        candidate.cost +
        60 * outside(area, box) +
        sum(placed, (other) => 40 * overlap(area, other)) +
        sum(markers, (m) => 40 * overlap(area, m)) +
        sum(steps, (step) => 2 * overlap(area, step));
      if (!best || cost < best.cost) best = { ...candidate, cost, area };
    }
    const covers = sum(placed, (other) => overlap(best.area, other)) + sum(markers, (m) => overlap(best.area, m));
    if (mayLeaveOut && Math.max(covers, outside(best.area, box)) > LEAST_COVER) {
      offsets[i] = null;
      continue;
    }
    placed.push(best.area);
    offsets[i] = { dx: best.dx, dy: best.dy };
  }
  return offsets;
}

const LEAST_COVER = 3; // pixels of overlap that an eye does not mind

// Near before far; above and to the side before below.
function* candidates(half) {
  for (const [ring, gap] of [
    [0, 15],
    [1, 28],
    [2, 44],
    [3, 62],
  ]) {
    const beside = half + gap - 4;
    yield { dx: 0, dy: -gap, cost: 20 * ring };
    yield { dx: beside, dy: 0, cost: 20 * ring + 1 };
    yield { dx: -beside, dy: 0, cost: 20 * ring + 2 };
    yield { dx: 0, dy: gap, cost: 20 * ring + 3 };
    yield { dx: half, dy: -gap, cost: 20 * ring + 4 };
    yield { dx: -half, dy: -gap, cost: 20 * ring + 5 };
    yield { dx: half, dy: gap, cost: 20 * ring + 6 };
    yield { dx: -half, dy: gap, cost: 20 * ring + 7 };
  }
}

const around = (x, y, half) => ({ left: x - half, right: x + half, top: y - 8, bottom: y + 8 });
const sum = (items, cost) => items.reduce((total, item) => total + cost(item), 0);

const square = (p, half) => ({ left: p.x - half, right: p.x + half, top: p.y - half, bottom: p.y + half });

// A point every 6 pixels of the line.
function along(line) {
  return line.slice(1).flatMap((end, i) => {
    const start = line[i],
      steps = Math.ceil(Math.hypot(end.x - start.x, end.y - start.y) / 6);
    return Array.from({ length: steps }, (_, k) => ({
      x: start.x + ((end.x - start.x) * k) / steps,
      y: start.y + ((end.y - start.y) * k) / steps,
    }));
  });
}

// Overlap as the smaller of its two sides, in pixels: 0 where the boxes are apart.
function overlap(a, b) {
  const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
  const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
  return Math.max(0, Math.min(across, down));
}

function outside(area, box) {
  return Math.max(0, -area.left, -area.top, area.right - box.width, area.bottom - box.height);
}
