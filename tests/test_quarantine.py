import json
from base64 import b64decode
from importlib.resources import files

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmtkit.core.codes import BAD_ROWS, RAW_BYTES, REASONS, Reject
from fmtkit.writing import quarantine
from fmtkit.writing.quarantine import QuarantineFile

SCHEMA = json.loads((files("fmtkit.schemas") / "quarantine.schema.json").read_text())


def reject(raw=b"{}", **values):
    given = {"row": 3, "line": 5, "code": "json_syntax", "column": None, "message": "no JSON"}
    return Reject(**(given | values), raw=raw)


def line(one):
    out = quarantine.encode("a.jsonl", [one])
    assert out.endswith(b"\n")
    assert out.count(b"\n") == 1
    return json.loads(out)


def test_a_line_has_the_keys_in_order():
    record = line(reject(b'{"a":'))
    assert record == {
        "file": "a.jsonl",
        "row": 3,
        "line": 5,
        "code": "json_syntax",
        "column": None,
        "message": "no JSON",
        "raw": '{"a":',
    }
    assert [*record] == ["file", "row", "line", "code", "column", "message", "raw"]


def test_bytes_that_are_not_utf8_are_kept_in_base64():
    record = line(reject(b'{"a":"\xff"}', code="invalid_utf8"))
    assert "raw" not in record
    assert b64decode(record["raw_base64"]) == b'{"a":"\xff"}'


def test_a_long_row_is_cut_and_its_length_told():
    record = line(reject(b"x" * (RAW_BYTES + 5)))
    assert record["raw"] == "x" * RAW_BYTES
    assert record["raw_bytes"] == RAW_BYTES + 5
    assert "raw_bytes" not in line(reject(b"x" * RAW_BYTES))


def test_the_length_that_a_source_gives_is_kept():
    record = line(reject(b"x" * RAW_BYTES, raw_bytes=20_000_000))
    assert record["raw_bytes"] == 20_000_000


@pytest.mark.parametrize("start", range(4))
def test_a_cut_inside_a_character_leaves_it_out(start):
    whole = "x" * (RAW_BYTES - start) + "😀" + "y"
    record = line(reject(whole.encode()))
    assert record["raw"] == whole[: RAW_BYTES - start]


def test_a_cut_row_that_is_not_utf8_is_kept_in_base64():
    raw = b"\xff" + b"x" * RAW_BYTES
    assert b64decode(line(reject(raw))["raw_base64"]) == raw[:RAW_BYTES]


def test_a_row_that_ends_inside_a_character_is_kept_in_base64():
    raw = "😀".encode()[:2]
    assert b64decode(line(reject(raw))["raw_base64"]) == raw


def test_control_characters_are_escaped():
    raw = "".join(map(chr, [*range(32), *range(0x7F, 0xA0), 0x2028, 0x2029])) + "é"
    out = quarantine.encode("a", [reject(raw.encode(), message="\x1b[31m")])
    text = out.decode()
    assert text.isprintable() is False  # the newline at the end
    assert text[:-1].isprintable()
    assert json.loads(out)["raw"] == raw


def test_a_file_name_that_is_not_utf8_is_written():
    name = b"a\xff".decode(errors="surrogateescape")
    assert json.loads(quarantine.encode(name, [reject()]))["file"] == name


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=40), st.sampled_from([*REASONS]), st.none() | st.integers(1), st.text())
def test_every_line_is_as_the_schema_says_and_keeps_the_bytes(raw, code, number, message):
    out = quarantine.encode("-", [reject(raw, code=code, line=number, message=message)])
    record = json.loads(out)
    jsonschema.validate(record, SCHEMA)
    back = record["raw"].encode() if "raw" in record else b64decode(record["raw_base64"])
    assert back == raw
    assert len(out.decode().splitlines()) == 1


def test_the_schema_knows_every_code_in_order():
    assert SCHEMA["properties"]["code"]["anyOf"][0]["enum"] == [*BAD_ROWS]


def test_the_file_is_there_only_if_there_is_a_line(tmp_path):
    path = tmp_path / "q.jsonl"
    file = QuarantineFile(path)
    file.write(b"")
    assert not [*tmp_path.iterdir()]
    file.write(b"line\n")
    assert file.sync() == 5
    file.publish()
    assert path.read_bytes() == b"line\n"
    # Whose the quarantine of a run before is, and when it goes, is the sinks' business.
    QuarantineFile(path).publish()
    assert path.read_bytes() == b"line\n"
