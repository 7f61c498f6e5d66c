// The noise axis, and paths on it.

const AXES = {
  index: 'grid index',
  time: 'time of the grid',
  logSnr: 'log-SNR of the noise level',
};

// Where every grid index stands between clean data (0) and noise (1), and marks to write below.
function noiseAxis(report, kind) {
  const T = report.T;
  const values = kind === 'index' ? Float64Array.from({length: T + 1}, (_, i) => i)
    : kind === 'time' ? Float64Array.from(report.grid.times) : Float64Array.from(report.grid.logSnr, (value) => -value);
  if (kind === 'logSnr') {
    // Clean data has infinite log-SNR, and pure noise may have: they stand a little outside the others.
    const finite = values.filter(Number.isFinite);
    const room = ((finite.at(-1) - finite[0]) || 1) * 0.06;
    for (let i = 0; i <= T; i++) {
      if (values[i] === -Infinity) values[i] = finite[0] - room;
      if (values[i] === Infinity) values[i] = finite.at(-1) + room;
    }
  }
  const [low, high] = [values[0], values[T]];
  const position = values.map((value) => (value - low) / (high - low));
  const marks = (count) => {
    const sign = kind === 'logSnr' ? -1 : 1;
    const finite = kind === 'logSnr' ? [-values[T], -values[T > 1 ? 1 : 0]] : [low, high];
    const found = ticks(Math.min(...finite), Math.max(...finite), count).map((value) => ({at: (sign * value - low) / (high - low),
      label: level(value)}));
    return kind === 'logSnr' ? [{at: 0, label: '∞'}, ...found.filter(({at}) => at > 0.045)] : found;
  };
  return {kind, position, marks, title: AXES[kind], short: AXES[kind].split(' of ')[0]};
}

const noiseTitle = (state, narrow) => (narrow ? `← clean · ${state.axis.short} · noise →` : `← clean data · ${state.axis.title} · noise →`);

const describeLevel = (report, index) => `index ${grouped(index)}, time ${level(report.grid.times[index])}, log-SNR ${logarithm(report.grid.logSnr[index], 2)}`;

// --- the path --------------------------------------------------------------------------------------------------------

// Paths as marks on lanes: [{stride, label, name, path}], the chosen one first.
function drawPath(report, state, lanes) {
  const narrow = $('path').clientWidth < 520;
  const height = narrow ? 42 : 34;
  const plot = frame($('path'), lanes.length * height + 52, {left: narrow ? 12 : 84, right: 16, top: 4, bottom: 42},
    `Grid indices visited by ${stepsInWords(state.budget)} of ${lanes.map(({name}) => name).join(', ')}`);
  const x = linear(0, 1, plot.left, plot.right);
  const at = (index) => round(x(state.axis.position[index]));
  lanes.forEach(({stride, label: text, path}, row) => {
    const middle = plot.top + height * row + (narrow ? 29 : 14);
    const half = (stride === 'dp' ? 12 : 7.5) - (narrow ? 2 : 0);
    const label = narrow ? {x: plot.left, y: middle - 15} : {x: plot.left - 12, y: middle + 4, 'text-anchor': 'end'};
    plot.svg.append(shape('text', {...label, class: 'row'}, text),
      shape('path', {class: 'lane', d: `M${plot.left} ${middle}H${plot.right}`}),
      shape('path', {class: `marks ${stride}`, d: path.map((index) => `M${at(index)} ${middle - half}v${2 * half}`).join('')}));
  });
  axisBelow(plot, state.axis.marks((plot.right - plot.left) / 80).map(({at: where, label}) => ({at: x(where), label})), noiseTitle(state, narrow));
  onPoint(plot, (px, py) => {
    const row = Math.min(lanes.length - 1, Math.max(0, Math.floor((py - plot.top) / height)));
    const {name, path} = lanes[row];
    const nearest = path.reduce((best, index) => (Math.abs(at(index) - px) < Math.abs(at(best) - px) ? index : best), path[0]);
    showTip(plot, at(nearest), py, [element('strong', {}, name), describeLevel(report, nearest)]);
  }, () => {});
}
