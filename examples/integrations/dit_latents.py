"""A DiT in latent space, with and without guidance; the learned variance that DiTPipeline drops is used."""

import torch
from diffusers import AutoencoderKL, DDIMScheduler, DiTPipeline, DiTTransformer2DModel

import dpstride
from dpstride.integrations.diffusers import load_diffusers

transformer = DiTTransformer2DModel(2, 8, 4, 8, num_layers=1, sample_size=8, num_embeds_ada_norm=10)
vae = AutoencoderKL(block_out_channels=(8,), latent_channels=4, norm_num_groups=4)
pipeline = DiTPipeline(transformer, vae, DDIMScheduler(40, clip_sample=False))  # yours: .from_pretrained(...)

images, labels = torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8), [1, 2, 3, 4]
for guidance_scale in (None, 4.0):
    model = load_diffusers(pipeline, guidance_scale=guidance_scale)
    data = model.encode(images, labels)  # latents, and the labels as the transformer takes them
    schedules = dpstride.optimise(model.denoiser, data, data_range=model.data_range, progress=False)
    print(guidance_scale, schedules[6].steps, f"{schedules[6].bpd:.2f} {model.unit}", *model.warnings)
