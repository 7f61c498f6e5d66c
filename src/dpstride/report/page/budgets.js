// Shared by all pages: the budget, what depends on it, and the controls. SCORES shows the scores of paths: fill(), answer() and
// first() once, draw() for a width, show(), said() and told() for a budget, listen(). PAGE, in the page's own script, does the rest:
// prepare() and fill() once, draw() for a width, show() and list() for a budget, listen() to its own controls.

const state = {place: 0, budget: 1, path: [], axis: null, tolerance: 0.1, printing: false};
let report = null;
let announcing = 0;

// --- once ------------------------------------------------------------------------------------------------------------

function fillOnce() {
  $('caveat').replaceChildren(...prose(report.caveat));
  $('facts').replaceChildren(...report.facts.map(([name, value]) => element('div', {}, element('dt', {}, name), element('dd', {}, value))));
  $('provenance').replaceChildren(...report.provenance.map(([name, value]) => element('div', {}, element('dt', {}, name), element('dd', {}, value))));
  $('warnings').replaceChildren(...[...report.warnings, ...(report.dropped ? [`To stay small, this page omits ${grouped(report.dropped)} of the budgets above 256; schedules.json has all.`] : [])]
    .map((text) => element('li', {}, ...prose(text))));
  $('warnings').hidden = !$('warnings').children.length;
  $('presets').replaceChildren(...usualBudgets().map((K) => element('button', {type: 'button', 'data-budget': K, onclick: () => choose(report.budgets.indexOf(K))},
    K === report.T ? `all ${grouped(K)}` : grouped(K))));
  Object.assign($('count'), {min: report.budgets[0], max: report.budgets.at(-1), step: 1});
  if (report.command) {
    $('command').textContent = report.command;
    $('command-part').hidden = false;
    $('copy-command').addEventListener('click', () => copy(report.command, $('copy-command'), 'the command'));
  }
  SCORES.fill();
  PAGE.fill();
}

const usualBudgets = () => [...new Set([4, 8, ...report.tableBudgets])].filter((K) => report.budgets.includes(K)).sort((a, b) => a - b);

// --- the budget ------------------------------------------------------------------------------------------------------

function choose(place) {
  state.place = Math.min(Math.max(place, 0), report.budgets.length - 1);
  state.budget = report.budgets[state.place];
  state.path = pathAt(report, state.place);
  const words = stepsInWords(state.budget);
  const low = Math.log(report.budgets[0]);
  const high = Math.log(report.budgets.at(-1));
  $('budget').value = high > low ? (Math.log(state.budget) - low) / (high - low) : 0;
  $('budget').setAttribute('aria-valuetext', `${words}, ${SCORES.said()}`);
  if (document.activeElement !== $('count') || Number($('count').value) !== state.budget) $('count').value = state.budget;
  for (const button of $('presets').children) button.setAttribute('aria-pressed', Number(button.dataset.budget) === state.budget);
  $('fewer').disabled = state.place === 0;
  $('more').disabled = state.place === report.budgets.length - 1;
  for (const name of document.querySelectorAll('.chosen-budget')) name.textContent = words;
  SCORES.show();
  PAGE.show();
  if ($('listing').open) PAGE.list();
  fillForms();
  clearTimeout(announcing);
  announcing = setTimeout(() => {
    $('announce').textContent = `${words}: ${SCORES.told()}`;
  }, 250);
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
}

async function copy(text, button, what) {
  const copied = await navigator.clipboard?.writeText(text).then(() => true, () => false) || copiedAsBefore(text);
  button.focus();
  $('announce').textContent = copied ? `Copied ${what}.` : `This browser does not allow the page to copy ${what}.`;
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

// --- controls --------------------------------------------------------------------------------------------------------

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
  // Left and right work anywhere except in fields that use these keys.
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
  SCORES.listen();
  PAGE.listen();
  $('listing').addEventListener('toggle', () => { if ($('listing').open) PAGE.list(); });
  // For printing, figures are drawn for the width of the paper, so that their text keeps its size.
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

// The place whose budget is nearest to a real number, on a scale of ratios.
function nearestPlace(budgets, wanted) {
  let low = 0;
  let high = budgets.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (budgets[middle] < wanted) low = middle + 1; else high = middle;
  }
  return low > 0 && wanted / budgets[low - 1] < budgets[low] / wanted ? low - 1 : low;
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
  SCORES.draw();
  PAGE.draw();
  choose(state.place);
}

async function start() {
  prepareTheme();
  report = await readReport($('document').textContent);
  $('explore').hidden = false;
  PAGE.prepare();
  fillOnce();
  state.place = SCORES.first();
  listen();
  SCORES.answer();
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
