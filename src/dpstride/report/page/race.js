// The page of a race: the path and its rule, samples, network evaluations, and the rounds of the race.

// Network evaluations per sample along a path; a step may take more than one.
const evaluations = (steps) => report.passes.step * steps - report.passes.saved;
const WORDS = {step: 'step', more: (steps) => (evaluations(steps) === steps ? '' : ` (${grouped(evaluations(steps))} ${evaluations(steps) === 1 ? 'evaluation' : 'evaluations'})`)};

function showSamples() {
  const {common, budgets} = report.pictures;
  if (!budgets.length) return;
  const all = budgets.map(({budget}) => budget);
  const {budget, pictures} = budgets[nearestPlace(all, state.budget)];
  $('samples-budget').textContent = stepsInWords(budget);
  $('samples-remark').textContent = budget === state.budget ? '' : `There are none for ${stepsInWords(state.budget)}; these are the nearest.`;
  if ($('samples').dataset.budget === String(budget)) return;
  $('samples').dataset.budget = budget;
  $('samples').replaceChildren(element('div', {class: 'pictures'}, ...[...common, ...pictures].map(({label, png, width, height}, i) => element('figure', {},
    element('img', {src: png, width, height, alt: i < common.length ? `${label}` : `Samples: ${stepsInWords(budget)}, ${label}`}), element('figcaption', {}, label)))));
}

function fillSpent() {
  const total = report.spent.reduce((sum, [, count]) => sum + count, 0);
  fillTable($('spent'), ['for', 'network evaluations'], [...report.spent, ['total', total]].map(([part, count]) => [part, grouped(count)]));
}

function fillHeats() {
  $('heats').replaceChildren(...report.heats.map(({of, budget, winner, lead, stopped, rounds, candidates}) => {
    const table = element('table', {class: 'numbers', 'aria-label': `The race: ${of}${stepsInWords(budget)}`}, element('thead'), element('tbody'));
    fillTable(table, ['candidate', ...rounds.map(({samples, left}) => `${grouped(samples)} samples, ${grouped(left)} ${left === 1 ? 'candidate' : 'candidates'}`)],
      candidates.map(({name, distances}) => [name, ...distances.map((pair) => (pair ? told({value: pair[0], error: pair[1]}) : ''))]));
    [...table.tBodies[0].rows].forEach((row, i) => row.classList.toggle('won', candidates[i].name === winner));
    const words = `${winner} won` + (lead ? `, ${told({value: lead[0], error: lead[1]})} ahead of the runner-up` : '') + (stopped ? '; later rounds were skipped because the evaluation limit was reached' : '') + '.';
    return element('div', {class: 'group'}, element('h3', {}, `${of}${stepsInWords(budget)}`), element('p', {class: 'hint'}, words), element('div', {class: 'scroll'}, table));
  }));
}

function formsOf(report, path) {
  const target = report.grid.origin || report.grid.flow ? 'diffusers' : 'sigmas';
  return [...samplerForms(report, path).filter(({name}) => name !== 'improved-diffusion'),
    {name: 'terminal', hint: 'dpstride export', text: `dpstride export schedules.json --budget ${path.length - 1} --to ${target}`}];
}

// The raced path, and hand-made ones of as many steps where the grid has enough points.
const lanes = () => [{stride: 'dp', label: 'raced', name: 'raced', path: state.path},
  ...report.schedules.filter(({name}) => report.otherPaths[name]).map(({name, words, style}) => ({stride: style, label: name.replaceAll('_', '-'), name: words,
    path: pathAt(report, state.place, report.otherPaths[name])})).filter(({path}) => path.length)];

const PAGE = {
  prepare() {
    state.axis = noiseAxis(report, document.querySelector('input[name=axis]:checked').value);
    $('sampler').textContent = report.sampler;
    $('samples-part').hidden = !report.pictures.budgets.length;
  },
  fill() {
    fillSpent();
    fillHeats();
  },
  draw() {},
  show() {
    const {rule, how} = report.rules[state.place];
    $('rule').textContent = rule;
    $('rule-how').textContent = how;
    drawPath(report, state, lanes());
    showSamples();
  },
  list() {
    const {path} = state;
    fillTable($('listing').querySelector('table'), ['step', 'from index', 'to index', 'from time', 'from log-SNR'],
      path.slice(0, -1).map((t, i) => [String(i + 1), grouped(t), grouped(path[i + 1]), level(report.grid.times[t]), logarithm(report.grid.logSnr[t])]));
  },
  listen() {
    for (const radio of $('axes').querySelectorAll('input')) {
      radio.addEventListener('change', () => { state.axis = noiseAxis(report, radio.value); drawAll(); });
    }
  },
};

begin();
