"""JSON Schemas (draft 2020-12) of our values: from the types of dataclasses, and from the columns of results.

Readers must accept fields that they do not know, since a format gets new ones. So objects allow others, and a field
with a default, which older files lack, is not required.
"""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Final, Literal, get_args, get_origin, get_type_hints

import pandas as pd

from nightsight.model.report import Json
from nightsight.results.entry import NUMBER, TEXT, WHOLE, Column, Entry

Schema = dict[str, Json]

_PLAIN: Final = {str: "string", bool: "boolean", int: "integer", float: "number"}
_CELLS: Final = {TEXT: "string", WHOLE: "integer", NUMBER: "number"}
_IN_WORDS: Final = {TEXT: "text", WHOLE: "whole number", NUMBER: "number"}
# of tables whose columns are not in the register
_ANY_CELL: Final = ["string", "number", "boolean", "null"]


def schema_of(kind: Json, *, leaves_out_unknown: bool = False) -> Schema:
    """Return the schema of values of a type, as `asdict` and `json` write them; see `nightsight.model.report.read_as`.

    leaves_out_unknown: fields that are empty or None are left out, as briefs do.
    """
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if kind is pd.DataFrame:
        return table_schema()
    if is_dataclass(kind) or hasattr(kind, "_fields"):
        return _object_of(kind, leaves_out_unknown=leaves_out_unknown)
    origin: Json = get_origin(kind)
    inner: tuple[Json, ...] = () if origin is Literal else get_args(kind)
    plain = (type(None), ...)
    parts = [each if each in plain else schema_of(each, leaves_out_unknown=leaves_out_unknown) for each in inner]
    return _generic(kind, parts)


def _generic(kind: Json, parts: list[Json]) -> Schema:
    """Return the schema of a type with parameters. parts: the schemas of these."""
    origin: Json = get_origin(kind)
    if origin is Literal:
        return {"enum": list(get_args(kind))}
    if origin is UnionType:
        return {"anyOf": [{"type": "null"} if each is type(None) else each for each in parts]}
    if origin is tuple and ... not in parts:
        return {"type": "array", "prefixItems": parts, "items": False}
    if origin in (tuple, Sequence):
        return {"type": "array", "items": parts[0]}
    if origin in (Mapping, dict):
        return {"type": "object", "additionalProperties": parts[1]}
    raise TypeError(f"no schema for {kind}")


def object_schema(properties: Mapping[str, Schema], required: Iterable[str] | None = None, about: str = "") -> Schema:
    """Return the schema of an object; by default, all of its fields are required."""
    needed = list(properties if required is None else required)
    described = {"description": about} if about else {}
    return {"type": "object", **described, "properties": dict(properties), "required": needed}


def fields_schema(about: str = "", **kinds: Json) -> Schema:
    """Return the schema of an object that has fields of these types, all of them."""
    return object_schema({name: schema_of(kind) for name, kind in kinds.items()}, about=about)


def _object_of(kind: Json, *, leaves_out_unknown: bool) -> Schema:
    hints = get_type_hints(kind)
    properties = {name: schema_of(hint, leaves_out_unknown=leaves_out_unknown) for name, hint in hints.items()}
    if leaves_out_unknown:
        # infinite numbers are unknown, too
        required = [
            name for name, hint in hints.items() if hint not in (str, float) and type(None) not in get_args(hint)
        ]
    elif is_dataclass(kind):
        required = [each.name for each in fields(kind) if (each.default, each.default_factory) == (MISSING, MISSING)]
    else:
        required = list(hints)
    return object_schema(properties, required, " ".join((inspect.getdoc(kind) or "").split()))


def table_schema(columns: Sequence[Column] = ()) -> Schema:
    """Return the schema of a table: `columns` has the names, each of `rows` a cell for each of them.

    The position of a column may change, so that cells have any of the types of all columns.
    """
    names: Schema = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    cells = _ANY_CELL
    if columns:
        known = [{"const": each.name, "description": f"{each.meaning} ({_IN_WORDS[each.type]})"} for each in columns]
        needed = [{"contains": {"const": each.name}} for each in columns if not each.is_optional]
        names |= {"items": {"anyOf": [*known, {"type": "string"}]}, "allOf": needed}
        cells = [*dict.fromkeys(_CELLS[each.type] for each in columns), "null"]
    rows = {"type": "array", "items": {"type": "array", "items": {"type": cells}}}
    return object_schema({"columns": names, "rows": rows})


def result_schema(entry: Entry) -> Schema:
    """Return the schema of a result of the register."""
    table = {"anyOf": [{"type": "null"}, table_schema(entry.columns)]}
    return {
        "title": entry.title,
        "description": entry.help,
        "properties": {"name": {"const": entry.name}, "table": table},
    }
