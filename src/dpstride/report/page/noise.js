// The noise axis, and paths on it.

const AXES = {
  index: 'grid index',
  time: 'time of the grid',
  logSnr: 'log-SNR of the noise level',
};

// The position of every grid index between clean data (0) and noise (1), and the marks of the axis.
function noiseAxis(report, kind) {
  const T = report.T;
  const values = kind === 'index' ? Float64Array.from({length: T + 1}, (_, i) => i)
    : kind === 'time' ? Float64Array.from(report.grid.times) : Float64Array.from(report.grid.logSnr, (value) => -value);
  if (kind === 'logSnr') {
    // Clean data has infinite log-SNR, and pure noise may have −∞: they are drawn a little outside the others.
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

// Paths on the noise axis, [{stride, label, name, path}], the chosen one first.
function drawPath(report, state, lanes) {
  drawLanes(lanes, {
    left: 84,
    words: `Grid indices visited by ${stepsInWords(state.budget)} of ${lanes.map(({name}) => name).join(', ')}`,
    at: (index) => state.axis.position[index],
    marks: state.axis.marks,
    title: (narrow) => noiseTitle(state, narrow),
    describe: (index) => describeLevel(report, index),
  });
}
