// Paths of Gaussian diffusion in the formats of samplers.

// The path in each sampler's format, as in integrations/export.py: text, or the reason why there is none.
function samplerForms(report, path) {
  const {origin, sigmas, flow} = report.grid;
  const kept = path.slice(0, -1);
  const float = (value) => (Number.isInteger(value) ? value.toFixed(1) : String(value));
  const written = (value) => (value < 1e-6 ? value.toFixed(24) : float(value)); // without exponents, which ComfyUI misreads
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
    {name: 'ComfyUI', hint: 'ManualSigmas', ...(noSigma || {text: [...levels.map(written), '0.0'].join(', ')})},
    {name: 'A1111', hint: 'Extra Schedulers, custom', ...(noSigma || {text: list([...levels.map((level, i) => float(i === 0 && level === 1 ? level - 1e-9 : level)), '0.0'])})},
  ];
}
