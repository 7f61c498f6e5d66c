// The page: what is shown once, what follows the budget, and what the reader can do.

const state = {place: 0, budget: 1, path: [], axis: null, tolerance: 0.1, printing: false};
let report = null;
let markBudget = () => {};
let markStairs = () => {};
let announcing = 0;

// --- once ------------------------------------------------------------------------------------------------------------

function fillOnce() {
  $('caveat').textContent = report.caveat;
  $('facts').replaceChildren(...report.facts.map(([name, value]) => element('div', {}, element('dt', {}, name), element('dd', {}, value))));
  $('provenance').replaceChildren(...report.provenance.map(([name, value]) => element('div', {}, element('dt', {}, name), element('dd', {}, value))));
  $('warnings').replaceChildren(...[...report.warnings, ...(report.dropped ? [`To stay small, this page leaves out ${grouped(report.dropped)} of the budgets above 256; schedules.json has all.`] : [])]
    .map((text) => element('li', {}, text)));
  $('warnings').hidden = !$('warnings').children.length;
  fillLegend($('legend'), STRIDES.map((stride) => [swatch(stride), report.names[stride]]));
  fillTable($('curves-table'), ['steps', ...STRIDES.map((stride) => report.names[stride])], usualBudgets().map((K) => [grouped(K),
    ...STRIDES.map((stride) => [report.curves[stride].bpd, report.curves[stride].error].map((values) => fixed(values[report.budgets.indexOf(K)])).join(' ± '))]));
  for (const value of [0.01, 0.02, 0.05, 0.1, 0.2, 0.5]) {
    $('tolerances').append(element('button', {type: 'button', 'data-tolerance': value, onclick: () => setTolerance(value, true)}, String(value)));
  }
  $('presets').replaceChildren(...usualBudgets().map((K) => element('button', {type: 'button', 'data-budget': K, onclick: () => choose(report.budgets.indexOf(K))},
    K === report.T ? `all ${grouped(K)}` : grouped(K))));
  Object.assign($('count'), {min: report.budgets[0], max: report.budgets.at(-1), step: 1});
  if (report.command) {
    $('command').textContent = report.command;
    $('command-part').hidden = false;
    $('copy-command').addEventListener('click', () => copy(report.command, $('copy-command'), 'the command'));
  }
  fillSamples();
  fillStudy();
  fillFront();
}

const usualBudgets = () => [...new Set([4, 8, ...report.tableBudgets])].filter((K) => report.budgets.includes(K)).sort((a, b) => a - b);

function fillSamples() {
  $('samples-part').hidden = !report.samples.length;
  $('samples').replaceChildren(...report.samples.map(({title, layout, pictures}) => element('div', {class: `group ${layout}`},
    element('h3', {}, title), element('div', {class: 'pictures'}, ...pictures.map(({label, png, width, height}) => element('figure', {},
      element('img', {src: png, width, height, alt: `Samples: ${title}, ${label}`}), label === title ? null : element('figcaption', {}, label)))))));
}

function fillStudy() {
  const {ablation, distances, sentence} = report.study || {};
  if (distances) {
    $('distances-part').hidden = false;
    const counts = [...new Set(distances.points.map((point) => point.samples))].sort((a, b) => a - b).map(grouped).join(' or ');
    $('distances-hint').textContent = `${counts} samples against ${grouped(distances.real)} real images, ${distances.sampler} sampling; lower is better.` +
      (distances.floor ? ` The grey line is that of ${grouped(distances.floor.samples)} real held-out images.` : '');
    $('agreement-sentence').textContent = sentence || '';
    const icon = (stride) => {
      const svg = shape('svg', {viewBox: '0 0 26 14', width: 26, height: 14, 'aria-hidden': 'true', class: 'swatch'});
      svg.append(...(stride === 'all' ? [] : [shape('path', {class: `line ${stride}`, d: 'M1 7H25'})]), MARKERS[stride](13, 7));
      return svg;
    };
    fillLegend($('distances-legend'), [...STRIDES, 'all'].filter((stride) => distances.points.some((point) => point.stride === stride))
      .map((stride) => [icon(stride), strideName(report, stride)]));
    fillTable($('distances-table'), ['stride', 'steps', 'samples', distances.frechet, distances.kernel, '± s.e.', 'bits/dim'],
      distances.points.map((point) => [strideName(report, point.stride), grouped(point.budget), grouped(point.samples), significant(point.frechet),
        significant(point.kernel), significant(point.kernelError ?? NaN), fixed(point.bpd ?? NaN)]));
  }
  if (ablation) {
    $('ablation-part').hidden = false;
    $('ablation-hint').textContent = `Held-out bits/dim that paths chosen on few samples lose against those of all ${grouped(ablation.all)}: mean and range over ${ablation.draws} draws.`;
    fillLegend($('ablation-legend'), ablation.budgets.map((K, i) => [orderSwatch(i, ablation.budgets.length), stepsInWords(K)]));
    fillTable($('ablation-table'), ['samples', ...ablation.budgets.map(stepsInWords)], ablation.sizes.map((size, j) => [grouped(size),
      ...ablation.excess.map((row) => `${significant(row[j][0] ?? NaN)} (${significant(row[j][1] ?? NaN)} to ${significant(row[j][2] ?? NaN)})`)]));
  }
}

function fillFront() {
  if (!report.front) return;
  const {weight, budgets} = report.front;
  $('front-part').hidden = false;
  $('front-hint').textContent = 'Every path that is the best of bits/dim + λ · squared distance for some λ: lower is a better likelihood, further left is nearer to what the sampler would draw with all steps. ' +
    `Large dots are the paths of λ = ${significant(weight)}, which this report is about.`;
  fillLegend($('front-legend'), budgets.map(({budget}, i) => [orderSwatch(i, budgets.length), stepsInWords(budget)]));
  fillTable($('front-table'), ['steps', 'bits/dim', 'distance', 'best for'], budgets.flatMap(({budget, points, taken}) => points.map(([bpd, cost, low, high], j) =>
    [grouped(budget), fixed(bpd), significant(Math.sqrt(cost)), `${lambdas(low, high)}${j === taken ? ' (this report)' : ''}`])));
}

// --- the answer ------------------------------------------------------------------------------------------------------

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
    $('answer').textContent = 'This model describes held-out data worse than no model at all, so no number of steps is enough.';
    $('against').textContent = `${pair(found.least)} bits/dim at best; storing the values as they are takes ${significant(report.raw)}.`;
  } else {
    const show = element('button', {type: 'button', class: 'go', title: 'Show this budget', onclick: () => choose(found.place)}, stepsInWords(found.steps));
    $('answer').replaceChildren(show, ` ${found.steps === 1 ? 'is' : 'are'} within ${value} bits/dim of ${found.name} on held-out data.`);
    $('against').textContent = `${pair(found.few)} against ${pair(found.reference)} bits/dim${found.hurts ? ` at ${stepsInWords(report.budgets[found.best])}` : ''}` +
      (found.hurts ? `; ${report.budgets.at(-1) === report.T ? `all ${grouped(report.T)} steps` : `${grouped(report.budgets.at(-1))} steps`} are worse, ${pair(found.last)}.` : '.');
  }
  showCurves();
}

function showCurves() {
  markBudget = drawCurves(report, state, choose);
  markBudget();
}

// --- the budget ------------------------------------------------------------------------------------------------------

function choose(place) {
  state.place = Math.min(Math.max(place, 0), report.budgets.length - 1);
  state.budget = report.budgets[state.place];
  state.path = pathAt(report, state.place);
  const words = stepsInWords(state.budget);
  const {curves} = report;
  const value = (stride) => curves[stride].bpd[state.place];
  const low = Math.log(report.budgets[0]);
  const high = Math.log(report.budgets.at(-1));
  $('budget').value = high > low ? (Math.log(state.budget) - low) / (high - low) : 0;
  $('budget').setAttribute('aria-valuetext', `${words}, ${fixed(value('dp'))} bits per dimension`);
  if (document.activeElement !== $('count') || Number($('count').value) !== state.budget) $('count').value = state.budget;
  for (const button of $('presets').children) button.setAttribute('aria-pressed', Number(button.dataset.budget) === state.budget);
  $('fewer').disabled = state.place === 0;
  $('more').disabled = state.place === report.budgets.length - 1;
  for (const name of document.querySelectorAll('.chosen-budget')) name.textContent = words;
  $('numbers').tBodies[0].replaceChildren(...STRIDES.map((stride) => element('tr', {'data-stride': stride},
    element('th', {scope: 'row'}, swatch(stride), report.names[stride].replace(' stride', '')),
    element('td', {}, fixed(value(stride))),
    element('td', {}, fixed(curves[stride].error[state.place])),
    element('td', {}, stride === 'dp' ? '' : difference(value(stride) - value('dp'))))));
  const chosen = report.chosen;
  $('remark').textContent = chosen && Number.isFinite(chosen.bpd[state.place])
    ? `The data that chose the path gave ${fixed(chosen.bpd[state.place])} ± ${fixed(chosen.error[state.place])}.` : '';
  markBudget();
  drawWhiskers(report, state);
  drawPath(report, state);
  if (report.steps) drawLosses(report, state);
  if (report.heat) markStairs();
  if ($('listing').open) fillListing();
  fillForms();
  clearTimeout(announcing);
  announcing = setTimeout(() => {
    $('announce').textContent = `${words}: ${STRIDES.map((stride) => `${report.names[stride]} ${fixed(value(stride))}`).join(', ')} bits per dimension`;
  }, 250);
}

const difference = (value) => (Number.isFinite(value) ? `${value < 0 ? '−' : '+'}${Math.abs(value).toFixed(3)}` : '–');

function fillListing() {
  const {path} = state;
  const costs = report.steps ? costsAt(report, state.place, path) : null;
  fillTable($('listing').querySelector('table'), ['step', 'from index', 'to index', 'from time', 'from log-SNR', ...(costs ? ['bits/dim'] : [])],
    path.slice(0, -1).map((t, i) => [String(i + 1), grouped(t), grouped(path[i + 1]), level(report.grid.times[t]), logarithm(report.grid.logSnr[t]),
      ...(costs ? [significant(costs[i])] : [])]));
}

function fillForms() {
  const forms = formsOf(report, state.path);
  const body = $('forms').tBodies[0];
  if (!body.children.length) {
    body.append(...forms.map(({name, hint}, i) => {
      const button = element('button', {type: 'button', 'aria-label': `Copy for ${name}, ${hint}`}, 'Copy');
      button.addEventListener('click', () => copy(formsOf(report, state.path)[i].text, button, `${stepsInWords(state.budget)} for ${name}`));
      return element('tr', {}, element('th', {scope: 'row'}, name, element('small', {}, hint)), element('td', {}, element('code')), element('td', {}, button));
    }));
  }
  forms.forEach(({hint, text, reason}, i) => {
    const row = body.rows[i];
    const code = row.querySelector('code');
    const whole = state.printing && state.budget <= 256 && hint !== '--timestep_respacing'; // a reader of paper cannot copy
    const most = whole ? Infinity : 320;
    code.textContent = text === undefined ? reason : text.length > most ? `${text.slice(0, most)}…` : text;
    code.classList.toggle('reason', text === undefined);
    row.querySelector('button').disabled = text === undefined;
  });
  $('export').textContent = `dpstride export schedules.json --budget ${state.budget} --to ${report.grid.origin || report.grid.flow ? 'diffusers' : 'sigmas'}`;
}

async function copy(text, button, what) {
  const copied = await navigator.clipboard?.writeText(text).then(() => true, () => false) || copiedAsBefore(text);
  button.focus();
  $('announce').textContent = copied ? `Copied ${what}.` : `This browser does not let the page copy ${what}.`;
  button.textContent = copied ? 'Copied' : 'Not allowed';
  button.classList.toggle('done', copied);
  setTimeout(() => { button.textContent = 'Copy'; button.classList.remove('done'); }, 1600);
}

// Without permission, or on a page served without TLS.
function copiedAsBefore(text) {
  const area = element('textarea', {class: 'unseen', readonly: true, 'aria-hidden': 'true'});
  area.value = text;
  document.body.append(area);
  area.select();
  const copied = document.execCommand('copy');
  area.remove();
  return copied;
}

// --- what the reader does --------------------------------------------------------------------------------------------

const KEYS = {
  ArrowRight: () => state.place + 1,
  ArrowUp: () => state.place + 1,
  ArrowLeft: () => state.place - 1,
  ArrowDown: () => state.place - 1,
  PageUp: () => nearestPlace(report.budgets, state.budget * 2),
  PageDown: () => nearestPlace(report.budgets, state.budget / 2),
  Home: () => 0,
  End: () => report.budgets.length - 1,
};

function listen() {
  const slider = $('budget');
  slider.addEventListener('input', () => {
    const [low, high] = [report.budgets[0], report.budgets.at(-1)].map(Math.log);
    choose(nearestPlace(report.budgets, Math.exp(low + Number(slider.value) * (high - low))));
  });
  slider.addEventListener('change', () => choose(state.place));
  slider.addEventListener('keydown', (event) => {
    if (!KEYS[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    choose(KEYS[event.key]());
  });
  // Left and right work anywhere but in a field of its own keys.
  document.addEventListener('keydown', (event) => {
    const busy = event.target.closest('input, textarea, select, summary, .scroll');
    if (busy || event.ctrlKey || event.metaKey || event.altKey || !['ArrowLeft', 'ArrowRight'].includes(event.key)) return;
    event.preventDefault();
    choose(KEYS[event.key]());
  });
  $('count').addEventListener('input', () => {
    const wanted = Number($('count').value);
    if (wanted >= 1) choose(nearestPlace(report.budgets, wanted));
  });
  $('count').addEventListener('change', () => choose(state.place));
  $('count').addEventListener('blur', () => { $('count').value = state.budget; });
  $('fewer').addEventListener('click', () => choose(state.place - 1));
  $('more').addEventListener('click', () => choose(state.place + 1));
  $('tolerance').addEventListener('input', () => setTolerance($('tolerance').value === '' ? NaN : Number($('tolerance').value), false));
  for (const radio of $('axes').querySelectorAll('input')) {
    radio.addEventListener('change', () => { state.axis = noiseAxis(report, radio.value); drawAll(); });
  }
  $('listing').addEventListener('toggle', () => { if ($('listing').open) fillListing(); });
  // On paper the figures are drawn for its width, so that their text keeps its size.
  for (const [event, printing] of [['beforeprint', true], ['afterprint', false]]) {
    window.addEventListener(event, () => {
      document.documentElement.classList.toggle('printing', printing);
      state.printing = printing;
      drawAll();
    });
  }
  let width = window.innerWidth;
  let waiting = 0;
  window.addEventListener('resize', () => {
    if (window.innerWidth === width) return; // a phone's address bar comes and goes
    width = window.innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(drawAll, 80);
  });
}

function drawAll() {
  showCurves();
  if (report.heat) markStairs = drawHeat(report, state);
  if (report.study && report.study.distances) {
    drawDistance(report, 'frechet', report.study.distances.frechet, (point) => point.frechet, null);
    drawDistance(report, 'kernel', report.study.distances.kernel, (point) => point.kernel, (point) => point.kernelError);
    drawAgreement(report);
  }
  if (report.study && report.study.ablation) drawAblation(report);
  if (report.front) drawFront(report);
  choose(state.place);
}

// --- light and dark --------------------------------------------------------------------------------------------------

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  $('theme').setAttribute('aria-pressed', theme === 'dark');
  try { localStorage.setItem('dpstride-theme', theme); } catch { /* not kept */ }
}

function prepareTheme() {
  let kept = null;
  try { kept = localStorage.getItem('dpstride-theme'); } catch { /* not there */ }
  if (kept === 'light' || kept === 'dark') document.documentElement.dataset.theme = kept;
  const dark = () => (document.documentElement.dataset.theme || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')) === 'dark';
  const show = () => $('theme').setAttribute('aria-pressed', dark());
  show();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', show);
  $('theme').addEventListener('click', () => setTheme(dark() ? 'light' : 'dark'));
}

async function start() {
  prepareTheme();
  report = await readReport($('document').textContent);
  $('explore').hidden = false;
  $('losses-part').hidden = !report.steps;
  $('heat-part').hidden = !report.heat;
  if (report.heat && report.heat.indices.length - 1 < report.T) $('heat-points').textContent = `, sampled at ${report.heat.indices.length - 1} of ${grouped(report.T)} indices`;
  state.axis = noiseAxis(report, document.querySelector('input[name=axis]:checked').value);
  fillOnce();
  const {useless, best, place} = answerOf(report, state.tolerance);
  $('tolerances').hidden = useless || report.answer !== null;
  state.place = report.answer ? nearestPlace(report.budgets, 8) : useless ? best : place;
  listen();
  setTolerance(state.tolerance, false);
  drawAll();
  document.documentElement.dataset.ready = 'yes';
}

start().catch((error) => {
  $('failure').hidden = false;
  $('failure').textContent = `This page could not be drawn (${error.message}). It needs a browser of 2024 or later.`;
  throw error;
});
