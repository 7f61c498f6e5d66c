// The page of Gaussian diffusion: samples, studies, trade-offs, and the path of the budget.

let markStairs = () => {};
const formsOf = samplerForms;

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
      (distances.floor ? ` The grey line is the distance of ${grouped(distances.floor.samples)} real held-out images.` : '');
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
    $('ablation-hint').textContent = `Held-out bits/dim lost by choosing paths on few samples instead of all ${grouped(ablation.all)}: mean and range over ${ablation.draws} draws.`;
    fillLegend($('ablation-legend'), ablation.budgets.map((K, i) => [orderSwatch(i, ablation.budgets.length), stepsInWords(K)]));
    fillTable($('ablation-table'), ['samples', ...ablation.budgets.map(stepsInWords)], ablation.sizes.map((size, j) => [grouped(size),
      ...ablation.excess.map((row) => `${significant(row[j][0] ?? NaN)} (${significant(row[j][1] ?? NaN)} to ${significant(row[j][2] ?? NaN)})`)]));
  }
}

function fillFront() {
  if (!report.front) return;
  const {weight, budgets} = report.front;
  $('front-part').hidden = false;
  $('front-hint').textContent = 'Every path that minimises bits/dim + λ · squared distance for some λ: lower means a better likelihood, further left means closer to the samples of all steps. ' +
    `Large dots are the paths for λ = ${significant(weight)}, the subject of this report.`;
  fillLegend($('front-legend'), budgets.map(({budget}, i) => [orderSwatch(i, budgets.length), stepsInWords(budget)]));
  fillTable($('front-table'), ['steps', 'bits/dim', 'distance', 'best for'], budgets.flatMap(({budget, points, taken}) => points.map(([bpd, cost, low, high], j) =>
    [grouped(budget), fixed(bpd), significant(Math.sqrt(cost)), `${lambdas(low, high)}${j === taken ? ' (this report)' : ''}`])));
}

function fillListing() {
  const {path} = state;
  const costs = report.steps ? costsAt(report, state.place, path) : null;
  fillTable($('listing').querySelector('table'), ['step', 'from index', 'to index', 'from time', 'from log-SNR', ...(costs ? ['bits/dim'] : [])],
    path.slice(0, -1).map((t, i) => [String(i + 1), grouped(t), grouped(path[i + 1]), level(report.grid.times[t]), logarithm(report.grid.logSnr[t]),
      ...(costs ? [significant(costs[i])] : [])]));
}

function drawOnce() {
  if (report.heat) markStairs = drawHeat(report, state);
  if (report.study && report.study.distances) {
    drawDistance(report, 'frechet', report.study.distances.frechet, (point) => point.frechet, null);
    drawDistance(report, 'kernel', report.study.distances.kernel, (point) => point.kernel, (point) => point.kernelError);
    drawAgreement(report);
  }
  if (report.study && report.study.ablation) drawAblation(report);
  if (report.front) drawFront(report);
}

const PAGE = {
  prepare() {
    $('losses-part').hidden = !report.steps;
    $('heat-part').hidden = !report.heat;
    if (report.heat && report.heat.indices.length - 1 < report.T) $('heat-points').textContent = `, sampled at ${report.heat.indices.length - 1} of ${grouped(report.T)} indices`;
    state.axis = noiseAxis(report, document.querySelector('input[name=axis]:checked').value);
  },
  fill() {
    fillSamples();
    fillStudy();
    fillFront();
  },
  draw: drawOnce,
  show() {
    drawPath(report, state, STRIDES.map((stride) => ({stride, label: stride === 'dp' ? 'DP' : stride, name: report.names[stride],
      path: stride === 'dp' ? state.path : strideOf(stride, report.T, state.budget)})));
    if (report.steps) drawLosses(report, state);
    if (report.heat) markStairs();
    $('export').textContent = `dpstride export schedules.json --budget ${state.budget} --to ${report.grid.origin || report.grid.flow ? 'diffusers' : 'sigmas'}`;
  },
  list: fillListing,
  listen() {
    for (const radio of $('axes').querySelectorAll('input')) {
      radio.addEventListener('change', () => { state.axis = noiseAxis(report, radio.value); drawAll(); });
    }
  },
};

begin();
