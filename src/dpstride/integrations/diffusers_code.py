"""Export of schedules as a program: diffusers' own scheduler, configured so that it takes the steps of the path.

With a list alone much can go wrong: a scheduler that spaces steps by itself, a config that replaces the list (Karras' levels,
a shift), another last step, another scale of the initial noise. The program contains numbers and settings only, no text from
the file, so that it is safe to run whoever wrote the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..options import ODE_SAMPLERS, POSTERIOR, Sampler
from ..samplers import InDiffusers, find
from .export import sigmas, timesteps

if TYPE_CHECKING:
    from ..schedule import Schedule

PROGRAM = '''\
"""Draws in {budget} steps with diffusers' {scheduler}, along a path that dpstride found."""

{imports}from diffusers import DiffusionPipeline, {scheduler}

MODEL = "folder-or-hub-id"  # the model that the path was found for
{name} = {numbers}

pipeline = DiffusionPipeline.from_pretrained(MODEL)
pipeline.scheduler = {scheduler}.from_config(
    pipeline.scheduler.config,
{settings}
)
{draw}images[0].save("sample.png")
'''

IMPORTS = "import inspect\n\nimport torch\n"
DRAW = """\
if "{takes}" in inspect.signature(pipeline.__call__).parameters:
    images = pipeline("a photograph of an astronaut riding a horse", {takes}={name}).images
else:  # DDPMPipeline and its like take no list
    unet, scheduler = pipeline.unet, pipeline.scheduler
    size = unet.config.sample_size
    height, width = (size, size) if isinstance(size, int) else size
    classes = unet.config.get("num_class_embeds")  # of a class-conditional network
    labels = {{}} if classes is None else {{"class_labels": torch.arange(4) % classes}}
    scheduler.set_timesteps({takes}={name})
    x = torch.randn(4, unet.config.in_channels, height, width) * scheduler.init_noise_sigma
    with torch.no_grad():
        for t in scheduler.timesteps:
            output = unet(scheduler.scale_model_input(x, t), t, **labels).sample
            x = scheduler.step(output, t, x).prev_sample
    images = pipeline.numpy_to_pil((x.clamp(-1, 1) / 2 + 0.5).permute(0, 2, 3, 1).numpy())
"""
FLOW_DRAW = """\
images = pipeline("a photograph of an astronaut riding a horse", {takes}={name}, num_inference_steps={budget}).images
"""

# Euler along dx/dt, with the path's times as they are: the scheduler's own shift would move them.
EULER_FLOW = InDiffusers(
    scheduler="FlowMatchEulerDiscreteScheduler",
    takes="sigmas",
    settings={
        "shift": "1.0",
        "use_dynamic_shifting": "False",
        "shift_terminal": "None",
        "use_karras_sigmas": "False",
        "use_exponential_sigmas": "False",
        "use_beta_sigmas": "False",
        "invert_sigmas": "False",
        "stochastic_sampling": "False",
    },
)


def diffusers_code(schedule: Schedule, sampler: Sampler | None = None) -> str:
    """Return a Python program that samples with diffusers along the path, with the schedule's own sampler or another.

    ``"ddim"`` becomes EulerDiscreteScheduler (for a rectified flow, FlowMatchEulerDiscreteScheduler), ``"dpmpp_2m"``
    DPMSolverMultistepScheduler, ``"ancestral"`` with the posterior variance DDPMScheduler; anything that diffusers does not
    have is refused.
    """
    name = sampler or schedule.sampler
    flow = schedule.process.name == "rectified_flow"
    form = _form(schedule, name, flow)
    numbers = sigmas(schedule) if form.takes == "sigmas" else timesteps(schedule)
    if form.takes == "sigmas" and not flow:
        timesteps(schedule)  # only a discrete model has a scheduler of this kind
        numbers = [*numbers, 0.0]
    lists = {"takes": form.takes, "name": form.takes.upper(), "budget": schedule.budget}
    return PROGRAM.format(
        **lists,
        imports="" if flow else IMPORTS,
        draw=(FLOW_DRAW if flow else DRAW).format(**lists),
        scheduler=form.scheduler,
        numbers=numbers,
        settings="\n".join(f"    {key}={value}," for key, value in form.settings.items()),
    )


def _form(schedule: Schedule, name: Sampler, flow: bool) -> InDiffusers:
    rule = find(name)
    own = name == schedule.sampler
    if flow and not rule.takes_eta:
        raise ValueError(
            f"diffusers' schedulers for rectified flows do not take the steps of {name!r}. Use the deterministic "
            "sampler='ddim' (--sampler ddim)."
        )
    if own and rule.takes_eta and schedule.eta > 0.0:
        raise ValueError(
            f"The schedule is for DDIM with eta = {schedule.eta:g}, which no diffusers scheduler supports on uneven steps. Use "
            "DPStrideScheduler."
        )
    variance = schedule.options.get("variance", POSTERIOR)
    if rule.takes_variance and variance != POSTERIOR:
        raise ValueError(
            f"The schedule's reverse variance is {variance!r:.80}, which no diffusers scheduler supports on uneven steps. Use "
            f"DPStrideScheduler, or a deterministic sampler={' or '.join(map(repr, ODE_SAMPLERS))} (--sampler)."
        )
    if flow:
        return EULER_FLOW
    if rule.in_diffusers is None:
        raise ValueError(f"No diffusers scheduler takes the steps of {name!r}. Use DPStrideScheduler.")
    return rule.in_diffusers
