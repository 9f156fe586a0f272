"""Corrupt, contradictory and unreadable schemas: DATA_LOSS, or FAILED_PRECONDITION for drift."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from harness.damaged_files import (
    PAGES,
    Patient,
    as_stored,
    assert_readable,
    ended,
    raw,
    sample_table,
    stream,
)
from harness.parquet.surgery import (
    Chunk,
    FileMeta,
    Parquet,
    RowGroup,
    SchemaElement,
    dissect,
    set_count,
    strings,
    with_footer,
    written,
)
from harness.parquet.thrift_compact import BINARY, I32, Items, Struct, encode

HUGE = 2**31 - 1
TABLE = sample_table()

Damage = Callable[[Parquet], None]


def sample() -> Parquet:
    return dissect(TABLE, PAGES)


# === The shape of the schema ===


def children(count: int) -> Damage:
    return lambda file: set_count(file.schema[0], count)


def missing_repetition(file: Parquet) -> None:
    file.element("word").remove(SchemaElement.REPETITION)


def leaf_with_children(file: Parquet) -> None:
    set_count(file.element("word"), 1)


def no_elements(file: Parquet) -> None:
    file.footer[FileMeta.SCHEMA] = Items(12, [])


def column_left_out(file: Parquet) -> None:
    file.groups[1][RowGroup.COLUMNS].values.pop()


def all_columns_left_out(file: Parquet) -> None:
    file.groups[1][RowGroup.COLUMNS].values.clear()


def one_column_too_many(file: Parquet) -> None:
    chunks = file.groups[1][RowGroup.COLUMNS].values
    chunks.append(chunks[0])


def columns_in_another_order(file: Parquet) -> None:
    file.groups[1][RowGroup.COLUMNS].values.reverse()


SCHEMAS: dict[str, Damage] = {
    "no children": children(0),
    "fewer children": children(3),
    "more children": children(5),
    "two billion children": children(HUGE),
    "-1 children": children(-1),
    "leaf with children": leaf_with_children,
    "leaf without repetition": missing_repetition,
    "no elements": no_elements,
    "a column left out": column_left_out,
    "all columns left out": all_columns_left_out,
    "a column too many": one_column_too_many,
    "columns in another order": columns_in_another_order,
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_schema_not_matching_its_columns(patient: Patient, name: str):
    patient.refuses(sample().build(SCHEMAS[name]), "a.parquet")


def nested(depth: int) -> bytes:
    """One column below so many groups, as a footer says it; the pages are those of a flat one."""
    file = dissect(pa.table({"word": ["a"] * 10}), store_schema=False)
    root, leaf = file.schema
    group = {SchemaElement.REPETITION: (I32, 1), SchemaElement.NAME: (BINARY, b"g"), SchemaElement.CHILDREN: (I32, 1)}
    file.schema[:] = [root, *(Struct(dict(group)) for _ in range(depth)), leaf]
    file.chunk(0, "word")[Chunk.PATH] = strings(*[b"g"] * depth, b"word")
    return with_footer(b"PAR1" + bytes(200), encode(file.footer))


@pytest.mark.parametrize("depth", [100, 1000, 10_000, 100_000])
def test_deeply_nested_schema(patient: Patient, depth: int):
    patient.put(nested(depth))
    with patient.aftermath() as client:
        found, text = ended(lambda: raw(client, "ill"))
        assert found == "DATA_LOSS", f"{found}: {text[:300]}"
        assert "a.parquet" in text


def test_deeply_nested_table_is_served(patient: Patient):
    column: pa.Array = pa.array(range(100))
    for _ in range(30):
        column = pa.StructArray.from_arrays([column], ["inner"])
    table = pa.table({"word": ["a"] * 100, "deep": column})
    patient.serves(written(table), table)


def test_ten_thousand_columns(patient: Patient):
    table = pa.table({f"column {i}": [i, i + 1] for i in range(10_000)} | {"word": ["a", "b"]})
    patient.put(written(table))
    with patient.aftermath() as client:
        assert raw(client, "ill").equals(table)
        got = stream(client, "ill", as_stored("column 7777"))
        assert got["out"].to_pylist() == [7777, 7778]


# === The embedded Arrow schema ===


def arrow_schema(*fields: pa.Field) -> bytes:
    return base64.b64encode(pa.schema(list(fields)).serialize().to_pybytes())


TRUE_SCHEMA = TABLE.schema.serialize().to_pybytes()

ARROW_SCHEMAS: dict[str, bytes] = {
    "empty": b"",
    "not base64": b"*** no base64 ***",
    "not UTF-8": b"\xff\xfe\xfd",
    "no flatbuffer": base64.b64encode(bytes(range(256))),
    "zeros": base64.b64encode(bytes(64)),
    "cut": base64.b64encode(TRUE_SCHEMA[: len(TRUE_SCHEMA) // 2]),
    "a message of 2 GiB": base64.b64encode(b"\xff\xff\xff\xff\xff\xff\xff\x7f" + TRUE_SCHEMA[8:]),
    "offsets out of range": base64.b64encode(TRUE_SCHEMA[:8] + b"\xff\xff\xff\x7f" + TRUE_SCHEMA[12:]),
    "other types": arrow_schema(*(pa.field(name, pa.list_(pa.date32())) for name in TABLE.column_names)),
    "a dictionary of numbers for text": arrow_schema(
        *(pa.field(name, pa.dictionary(pa.int8(), pa.int64())) for name in TABLE.column_names)
    ),
    "other names": arrow_schema(*(pa.field(f.name * 2, f.type) for f in TABLE.schema)),
    "fewer fields": arrow_schema(*list(TABLE.schema)[:2]),
    "more fields": arrow_schema(*TABLE.schema, pa.field("more", pa.int8())),
    "no fields": arrow_schema(),
    "keys too narrow": arrow_schema(
        *(pa.field(f.name, pa.dictionary(pa.int8(), f.type) if f.name == "unique" else f.type) for f in TABLE.schema)
    ),
    "a fixed length of 2 GiB": arrow_schema(
        *(pa.field(f.name, pa.binary(HUGE) if f.name == "word" else f.type) for f in TABLE.schema)
    ),
}


@pytest.mark.parametrize("name", ARROW_SCHEMAS)
def test_corrupt_embedded_arrow_schema(patient: Patient, name: str):
    file = sample()
    file.key_value("ARROW:schema")[2] = ARROW_SCHEMAS[name]
    patient.put(file.build())
    with patient.aftermath() as client:
        # A readable schema may declare other types for the same values; an unreadable one is damage.
        ends = patient.ends(client, "word")
        if ends["raw"][0] == "OK":
            assert raw(client, "ill").to_pylist() == TABLE.to_pylist()
    for way, (found, text) in ends.items():
        assert found in ("OK", "DATA_LOSS"), f"{way}: {found}: {text[:300]}"
        assert found == "OK" or "a.parquet" in text
    if name in ("not base64", "not UTF-8", "no flatbuffer", "cut", "offsets out of range"):
        assert {found for found, _ in ends.values()} == {"DATA_LOSS"}, ends


# === Invalid text ===


def test_invalid_utf8_in_a_column_name(patient: Patient):
    file = sample()
    file.element("word")[SchemaElement.NAME] = b"w\xffrd"
    patient.refuses(file.build(), "a.parquet")


@pytest.mark.parametrize("place", ["key", "value", "created_by"])
def test_invalid_utf8_in_metadata(patient: Patient, place: str):
    file = sample()
    if place == "created_by":
        file.footer[FileMeta.CREATED_BY] = b"\xc3\x28 version 1"
    else:
        file.add_key_value(b"\xff" if place == "key" else b"note", b"\xff" if place == "value" else b"fine")
    patient.refuses_or_serves(file.build(), TABLE)


CONTROLS = ("two\nlines", "\x1b[31mred", "nul\0l", "bell\a", "\x9b31m")


@pytest.mark.parametrize("name", [*CONTROLS, "x" * 100_000])
def test_errors_about_unusual_column_names_are_one_printable_line(patient: Patient, name: str):
    file = dissect(pa.table({name: [1, 2, 3]}), use_dictionary=False)
    file.page(0, name, 0).store(b"")
    patient.put(file.build())
    with patient.aftermath() as client:
        found, text = ended(lambda: raw(client, "ill"))
    assert found == "DATA_LOSS", text[:300]
    assert "row group 0" in text
    assert_readable(text)


# === Names twice ===


def test_duplicate_column_names(patient: Patient):
    table = pa.Table.from_arrays([pa.array([1, 2, 3]), pa.array([4, 5, 6]), pa.array(["a", "b", "c"])], ["x", "x", "y"])
    patient.put(written(table))
    with patient.aftermath() as client:
        found, text = ended(lambda: raw(client, "ill"))
        if found == "OK":
            assert raw(client, "ill").equals(table)
        else:
            assert found == "FAILED_PRECONDITION", text
        assert found == "OK" or '"x"' in text
        found, text = ended(lambda: stream(client, "ill", as_stored("x")))
        assert found in ("INVALID_ARGUMENT", "FAILED_PRECONDITION"), f"{found}: {text}"
        assert '"x"' in text


def test_case_collisions_are_two_columns(patient: Patient):
    table = pa.table({"Word": ["A"] * 3, "word": ["a"] * 3, "WORD": ["Ä"] * 3})
    patient.put(written(table))
    with patient.aftermath() as client:
        assert raw(client, "ill").equals(table)
        for name in table.column_names:
            got = stream(client, "ill", as_stored(name))
            assert got["out"].to_pylist() == table[name].to_pylist()


# === Files that differ ===


def changed(name: str, kind: pa.DataType) -> pa.Schema:
    return TABLE.schema.set(TABLE.schema.get_field_index(name), pa.field(name, kind))


DRIFTS: dict[str, tuple[pa.Table, str]] = {
    "another kind": (TABLE.cast(changed("id", pa.string())), "id"),
    "unsigned": (TABLE.cast(changed("id", pa.uint64())), "id"),
}


@pytest.mark.parametrize("name", DRIFTS)
def test_schema_drift(patient: Patient, name: str):
    """Schemas that differ without a conflict are united: see `parquet/test_schemas.py`."""
    other, words = DRIFTS[name]
    patient.put(written(TABLE), "a.parquet")
    patient.put(written(other), "b.parquet")
    with patient.aftermath() as client:
        ends = patient.ends(client, "word")
    for way, (found, text) in ends.items():
        assert found == "FAILED_PRECONDITION", f"{way}: {found}: {text}"
        for word in ("b.parquet", "a.parquet", words):
            assert word in text


# === Encryption ===


class InMemoryKeys(pe.KmsClient):
    """Keys that are wrapped in nothing."""

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        return base64.b64decode(wrapped_key)


def encrypted(path: Path, **options: Any) -> bytes:
    factory = pe.CryptoFactory(lambda _: InMemoryKeys())
    settings = pe.EncryptionConfiguration(footer_key="footer", **options)
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), settings)
    pq.write_table(TABLE, path, encryption_properties=properties)
    return path.read_bytes()


def test_encrypted_footer(patient: Patient):
    data = encrypted(patient.root / "secret", column_keys={"key": ["word"]})
    assert data[-4:] == b"PARE"
    patient.refuses(data, "a.parquet", "encrypt", code="UNIMPLEMENTED")


def test_encrypted_column_with_a_plaintext_footer(patient: Patient):
    data = encrypted(patient.root / "secret", column_keys={"key": ["word"]}, plaintext_footer=True)
    assert data[-4:] == b"PAR1"
    patient.refuses(data, "a.parquet", "encrypt", code="UNIMPLEMENTED")
