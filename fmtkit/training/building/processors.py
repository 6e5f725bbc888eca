"""Processors of vision-language models: a tokenizer with what makes pixel values of images."""

import json
import shutil
from collections.abc import Mapping
from functools import cache
from inspect import signature
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fmtkit.core.errors import DependencyError, OptionError
from fmtkit.training.planning.model_files import model_file

_FILES = ("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json")
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
    class_: Any = getattr(transformers, kind, None)
    if class_ is None:
        raise OptionError(f"processor_type: transformers has no {kind}; write AutoProcessor")
    try:
        loaded = _loaded(class_, name, where, given)
    except (OSError, ValueError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise OptionError(f"base_model: {name}: its processor cannot be loaded: {first}") from error
    if not isinstance(loaded, ProcessorMixin):
        raise OptionError(
            f"base_model: {name} has no processor (preprocessor_config.json), so it takes no images"
        )
    return loaded


def _loaded(class_: Any, name: str, where: dict[str, Any], given: Mapping[str, Any]) -> Any:
    try:
        return class_.from_pretrained(name, **where, **given)
    except ImportError as error:
        told = str(error).lower()
        if "pil" in told.split() or "pillow" in told:
            raise DependencyError("images need Pillow: pip install pillow") from error
        if "torchvision" not in told:
            raise
    return _without_videos(name, where, given)


def copy_settings(name: str, folder: Path) -> None:
    """Copy what a model's processor is made of, if it has one, into a folder that has its tokenizer."""
    for file in _FILES:
        found = model_file(name, file)
        if found is not None and not (folder / file).exists():
            shutil.copyfile(found, folder / file)


def _without_videos(name: str, where: dict[str, Any], given: Mapping[str, Any]) -> Any:
    """Make the processor of a model for images and text; only its video processor needs torchvision."""
    import transformers
    from transformers import AutoImageProcessor, AutoTokenizer, ProcessorMixin

    settings, _ = ProcessorMixin.get_processor_dict(name, revision=where["revision"])
    class_: Any = getattr(transformers, str(settings.get("processor_class")), None)
    if class_ is None:
        class_ = _class_by_config(name, where)
    tokenizer = AutoTokenizer.from_pretrained(name, **where)
    images: Any = AutoImageProcessor
    parts: dict[str, Any] = {
        "image_processor": images.from_pretrained(name, **where, **given),
        "tokenizer": tokenizer,
        "video_processor": no_videos(**(settings.get("video_processor") or _of_videos(name))),
    }
    named = signature(class_.__init__).parameters
    own = {n: v for n, v in settings.items() if n in named and n not in parts}
    own["chat_template"] = settings.get("chat_template") or tokenizer.chat_template
    return class_(**{n: parts[n] for n in class_.get_attributes()}, **own)


def _of_videos(name: str) -> dict[str, Any]:
    """Return the settings of a video processor that has a file of its own; {} without one."""
    file = model_file(name, "video_preprocessor_config.json")
    return {} if file is None else dict(json.loads(file.read_text(encoding="utf-8")))


def _class_by_config(name: str, where: dict[str, Any]) -> Any:
    from transformers import AutoConfig
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

    auto: Any = AutoConfig
    return PROCESSOR_MAPPING[type(auto.from_pretrained(name, **where))]


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
