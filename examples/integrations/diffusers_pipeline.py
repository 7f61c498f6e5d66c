"""The best timesteps of a diffusers pipeline, for the samplers that take timesteps=."""

import torch
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel

import dpstride

unet = UNet2DModel(8, 1, 1, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4, attention_head_dim=4,
                   down_block_types=("DownBlock2D",) * 2, up_block_types=("UpBlock2D",) * 2)  # fmt: skip
DDPMPipeline(unet, DDPMScheduler(num_train_timesteps=50)).save_pretrained("my-model")  # yours: a folder or a hub id

model = dpstride.load_model("my-model")
print(model.describe())
images = torch.randint(0, 256, (8, 1, 8, 8), dtype=torch.uint8)
schedules = dpstride.optimise(model.denoiser, images, data_range=model.data_range, progress=False)
schedules.save("schedules.json")
print("timesteps =", schedules[5].for_diffusers())
