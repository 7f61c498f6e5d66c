// Elements, scales, ticks and tooltips, shared by all figures. All text is set as text, never as markup.

const $ = (id) => document.getElementById(id);
const SVG = 'http://www.w3.org/2000/svg';

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === false) continue;
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? '' : value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

// Sentences that a terminal shows too, with commands in backquotes.
function prose(text) {
  const parts = text.split('`');
  return parts.length % 2 ? parts.map((part, i) => (i % 2 ? element('code', {}, part) : part)) : [text];
}

function shape(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const fixed = (value, digits = 3) => (Number.isFinite(value) ? value.toFixed(digits).replace('-', '−') : '–');
// A time or noise level of the grid, with up to six significant digits.
const level = (value) => (Number.isFinite(value) ? Number(value.toPrecision(6)).toLocaleString('en', {maximumSignificantDigits: 6}) : value > 0 ? '∞' : '−∞').replace('-', '−');
const logarithm = (value, digits = 3) => (Number.isFinite(value) ? fixed(value, digits) : level(value));
const round = (value) => Math.round(value * 100) / 100;

// Three significant digits, for costs that span decades.
function significant(value) {
  if (!Number.isFinite(value)) return '–';
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e5) return value.toExponential(1).replace(/^-/, '−').replace('e-', ' × 10^−').replace('e+', ' × 10^')
    .replace(/\^(−?\d+)/, (_, power) => [...power].map((c) => (c === '−' ? '⁻' : '⁰¹²³⁴⁵⁶⁷⁸⁹'[c])).join(''));
  return String(Number(value.toPrecision(3))).replace('-', '−');
}

// A canvas of SVG that fills a container; its text keeps its size on any screen.
function frame(container, height, margin, label) {
  const width = Math.max(container.clientWidth, 200);
  const svg = shape('svg', {viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': label});
  const tip = element('div', {class: 'tip', hidden: true, 'aria-hidden': 'true'});
  container.replaceChildren(svg, tip);
  return {svg, tip, width, height, left: margin.left, top: margin.top, right: width - margin.right,
    bottom: height - margin.bottom};
}

function linear(low, high, start, end) {
  const scale = (value) => start + (value - low) / (high - low || 1) * (end - start);
  scale.invert = (at) => low + (at - start) / (end - start || 1) * (high - low);
  return scale;
}

function logarithmic(low, high, start, end) {
  const inner = linear(Math.log(low), Math.log(high), start, end);
  const scale = (value) => inner(Math.log(value));
  scale.invert = (at) => Math.exp(inner.invert(at));
  return scale;
}

function ticks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}

// A scale for values that may span decades, and the marks on it.
function scaleFor(values, plot) {
  const known = values.filter((value) => Number.isFinite(value));
  const [least, most] = [Math.min(...known), Math.max(...known)];
  if (least > 0 && most > 10 * least) {
    const scale = logarithmic(least / 1.2, most * 1.2, plot.bottom, plot.top);
    const marks = [];
    for (let power = Math.floor(Math.log10(least / 1.2)); power <= Math.log10(most * 1.2); power++) {
      for (const factor of [1, 2, 5]) marks.push(factor * 10 ** power);
    }
    return {scale, marks: marks.filter((value) => value >= least / 1.2 && value <= most * 1.2)};
  }
  const room = 0.06 * (most - least || 1);
  return {scale: linear(least - room, most + room, plot.bottom, plot.top), marks: ticks(least - room, most + room, 5)};
}

// Powers of two, or fewer of them on a narrow screen, and the end where it has room.
function powersOfTwo(low, high, width) {
  const every = Math.ceil(Math.log2(high / low || 2) * 38 / Math.max(width, 1)) || 1;
  const found = [];
  for (let power = Math.ceil(Math.log2(low)); 2 ** power <= high; power += every) found.push(2 ** power);
  if (found.length && high / found.at(-1) < 1.45 && found.at(-1) !== high) found.pop();
  return found.includes(high) ? found : [...found, high];
}

function axisBelow(plot, marks, title) {
  const group = shape('g', {class: 'axis'}, shape('path', {d: `M${plot.left} ${plot.bottom}H${plot.right}`}));
  for (const {at, label} of marks) {
    group.append(shape('path', {d: `M${round(at)} ${plot.bottom}v5`}),
      shape('text', {x: round(at), y: plot.bottom + 18, 'text-anchor': 'middle'}, label));
  }
  group.append(shape('text', {x: (plot.left + plot.right) / 2, y: plot.bottom + 36, 'text-anchor': 'middle', class: 'title'}, title));
  plot.svg.append(group);
}

function axisLeft(plot, marks, title) {
  const group = shape('g', {class: 'axis'});
  for (const {at, label} of marks) {
    group.append(shape('path', {class: 'rule', d: `M${plot.left} ${round(at)}H${plot.right}`}),
      shape('text', {x: plot.left - 8, y: round(at) + 4, 'text-anchor': 'end'}, label));
  }
  if (title) group.append(shape('text', {x: plot.left - 8, y: plot.top - 10, class: 'title', 'text-anchor': 'start', dx: 8 - plot.left}, title));
  plot.svg.append(group);
}

// Clips lines at the frame.
function clipped(plot, name) {
  plot.svg.append(shape('clipPath', {id: name}, shape('rect', {x: plot.left, y: plot.top - 2, width: plot.right - plot.left,
    height: plot.bottom - plot.top + 4})));
  const group = shape('g', {'clip-path': `url(#${name})`});
  plot.svg.append(group);
  return group;
}

const lineThrough = (points) => points.map(([x, y], i) => `${i ? 'L' : 'M'}${round(x)} ${round(y)}`).join('');

// Show lines of text beside a point of a figure, inside its borders.
function showTip(plot, x, y, lines) {
  plot.tip.replaceChildren(...lines.map((line) => (typeof line === 'string' ? element('div', {}, line) : line)));
  plot.tip.hidden = false;
  const scale = plot.svg.clientWidth / plot.width || 1;
  const width = plot.tip.offsetWidth;
  const left = x * scale + 14 + width > plot.width * scale ? x * scale - 14 - width : x * scale + 14;
  plot.tip.style.left = `${Math.max(0, left)}px`;
  plot.tip.style.top = `${Math.max(0, y * scale - plot.tip.offsetHeight / 2)}px`;
}

// The position of the pointer in the figure's own units.
function pointed(plot, event) {
  const box = plot.svg.getBoundingClientRect();
  const scale = plot.width / box.width;
  return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
}

function onPoint(plot, moved, left, clicked) {
  plot.svg.addEventListener('pointermove', (event) => moved(...pointed(plot, event)));
  plot.svg.addEventListener('pointerleave', () => { plot.tip.hidden = true; left(); });
  if (clicked) plot.svg.addEventListener('click', (event) => clicked(...pointed(plot, event)));
}

const stroke = (name) => {
  const svg = shape('svg', {viewBox: '0 0 26 10', width: 26, height: 10, 'aria-hidden': 'true', class: 'swatch'});
  svg.append(shape('path', {class: name, d: 'M1 5H25'}));
  return svg;
};
const swatch = (stride) => stroke(`line ${stride}`);
const orderSwatch = (i, count) => stroke(`order order-${orderOf(i, count)}`);

function fillLegend(list, entries) {
  list.replaceChildren(...entries.map(([mark, text]) => element('li', {}, mark, text)));
}

function fillTable(table, head, rows) {
  table.tHead.replaceChildren(element('tr', {}, ...head.map((text) => element('th', {scope: 'col'}, text))));
  table.tBodies[0].replaceChildren(...rows.map((cells) => element('tr', {},
    ...cells.map((text, i) => (i ? element('td', {}, text) : element('th', {scope: 'row'}, text))))));
}

// Paths as marks on lanes, [{stride, label, name, path}], the chosen one first; `at` gives the position of a point on the
// axis, from 0 to 1, `marks` the marks of the axis for their number, and `describe` the words for a point.
function drawLanes(lanes, {left, words, at, marks, title, describe}) {
  const narrow = $('path').clientWidth < 520;
  const height = narrow ? 42 : 34;
  const plot = frame($('path'), lanes.length * height + 52, {left: narrow ? 12 : left, right: 16, top: 4, bottom: 42}, words);
  const along = linear(0, 1, plot.left, plot.right);
  const x = (point) => round(along(at(point)));
  lanes.forEach(({stride, label: text, path}, row) => {
    const middle = plot.top + height * row + (narrow ? 29 : 14);
    const half = (stride === 'dp' ? 12 : 7.5) - (narrow ? 2 : 0);
    const label = narrow ? {x: plot.left, y: middle - 15} : {x: plot.left - 12, y: middle + 4, 'text-anchor': 'end'};
    plot.svg.append(shape('text', {...label, class: 'row'}, text),
      shape('path', {class: 'lane', d: `M${plot.left} ${middle}H${plot.right}`}),
      shape('path', {class: `marks ${stride}`, d: path.map((point) => `M${x(point)} ${middle - half}v${2 * half}`).join('')}));
  });
  axisBelow(plot, marks((plot.right - plot.left) / 80).map(({at: where, label}) => ({at: along(where), label})), title(narrow));
  onPoint(plot, (px, py) => {
    const row = Math.min(lanes.length - 1, Math.max(0, Math.floor((py - plot.top) / height)));
    const {name, path} = lanes[row];
    const nearest = path.reduce((best, point) => (Math.abs(x(point) - px) < Math.abs(x(best) - px) ? point : best), path[0]);
    showTip(plot, x(nearest), py, [element('strong', {}, name), describe(nearest)]);
  }, () => {});
}
