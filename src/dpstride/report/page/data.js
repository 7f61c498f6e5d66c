// The page's document, unpacked, and the library's own rules for it.

const ARRAYS = {u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f4: Float32Array, f8: Float64Array};

// The counterpart of pack.py: base64, deflated, bytes in planes.
async function unpack(packed) {
  if (packed === null) return null;
  const bytes = Uint8Array.from(atob(packed.data), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  const size = ARRAYS[packed.kind].BYTES_PER_ELEMENT;
  const count = planes.length / size;
  const plain = new Uint8Array(planes.length);
  for (let plane = 0; plane < size; plane++) {
    for (let i = 0; i < count; i++) plain[i * size + plane] = planes[plane * count + i];
  }
  return new ARRAYS[packed.kind](plain.buffer);
}

// The document with every packed array, at any depth, replaced by its numbers.
async function unpackAll(value) {
  if (value === null || typeof value !== 'object') return value;
  if ('kind' in value && 'data' in value) return unpack(value);
  const names = Object.keys(value);
  const inner = await Promise.all(names.map((name) => unpackAll(value[name])));
  if (Array.isArray(value)) return inner;
  return Object.fromEntries(names.map((name, i) => [name, inner[i]]));
}

async function readReport(text) {
  const report = await unpackAll(JSON.parse(text));
  for (const {bytes, masks} of [report.paths, ...Object.values(report.otherPaths || {})]) {
    for (let i = bytes; i < masks.length; i++) masks[i] ^= masks[i - bytes];
  }
  if (report.steps) {
    const starts = new Uint32Array(report.steps.counts.length + 1);
    report.steps.counts.forEach((count, t) => { starts[t + 1] = starts[t] + count; });
    report.steps.starts = starts;
  }
  report.T = report.process.T;
  return report;
}

// Grid indices of the DP path (or of another one) at a place in the list of budgets, from noise to 0.
function pathAt(report, place, {bytes, masks} = report.paths) {
  const path = [];
  for (let at = bytes - 1; at >= 0; at--) {
    const byte = masks[place * bytes + at];
    for (let bit = 7; byte && bit >= 0; bit--) if (byte >> bit & 1) path.push(8 * at + bit);
  }
  return path;
}

const grouped = (value) => value.toLocaleString('en');
const stepsInWords = (count) => (count === 1 ? `1 ${WORDS.step}` : `${grouped(count)} ${WORDS.step}s`) + (WORDS.more ? WORDS.more(count) : '');

// Comparison.enough, .best_budget and .sentence of the library.
function answerOf(report, tolerance) {
  const {bpd, error} = report.curves.dp;
  const digits = bpd.map((value) => Number(value.toPrecision(6)));
  const best = digits.indexOf(digits.reduce((a, b) => Math.min(a, b), Infinity));
  const fewest = bpd.findIndex((value) => value <= bpd[best] + tolerance);
  const last = bpd.length - 1;
  const hurts = bpd[best] < bpd[last] - report.negligible;
  const worse = bpd[last] - bpd[best] > Math.max(report.visible, 2 * (error[last] || 0));  // significant, and visible
  const largest = report.budgets[last];
  const name = hurts ? 'the least of any budget'
    : largest === report.T ? `all ${grouped(largest)}` : stepsInWords(largest);
  const value = (place) => ({bpd: bpd[place], error: error[place]});
  const useless = report.raw !== null && bpd[best] > report.raw;
  return {place: fewest, steps: report.budgets[fewest], name, hurts, worse, best, useless, least: value(best),
    few: value(fewest), reference: value(hurts ? best : last), last: value(last)};
}
