"""Processors of vision-language models: a tokenizer with what makes pixel values of images."""

from collections.abc import Mapping
from functools import cache
from inspect import signature
from types import MappingProxyType
from typing import Any

from fmtkit.core.errors import DependencyError, OptionError

_NONE: Mapping[str, Any] = MappingProxyType({})


def load(
    name: str,
    *,
    kind: str = "AutoProcessor",
    revision: str = "main",
    trusted: bool = False,
    given: Mapping[str, Any] = _NONE,
) -> Any:
    """Load the processor of a model; where torchvision is absent, one that takes no videos.

    Args:
        name: The model.
        kind: The class of transformers that loads it (`processor_type`).
        revision: Git revision of a model of the hub.
        trusted: Whether code that comes with the model may run.
        given: Further arguments of from_pretrained (`processor_kwargs`).

    Raises:
        OptionError: For a model that has no processor, or another class.
        DependencyError: Without Pillow.
    """
    import transformers
    from transformers import ProcessorMixin

    where: dict[str, Any] = {"revision": revision, "trust_remote_code": trusted}
    auto: Any = getattr(transformers, kind, None)
    if auto is None:
        raise OptionError(f"processor_type: transformers has no {kind}; write AutoProcessor")
    try:
        loaded = auto.from_pretrained(name, **where, **given)
    except ImportError as error:
        if "PIL" in str(error) or "Pillow" in str(error):
            raise DependencyError("images need Pillow: pip install pillow") from error
        if "torchvision" not in str(error).lower():
            raise
        loaded = _without_videos(name, where, given)
    except (OSError, ValueError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise OptionError(f"base_model: {name}: its processor cannot be loaded: {first}") from error
    if not isinstance(loaded, ProcessorMixin):
        raise OptionError(
            f"base_model: {name} has no processor (preprocessor_config.json), so it takes no images"
        )
    return loaded


def _without_videos(name: str, where: dict[str, Any], given: Mapping[str, Any]) -> Any:
    """Make the processor of a model for images and text; only its video processor needs torchvision."""
    from transformers import AutoConfig, AutoImageProcessor, AutoTokenizer, ProcessorMixin
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

    auto: Any = AutoConfig
    class_: Any = PROCESSOR_MAPPING[type(auto.from_pretrained(name, **where))]
    settings, _ = ProcessorMixin.get_processor_dict(name, revision=where["revision"])
    tokenizer = AutoTokenizer.from_pretrained(name, **where)
    parts: dict[str, Any] = {
        "image_processor": AutoImageProcessor.from_pretrained(name, **where, **given),
        "tokenizer": tokenizer,
        "video_processor": no_videos(**settings.get("video_processor", {})),
    }
    named = signature(class_.__init__).parameters
    own = {n: v for n, v in settings.items() if n in named and n not in parts}
    own["chat_template"] = settings.get("chat_template") or tokenizer.chat_template
    return class_(**{n: parts[n] for n in class_.get_attributes()}, **own)


def no_videos(**settings: Any) -> Any:
    """Return what stands for a video processor: it keeps its settings, and takes no videos."""
    return _stand_in()(**settings)


@cache
def _stand_in() -> Any:
    import transformers
    from transformers.video_processing_utils import VideoProcessorMixin

    if not hasattr(transformers, "VideoProcessorMixin"):
        # transformers 5.23 leaves the name out without torchvision, and looks for it to check the parts.
        setattr(transformers, "VideoProcessorMixin", VideoProcessorMixin)  # noqa: B010

    class NoVideos(VideoProcessorMixin):
        """A video processor that is saved with the settings that it was loaded with."""

        def __init__(self, **settings: Any) -> None:
            super().__init__()
            self.settings = settings

        def preprocess(self, *_: Any, **__: Any) -> Any:
            """Refuse videos."""
            raise DependencyError("videos need torchvision: pip install torchvision")

        def to_dict(self) -> dict[str, Any]:
            """Return the settings of the processor that it stands for."""
            return dict(self.settings)

    return NoVideos
