// The page of masked diffusion: shares of masked tokens, tokens of each round, and where the bits are lost.

const WORDS = {step: 'round', unit: 'bits/token', spoken: 'bits per token', values: 'tokens', stride: 'schedule'};
const BANDS = ['dp'];
let STRIDES = BANDS; // replaced by those of the report, which depend on its samples

const share = (count) => `${Number((100 * count / report.T).toPrecision(3))} %`;

// Every rule with fixed numbers of tokens, and its counts of masked tokens at this budget.
const countsOf = () => STRIDES.filter((rule) => rule === 'dp' || report.otherPaths[rule])
  .map((rule) => [rule, rule === 'dp' ? state.path : pathAt(report, state.place, report.otherPaths[rule])]);

const shareMarks = (count) => ticks(0, 1, count).map((value) => ({at: value, label: `${Math.round(100 * value)} %`}));

const shareTitle = (narrow) => (narrow ? '← text · masked tokens' : '← text · share of masked tokens · all masked →');

function drawShares() {
  drawLanes(countsOf().map(([rule, path]) => ({stride: rule, label: report.names[rule], name: report.names[rule], path})), {
    left: 112,
    words: `Shares of masked tokens at which ${stepsInWords(state.budget)} begin, for each schedule`,
    at: (count) => count / report.T,
    marks: shareMarks,
    title: shareTitle,
    describe: (count) => `${grouped(count)} of ${grouped(report.T)} masked, ${share(count)}`,
  });
}

// Bars of the best schedule; with more rounds than pixels, neighbouring bars merge.
function drawTokens() {
  const revealed = state.path.slice(0, -1).map((count, i) => count - state.path[i + 1]);
  const K = revealed.length;
  const plot = frame($('tokens'), 190, {left: 44, right: 16, top: 24, bottom: 42}, `Tokens revealed in each of ${stepsInWords(K)}`);
  const most = Math.max(...revealed);
  const y = linear(0, most, plot.bottom, plot.top);
  const x = linear(0, K, plot.left, plot.right);
  const whole = (marks) => marks.filter(Number.isInteger);
  axisLeft(plot, whole(ticks(0, most, 4)).map((value) => ({at: y(value), label: grouped(value)})), 'tokens');
  const wide = (plot.right - plot.left) / K;
  const gap = wide > 5 ? Math.min(3, wide * 0.2) : 0;
  const bars = shape('path', {class: 'bars', d: revealed.map((tokens, i) => `M${round(x(i) + gap / 2)} ${plot.bottom}V${round(y(tokens))}h${round(wide - gap)}V${plot.bottom}Z`).join('')});
  plot.svg.append(bars);
  const every = whole(ticks(1, K, (plot.right - plot.left) / 60)).filter((number) => number >= 1);
  axisBelow(plot, (K === 1 ? [1] : every).map((number) => ({at: x(number - 0.5), label: grouped(number)})), 'round');
  onPoint(plot, (px) => {
    const i = Math.min(K - 1, Math.max(0, Math.floor(x.invert(px))));
    showTip(plot, x(i + 0.5), y(revealed[i]), [element('strong', {}, `round ${grouped(i + 1)}`),
      revealed[i] === 1 ? '1 token' : `${grouped(revealed[i])} tokens`, `${share(state.path[i])} masked before it`]);
  }, () => {});
}

// Bits of a masked token while t are masked, interpolated linearly between evaluated counts.
function bitsAt(t) {
  const {counts, bits} = report.profile;
  let i = counts.findIndex((count) => count >= t);
  if (i < 0) i = counts.length - 1;
  if (i === 0 || counts[i] === t) return bits[i];
  return bits[i - 1] + (bits[i] - bits[i - 1]) * (t - counts[i - 1]) / (counts[i] - counts[i - 1]);
}

function drawProfile() {
  const {counts, bits} = report.profile;
  const narrow = $('profile').clientWidth < 520;
  const plot = frame($('profile'), 280, {left: 44, right: 16, top: 26, bottom: 44}, `Bits of a masked token against the share of masked tokens, and the stairs of ${stepsInWords(state.budget)}`);
  const most = bits.reduce((a, b) => Math.max(a, b), 0) * 1.05 || 1;
  const x = linear(0, report.T, plot.left, plot.right);
  const y = linear(0, most, plot.bottom, plot.top);
  axisLeft(plot, ticks(0, most, 5).map((value) => ({at: y(value), label: String(value)})), 'bits of a masked token');
  const corners = state.path.slice(0, -1).flatMap((t, i) => [[x(t), y(bitsAt(t))], [x(state.path[i + 1]), y(bitsAt(t))]]);
  plot.svg.append(shape('path', {class: 'paid', d: `M${round(x(report.T))} ${plot.bottom}L${lineThrough(corners).slice(1)}V${plot.bottom}Z`}),
    shape('path', {class: 'paid-line', d: lineThrough(corners)}),
    shape('path', {class: 'profile', d: lineThrough(Array.from(counts, (t, i) => [x(t), y(bits[i])]))}));
  axisBelow(plot, shareMarks((plot.right - plot.left) / 80).map(({at, label}) => ({at: x(at * report.T), label})), shareTitle(narrow));
  onPoint(plot, (px, py) => {
    const t = Math.min(report.T, Math.max(1, Math.round(x.invert(px))));
    showTip(plot, x(t), py, [element('strong', {}, `${grouped(t)} of ${grouped(report.T)} masked`), `${fixed(bitsAt(t))} bits each`]);
  }, () => {});
}

// The schedule in each sampler's format.
function formsOf(report, path) {
  const list = (numbers) => `[${numbers.join(', ')}]`;
  const float = (value) => (Number.isInteger(value) ? value.toFixed(1) : String(value));
  const tokens = path.slice(0, -1).map((count, i) => count - path[i + 1]);
  const shares = path.map((count) => float(count / report.T));
  return [
    {name: 'tokens per round', hint: 'schedule.tokens_per_round', text: list(tokens)},
    {name: 'LLaDA', hint: 'num_transfer_tokens, one row', text: `[${list(tokens)}]`},
    {name: 'masked tokens', hint: 'before each round, and 0', text: list(path)},
    {name: 'masked share', hint: 'before each round, and 0', text: list(shares)},
    {name: 'times in (0, 1]', hint: 'at which each round begins', text: list(shares.slice(0, -1))},
  ];
}

const PAGE = {
  prepare() {
    STRIDES = ['dp', ...Object.keys(report.curves).filter((rule) => rule !== 'dp')];
    report.profile.bits = Float64Array.from(report.profile.bits);
  },
  fill() {},
  draw() {},
  show() {
    drawShares();
    drawTokens();
    drawProfile();
    $('python').textContent = `dpstride.MaskedScheduleSet.load("schedules.json")[${state.budget}]`;
  },
  list() {
    const {path} = state;
    const cost = (i) => (path[i] - path[i + 1]) / report.T * bitsAt(path[i]);
    fillTable($('listing').querySelector('table'), ['round', 'masked before', 'masked after', 'revealed', 'share masked', ...(report.exact ? ['bits/token'] : [])],
      path.slice(0, -1).map((count, i) => [grouped(i + 1), grouped(count), grouped(path[i + 1]), grouped(count - path[i + 1]), share(count),
        ...(report.exact ? [significant(cost(i))] : [])]));
  },
  listen() {},
};

begin();
