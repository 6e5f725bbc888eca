import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_tables import FEW, tables

from fmtkit.writing import thrift
from fmtkit.writing.thrift import Field, Items, read_struct, write_struct

SCALARS = {
    thrift.BYTE: st.integers(-(2**7), 2**7 - 1),
    thrift.I16: st.integers(-(2**15), 2**15 - 1),
    thrift.I32: st.integers(-(2**31), 2**31 - 1),
    thrift.I64: st.integers(-(2**63), 2**63 - 1),
    thrift.DOUBLE: st.floats(allow_nan=False),
    thrift.BINARY: st.binary(max_size=300),
}


def lists_of(wire_type, items):
    return st.lists(items, max_size=40).map(lambda values: Items(wire_type, values))


def structs(fields):
    return st.dictionaries(st.integers(-100, 2**15 - 1), fields, max_size=20)


def fields_of(structs_below):
    scalars = [values.map(lambda v, t=t: Field(t, v)) for t, values in SCALARS.items()]
    lists = [lists_of(t, v).map(lambda v: Field(thrift.LIST, v)) for t, v in SCALARS.items()]
    flags = lists_of(thrift.TRUE, st.booleans()).map(lambda v: Field(thrift.LIST, v))
    true, false = Field(thrift.TRUE, True), Field(thrift.FALSE, False)
    nested = structs_below.map(lambda v: Field(thrift.STRUCT, v))
    many = lists_of(thrift.STRUCT, structs_below).map(lambda v: Field(thrift.LIST, v))
    return st.one_of(*scalars, *lists, flags, st.sampled_from([true, false]), nested, many)


STRUCTS = structs(fields_of(structs(fields_of(st.just({})))))


@FEW
@given(STRUCTS)
def test_what_is_written_is_read_back(fields):
    assert read_struct(write_struct(fields)) == fields


@FEW
@given(tables())
def test_every_footer_that_pyarrow_writes_is_written_back_byte_for_byte(table):
    out = pa.BufferOutputStream()
    pq.write_table(table, out, write_page_index=True)
    file = out.getvalue().to_pybytes()
    size = int.from_bytes(file[-8:-4], "little")
    footer = file[-8 - size : -8]
    assert write_struct(read_struct(footer)) == footer


def test_fields_that_stand_far_apart_or_backwards_are_read():
    fields = {20: Field(thrift.I32, 1), 3: Field(thrift.I32, 2), -1: Field(thrift.TRUE, True)}
    assert read_struct(write_struct(fields)) == fields


def varint(number: int) -> list[int]:
    """Return a number in groups of seven bits, the lowest first; all but the last have the eighth bit."""
    groups = [number & 0x7F]
    while number := number >> 7:
        groups.append(number & 0x7F)
    return [*(group | 0x80 for group in groups[:-1]), groups[-1]]


def test_the_examples_of_the_specification_hold():
    # https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
    assert write_struct({1: Field(thrift.I32, 50399)}) == bytes([0x15, 0xBE, 0x93, 0x06, 0])
    assert write_struct({1: Field(thrift.TRUE, True)}) == bytes([0x11, 0])
    zigzag = {0: 0, -1: 1, 1: 2, -2: 3, 2147483647: 4294967294}
    for value, written in zigzag.items():
        assert read_struct(write_struct({1: Field(thrift.I64, value)}))[1].value == value
        assert write_struct({1: Field(thrift.I64, value)}) == bytes([0x16, *varint(written), 0])


@FEW
@given(STRUCTS, st.data())
def test_bytes_that_end_too_soon_are_an_error(fields, data):
    written = write_struct(fields)
    end = data.draw(st.integers(0, len(written) - 1))
    with pytest.raises(ValueError, match="end inside a Thrift struct"):
        read_struct(written[:end])


def test_a_map_is_refused():
    with pytest.raises(ValueError, match="Thrift type 11"):
        read_struct(bytes([0x1B, 0, 0]))


@FEW
@given(STRUCTS)
def test_a_struct_is_copied_as_it_is(fields):
    written, out = write_struct(fields), bytearray(b"before")
    assert thrift.copy_struct(written + b"after", 0, {}, out) == len(written)
    assert out == b"before" + written


@FEW
@given(STRUCTS, st.dictionaries(st.integers(1, 30), st.integers(-(2**62), 2**62), min_size=1))
def test_a_copy_has_other_integers_where_they_are_changed(fields, numbers):
    fields |= {key: Field(thrift.I64, value) for key, value in numbers.items()}
    fields[31] = Field(thrift.LIST, Items(thrift.STRUCT, [dict(fields), dict(fields)]))
    twice = dict.fromkeys(numbers, lambda value: 2 * value)
    out = bytearray()
    thrift.copy_struct(write_struct(fields), 0, {**twice, 31: twice}, out)
    doubled = {key: Field(thrift.I64, 2 * value) for key, value in numbers.items()}
    inner = dict(fields[31].value.values[0]) | doubled
    expected = fields | doubled | {31: Field(thrift.LIST, Items(thrift.STRUCT, [inner, inner]))}
    assert read_struct(bytes(out)) == expected


@FEW
@given(STRUCTS, st.data())
def test_a_copy_of_bytes_that_end_too_soon_is_an_error(fields, data):
    written = write_struct(fields)
    end = data.draw(st.integers(0, len(written) - 1))
    with pytest.raises(ValueError, match="end inside a Thrift struct"):
        thrift.copy_struct(written[:end], 0, {}, bytearray())


def test_a_field_is_left_out_where_it_is_the_last():
    out = bytearray()
    fields = {1: Field(thrift.I32, 5), 7: Field(thrift.I16, 9)}
    thrift.copy_struct(write_struct(fields), 0, {7: lambda _: None}, out)
    assert read_struct(bytes(out)) == {1: fields[1]}
    with pytest.raises(ValueError, match="before others"):
        thrift.copy_struct(write_struct(fields), 0, {1: lambda _: None}, bytearray())
