// Paths of Gaussian diffusion: what they are called, what their steps cost, hand-made ones, and what samplers take.

const STRIDES = ['dp', 'even', 'quadratic'];
const BANDS = STRIDES;
const WORDS = {step: 'step', unit: 'bits/dim', spoken: 'bits per dimension', values: 'values', stride: 'stride'};

// Bits/dim of each step of that path, the last one (the decoder) included.
function costsAt(report, place, path) {
  const {starts, gaps, bpd, last} = report.steps;
  return path.slice(0, -1).map((t, i) => {
    if (i === path.length - 2) return last[place];
    const gap = t - path[i + 1];
    for (let at = starts[t]; at < starts[t + 1]; at++) if (gaps[at] === gap) return bpd[at];
    return NaN;
  });
}

// floor(numerator/denominator + 1/2), in whole numbers below 2^53.
function halfUp(numerator, denominator) {
  const doubled = 2 * numerator + denominator;
  return (doubled - doubled % (2 * denominator)) / (2 * denominator);
}

// even_stride and quadratic_stride of the library.
function strideOf(name, T, K) {
  const rising = [0];
  for (let i = 1; i <= K; i++) {
    const wanted = name === 'even' ? halfUp(i * T, K) : halfUp(i * i * T, K * K);
    rising.push(Math.max(wanted, rising[i - 1] + 1));
  }
  return rising.reverse();
}

// What each sampler takes, as integrations/export.py has it: text, or the reason why there is none.
function formsOf(report, path) {
  const {origin, sigmas, flow} = report.grid;
  const kept = path.slice(0, -1);
  const float = (value) => (Number.isInteger(value) ? value.toFixed(1) : String(value));
  const list = (numbers) => `[${numbers.join(', ')}]`;
  const levels = kept.map((t) => sigmas[t]);
  const noSteps = {reason: 'A continuous process has no training steps; take the sigmas.'};
  const noSigma = levels.every(Number.isFinite) ? null : {reason: 'The path starts at pure noise, where sigma is infinite.'};
  const training = origin && kept.map((t) => origin[t] - 1);
  const respacing = () => {
    const chosen = new Set(training);
    return Array.from({length: report.process.originT}, (_, i) => (chosen.has(i) ? '1' : '0')).join(',');
  };
  return [
    {name: 'diffusers', hint: flow ? 'sigmas=' : 'timesteps=',
      ...(flow ? {text: list(levels.map(float))} : training ? {text: list(training)} : noSteps)},
    {name: 'improved-diffusion', hint: 'use_timesteps=', ...(training ? {text: `{${training.join(', ')}}`} : noSteps)},
    {name: 'improved-diffusion', hint: '--timestep_respacing', ...(training ? {text: respacing()} : noSteps)},
    {name: 'sigmas', hint: flow ? 'times of the flow' : 'g/f, no final 0', ...(noSigma || {text: list(levels.map(float))})},
    {name: 'k-diffusion', hint: 'sigmas, with the final 0',
      ...(flow ? {reason: 'k-diffusion does not walk a rectified flow.'} : noSigma || {text: list([...levels.map(float), '0.0'])})},
  ];
}
