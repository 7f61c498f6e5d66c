// Held-out scores against the budget, and at one: figures that every page has.

// Upper end of the axis of bits/dim: one stride far off would flatten all curves. report/figures.py has the same rule.
function mostShown({budgets, curves}) {
  const least = curves.dp.bpd.reduce((a, b) => Math.min(a, b), Infinity);
  const few = budgets.reduce((best, K, i) => (Math.abs(K - 8) < Math.abs(budgets[best] - 8) ? i : best), 0);
  return least + 20 * Math.max(curves.dp.bpd[few] - least, 0.5);
}

function drawCurves(report, state, choose) {
  const plot = frame($('curves'), 340, {left: 44, right: 14, top: 26, bottom: 46}, `Held-out ${WORDS.unit} of ${STRIDES.length} ${WORDS.stride}s against the number of ${WORDS.step}s`);
  const {budgets, curves} = report;
  const last = budgets.length - 1;
  const x = logarithmic(budgets[0], Math.max(budgets[last], budgets[0] + 1), plot.left, plot.right);
  const least = curves.dp.bpd.reduce((a, b) => Math.min(a, b), Infinity);
  const from = Math.max(budgets.findIndex((K) => K >= 2), 0);
  const shown = STRIDES.map((stride) => curves[stride].bpd[from]).filter(Number.isFinite);
  const worst = Math.max(...shown, least + 1e-6);
  const most = Math.min(worst, mostShown(report));
  $('curves-cut').textContent = most < worst ? `The axis is cut at ${significant(most)} ${WORDS.unit}; the worst ${WORDS.stride} of ${stepsInWords(budgets[from])} has ${grouped(Math.round(worst))}.` : '';
  const room = 0.05 * (most - least);
  const surest = curves.dp.error[curves.dp.bpd.indexOf(least)];
  const below = Number.isFinite(surest) ? Math.min(2.2 * surest, 6 * room) : 0;
  const [low, high] = [least - Math.max(1.6 * room, below), most + room];
  const y = linear(low, high, plot.bottom, plot.top);
  axisLeft(plot, ticks(low, high, 6).map((value) => ({at: y(value), label: String(value)})), WORDS.unit);
  const inside = clipped(plot, 'curves-clip');
  const top = Math.max(y(least + state.tolerance), plot.top - 2);
  if (!answerOf(report, state.tolerance).useless) {
    inside.append(shape('rect', {class: 'close', x: plot.left, width: plot.right - plot.left, y: round(top), height: round(y(least) - top)}));
  }
  // On the right, neighbouring budgets share a pixel; a point for each would only be slow.
  const places = [];
  budgets.forEach((K, i) => { if (!i || i === last || x(K) - x(budgets[places.at(-1)]) >= 0.7) places.push(i); });
  for (const stride of [...BANDS].reverse()) {
    const {bpd, error} = curves[stride];
    const drawn = places.filter((i) => Number.isFinite(bpd[i]));
    const spread = (i) => (Number.isFinite(error[i]) ? 2 * error[i] : 0);
    const band = [...drawn.map((i) => [x(budgets[i]), y(bpd[i] + spread(i))]),
      ...[...drawn].reverse().map((i) => [x(budgets[i]), y(bpd[i] - spread(i))])];
    inside.append(shape('path', {class: `band ${stride}`, d: `${lineThrough(band)}Z`}));
  }
  for (const stride of [...STRIDES].reverse()) {
    const drawn = places.filter((i) => Number.isFinite(curves[stride].bpd[i]));
    inside.append(shape('path', {class: `line ${stride}`, d: lineThrough(drawn.map((i) => [x(budgets[i]), y(curves[stride].bpd[i])]))}));
  }
  axisBelow(plot, powersOfTwo(budgets[0], budgets[last], plot.right - plot.left).map((K) => ({at: x(K), label: grouped(K)})), `${WORDS.step}s`);
  const chosen = shape('g', {class: 'cursor'});
  const hover = shape('g', {class: 'hover'});
  plot.svg.append(chosen, hover);
  const mark = (group, place, radius) => {
    const at = round(x(budgets[place]));
    group.replaceChildren(shape('path', {d: `M${at} ${plot.top}V${plot.bottom}`}), ...STRIDES.slice().reverse()
      .map((stride) => [stride, curves[stride].bpd[place]]).filter(([, value]) => value >= low && value <= high)
      .map(([stride, value]) => shape('circle', {class: `dot ${stride}`, cx: at, cy: round(y(value)), r: radius})));
  };
  const nearest = (at) => nearestPlace(budgets, x.invert(at));
  onPoint(plot, (px, py) => {
    const place = nearest(px);
    mark(hover, place, 3.5);
    showTip(plot, x(budgets[place]), py, [element('strong', {}, stepsInWords(budgets[place])),
      ...STRIDES.map((stride) => element('div', {}, swatch(stride),
        `${fixed(curves[stride].bpd[place])} ± ${fixed(curves[stride].error[place])}`))]);
  }, () => hover.replaceChildren(), (px) => choose(nearest(px)));
  return () => mark(chosen, state.place, 5);
}

// --- one budget ------------------------------------------------------------------------------------------------------

function drawWhiskers(report, state) {
  const {curves} = report;
  const plot = frame($('whiskers'), 42 + 30 * STRIDES.length, {left: 22, right: 22, top: 8, bottom: 40}, `Held-out ${WORDS.unit} of the ${WORDS.stride}s with bars of two standard errors`);
  const rows = STRIDES.map((stride) => {
    const value = curves[stride].bpd[state.place];
    const error = curves[stride].error[state.place];
    return {stride, value, spread: Number.isFinite(error) ? 2 * error : 0};
  }).filter(({value}) => Number.isFinite(value));
  const least = Math.min(...rows.map(({value}) => value));
  const most = Math.max(mostShown(report), least);
  const near = rows.filter(({value}) => value <= most);
  const low = Math.min(...near.map(({value, spread}) => value - spread));
  const high = Math.max(...near.map(({value, spread}) => value + spread));
  const x = linear(low, high > low ? high : low + 1, plot.left, plot.right);
  const marks = ticks(low, high, (plot.right - plot.left) / 70).map((value) => ({at: x(value), label: String(value)}));
  rows.forEach(({stride, value, spread}, row) => {
    const y = plot.top + 14 + 30 * row;
    if (value > most) {  // beyond the axis: an arrow, and the number
      plot.svg.append(shape('path', {class: `whisker ${stride}`, d: `M${plot.right - 22} ${y}h22m-6 -5l6 5l-6 5`}),
        shape('text', {class: 'label', x: plot.right - 28, y: y + 4, 'text-anchor': 'end'}, grouped(Math.round(value))));
      return;
    }
    const [from, to] = [round(x(value - spread)), round(x(value + spread))];
    plot.svg.append(shape('path', {class: `whisker ${stride}`, d: `M${from} ${y}H${to}M${from} ${y - 5}v10M${to} ${y - 5}v10`}),
      shape('circle', {class: `dot ${stride}`, cx: round(x(value)), cy: y, r: 5.5}));
  });
  axisBelow(plot, marks, `${WORDS.unit} (bars: ± 2 s.e.)`);
}
