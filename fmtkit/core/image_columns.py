"""Columns of rows with images: the images themselves, and contents in parts of which some are images.

In memory a content is text, with IMAGE for each image (`core.message_keys`). Where rows are written or
handed out it becomes a list of parts, as TRL's trainers and chat templates of vision models take it, and the
images have the type that `datasets` decodes.
"""

import base64
import json
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fmtkit.core import buffers
from fmtkit.core.message_keys import IMAGE, in_parts

StoredImage = tuple[bytes | memoryview | None, str | None]
"""The bytes of an image, or the path of its file; a path beside bytes is a name only."""
IMAGES = "images"
IMAGE_TYPE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
"""An image as `datasets` stores it: its bytes as they came, or the path of its file."""
IMAGES_FIELD = pa.field(IMAGES, pa.list_(IMAGE_TYPE))
"""Of exactly this type: `datasets` decodes no large lists and no large binaries."""
PART = pa.struct([("type", pa.string()), ("text", pa.string())])
PARTS = pa.list_(PART)
FEATURES = json.dumps(
    {"info": {"features": {IMAGES: {"feature": {"_type": "Image"}, "_type": "List"}}}}
)
"""What `datasets` reads under `huggingface` in the metadata of a schema: that it is to decode the images."""


def type_with_parts(dtype: pa.DataType) -> pa.DataType:
    """Return the type of messages, of lists of them or of lists of those, with contents in parts."""
    if pa.types.is_list(dtype):
        return pa.list_(type_with_parts(dtype.value_type))
    if not pa.types.is_struct(dtype) or "content" not in dtype.names:
        return dtype
    return pa.struct([f.with_type(PARTS) if f.name == "content" else f for f in dtype])


def with_parts(array: pa.Array) -> pa.Array:
    """Return such values with the texts of their contents in parts."""
    dtype = array.type
    if dtype == type_with_parts(dtype):
        return array
    if pa.types.is_list(dtype):
        inner = with_parts(array.flatten())
        sizes = np.diff(buffers.offsets_of(array)) * buffers.validity(array)
        offsets = pa.py_buffer(buffers.ends(sizes).astype(np.int32))
        valid = buffers.bits(buffers.validity(array))
        made = pa.list_(inner.type)
        return pa.Array.from_buffers(made, len(array), [valid, offsets], children=[inner])
    children = [
        _parts(child) if field.name == "content" else child
        for field, child in zip(dtype, array.flatten(), strict=True)
    ]
    fields = list(type_with_parts(dtype))
    mask = None if array.null_count == 0 else array.is_null()
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _parts(contents: pa.StringArray) -> pa.Array:
    """Return texts in parts; a null stays null, an empty text is one part."""
    valid = buffers.validity(contents)
    texts: list[str | None]
    if pc.any(pc.match_substring(contents, IMAGE)).as_py():
        pieces = [None if text is None else in_parts(text) or [""] for text in contents.to_pylist()]
        sizes = np.fromiter((len(piece or ()) for piece in pieces), np.int64, len(pieces))
        flat = list(chain.from_iterable(piece or () for piece in pieces))
        kinds = buffers.texts("image" if piece is IMAGE else "text" for piece in flat)
        texts = [None if piece is IMAGE else piece for piece in flat]
        values = buffers.texts(texts)
    else:
        sizes = valid.astype(np.int64)
        values = contents.drop_null()
        kinds = buffers.texts(["text"] * len(values))
    parts = pa.StructArray.from_arrays([kinds, values.cast(pa.string())], fields=list(PART))
    offsets = pa.py_buffer(buffers.ends(sizes).astype(np.int32))
    return pa.Array.from_buffers(
        PARTS, len(contents), [buffers.bits(valid), offsets], children=[parts]
    )


def images_array(rows: Sequence[Sequence[StoredImage]]) -> pa.Array:
    """Make the column of the images of rows, bytes or the path of each.

    Raises OverflowError where their bytes are 2 GiB or more: rows are handed over in blocks below that.
    """
    flat = list(chain.from_iterable(rows))
    data = [held or b"" for held, _ in flat]
    ends = buffers.ends(np.fromiter(map(len, data), np.int64, len(data)))
    if len(ends) and int(ends[-1]) > buffers.MAX_INT32:
        raise OverflowError("the images of one block have more than 2 GiB")
    valid = buffers.bits(np.fromiter((held is not None for held, _ in flat), np.bool_, len(flat)))
    stored = pa.Array.from_buffers(
        pa.binary(),
        len(flat),
        [valid, pa.py_buffer(ends.astype(np.int32)), _buffer_of(data)],
    )
    images = pa.StructArray.from_arrays(
        [stored, buffers.texts(path for _, path in flat).cast(pa.string())],
        fields=list(IMAGE_TYPE),
    )
    sizes = np.fromiter(map(len, rows), np.int64, len(rows))
    offsets = pa.py_buffer(buffers.ends(sizes).astype(np.int32))
    return pa.Array.from_buffers(IMAGES_FIELD.type, len(rows), [None, offsets], children=[images])


def _buffer_of(data: Sequence[bytes | memoryview]) -> pa.Buffer:
    """Return the bytes joined; no copy is made where they already stand together in an Arrow buffer."""
    held = [view for view in data if len(view)]
    own: Any = held[0].obj if held and isinstance(held[0], memoryview) else None
    if isinstance(own, pa.Buffer):
        end = start = _address(held[0])
        for view in held:
            if not (isinstance(view, memoryview) and view.obj is own and _address(view) == end):
                break
            end += len(view)
        else:
            part: pa.Buffer = own.slice(start - own.address, end - start)
            return part
    return pa.py_buffer(b"".join(data))


def _address(view: bytes | memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)


def image_texts(images: pa.Array) -> pa.Array:
    """Return the images of rows as JSON has them: the path of each, or its bytes as a data URI."""
    rows = [
        None if row is None else [_as_text(one["bytes"], one["path"]) for one in row]
        for row in images.to_pylist()
    ]
    return buffers.values_of(rows, pa.list_(pa.string()))


def _as_text(data: bytes | None, path: str | None) -> str | None:
    return path if data is None else data_uri(data)


def data_uri(data: bytes) -> str:
    """Return the bytes of an image as a data URI."""
    return f"data:image/{subtype(data)};base64,{base64.b64encode(data).decode()}"


def subtype(data: bytes | memoryview) -> str:
    """Return the subtype of the media type of an image, which is the usual ending of its file too."""
    data = bytes(data[:4])
    if data.startswith(b"RIFF"):
        return "webp"
    starts = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"BM": "bmp"}
    return next((name for start, name in starts.items() if data.startswith(start)), "tiff")
