"""The features by which a study measures samples: by name, by path, from a user's function, or fitting the images."""

from __future__ import annotations

from ..evaluate.features.extractor import FeatureExtractor

NONE = "none"


def extractor_named(text: str | None, shape: tuple[int, ...]) -> tuple[FeatureExtractor | None, str]:
    """The extractor for images of ``shape`` [C, H, W], and a description of it, or of why there is none.

    * fashion: features of the embedded classifier, for grey 28 × 28 images.
    * inception, inception:PATH: the features of FID, from torch's hub cache or a file.
    * package.module:function: a function that returns a `FeatureExtractor`.
    * none: no distances.
    * None: fashion if it fits, else inception if its weights are in the cache, else none.
    """
    match text:
        case None:
            return _fitting(shape)
        case "none":
            return None, "none, as requested"
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
                    f"{text} calls its distance {found.distance!r}: that name is reserved for the original FID network "
                    "(--features inception). Give it another name."
                )
        case _:
            raise ValueError(
                f"features must be fashion, inception, inception:PATH, none or package.module:function, not {text!r}."
            )
    return found, f"{found.name}, {found.dimension:,} dimensions; the distance is called {found.distance!r}"


def _fitting(shape: tuple[int, ...]) -> tuple[FeatureExtractor | None, str]:
    from ..evaluate.features.inception import FILE, inception_is_cached
    from ..zoo.classifier import SIZE

    if shape == (1, SIZE, SIZE):
        return extractor_named("fashion", shape)
    if len(shape) == 3 and shape[0] in (1, 3) and inception_is_cached():
        return extractor_named("inception", shape)
    if len(shape) != 3 or shape[0] not in (1, 3):
        return None, f"none: FID needs images of 1 or 3 channels, and these have shape {list(shape)}"
    return None, f"none: for FID, put {FILE} into torch's hub cache, or give --features inception:PATH"
