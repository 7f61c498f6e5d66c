// Pages with a curve of held-out scores: the answer by a tolerance, curves, and the scores of one budget.

let markBudget = () => {};

function setTolerance(value, written) {
  if (!Number.isFinite(value) || value < 0) {
    $('tolerance').setAttribute('aria-invalid', 'true');
    return;
  }
  $('tolerance').removeAttribute('aria-invalid');
  if (written) $('tolerance').value = value;
  state.tolerance = value;
  for (const button of $('tolerances').querySelectorAll('button')) button.setAttribute('aria-pressed', Number(button.dataset.tolerance) === value);
  const found = answerOf(report, value);
  const pair = ({bpd, error}) => fixed(bpd) + (Number.isFinite(error) ? ` ± ${fixed(error)}` : '');
  if (report.answer) {
    const [headline, ...rest] = report.answer.split('. ');
    $('answer').textContent = `${headline}.`;
    $('against').textContent = rest.join('. ');
  } else if (found.useless) {
    $('answer').textContent = 'This model describes held-out data worse than no model at all, so no number of ' + `${WORDS.step}s is enough.`;
    $('against').textContent = `${pair(found.least)} ${WORDS.unit} at best; storing the ${WORDS.values} as they are takes ${significant(report.raw)}.`;
  } else {
    const show = element('button', {type: 'button', class: 'go', title: 'Show this budget', onclick: () => choose(found.place)}, stepsInWords(found.steps));
    $('answer').replaceChildren(show, ` ${found.steps === 1 ? 'is' : 'are'} within ${value} ${WORDS.unit} of ${found.name} on held-out data.`);
    $('against').textContent = `${pair(found.few)} against ${pair(found.reference)} ${WORDS.unit}${found.hurts ? ` at ${stepsInWords(report.budgets[found.best])}` : ''}` +
      (found.worse ? `; ${report.budgets.at(-1) === report.T ? `all ${stepsInWords(report.T)}` : stepsInWords(report.budgets.at(-1))} are worse, ${pair(found.last)}.` : '.');
  }
  showCurves();
}

function showCurves() {
  markBudget = drawCurves(report, state, choose);
  markBudget();
}

const scoreOf = (stride) => report.curves[stride].bpd[state.place];
const difference = (value) => (Number.isFinite(value) ? `${value < 0 ? '−' : '+'}${Math.abs(value).toFixed(3)}` : '–');

const SCORES = {
  fill() {
    fillLegend($('legend'), STRIDES.map((stride) => [swatch(stride), report.names[stride]]));
    fillTable($('curves-table'), [`${WORDS.step}s`, ...STRIDES.map((stride) => report.names[stride])], usualBudgets().map((K) => [grouped(K),
      ...STRIDES.map((stride) => [report.curves[stride].bpd, report.curves[stride].error].map((values) => fixed(values[report.budgets.indexOf(K)])).join(' ± '))]));
    for (const value of [0.01, 0.02, 0.05, 0.1, 0.2, 0.5]) {
      $('tolerances').append(element('button', {type: 'button', 'data-tolerance': value, onclick: () => setTolerance(value, true)}, String(value)));
    }
  },
  answer: () => setTolerance(state.tolerance, false),
  // The place in the list of budgets to show first.
  first() {
    const {useless, best, place} = answerOf(report, state.tolerance);
    $('tolerances').hidden = useless || report.answer !== null;
    return report.answer ? nearestPlace(report.budgets, 8) : useless ? best : place;
  },
  draw: showCurves,
  show() {
    $('numbers').tBodies[0].replaceChildren(...STRIDES.map((stride) => element('tr', {'data-stride': stride},
      element('th', {scope: 'row'}, swatch(stride), report.names[stride].replace(' stride', '')),
      element('td', {}, fixed(scoreOf(stride))),
      element('td', {}, fixed(report.curves[stride].error[state.place])),
      element('td', {}, stride === 'dp' ? '' : difference(scoreOf(stride) - scoreOf('dp'))))));
    const chosen = report.chosen;
    $('remark').textContent = chosen && Number.isFinite(chosen.bpd[state.place])
      ? `On the choosing data: ${fixed(chosen.bpd[state.place])} ± ${fixed(chosen.error[state.place])}.` : '';
    markBudget();
    drawWhiskers(report, state);
  },
  said: () => `${fixed(scoreOf('dp'))} ${WORDS.spoken}`,
  told: () => `${STRIDES.map((stride) => `${report.names[stride]} ${fixed(scoreOf(stride))}`).join(', ')} ${WORDS.spoken}`,
  listen() {
    $('tolerance').addEventListener('input', () => setTolerance($('tolerance').value === '' ? NaN : Number($('tolerance').value), false));
  },
};
