// Differences of two rows with their intervals: the methods of qbench/statistics, run where a reader picks the pair.
// An estimate is {value, low, high, p}; the last three are null if the data cannot decide.

const ALPHA = 0.05,
  Z = 1.959963984540054; // 97.5 % of the normal law is below
const RESAMPLES = 9999,
  MIN_BLOCKS = 6,
  TRIM = 0.2,
  LEAST_TRIMMED = 6,
  LEAST_LAUNCHES = 2; // that have a spread

const estimate = (value, low = null, high = null, p = null) => ({ value, low, high, p });
const asRatio = ({ value, low, high, p }) =>
  estimate(Math.exp(value), low === null ? null : Math.exp(low), high === null ? null : Math.exp(high), p);
const total = (values) => values.reduce((sum, value) => sum + value, 0);
const mean = (values) => total(values) / values.length;

// Marsaglia 2003, xorshift32: uniform whole numbers below `below`; the same for every reader.
function draws(seed) {
  let state = seed;
  return (below) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
}

// qbench/statistics/studentized.py: mean of all tokens; each end of its interval the farther of Student's and of the
// studentized bootstrap over blocks. sums [n], tokens [n]
function blockMean(sums, tokens) {
  const n = sums.length,
    value = total(sums) / total(tokens);
  if (n < 2 || !sums.every(Number.isFinite)) return estimate(value);
  let residuals = sums.map((sum, i) => sum - value * tokens[i]);
  // Blocks of one rate differ only by rounding.
  const rounding = ((n + 2) * Number.EPSILON * Math.abs(value)) / 2;
  if (residuals.every((r, i) => Math.abs(r) <= rounding * tokens[i])) residuals = residuals.map(() => 0);
  const error = errorOf(total(residuals.map((r) => r * r)), total(tokens), n);
  const student = studentEstimate(value, error, n - 1);
  if (!error || n < MIN_BLOCKS) return student;
  const t = studentized(residuals, tokens),
    observed = value / error;
  const above = t.filter((x) => x >= observed).length,
    below = t.filter((x) => x <= observed).length;
  return estimate(
    value,
    Math.min(student.low, value - error * quantile(t, 1 - ALPHA / 2)),
    Math.max(student.high, value - error * quantile(t, ALPHA / 2)),
    Math.max(student.p, Math.min(1, (2 * (1 + Math.min(above, below))) / (1 + RESAMPLES))),
  );
}

// Standard error of the mean of n blocks from the sum of squared residuals and the number of tokens.
const errorOf = (squares, tokens, n) => Math.sqrt((squares * n) / (n - 1)) / tokens;

// How many of its own standard errors the mean of each resample is from the mean of all, sorted.
function studentized(residuals, tokens) {
  const n = residuals.length,
    t = new Float64Array(RESAMPLES),
    next = draws(20240217);
  for (let k = 0; k < RESAMPLES; k++) {
    let shift = 0,
      all = 0,
      squares = 0,
      cross = 0,
      squareTokens = 0;
    for (let i = 0; i < n; i++) {
      const j = next(n),
        r = residuals[j],
        m = tokens[j];
      shift += r;
      all += m;
      squares += r * r;
      cross += r * m;
      squareTokens += m * m;
    }
    const delta = shift / all,
      own = Math.max(0, squares - 2 * delta * cross + delta * delta * squareTokens);
    t[k] = delta / errorOf(own, all, n);
    if (Number.isNaN(t[k])) t[k] = 0;
  }
  return t.sort();
}

function quantile(sorted, share) {
  const place = share * (sorted.length - 1),
    below = Math.floor(place),
    above = Math.min(below + 1, sorted.length - 1);
  return sorted[below] + (place - below) * (sorted[above] - sorted[below]);
}

// The difference B - A of a block sum, or null where the blocks do not pair.
function pairedBlocks(a, b, what) {
  if (!a?.[what] || !b?.[what] || a.unit !== b.unit || String(a.tokens) !== String(b.tokens)) return null;
  // Some protocols have perplexity per word or byte.
  return blockMean(
    b[what].map((sum, i) => sum - a[what][i]),
    what === "nll" && a.units ? a.units : a.tokens,
  );
}

// qbench/statistics/task_figures.py: the figure of a task from its items, of the sum of values over that of weights;
// lower: null is as the task says
const scaled = ({ value, low, high, p }, factor) =>
  estimate(factor * value, ...(low === null ? [null, null] : [factor * low, factor * high].sort((x, y) => x - y)), p);
const MEAN_FIGURE = { of: (mean) => mean, change: (mean) => mean, kind: "difference", lower: null };
const PERPLEXITY_FIGURE = {
  of: (mean) => Math.exp(-mean),
  change: (mean) => asRatio(scaled(mean, -1)),
  kind: "ratio",
  lower: true,
};
const BITS_FIGURE = {
  of: (mean) => -mean / Math.LN2,
  change: (mean) => scaled(mean, -1 / Math.LN2),
  kind: "difference",
  lower: true,
};

// Items that were all right or wrong are kept as digits.
const itemsOf = (task) => (task.correct ? [...task.correct].map(Number) : task.values?.length ? task.values : null);

// {change, kind, lower} of two tasks of values, or a sentence with the reason if there is no change
function itemsChange(one, other) {
  const [a, b] = [one, other].map(itemsOf);
  if (!a || !b) return "kept without its items";
  if ([...a, ...b].some((value) => value === null)) return "some items are not finite";
  if (a.length !== b.length || String(one.weights) !== String(other.weights)) return "items of unlike number or weight";
  const weights = one.weights || a.map(() => 1);
  const fits = (figure) =>
    [[a, one.value], [b, other.value]].every(
      ([values, value]) =>
        value !== null && Math.abs(figure.of(total(values) / total(weights)) - value) <= 1e-9 * Math.abs(value),
    );
  const figure = (one.weights ? [PERPLEXITY_FIGURE, BITS_FIGURE] : [MEAN_FIGURE, PERPLEXITY_FIGURE]).find(fits);
  const lower = figure?.lower ?? (typeof one.higher_is_better === "boolean" ? !one.higher_is_better : null);
  if (!figure || lower === null) return "how it follows from its items, or which way is better, is not known";
  const mean = blockMean(
    b.map((value, i) => value - a[i]),
    weights,
  );
  return { change: figure.change(mean), kind: figure.kind, lower };
}

// qbench/statistics/flips.py: "0110" and "0011" -> change of accuracy, exact McNemar, flips
function accuracyChange(a, b) {
  const n = a.length;
  let lost = 0,
    gained = 0;
  for (let i = 0; i < n; i++) {
    lost += a[i] === "1" && b[i] === "0";
    gained += a[i] === "0" && b[i] === "1";
  }
  const wider = n + 2,
    centre = (gained - lost) / wider,
    error = Math.sqrt(((gained + lost + 2) / wider - centre ** 2) / wider);
  const flips = lost + gained;
  let term = 0.5 ** flips,
    tail = 0; // of a fair coin, up to the rarer kind of flip
  for (let k = 0; k <= Math.min(lost, gained); k++) {
    tail += term;
    term *= (flips - k) / (k + 1);
  }
  return {
    ...estimate(
      (gained - lost) / n,
      Math.max(-1, centre - Z * error),
      Math.min(1, centre + Z * error),
      Math.min(1, 2 * tail),
    ),
    lost,
    gained,
  };
}

// qbench/statistics/launches.py: speed of B over that of A, each from the seconds of the rounds of its launches
function launchRatio(a, b) {
  const logs = [b, a].map((launches) =>
    launches.map((rounds) => Math.log(quantile([...rounds].sort((x, y) => x - y), 0.5))).sort((x, y) => x - y),
  );
  return asRatio(trimmedShift(...logs));
}

// qbench/statistics/launches.py: both errors may come from one pooled spread
function launchedRatio(a, b) {
  const error = Math.hypot(a.error, b.error);
  return asRatio(studentEstimate(Math.log(b.speed / a.speed), error, Math.min(a.freedom, b.freedom)));
}

// qbench/statistics/trimmed.py: means without the outer fifth at either end (Yuen 1974); a and b are sorted
function trimmedShift(a, b) {
  if (Math.min(a.length, b.length) < 2) return estimate(quantile(b, 0.5) - quantile(a, 0.5));
  const [one, other] = [a, b].map(middleOf),
    variance = one.variance + other.variance;
  const freedom = variance
    ? variance ** 2 / (one.variance ** 2 / one.freedom + other.variance ** 2 / other.freedom)
    : 1;
  return studentEstimate(other.mean - one.mean, Math.sqrt(variance), freedom);
}

function middleOf(sorted) {
  const n = sorted.length,
    cut = n < LEAST_TRIMMED ? 0 : Math.floor(TRIM * n),
    left = n - 2 * cut;
  const drawnIn = sorted.map((value) => Math.min(Math.max(value, sorted[cut]), sorted[n - cut - 1]));
  const shifted = drawnIn.map((value) => value - drawnIn[0]); // equal values are exactly 0, their mean may round
  const squares = total(shifted.map((value) => (value - mean(shifted)) ** 2));
  return {
    mean: mean(sorted.slice(cut, n - cut)),
    variance: squares / (left * (left - 1)),
    freedom: left - 1,
  };
}

// qbench/statistics/student.py
function studentEstimate(value, error, freedom) {
  if (!error) return value ? estimate(value) : estimate(0, 0, 0, 1); // equal samples are no certainty
  let low = 0,
    high = 1e3; // 97.5 % of Student's law is below a point between
  for (let k = 0; k < 60; k++) {
    const middle = (low + high) / 2;
    if (studentBeyond(middle, freedom) > ALPHA / 2) low = middle;
    else high = middle;
  }
  return estimate(
    value,
    value - low * error,
    value + low * error,
    Math.min(1, 2 * studentBeyond(Math.abs(value) / error, freedom)),
  );
}

// Share of Student's law above t >= 0. With t = sqrt(freedom) tan(a) the density is cos(a) ** (freedom - 1) except for
// a factor: a range that ends, however long the tail. For a high power all is near a = 0, as far as 12 errors reach.
function studentBeyond(t, freedom) {
  const end = freedom > 40 ? Math.atan(12 / Math.sqrt(freedom)) : Math.PI / 2,
    start = Math.atan(t / Math.sqrt(freedom));
  // With few degrees of freedom the density ends in a root: steps that shrink towards the end follow it.
  const area = (from) =>
    simpson((u) => {
      const left = (end - from) * (1 - u) ** 3;
      return Math.max(0, Math.cos(end - left)) ** (freedom - 1) * 3 * (end - from) * (1 - u) ** 2;
    });
  return start >= end ? 0 : area(start) / (2 * area(0));
}

// Integral from 0 to 1.
function simpson(density) {
  const steps = 400;
  let sum = 0;
  for (let i = 0; i <= steps; i++) sum += (i === 0 || i === steps ? 1 : i % 2 ? 4 : 2) * density(i / steps);
  return sum / (3 * steps);
}

// Holm 1979: p values corrected for one another; null if there is no p value
function holm(ps) {
  const order = ps
    .map((_, i) => i)
    .filter((i) => ps[i] !== null)
    .sort((i, j) => ps[i] - ps[j]);
  const adjusted = ps.map(() => null);
  let least = 0;
  order.forEach((i, k) => {
    adjusted[i] = Math.min(1, (least = Math.max(least, ps[i] * (order.length - k))));
  });
  return adjusted;
}
