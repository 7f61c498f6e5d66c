// What every page has: the answer, the budget and what follows it, what the reader can do. PAGE, in the page's own script, does
// the rest: prepare() and fill() once, draw() for a width, show() and list() for a budget, listen() to what only it has.

const state = {place: 0, budget: 1, path: [], axis: null, tolerance: 0.1, printing: false};
let report = null;
let markBudget = () => {};
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
  fillTable($('curves-table'), [`${WORDS.step}s`, ...STRIDES.map((stride) => report.names[stride])], usualBudgets().map((K) => [grouped(K),
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
  PAGE.fill();
}

const usualBudgets = () => [...new Set([4, 8, ...report.tableBudgets])].filter((K) => report.budgets.includes(K)).sort((a, b) => a - b);

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
    $('answer').textContent = 'This model describes held-out data worse than no model at all, so no number of ' + `${WORDS.step}s is enough.`;
    $('against').textContent = `${pair(found.least)} ${WORDS.unit} at best; storing the ${WORDS.values} as they are takes ${significant(report.raw)}.`;
  } else {
    const show = element('button', {type: 'button', class: 'go', title: 'Show this budget', onclick: () => choose(found.place)}, stepsInWords(found.steps));
    $('answer').replaceChildren(show, ` ${found.steps === 1 ? 'is' : 'are'} within ${value} ${WORDS.unit} of ${found.name} on held-out data.`);
    $('against').textContent = `${pair(found.few)} against ${pair(found.reference)} ${WORDS.unit}${found.hurts ? ` at ${stepsInWords(report.budgets[found.best])}` : ''}` +
      (found.hurts ? `; ${report.budgets.at(-1) === report.T ? `all ${stepsInWords(report.T)}` : stepsInWords(report.budgets.at(-1))} are worse, ${pair(found.last)}.` : '.');
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
  $('budget').setAttribute('aria-valuetext', `${words}, ${fixed(value('dp'))} ${WORDS.spoken}`);
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
  PAGE.show();
  if ($('listing').open) PAGE.list();
  fillForms();
  clearTimeout(announcing);
  announcing = setTimeout(() => {
    $('announce').textContent = `${words}: ${STRIDES.map((stride) => `${report.names[stride]} ${fixed(value(stride))}`).join(', ')} ${WORDS.spoken}`;
  }, 250);
}

const difference = (value) => (Number.isFinite(value) ? `${value < 0 ? '−' : '+'}${Math.abs(value).toFixed(3)}` : '–');

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
  PAGE.listen();
  $('listing').addEventListener('toggle', () => { if ($('listing').open) PAGE.list(); });
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

// --- all of it -------------------------------------------------------------------------------------------------------

function drawAll() {
  showCurves();
  PAGE.draw();
  choose(state.place);
}

async function start() {
  prepareTheme();
  report = await readReport($('document').textContent);
  $('explore').hidden = false;
  PAGE.prepare();
  fillOnce();
  const {useless, best, place} = answerOf(report, state.tolerance);
  $('tolerances').hidden = useless || report.answer !== null;
  state.place = report.answer ? nearestPlace(report.budgets, 8) : useless ? best : place;
  listen();
  setTolerance(state.tolerance, false);
  drawAll();
  document.documentElement.dataset.ready = 'yes';
}

// Called by the page's own script, when everything is defined.
function begin() {
  start().catch((error) => {
    $('failure').hidden = false;
    $('failure').textContent = `This page could not be drawn (${error.message}). It needs a browser of 2024 or later.`;
    throw error;
  });
}
