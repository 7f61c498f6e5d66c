// Paths of Gaussian diffusion: their words, the costs of their steps, and hand-made ones.

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
