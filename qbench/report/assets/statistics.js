// Differences of two rows with their intervals: the methods of qbench/statistics, run where a reader picks the pair.
// An estimate is {value, low, high, p}; the last three are null where the data cannot tell.

const ALPHA = 0.05, Z = 1.959963984540054;  // 97.5 % of the normal law lies below
const RESAMPLES = 9999;

const estimate = (value, low = null, high = null, p = null) => ({ value, low, high, p });
const asRatio = ({ value, low, high, p }) => estimate(Math.exp(value), low === null ? null : Math.exp(low), high === null ? null : Math.exp(high), p);
const total = (values) => values.reduce((sum, value) => sum + value, 0);
const mean = (values) => total(values) / values.length;

// Marsaglia 2003, xorshift32: uniform whole numbers below `below`; the same for every reader.
function draws(seed) {
  let state = seed;
  return (below) => {
    state ^= state << 13; state ^= state >>> 17; state ^= state << 5;
    return (state >>> 0) % below;
  };
}

// qbench/statistics/block_mean.py: mean of all tokens, its interval by the studentized bootstrap over blocks.
// sums [n], tokens [n]
function blockMean(sums, tokens) {
  const n = sums.length, value = total(sums) / total(tokens);
  if (n < 2 || !sums.every(Number.isFinite)) return estimate(value);
  const residuals = sums.map((sum, i) => sum - value * tokens[i]);
  const errorOf = (squares, all) => Math.sqrt(squares * n / (n - 1)) / all;
  const error = errorOf(total(residuals.map((r) => r * r)), total(tokens));
  if (!error) return estimate(value, value, value, value === 0 ? 1 : 0);
  const t = new Float64Array(RESAMPLES), next = draws(20240217);
  for (let k = 0; k < RESAMPLES; k++) {
    let shift = 0, all = 0, squares = 0, cross = 0, squareTokens = 0;
    for (let i = 0; i < n; i++) {
      const j = next(n), r = residuals[j], m = tokens[j];
      shift += r; all += m; squares += r * r; cross += r * m; squareTokens += m * m;
    }
    const delta = shift / all;
    const own = Math.max(0, squares - 2 * delta * cross + delta * delta * squareTokens);
    const studentized = delta / errorOf(own, all);
    t[k] = Number.isNaN(studentized) ? 0 : studentized;
  }
  t.sort();
  const at = (share) => quantile(t, share), observed = value / error;
  const above = t.filter((x) => x >= observed).length, below = t.filter((x) => x <= observed).length;
  return estimate(value, value - error * at(1 - ALPHA / 2), value - error * at(ALPHA / 2),
    Math.min(1, 2 * (1 + Math.min(above, below)) / (1 + RESAMPLES)));
}

function quantile(sorted, share) {
  const place = share * (sorted.length - 1), below = Math.floor(place), above = Math.min(below + 1, sorted.length - 1);
  return sorted[below] + (place - below) * (sorted[above] - sorted[below]);
}

// The difference B - A of a block sum, or null where the blocks do not pair.
function pairedBlocks(a, b, what) {
  if (!a?.[what] || !b?.[what] || a.unit !== b.unit || String(a.tokens) !== String(b.tokens)) return null;
  return blockMean(b[what].map((sum, i) => sum - a[what][i]), a.tokens);
}

// qbench/statistics/flips.py: "0110" and "0011" -> change of accuracy, exact McNemar, flips
function accuracyChange(a, b) {
  const n = a.length;
  let lost = 0, gained = 0;
  for (let i = 0; i < n; i++) { lost += a[i] === "1" && b[i] === "0"; gained += a[i] === "0" && b[i] === "1"; }
  const wider = n + 2, centre = (gained - lost) / wider, error = Math.sqrt(((gained + lost + 2) / wider - centre ** 2) / wider);
  const flips = lost + gained;
  let term = 0.5 ** flips, tail = 0;  // of a fair coin, up to the rarer kind of flip
  for (let k = 0; k <= Math.min(lost, gained); k++) { tail += term; term *= (flips - k) / (k + 1); }
  return { ...estimate((gained - lost) / n, Math.max(-1, centre - Z * error), Math.min(1, centre + Z * error), Math.min(1, 2 * tail)), lost, gained };
}

// qbench/statistics/speed.py, not interleaved: speed of B over that of A
function speedRatio(a, b) {
  const [logsA, logsB] = [a, b].map((samples) => samples.map(Math.log));
  return asRatio(Math.min(a.length, b.length) >= 4 ? centreOfSamples(logsA, logsB) : studentShift(logsA, logsB));
}

// qbench/statistics/ranks.py: median of all differences, interval and p by the exact rank-sum test
function centreOfSamples(a, b) {
  const differences = Float64Array.from(b.flatMap((y) => a.map((x) => y - x))).sort();
  const counts = rankSumCounts(a.length, b.length), all = total(counts);
  let running = 0;
  const below = counts.map((number) => (running += number) / all);
  const tail = (k) => below[Math.min(k, below.length - 1)];
  let cut = 0;
  while (cut + 1 < differences.length / 2 && tail(cut + 1) <= ALPHA / 2) cut++;
  const beyond = Math.min(differences.filter((d) => d >= 0).length, differences.filter((d) => d <= 0).length);
  return estimate(quantile(differences, 0.5), differences[cut], differences[differences.length - 1 - cut], Math.min(1, 2 * tail(beyond)));
}

// How many orders of n and m samples have each number of pairs with the second below, [n m + 1]: all orders by
// whether the last is of the one or of the other.
function rankSumCounts(n, m) {
  let rows = Array.from({ length: m + 1 }, () => [1]);  // no sample of the first side yet
  for (let i = 1; i <= n; i++) {
    const next = [[1]];
    for (let j = 1; j <= m; j++) {
      const counts = new Array(i * j + 1).fill(0);
      next[j - 1].forEach((number, k) => { counts[k + i] += number; });
      rows[j].forEach((number, k) => { counts[k] += number; });
      next.push(counts);
    }
    rows = next;
  }
  return rows[m];
}

// qbench/statistics/student.py, Welch: for the few samples that ranks cannot judge
function studentShift(a, b) {
  const shift = mean(b) - mean(a);
  if (Math.min(a.length, b.length) < 2) return estimate(shift);
  const [ofA, ofB] = [a, b].map((values) => total(values.map((v) => (v - mean(values)) ** 2)) / (values.length - 1) / values.length);
  const error = Math.sqrt(ofA + ofB);
  if (!error) return estimate(shift, shift, shift, shift === 0 ? 1 : 0);
  const freedom = (ofA + ofB) ** 2 / (ofA ** 2 / (a.length - 1) + ofB ** 2 / (b.length - 1));
  let low = 0, high = 1e4;  // 97.5 % of Student's law lies below a point between
  for (let k = 0; k < 60; k++) {
    const middle = (low + high) / 2;
    if (studentBeyond(middle, freedom) > ALPHA / 2) low = middle; else high = middle;
  }
  return estimate(shift, shift - low * error, shift + low * error, 2 * studentBeyond(Math.abs(shift) / error, freedom));
}

// Share of Student's law above t >= 0: with t = sqrt(freedom) tan(a) the density is cos(a)**(freedom - 1), up to a factor
function studentBeyond(t, freedom) {
  const area = (from, to) => {
    const steps = 400, width = (to - from) / steps;  // Simpson's rule
    let sum = 0;
    for (let i = 0; i <= steps; i++) sum += (i === 0 || i === steps ? 1 : i % 2 ? 4 : 2) * Math.cos(from + i * width) ** (freedom - 1);
    return sum * width / 3;
  };
  return area(Math.atan(t / Math.sqrt(freedom)), Math.PI / 2) / (2 * area(0, Math.PI / 2));
}

// Holm 1979: p values corrected for one another; null where there is none
function holm(ps) {
  const order = ps.map((_, i) => i).filter((i) => ps[i] !== null).sort((i, j) => ps[i] - ps[j]);
  const adjusted = ps.map(() => null);
  let least = 0;
  order.forEach((i, k) => { adjusted[i] = Math.min(1, least = Math.max(least, ps[i] * (order.length - k))); });
  return adjusted;
}
