"""Which features a study measures samples by: by name, by path, by the user's own function, or what fits the images."""

from __future__ import annotations

from ..evaluate.features.extractor import FeatureExtractor

NONE = "none"


def extractor_named(text: str | None, shape: tuple[int, ...]) -> tuple[FeatureExtractor | None, str]:
    """The extractor for images of ``shape`` [C, H, W], and in words which one it is or why there is none.

    * fashion: the embedded classifier's, for grey 28 × 28 images.
    * inception, inception:PATH: the FID's own, from torch's hub cache or a file.
    * package.module:function: returns a `FeatureExtractor`.
    * none: no distances.
    * None: fashion where it fits, else inception where its weights are in the cache, else none.
    """
    match text:
        case None:
            return _fitting(shape)
        case "none":
            return None, "none, as asked"
        case "fashion":
            from ..zoo.classifier import fashion_features

            found = fashion_features()
        case _ if text == "inception" or text.startswith("inception:"):
            from ..evaluate.features.inception import inception_features

            found = inception_features(text.partition(":")[2] or None)
        case _ if ":" in text:
            from ..statistics.files import import_function

            found = import_function(text)()
            if not isinstance(found, FeatureExtractor):
                raise ValueError(f"{text} must return a dpstride FeatureExtractor, not {type(found).__name__}.")
            if found.distance in ("FID", "KID"):
                raise ValueError(
                    f"{text} calls its distance {found.distance!r}: only that of the FID's own network is called so "
                    "(--features inception). Give it another name."
                )
        case _:
            raise ValueError(
                f"features must be fashion, inception, inception:PATH, none or package.module:function, not {text!r}."
            )
    return found, f"{found.name}, {found.dimension:,} of them; their distance is called {found.distance!r}"


def _fitting(shape: tuple[int, ...]) -> tuple[FeatureExtractor | None, str]:
    from ..evaluate.features.inception import FILE, inception_is_cached
    from ..zoo.classifier import SIZE

    if shape == (1, SIZE, SIZE):
        return extractor_named("fashion", shape)
    if len(shape) == 3 and shape[0] in (1, 3) and inception_is_cached():
        return extractor_named("inception", shape)
    if len(shape) != 3 or shape[0] not in (1, 3):
        return None, f"none: the FID is of images of 1 or 3 channels, and these have the shape {list(shape)}"
    return None, f"none: for the FID put {FILE} into torch's hub cache, or give --features inception:PATH"
