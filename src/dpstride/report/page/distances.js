// Distances from real data, measured at a few budgets, with intervals and a reference of many steps.

// Outlines around (0, 0), one for each schedule in the order of the report.
const OUTLINES = ['M-4.8 0a4.8 4.8 0 1 0 9.6 0a4.8 4.8 0 1 0-9.6 0', 'M-4-4h8v8h-8z', 'M0-5l4.8 9h-9.6z', 'M0-5.6l5 5.6-5 5.6-5-5.6z', 'M0 5l4.8-9h-9.6z',
  'M-5 0l2.5-4.4h5l2.5 4.4-2.5 4.4h-5z', 'M-1.7-5h3.4v3.3h3.3v3.4h-3.3v3.3h-3.4v-3.3h-3.3v-3.4h3.3z'];
const outline = (i) => OUTLINES[i % OUTLINES.length];

let markMeasured = () => {};

const twoDigits = (value) => significant(Number(value.toPrecision(2)));
const told = ({value, error}) => `${significant(value)}\u00a0±\u00a0${twoDigits(error)}`;
const measuredBudgets = () => [...new Set(report.points.map(({budget}) => budget))].sort((a, b) => a - b);
const measuredAt = (K) => report.schedules.map((schedule, i) => ({...schedule, i, point: report.points.find(({name, budget}) => name === schedule.name && budget === K)}))
  .filter(({point}) => point);
const nearestMeasured = (K) => { const budgets = measuredBudgets(); return budgets[nearestPlace(budgets, K)]; };
const referenceName = () => (report.reference.budget === report.T ? `all ${grouped(report.T)} steps` : `${grouped(report.reference.budget)} even steps`);

// A paired difference from the raced path: positive is farther from real data.
function behind(pair) {
  if (pair === null) return 'the same path';
  const [value, error] = pair;
  const words = `${value < 0 ? 'ahead' : 'behind'} by ${told({value: Math.abs(value), error})}`;
  return Math.abs(value) > report.sure * error ? words : `${words}, within error`;
}
const isSure = (pair) => pair !== null && Math.abs(pair[0]) > report.sure * pair[1];

function markerIcon({style, i}) {
  const svg = shape('svg', {viewBox: '0 0 26 14', width: 26, height: 14, 'aria-hidden': 'true', class: 'swatch'});
  svg.append(shape('path', {class: `line ${style}`, d: 'M1 7H25'}), shape('path', {class: `dot ${style}`, d: outline(i), transform: 'translate(13 7)'}));
  return svg;
}

const ends = ({value, error}) => [value - report.interval * error, value + report.interval * error];

// Logarithmic if every distance is positive, since they fall by a factor from budget to budget. Intervals that reach lower are cut.
function distanceScale(plot) {
  const all = [...report.points, report.reference];
  const values = all.map(({value}) => value);
  const [least, top] = [Math.min(...values), Math.max(...all.map((point) => ends(point)[1]))];
  if (least <= 0) return scaleFor(all.flatMap(ends), plot);
  const low = Math.min(least / 1.15, ...all.map((point) => ends(point)[0]).filter((end) => end > least / 3));
  const high = top * 1.08;
  const marks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) for (const factor of [1, 2, 5]) marks.push(factor * 10 ** power);
  const inside = marks.filter((value) => value >= low && value <= high);
  return {scale: logarithmic(low, high, plot.bottom, plot.top), marks: inside.length > 2 ? inside : ticks(low, high, 4).filter((value) => value > low)};
}

function drawDistances() {
  const plot = frame($('distances'), 360, {left: 50, right: 16, top: 28, bottom: 46}, `${report.measure} of ${report.schedules.length} schedules against the number of steps`);
  const budgets = measuredBudgets();
  const {schedules} = report;
  const dodge = plot.width < 480 ? 3.5 : 5; // pixels between intervals of one budget
  const room = dodge * schedules.length / 2 + 8;
  const x = logarithmic(budgets[0], Math.max(budgets.at(-1), 1.01 * budgets[0]), plot.left + room, plot.right - room);
  const {scale: y, marks} = distanceScale(plot);
  axisLeft(plot, marks.map((value) => ({at: y(value), label: significant(value)})), report.measure);
  const chosen = shape('g', {class: 'cursor'});
  const hover = shape('g', {class: 'hover'});
  plot.svg.append(chosen, hover);
  const inside = clipped(plot, 'distances-clip');
  const floor = (value) => round(Math.min(Number.isNaN(y(value)) ? plot.bottom + 2 : y(value), plot.bottom + 2));
  const [from, to] = ends(report.reference).map(floor);
  inside.append(shape('rect', {class: 'reference', x: plot.left, width: plot.right - plot.left, y: to, height: Math.max(from - to, 0)}),
    shape('path', {class: 'floor', d: `M${plot.left} ${floor(report.reference.value)}H${plot.right}`}));
  [...schedules.keys()].reverse().forEach((i) => {
    const {name, style} = schedules[i];
    const points = report.points.filter((point) => point.name === name).sort((a, b) => a.budget - b.budget);
    const at = ({budget, value}) => {
      const beside = measuredAt(budget);
      return [round(x(budget) + dodge * (beside.findIndex((each) => each.i === i) - (beside.length - 1) / 2)), round(y(value))];
    };
    inside.append(shape('path', {class: `line ${style}`, d: lineThrough(points.map(at))}),
      ...points.map((point) => shape('path', {class: `whisker ${style}`, d: `M${at(point)[0]} ${floor(ends(point)[1])}V${floor(ends(point)[0])}`})),
      ...points.map((point) => shape('path', {class: `dot ${style}`, 'data-name': name, 'data-budget': point.budget, d: outline(i), transform: `translate(${at(point).join(' ')})`})));
  });
  const labelled = report.tableBudgets.filter((K, i, all) => !i || x(K) - x(all[i - 1]) > 26);
  axisBelow(plot, labelled.map((K) => ({at: x(K), label: grouped(K)})), report.passes.words ? `steps: ${report.passes.words}` : 'steps');
  const nearest = (px) => nearestMeasured(x.invert(px));
  const lineAt = (K) => shape('path', {d: `M${round(x(K))} ${plot.top}V${plot.bottom}`});
  onPoint(plot, (px, py) => {
    const K = nearest(px);
    hover.replaceChildren(lineAt(K));
    showTip(plot, x(K), py, [element('strong', {}, stepsInWords(K)),
      ...measuredAt(K).map((each) => element('div', {}, markerIcon(each), `${told(each.point)} ${each.words}`)),
      element('div', {}, stroke('floor'), `${told(report.reference)} ${referenceName()}`)]);
  }, () => hover.replaceChildren(), (px) => choose(report.budgets.indexOf(nearest(px))));
  return () => {
    const within = state.budget >= budgets[0] && state.budget <= budgets.at(-1);
    chosen.replaceChildren(...(within ? [lineAt(state.budget)] : []));
  };
}

// Distances at the budget, or at the nearest measured one.
function showNumbers() {
  const K = nearestMeasured(state.budget);
  const some = report.points.some(({frechet}) => frechet !== null);
  $('measured-budget').textContent = stepsInWords(K);
  $('remark').textContent = K === state.budget ? '' : `${stepsInWords(state.budget)} ${state.budget === 1 ? 'was' : 'were'} not measured; ${grouped(K)} ${K === 1 ? 'is' : 'are'} the nearest.`;
  const raced = report.points.find(({name, budget}) => name === 'raced' && budget === K);
  const difference = ({name, ahead}) => (name === 'raced' ? '' : behind(ahead));
  const rows = measuredAt(K).map((each) => [each.name, markerIcon(each), each.words.replace(' stride', ''), each.point, difference(each.point), isSure(each.point.ahead) || each.name === 'raced']);
  const beyond = raced ? raced.beyond.map((number, i) => (i ? number : -number)) : null;
  rows.push(['reference', stroke('floor'), referenceName(), report.reference, beyond ? behind(beyond) : '', isSure(beyond)]);
  $('numbers').tHead.replaceChildren(element('tr', {}, ...['schedule', 'distance', ...(some ? ['Fréchet'] : []), 'to the raced path'].map((text) => element('th', {scope: 'col'}, text))));
  $('numbers').tBodies[0].replaceChildren(...rows.map(([name, icon, words, point, text, sure]) => element('tr', {'data-stride': name},
    element('th', {scope: 'row'}, icon, words), element('td', {}, told(point)),
    ...(some ? [element('td', {}, significant(point.frechet ?? NaN))] : []), element('td', {class: sure ? null : 'unsure'}, text))));
}

function racedWords() {
  const K = nearestMeasured(state.budget);
  const found = measuredAt(K);
  const at = K === state.budget ? '' : `, nearest measured ${stepsInWords(K)}`;
  return [found.length && found[0].name === 'raced' ? `distance ${told(found[0].point)}${at}` : `not measured${at}`, found];
}

const SCORES = {
  fill() {
    $('distances-hint').textContent = `${grouped(report.samples)} samples per path, from held-out noise and against held-out real data; lower is better. Bars are 95% intervals, side by side; the grey band is that of the reference. ` +
      (measuredBudgets().length > report.tableBudgets.length ? 'Between the numbers of steps that raced, only the raced path and even steps were measured. ' : '') + 'Point to read values, click to choose a budget.';
    fillLegend($('legend'), [...report.schedules.map((schedule, i) => [markerIcon({...schedule, i}), schedule.words]), [stroke('floor'), `${referenceName()}, the reference`]]);
    const some = report.points.some(({frechet}) => frechet !== null);
    const row = (words, point, text) => [words, grouped(point.budget), significant(point.value), twoDigits(point.error), `${ends(point).map(significant).join(' to ')}`, text,
      ...(some ? [significant(point.frechet ?? NaN)] : [])];
    fillTable($('distances-table'), ['schedule', 'steps', report.measure, '± s.e.', '95% interval', 'to the raced path', ...(some ? ['Fréchet distance'] : [])],
      [...measuredBudgets().flatMap((K) => measuredAt(K).map(({name, words, point}) => row(words, point, name === 'raced' ? '' : behind(point.ahead)))),
        row(referenceName(), report.reference, '')]);
  },
  answer() {}, // already in the page
  first: () => nearestPlace(report.budgets, report.enough ?? 8),
  draw() {
    markMeasured = drawDistances();
    markMeasured();
  },
  show() {
    markMeasured();
    showNumbers();
  },
  said: () => racedWords()[0],
  told: () => racedWords()[1].map(({words, point}) => `${words} ${told(point)}`).join(', '),
  listen() {},
};
