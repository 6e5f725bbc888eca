"""An image that a row names is in the row, in a file that may be opened, or at a URL; nothing else is opened."""

import base64
import os
from pathlib import Path
from urllib.parse import quote

import image_samples as samples
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmtkit.core.errors import ImageError
from fmtkit.images import resolving
from fmtkit.images.resolving import (
    HeldImage,
    RemoteImage,
    StoredImage,
    contents,
    public_reference,
    resolve,
)

PNG = samples.png()


@pytest.fixture
def base(tmp_path) -> Path:
    folder = tmp_path / "data"
    (folder / "images").mkdir(parents=True)
    (folder / "images" / "a b.png").write_bytes(PNG)
    (tmp_path / "secret.png").write_bytes(PNG)
    return folder


def refused(reference: str, base: Path, image_folder: Path | None = None) -> ImageError:
    with pytest.raises(ImageError) as caught:
        resolve(reference, base, image_folder)
    return caught.value


@pytest.mark.parametrize(
    "name", ["images/a b.png", "./images/../images/a b.png", " images/a b.png\n"]
)
def test_a_path_belongs_to_the_folder_of_the_source_not_to_the_working_folder(
    base, name, monkeypatch
):
    monkeypatch.chdir("/")
    found = resolve(name, base)
    assert found == StoredImage((base / "images" / "a b.png").resolve())
    assert contents(found) == PNG


def test_a_relative_base_folder_is_one_of_the_working_folder(base, monkeypatch):
    monkeypatch.chdir(base.parent)
    assert resolve("images/a b.png", Path("data")).path == base / "images" / "a b.png"


def test_nothing_outside_the_folder_of_the_source_is_opened(base):
    (base / "link.png").symlink_to(base.parent / "secret.png")
    (base / "linked").symlink_to(base.parent)
    for name in (
        "../secret.png",
        "images/../../secret.png",
        str(base.parent / "secret.png"),
        f"file://{base.parent}/secret.png",
        "link.png",
        "linked/secret.png",
        "/etc/passwd",
        "../missing.png",
    ):
        error = refused(name, base)
        assert error.code == "image_missing"
        assert "outside of the source's folder" in str(error)


def test_what_is_below_the_folder_may_be_named_as_it_is(base):
    path = base / "images" / "a b.png"
    (base / "inner.png").symlink_to(path)
    for name in (str(path), f"file://{quote(str(path))}", f"file://localhost{quote(str(path))}"):
        assert resolve(name, base).path == path
    assert resolve("inner.png", base).path == path
    assert "another machine" in str(refused("file://server/share/a.png", base))


def test_a_folder_of_images_is_opened_too_and_first(base):
    other = base.parent / "coco"
    (other / "images").mkdir(parents=True)
    (other / "images" / "a b.png").write_bytes(samples.png(seed=1))
    (other / "c.png").write_bytes(PNG)
    assert resolve("images/a b.png", base, other).path == other / "images" / "a b.png"
    assert resolve(str(other / "c.png"), base, other).path == other / "c.png"
    (base / "only.png").write_bytes(PNG)
    assert resolve("only.png", base, other).path == base / "only.png"
    (base / "to_other.png").symlink_to(other / "c.png")
    assert resolve("to_other.png", base, other).path == other / "c.png"
    assert "outside" in str(refused("../secret.png", base, other))
    assert "there is no file none.png in" in str(refused("none.png", base, other))


@pytest.mark.parametrize("name", ["none.png", "", "  ", "a\0b.png", "x" * 300 + ".png", "loop"])
def test_what_is_not_there_is_missing_in_one_line(base, name):
    (base / "loop").symlink_to("loop")
    error = refused(name, base)
    assert error.code == "image_missing"
    assert str(error).isprintable()
    assert len(str(error)) < 300


def test_a_folder_and_a_pipe_are_no_files(base):
    os.mkfifo(base / "pipe")
    for name in ("images", "pipe"):
        with pytest.raises(ImageError, match="is no file") as caught:
            contents(resolve(name, base))
        assert caught.value.code == "image_missing"


def test_a_file_that_goes_away_or_is_too_large_is_an_error(base, monkeypatch):
    found = resolve("images/a b.png", base)
    monkeypatch.setattr(resolving, "MOST_BYTES", 100)
    with pytest.raises(ImageError, match="larger than"):
        contents(found)
    found.path.unlink()
    with pytest.raises(ImageError, match="there is no file"):
        contents(found)


def lines(text: str) -> str:
    return "\n".join(text[at : at + 76] for at in range(0, len(text), 76))


BASE64 = base64.b64encode(PNG).decode()
HELD = {
    "data uri": samples.data_uri(PNG),
    "upper case": f"DATA:image/png;BASE64,{BASE64}",
    "parameters": f"data:image/png;name=a;base64,{BASE64}",
    "no type": f"data:;base64,{BASE64}",
    "in lines": f"data:image/png;base64,{lines(BASE64)}",
    "no padding": f"data:image/png;base64,{BASE64.rstrip('=')}",
    "for urls": "data:image/png;base64," + base64.urlsafe_b64encode(PNG).decode(),
    "quoted base64": f"data:image/png;base64,{quote(BASE64)}",
    "quoted": f"data:image/png,{quote(PNG)}",
    "bare": BASE64,
    "bare in lines": lines(BASE64) + "\n",
}


@pytest.mark.parametrize("name", HELD)
def test_bytes_in_the_row_are_decoded(name, base):
    assert resolve(HELD[name], base) == HeldImage(PNG)
    assert contents(HeldImage(PNG)) == PNG


@pytest.mark.parametrize("form", ["JPEG", "GIF", "WEBP", "TIFF"])
def test_bare_base64_of_every_format_is_told_from_a_path(form, base):
    data = samples.written(samples.picture(mode="RGB"), form)
    assert resolve(base64.b64encode(data).decode(), base) == HeldImage(data)


def test_a_path_that_begins_like_base64_is_a_path(base):
    (base / "UklGR").mkdir()
    (base / "UklGR" / "a.png").write_bytes(PNG)
    assert isinstance(resolve("UklGR/a.png", base), StoredImage)
    assert "outside" in str(refused("/9j/image.jpg", base))


@pytest.mark.parametrize(
    ("reference", "said", "code"),
    [
        ("data:image/png;base64,", "empty", "image_missing"),
        ("data:,", "empty", "image_missing"),
        ("data:image/png;base64", "no comma", "image_unreadable"),
        ("data:image/png;base64,iVBO*Rw0", "damaged", "image_unreadable"),
        ("data:image/png;base64,iVBOR", "damaged", "image_unreadable"),
        ("data:image/png;base64,é", "damaged", "image_unreadable"),
    ],
)
def test_a_damaged_data_uri_is_named(reference, said, code, base):
    error = refused(reference, base)
    assert said in str(error)
    assert error.code == code


@pytest.mark.parametrize(
    "url", ["https://a.b/c.png?x=1", "http://a/b", "s3://bucket/a.png", "hf://x"]
)
def test_a_url_is_remote_and_not_fetched(url, base):
    assert resolve(url, base) == RemoteImage(url)


def test_a_message_shows_no_image_and_no_key():
    assert public_reference(HELD["data uri"]).startswith("data:image/png;base64,")
    assert len(public_reference(HELD["data uri"])) < 80
    assert "geheim" not in public_reference("https://user:geheim@host/a.png")
    assert public_reference("images/a.png") == "images/a.png"


@settings(max_examples=400, deadline=None)
@given(st.text(max_size=80) | st.sampled_from(list(HELD.values())).map(lambda text: text[::2]))
def test_no_reference_raises_anything_else_or_leaves_the_folder(tmp_path_factory, reference):
    folder = tmp_path_factory.getbasetemp()
    try:
        found = resolve(reference, folder)
    except ImageError as error:
        said = str(error)
        assert len(said) < 1000
        return
    if isinstance(found, StoredImage):
        assert found.path.is_relative_to(folder.resolve())
