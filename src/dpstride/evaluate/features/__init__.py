"""Stage 7. Feature extractors: images → vectors, between whose distributions distances are taken.

An extractor is a function of 8-bit images with a name, a dimension and a fingerprint. What the Fréchet distance on its
features may be called is part of it, because only one extractor in the world makes that number the FID.
"""
