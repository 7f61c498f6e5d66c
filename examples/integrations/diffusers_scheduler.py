"""Any number of steps in an unchanged DDPMPipeline: set_timesteps(K) takes the best path of K steps."""

import torch
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel

import dpstride
from dpstride.integrations.diffusers import load_diffusers
from dpstride.integrations.diffusers_scheduler import DPStrideScheduler

unet = UNet2DModel(8, 1, 1, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4, attention_head_dim=4,
                   down_block_types=("DownBlock2D",) * 2, up_block_types=("UpBlock2D",) * 2)  # fmt: skip
pipeline = DDPMPipeline(unet, DDPMScheduler(num_train_timesteps=50))  # yours: DDPMPipeline.from_pretrained(...)

images = torch.randint(0, 256, (8, 1, 8, 8), dtype=torch.uint8)
schedules = dpstride.optimise(load_diffusers(pipeline).denoiser, images, variance="optimal", progress=False)
pipeline.scheduler = DPStrideScheduler.from_config(pipeline.scheduler.config, schedules=schedules)
pipeline.set_progress_bar_config(disable=True)
images = pipeline(batch_size=2, num_inference_steps=7, output_type="pt").images
print(images.shape, pipeline.scheduler.timesteps.tolist())
