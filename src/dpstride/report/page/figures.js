// Figures of Gaussian diffusion. Each draws itself into its container from the report and the state: the place in the list of budgets, its
// path, the noise axis, the tolerance.

function drawLosses(report, state) {
  const {path} = state;
  const costs = costsAt(report, state.place, path);
  const prior = report.steps.prior[state.place];
  const last = costs.at(-1);
  const inner = costs.slice(0, -1);
  const between = inner.reduce((sum, cost) => sum + cost, 0);
  const parts = [['last', 'the last step, from ' + `index ${grouped(path.at(-2))} to clean data`, last],
    ['between', inner.length === 1 ? 'the step before it' : `the ${grouped(inner.length)} steps before it`, between],
    ['prior', 'the prior', prior]];
  $('composition').textContent = `Of ${fixed(last + between + prior)} bits/dim, ${fixed(last)} are lost in ${parts[0][1]}` +
    (inner.length ? `, ${fixed(between)} in ${parts[1][1]}` : '') + ` and ${fixed(prior)} in the prior.`;
  const whole = parts.reduce((sum, [, , value]) => sum + Math.max(value, 0), 0);
  $('composed').replaceChildren(...parts.filter(([, , value]) => value > 0.002 * whole).map(([name, , value]) => {
    const words = `${{last: 'last step', between: 'steps before', prior: 'prior'}[name]} ${fixed(value)}`;
    const room = value / whole * $('composed').clientWidth - 20;
    const piece = element('span', {class: name}, room > 7 * words.length ? words : '');
    piece.style.flexGrow = value / whole;
    return piece;
  }));
  $('losses').hidden = !inner.length;
  if (!inner.length) return;
  const narrow = $('losses').clientWidth < 520;
  const plot = frame($('losses'), 210, {left: narrow ? 46 : 84, right: 16, top: 28, bottom: 42}, 'Bits/dim lost in each step of the path but the last');
  const x = linear(0, 1, plot.left, plot.right);
  const most = Math.max(...inner, 1e-12);
  const y = linear(0, most * 1.04, plot.bottom, plot.top);
  const at = (index) => x(state.axis.position[index]);
  axisLeft(plot, ticks(0, most, 4).map((value) => ({at: y(value), label: significant(value)})), 'bits/dim in a step');
  plot.svg.append(shape('path', {class: 'bars', d: inner.map((cost, i) => {
    const [from, to] = [at(path[i + 1]), at(path[i])];
    const gap = to - from > 4 ? 0.6 : 0;
    return `M${round(from + gap)} ${plot.bottom}V${round(y(cost))}H${round(Math.max(to - gap, from + 0.8))}V${plot.bottom}Z`;
  }).join('')}));
  const hover = shape('path', {class: 'bars picked'});
  plot.svg.append(hover);
  axisBelow(plot, state.axis.marks((plot.right - plot.left) / 80).map(({at: where, label}) => ({at: x(where), label})),
    noiseTitle(state, narrow));
  onPoint(plot, (px, py) => {
    let i = inner.findIndex((_, step) => at(path[step + 1]) <= px);
    if (i < 0) i = inner.length - 1;
    const [from, to] = [at(path[i + 1]), at(path[i])];
    hover.setAttribute('d', `M${round(from)} ${plot.bottom}V${round(y(inner[i]))}H${round(Math.max(to, from + 1.5))}V${plot.bottom}Z`);
    showTip(plot, (from + to) / 2, py, [element('strong', {}, `step ${i + 1} of ${path.length - 1}: ${significant(inner[i])} bits/dim`),
      `from ${describeLevel(report, path[i])}`, `to ${describeLevel(report, path[i + 1])}`]);
  }, () => hover.removeAttribute('d'));
}

// --- the table of costs ----------------------------------------------------------------------------------------------

// Cividis, at ten places: distinguishable with any colour vision, and in grey.
const CIVIDIS = [[0, 34, 78], [18, 53, 112], [59, 73, 108], [87, 93, 109], [112, 113, 115], [138, 134, 120], [165, 156, 116],
  [195, 179, 105], [225, 204, 85], [254, 232, 56]];

function colourOf(part) {
  const at = Math.min(Math.max(part, 0), 1) * (CIVIDIS.length - 1);
  const i = Math.min(Math.floor(at), CIVIDIS.length - 2);
  return CIVIDIS[i].map((low, channel) => low + (CIVIDIS[i + 1][channel] - low) * (at - i));
}

function drawHeat(report, state) {
  const {indices, levels, low, high} = report.heat;
  const width = Math.min(Math.max($('heat').clientWidth, 240), 640);
  const plot = frame($('heat'), width - 4, {left: 46, right: 8, top: 26, bottom: 46}, 'Cost of every step, with the path as a staircase');
  const size = Math.min(plot.right - plot.left, plot.bottom - plot.top, width - 64);
  plot.right = plot.left + size;
  plot.top = plot.bottom - size;
  const position = (index) => state.axis.position[index];
  const x = linear(0, 1, plot.left, plot.right);
  const y = linear(0, 1, plot.bottom, plot.top);
  const pixels = Math.round(size * Math.min(window.devicePixelRatio || 1, 2));
  // For each pixel, the sampled index nearest to it on this axis.
  const cell = new Uint16Array(pixels);
  for (let pixel = 0, i = 0; pixel < pixels; pixel++) {
    const at = (pixel + 0.5) / pixels;
    while (i + 1 < indices.length && Math.abs(position(indices[i + 1]) - at) <= Math.abs(position(indices[i]) - at)) i++;
    cell[pixel] = i;
  }
  const canvas = element('canvas', {width: pixels, height: pixels, class: 'cells', 'aria-hidden': 'true'});
  const context = canvas.getContext('2d');
  const image = context.createImageData(pixels, pixels);
  const cost = (i, j) => levels[i * (i - 1) / 2 + j];
  for (let row = 0; row < pixels; row++) {
    const i = cell[pixels - 1 - row];
    for (let column = 0; column < pixels - 1 - row; column++) {
      const j = cell[column];
      const value = j < i ? cost(i, j) : 0;
      if (!value) continue;
      const [r, g, b] = colourOf((value - 1) / 65534);
      image.data.set([r, g, b, 255], 4 * (row * pixels + column));
    }
  }
  context.putImageData(image, 0, 0);
  // Relative to the figure, which may be scaled when printed.
  const share = (part, whole) => `${100 * part / whole}%`;
  Object.assign(canvas.style, {left: share(plot.left, plot.width), top: share(plot.top, plot.height), width: share(size, plot.width), height: share(size, plot.height)});
  $('heat').prepend(canvas);
  const marks = state.axis.marks(size / 70);
  plot.svg.append(shape('path', {class: 'diagonal', d: `M${plot.left} ${plot.bottom}L${plot.right} ${plot.top}`}));
  axisBelow(plot, marks.map(({at, label}) => ({at: x(at), label})), `to: ${state.axis.title}`);
  const left = shape('g', {class: 'axis'}, shape('path', {d: `M${plot.left} ${plot.top}V${plot.bottom}`}));
  for (const {at, label} of marks) {
    left.append(shape('path', {d: `M${plot.left} ${round(y(at))}h-5`}), shape('text', {x: plot.left - 9, y: round(y(at)) + 4, 'text-anchor': 'end'}, label));
  }
  left.append(shape('text', {x: 0, y: plot.top - 10, class: 'title'}, `from: ${state.axis.title}`));
  plot.svg.append(left);
  drawScale(plot, low, high, size);
  const stairs = shape('g', {class: 'stairs'});
  plot.svg.append(stairs);
  onPoint(plot, (px, py) => {
    const [column, row] = [(px - plot.left) / size, (plot.bottom - py) / size].map((part) => Math.floor(part * pixels));
    const [i, j] = [cell[row], cell[column]];
    const value = i !== undefined && j !== undefined && j < i ? cost(i, j) : 0;
    if (!value) { plot.tip.hidden = true; return; }
    const bits = 10 ** (low + (value - 1) / 65534 * (high - low));
    showTip(plot, px, py, [element('strong', {}, `${value === 1 ? 'at most ' : ''}${significant(bits)} bits/dim`),
      `from ${describeLevel(report, indices[i])}`, `to ${describeLevel(report, indices[j])}`]);
  }, () => {});
  return () => {
    const corners = state.path.slice(0, -1).map((t, k) => [x(position(state.path[k + 1])), y(position(t))]);
    const start = [x(position(state.path[0])), y(position(state.path[0]))];
    const line = `M${start.map(round).join(' ')}` + corners.map(([cx], k) => `H${round(cx)}V${round(y(position(state.path[k + 1])))}`).join('');
    stairs.replaceChildren(shape('path', {class: 'casing', d: line}), shape('path', {class: 'core', d: line}),
      ...(corners.length <= 64 ? corners.map(([cx, cy]) => shape('circle', {cx: round(cx), cy: round(cy), r: 3})) : []));
  };
}

// The colour scale, in the corner without steps.
function drawScale(plot, low, high, size) {
  const width = Math.min(190, size * 0.42);
  const [left, top] = [plot.right - width - 6, plot.bottom - 46];
  const gradient = shape('linearGradient', {id: 'cividis'}, ...CIVIDIS.map((colour, i) => shape('stop', {offset: i / (CIVIDIS.length - 1),
    'stop-color': `rgb(${colour.join(' ')})`})));
  const group = shape('g', {class: 'axis scale'}, gradient,
    shape('text', {x: left, y: top - 7, class: 'title'}, 'bits/dim in the step'),
    shape('rect', {x: left, y: top, width, height: 10, rx: 2, fill: 'url(#cividis)'}));
  const at = linear(low, high, left, left + width);
  const whole = ticks(Math.ceil(low), Math.floor(high), width / 34).filter(Number.isInteger);
  for (const power of whole) group.append(shape('text', {x: round(at(power)), y: top + 25, 'text-anchor': 'middle'}, power >= -3 && power <= 4 ? String(10 ** power) : significant(10 ** power).replace('1.0 × ', '')));
  plot.svg.append(group);
}

// --- what only a study has -------------------------------------------------------------------------------------------

const MARKERS = {
  dp: (x, y) => shape('circle', {class: 'dot dp', cx: x, cy: y, r: 5}),
  even: (x, y) => shape('rect', {class: 'dot even', x: x - 4.5, y: y - 4.5, width: 9, height: 9}),
  quadratic: (x, y) => shape('path', {class: 'dot quadratic', d: `M${x} ${y - 5.5}l5 9.5h-10z`}),
  all: (x, y) => shape('path', {class: 'dot all', d: `M${x} ${y - 6}l6 6-6 6-6-6z`}),
};

function drawDistance(report, container, name, value, error) {
  const {points, floor} = report.study.distances;
  const plot = frame($(container), 300, {left: 56, right: 14, top: 28, bottom: 44}, `${name} against the number of steps`);
  const budgets = [...new Set(points.map((point) => point.budget))].sort((a, b) => a - b);
  const x = logarithmic(budgets[0] / 1.12, budgets.at(-1) * 1.12 + (budgets.length === 1 ? 1 : 0), plot.left, plot.right);
  const bars = (point) => (error && Number.isFinite(error(point)) ? [value(point) - 2 * error(point), value(point) + 2 * error(point)] : [value(point)]);
  const {scale: y, marks} = scaleFor([...points, ...(floor ? [floor] : [])].flatMap(bars), plot);
  axisLeft(plot, marks.map((mark) => ({at: y(mark), label: significant(mark)})), name);
  axisBelow(plot, budgets.map((K) => ({at: x(K), label: K === report.T ? 'all' : grouped(K)})), 'steps');
  if (floor && Number.isFinite(value(floor))) plot.svg.append(shape('path', {class: 'floor', d: `M${plot.left} ${round(y(value(floor)))}H${plot.right}`}));
  const everything = [];
  for (const stride of ['quadratic', 'even', 'dp']) {
    const found = points.filter((point) => (point.stride === stride || (point.stride === 'all' && point.budget === report.T)) && Number.isFinite(value(point)));
    const shift = error ? {quadratic: 5, even: -5, dp: 0}[stride] : 0; // bars side by side
    const at = (point) => x(point.budget) + (point.stride === 'all' ? 0 : shift);
    // A Fréchet distance is biased upwards with fewer samples, so such points are not joined; a kernel distance is unbiased.
    const joined = found.filter((point) => error || point.samples === mostSamples(points));
    plot.svg.append(shape('path', {class: `line ${stride}`, d: lineThrough(joined.map((point) => [at(point), y(value(point))]))}));
    for (const point of found) {
      const [px, py] = [round(at(point)), round(y(value(point)))];
      if (error && Number.isFinite(error(point))) {
        const [bottom, top] = bars(point).map((each) => round(y(each)));
        plot.svg.append(shape('path', {class: `whisker ${stride}`, d: `M${px} ${top}V${bottom}`}));
      }
      plot.svg.append(MARKERS[point.stride](px, py));
      everything.push([px, py, point]);
    }
  }
  tipsAt(plot, report, everything, (point) => `${significant(value(point))}${error && Number.isFinite(error(point)) ? ` ± ${significant(error(point))}` : ''}`);
}

const mostSamples = (points) => Math.max(...points.map((point) => point.samples));
const strideName = (report, stride) => (stride === 'all' ? 'all steps' : report.names[stride]);

function tipsAt(plot, report, points, words) {
  onPoint(plot, (px, py) => {
    const [x, y, point] = points.reduce((best, each) => (Math.hypot(each[0] - px, each[1] - py) < Math.hypot(best[0] - px, best[1] - py) ? each : best));
    showTip(plot, x, y, [element('strong', {}, `${strideName(report, point.stride)}, ${stepsInWords(point.budget)}`), words(point),
      `${grouped(point.samples)} samples`, ...(point.bpd === null ? [] : [`${fixed(point.bpd)} bits/dim`])]);
  }, () => {});
}

const allLabel = (point, points) => (point.samples < mostSamples(points) ? `all, ${grouped(point.samples)} samples only` : 'all');

function drawAgreement(report) {
  const points = report.study.distances.points.filter((point) => point.bpd !== null && point.frechet !== null);
  $('agreement').hidden = !points.length;
  if (!points.length) return;
  const plot = frame($('agreement'), 320, {left: 56, right: 22, top: 28, bottom: 44}, 'Fréchet distance against bits/dim');
  const values = points.map((point) => point.bpd);
  const {scale: x, marks: below} = scaleFor(values, {top: plot.right, bottom: plot.left});
  const {scale: y, marks} = scaleFor(points.map((point) => point.frechet), plot);
  axisLeft(plot, marks.map((mark) => ({at: y(mark), label: significant(mark)})), report.study.distances.frechet);
  axisBelow(plot, below.map((mark) => ({at: x(mark), label: significant(mark)})), 'bits/dim, held-out (labels: steps)');
  const everything = [];
  for (const stride of ['quadratic', 'even', 'dp', 'all']) {
    const found = points.filter((point) => point.stride === stride);
    if (stride !== 'all' && found.length) plot.svg.append(shape('path', {class: `line thin ${stride}`, d: lineThrough(found.map((point) => [x(point.bpd), y(point.frechet)]))}));
    for (const point of found) {
      const [px, py] = [round(x(point.bpd)), round(y(point.frechet))];
      plot.svg.append(MARKERS[stride](px, py), shape('text', {class: 'label', x: px + 8, y: py - 6}, stride === 'all' ? allLabel(point, points) : grouped(point.budget)));
      everything.push([px, py, point]);
    }
  }
  tipsAt(plot, report, everything, (point) => significant(point.frechet));
}

function drawAblation(report) {
  const {sizes, budgets, excess} = report.study.ablation;
  const plot = frame($('ablation'), 300, {left: 62, right: 16, top: 28, bottom: 44}, 'Bits/dim lost by choosing paths on few samples');
  const all = excess.flat(2).filter(Number.isFinite);
  const [least, most] = [Math.min(0, ...all), Math.max(...all, 1e-6)];
  const x = logarithmic(sizes[0] / 1.2, sizes.at(-1) * 1.2, plot.left, plot.right);
  const y = linear(least - 0.04 * (most - least), most * 1.04, plot.bottom, plot.top);
  axisLeft(plot, ticks(least, most, 5).map((value) => ({at: y(value), label: significant(value)})), 'bits/dim lost');
  axisBelow(plot, sizes.map((size) => ({at: x(size), label: grouped(size)})), 'samples that choose the path');
  const everything = [];
  budgets.forEach((K, i) => {
    const shift = 1.035 ** (i - (budgets.length - 1) / 2);
    const found = sizes.map((size, j) => [x(size * shift), ...excess[i][j], size]).filter(([, mean]) => mean !== null);
    plot.svg.append(shape('path', {class: `order order-${orderOf(i, budgets.length)}`, d: lineThrough(found.map(([px, mean]) => [px, y(mean)]))}));
    for (const [px, mean, from, to, size] of found) {
      plot.svg.append(shape('path', {class: `order order-${orderOf(i, budgets.length)}`, d: `M${round(px)} ${round(y(from))}V${round(y(to))}`}),
        shape('circle', {class: `order-dot order-${orderOf(i, budgets.length)}`, cx: round(px), cy: round(y(mean)), r: 4}));
      everything.push([px, y(mean), K, mean, from, to, size]);
    }
  });
  onPoint(plot, (px, py) => {
    const [x0, y0, K, mean, from, to, size] = everything.reduce((best, each) => (Math.hypot(each[0] - px, each[1] - py) < Math.hypot(best[0] - px, best[1] - py) ? each : best));
    showTip(plot, x0, y0, [element('strong', {}, `${stepsInWords(K)}, ${grouped(size)} samples`), `${significant(mean)} bits/dim lost`, `from ${significant(from)} to ${significant(to)}`]);
  }, () => {});
}

// --- what only the mixed objective has --------------------------------------------------------------------------------

const lambdas = (low, high) => (high === null ? `λ above ${significant(low)}` : `λ from ${significant(low)} to ${significant(high)}`);

function drawFront(report) {
  const {budgets} = report.front;
  const plot = frame($('front'), 340, {left: 56, right: 22, top: 28, bottom: 44}, 'Bits/dim against distance from the teacher, for every budget');
  const distances = budgets.flatMap(({points}) => points.map(([, cost]) => Math.sqrt(cost)));
  const across = scaleFor(distances, {top: plot.right, bottom: plot.left});
  const {scale: y, marks} = scaleFor(budgets.flatMap(({points}) => points.map(([bpd]) => bpd)), plot);
  axisLeft(plot, marks.map((mark) => ({at: y(mark), label: significant(mark)})), 'bits/dim, held-out');
  axisBelow(plot, across.marks.map((mark) => ({at: across.scale(mark), label: significant(mark)})), plot.width < 480 ? 'distance from the teacher' : 'distance from the teacher’s samples, per dimension');
  const everything = [];
  budgets.forEach(({budget, points, taken}, i) => {
    const name = `order-${orderOf(i, budgets.length)}`;
    const found = points.map(([bpd, cost, low, high]) => [across.scale(Math.sqrt(cost)), y(bpd), budget, bpd, Math.sqrt(cost), low, high]);
    plot.svg.append(shape('path', {class: `order ${name}`, d: lineThrough(found)}));
    found.forEach((point, j) => {
      plot.svg.append(shape('circle', {class: `order-dot ${name}`, cx: round(point[0]), cy: round(point[1]), r: j === taken ? 7 : 3}));
      everything.push(point);
    });
  });
  onPoint(plot, (px, py) => {
    const [x0, y0, budget, bpd, distance, low, high] = everything.reduce((best, each) => (Math.hypot(each[0] - px, each[1] - py) < Math.hypot(best[0] - px, best[1] - py) ? each : best));
    showTip(plot, x0, y0, [element('strong', {}, stepsInWords(budget)), `${fixed(bpd)} bits/dim`, `distance ${significant(distance)}`, lambdas(low, high)]);
  }, () => {});
}

// Six shades of one hue: budgets have an order.
const orderOf = (i, count) => Math.max(0, 6 - count) + Math.min(i, 5);
