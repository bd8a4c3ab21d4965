"""Input schemas like those of real tools, which come from pydantic, zod, Go structs and people.

Each was written for these tests, in the style of its source.
"""

from __future__ import annotations

from typing import Any

__all__ = ["HOSTILE", "TOOLS"]

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"


def tool(required: str = "", /, **properties: Any) -> dict[str, Any]:
    """Return the schema of an object; each property is a type or a schema."""
    schemas = {name: {"type": each} if isinstance(each, str) else each for name, each in properties.items()}
    return {"type": "object", "properties": schemas, **({"required": required.split()} if required else {})}


def optional(schema: str | dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the schema that pydantic makes from ``X | None = None``."""
    inner = {"type": schema} if isinstance(schema, str) else schema
    return {"anyOf": [inner, {"type": "null"}], "default": None, **more}


def listed(items: str | dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": {"type": items} if isinstance(items, str) else items, **more}


def text(**more: Any) -> dict[str, Any]:
    return {"type": "string", **more}


def number(low: float | None = None, high: float | None = None, kind: str = "integer", **more: Any) -> dict[str, Any]:
    bounds = {"minimum": low, "maximum": high}
    return {"type": kind, **{name: bound for name, bound in bounds.items() if bound is not None}, **more}


PYDANTIC: dict[str, dict[str, Any]] = {
    "no parameters": {"type": "object", "properties": {}, "title": "pingArguments"},
    "one text": tool("text", text=text(title="Text")),
    "four kinds": tool(
        "query", query="string", limit=number(1, 100, default=10), tags=listed("string"), fast="boolean"
    ),
    "defaults": tool(
        "a", a=number(), b=number(default=3), c=text(default="x"), d={"type": "boolean", "default": False}
    ),
    "optional": tool("path", path="string", head=optional("integer"), tail=optional("integer")),
    "optional list": tool("", ids=optional(listed("integer")), since=optional(text(format="date-time"))),
    "literal": tool("mode", mode=text(enum=["read", "write", "append"])),
    "one literal": tool("kind", kind={"const": "file", "title": "Kind", "type": "string"}),
    "mixed literals": tool("level", level={"enum": [1, 2, "high", None, True]}),
    "union": tool("value", value={"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "boolean"}]}),
    "number or list": tool("x", x={"anyOf": [{"type": "number"}, listed("number", minItems=1)]}),
    "map": tool("headers", headers={"type": "object", "additionalProperties": {"type": "string"}}),
    "map of lists": tool("m", m={"type": "object", "additionalProperties": listed("integer")}),
    "any": tool("data", data={"title": "Data"}),
    "free object": tool("data", data={"type": "object", "additionalProperties": True}),
    "tuple": tool(
        "point", point={"type": "array", "prefixItems": [{"type": "number"}] * 2, "minItems": 2, "maxItems": 2}
    ),
    "set": tool("names", names=listed("string", uniqueItems=True, minItems=1)),
    "frozen set of choices": tool("days", days=listed(text(enum=["mo", "tu", "we"]), uniqueItems=True, maxItems=3)),
    "bounded": tool("n p", n=number(0, 10), p={"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}),
    "multiple": tool("step", step=number(0, 1000, multipleOf=25)),
    "money": tool("price", price={"type": "number", "minimum": 0, "multipleOf": 0.01}),
    "decimal": tool("d", d={"anyOf": [{"type": "number"}, text(pattern=r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$")]}),
    "constrained text": tool("name", name=text(minLength=3, maxLength=30, pattern="^[a-z][a-z0-9_]*$")),
    "dates": tool(
        "d", d=text(format="date"), t=text(format="time"), s=text(format="date-time"), u=text(format="duration")
    ),
    "formats": tool("id", id=text(format="uuid"), mail=text(format="email"), site=text(format="uri", maxLength=2083)),
    "addresses": tool("four", four=text(format="ipv4"), six=text(format="ipv6"), host=text(format="hostname")),
    "bytes": tool("data", data=text(format="base64url"), raw=text(contentEncoding="base64"), path=text(format="path")),
    "model": {
        "$defs": {"Address": tool("street city", street="string", city="string", zip=optional("string"))},
        **tool("name address", name="string", address={"$ref": "#/$defs/Address"}),
    },
    "enum class": {
        "$defs": {"Color": text(enum=["red", "green"], title="Color")},
        **tool("color", color={"$ref": "#/$defs/Color"}, other={"$ref": "#/$defs/Color", "default": "red"}),
    },
    "allOf around a reference": {
        "$defs": {"Color": text(enum=["red", "green"])},
        **tool("color", color={"allOf": [{"$ref": "#/$defs/Color"}], "default": "red", "description": "x"}),
    },
    "discriminated": {
        "$defs": {
            "Cat": tool("kind lives", kind=text(const="cat"), lives="integer"),
            "Dog": tool("kind", kind=text(const="dog"), name="string"),
        },
        **tool(
            "pet",
            pet={
                "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
                "discriminator": {"propertyName": "kind", "mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"}},
            },
        ),
    },
    "list of models": {
        "$defs": {
            "Item": {**tool("sku", sku=text(minLength=1), count=number(1, default=1)), "additionalProperties": False}
        },
        **tool("items", items=listed({"$ref": "#/$defs/Item"}, minItems=1, maxItems=20)),
    },
    "tree": {
        "$defs": {"Node": tool("value", value="integer", children=listed({"$ref": "#/$defs/Node"}, default=[]))},
        **tool("root", root={"$ref": "#/$defs/Node"}),
    },
    "linked list": {
        "$defs": {"Link": tool("value", value="string", next=optional({"$ref": "#/$defs/Link"}))},
        **tool("first", first={"$ref": "#/$defs/Link"}),
    },
    "expression": {
        "$defs": {
            "Add": tool(
                "op left right", op=text(const="+"), left={"$ref": "#/$defs/Any"}, right={"$ref": "#/$defs/Any"}
            ),
            "Any": {"anyOf": [{"type": "number"}, {"$ref": "#/$defs/Add"}]},
        },
        **tool("expression", expression={"$ref": "#/$defs/Any"}),
    },
    "any JSON": {
        "$defs": {
            "Json": {
                "anyOf": [
                    {"type": ["null", "boolean", "number", "string"]},
                    listed({"$ref": "#/$defs/Json"}),
                    {"type": "object", "additionalProperties": {"$ref": "#/$defs/Json"}},
                ]
            }
        },
        **tool("value", value={"$ref": "#/$defs/Json"}),
    },
    "escaped name": {
        "$defs": {"Page[a/b~c]": tool("n", n="integer")},
        **tool("page", page={"$ref": "#/$defs/Page%5Ba~1b~0c%5D"}),
    },
    "forbidden extras": {**tool("a", a="string", b="integer"), "additionalProperties": False},
    "unusual names": tool("$ref type", **{"$ref": "string", "type": "string", "a b": "integer", "": "boolean"}),
}

ZOD: dict[str, dict[str, Any]] = {
    "strict": {"$schema": DRAFT_7, **tool("path", path="string", lines=number(1)), "additionalProperties": False},
    "passthrough": {"$schema": DRAFT_7, **tool("q", q="string"), "additionalProperties": {}},
    "catchall": {"$schema": DRAFT_7, **tool("q", q="string"), "additionalProperties": {"type": "number"}},
    "positive": tool("n", n={"type": "integer", "exclusiveMinimum": 0}, m=number(-(2**53) + 1, 2**53 - 1)),
    "positive, in draft-04": {
        "$schema": "http://json-schema.org/draft-04/schema#",
        **tool("n", n={"type": "integer", "minimum": 0, "exclusiveMinimum": True}),
    },
    "nullable": tool("a", a={"type": ["string", "null"]}, b={"type": ["number", "null"], "default": None}),
    "record": tool("r", r={"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {}}),
    "record of an enum": tool(
        "r",
        r={"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": {"type": "integer"}},
    ),
    "tuple, in draft-07": {
        "$schema": DRAFT_7,
        **tool(
            "t", t={"type": "array", "minItems": 2, "maxItems": 2, "items": [{"type": "string"}, {"type": "integer"}]}
        ),
    },
    "tuple without a dialect": tool("t", t={"type": "array", "items": [{"type": "string"}], "additionalItems": False}),
    "tuple with a rest": tool(
        "t", t={"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}}
    ),
    "reference to a sibling": {
        "$schema": DRAFT_7,
        **tool("from to", **{"from": text(pattern="^[A-Z]{3}$"), "to": {"$ref": "#/properties/from"}}),
    },
    "definitions": {
        "$schema": DRAFT_7,
        "definitions": {"Filter": tool("field", field="string", op=text(enum=["=", "<"]))},
        **tool("filters", filters=listed({"$ref": "#/definitions/Filter"})),
    },
    "discriminated, with anyOf": tool(
        "action",
        action={
            "anyOf": [
                {**tool("type url", type=text(const="open"), url=text(format="uri")), "additionalProperties": False},
                {**tool("type", type=text(const="close")), "additionalProperties": False},
            ]
        },
    ),
    "intersection": tool("x", x={"allOf": [tool("a", a="string"), tool("b", b=number(0, 9))]}),
    "union of literals": tool("v", v={"anyOf": [{"type": "string", "const": each} for each in ("a", "b", "c")]}),
    "union of numbers": tool("v", v={"type": "number", "enum": [1, 2.5, 4]}),
    "never": tool("a", a="string", b={"not": {}}),
    "nonempty": tool("a", a=listed("string", minItems=1)),
    "length": tool("a", a=text(minLength=5, maxLength=5), b=listed("integer", minItems=3, maxItems=3)),
    "regular expressions": tool(
        "slug",
        slug=text(pattern=r"^[a-z0-9]+(?:-[a-z0-9]+)*$"),
        hex=text(pattern=r"^#(?:[0-9a-fA-F]{3}){1,2}$"),
        version=text(pattern=r"^v?\d+\.\d+\.\d+(-[\w.]+)?$"),
        sha=text(pattern="^[a-f0-9]{40}$"),
        key=text(pattern=r"^[A-Z]+-\d+$"),
        key_or_empty=text(pattern="^$|^.{8,}$"),
        password=text(pattern=r"^(?=.*[a-z])(?=.*\d)[A-Za-z\d]{8,}$"),
        anywhere=text(pattern="needle"),
        mail=text(
            format="email",
            pattern=r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$",
        ),
    ),
}

UNICODE = "a property of Unicode"
ZOD[UNICODE] = tool("words", words=text(pattern=r"^\p{L}+(\s\p{Lu}\p{Ll}*)*$"))

OTHERS: dict[str, dict[str, Any]] = {
    "Go struct": {
        "$schema": DRAFT_2020,
        **tool("owner repo", owner="string", repo="string", page=number(1), per_page=number(1, 100)),
        "additionalProperties": False,
    },
    "Go pointer": tool("name", name="string", labels={"type": ["null", "array"], "items": {"type": "string"}}),
    "Go map": tool("", env={"type": ["null", "object"], "additionalProperties": {"type": "string"}}),
    "no type at the top": {"properties": {"a": {"type": "string"}}, "required": ["a"]},
    "only a type": {"type": "object"},
    "either of two": {**tool("", id="string", name="string"), "oneOf": [{"required": ["id"]}, {"required": ["name"]}]},
    "any of two": {**tool("", id="string", name="string"), "anyOf": [{"required": ["id"]}, {"required": ["name"]}]},
    "not both": {**tool("", a="string", b="string"), "not": {"required": ["a", "b"]}},
    "needs another": {**tool("", card="string", code="string"), "dependentRequired": {"card": ["code"]}},
    "needs another, in draft-07": {
        "$schema": DRAFT_7,
        **tool("", card="string", code="string"),
        "dependencies": {"card": ["code"], "code": {"properties": {"card": {"minLength": 4}}}},
    },
    # Multiplying all the choices of such a schema would take seconds.
    "depends on a choice of many": {
        **tool("kind", kind=text(enum=[f"k{index}" for index in range(20)])),
        "allOf": [
            {"if": {"properties": {"kind": {"const": f"k{index}"}}}, "then": {"required": [f"q{index}"]}}
            for index in range(20)
        ],
    },
    "needs more": {
        **tool("", card="string"),
        "dependentSchemas": {"card": tool("address", address="string")},
    },
    "depends on a choice": {
        **tool("unit", unit=text(enum=["km", "mile"]), distance="number"),
        "if": {"properties": {"unit": {"const": "km"}}},
        "then": {"properties": {"distance": {"maximum": 40_000}}},
        "else": {"required": ["distance"]},
    },
    "names by pattern": {
        "type": "object",
        "patternProperties": {"^x-": {"type": "string"}, "^[0-9]+$": {"type": "integer"}},
        "additionalProperties": False,
        "minProperties": 1,
    },
    "so many members": {
        "type": "object",
        "minProperties": 2,
        "maxProperties": 3,
        "additionalProperties": {"type": "null"},
    },
    "contains": tool("a", a=listed("integer", contains={"minimum": 100}, minContains=2, maxContains=3)),
    "anchor": {"$defs": {"t": {"$anchor": "tag", "type": "string", "minLength": 1}}, **tool("t", t={"$ref": "#tag"})},
    "whole schema again": {**tool("name", name="string", child={"$ref": "#"})},
    "examples": tool("city", city=text(examples=["Paris", "東京"]), when=text(format="date", default="2026-07-28")),
    "an invalid default": tool("n", n=number(1, 5, default=99)),
    "OpenAPI": tool("a", a={"type": "string", "nullable": True, "example": "x"}, b=number(format="int32")),
    "many": tool("p0 p1", **{f"p{index}": ("string", "integer", "boolean")[index % 3] for index in range(60)}),
    "deep": tool("a", a=tool("b", b=tool("c", c=tool("d", d=tool("e", e=tool("f", f=listed(listed("number")))))))),
    "unevaluated": {"allOf": [tool("a", a="string")], "properties": {"b": True}, "unevaluatedProperties": False},
    "long text": tool("body", body=text(minLength=500, maxLength=100_000)),
    "GeoJSON": tool(
        "geometry",
        geometry={
            "oneOf": [
                tool(
                    "type coordinates", type=text(const="Point"), coordinates=listed("number", minItems=2, maxItems=3)
                ),
                tool(
                    "type coordinates",
                    type=text(const="LineString"),
                    coordinates=listed(listed("number", minItems=2, maxItems=3), minItems=2),
                ),
            ]
        },
    ),
}

TOOLS = {**PYDANTIC, **ZOD, **OTHERS}
"""Name -> schema."""


def nested(levels: int, wrap: Any, inner: Any) -> Any:
    for _ in range(levels):
        inner = wrap(inner)
    return inner


def doubling(levels: int, keyword: str) -> dict[str, Any]:
    """Return a schema in which each level refers to the next one twice."""
    steps = {f"d{index}": {keyword: [{"$ref": f"#/$defs/d{index + 1}"}] * 2} for index in range(levels)}
    return {"$defs": {**steps, f"d{levels}": {"type": "string", "not": {"type": "string"}}}, "$ref": "#/$defs/d0"}


HOSTILE: dict[str, tuple[Any, str]] = {
    "empty groups": (text(pattern="^(?:(?:){999}){99}x$"), "longer than 20000 characters"),
    "a number": (5, "must be an object or a boolean"),
    "false": (False, "no value conforms"),
    "unknown type": ({"type": "text"}, "is invalid"),
    "unknown dialect": ({"$schema": "https://example.org/mine"}, "dialect"),
    "a reference outside": (tool("a", a={"$ref": "https://example.org/a.json"}), "outside itself"),
    "a reference to a file": (tool("a", a={"$ref": "file:///etc/passwd"}), "outside itself"),
    "a reference to nothing": (tool("a", a={"$ref": "#/$defs/missing"}), "no schema at that place"),
    "a circle": ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "circle"),
    "a reference to itself": ({"$ref": "#"}, "circle"),
    "no base": (tool("next", next={"$ref": "#"}), "without an end"),
    "no base, by turns": (
        {
            "$defs": {
                "a": listed({"$ref": "#/$defs/b"}, minItems=1),
                "b": tool("a", a={"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]}),
            },
            "$ref": "#/$defs/a",
        },
        "without an end",
    ),
    "nested schemas": (nested(90, lambda inner: tool("a", a=inner), {"type": "string"}), "levels deep"),
    "schemas nested deeper": (nested(5_000, lambda inner: {"not": inner}, {}), "deep"),
    "values nested deeper": ({"const": nested(100_000, lambda inner: [inner], 0)}, "deep"),
    "many items": (listed("integer", minItems=10**9), "1000000000 items"),
    "many members": ({"type": "object", "minProperties": 10**9}, "1000000000 members"),
    "a long text": (text(minLength=10**9), "1000000000 characters"),
    "items of items": (nested(9, lambda inner: listed(inner, minItems=900), {"type": "null"}), "leaves"),
    "a long text by a pattern": (text(pattern="^a{999999}$"), "(invalid|characters|regex)"),
    "a long text by patterns": (text(pattern="^((a{100}){100}){100}$"), "(invalid|characters|regex)"),
    "a pattern of nothing": (text(pattern="[^\\s\\S]"), "no character"),
    "a malformed pattern": (text(pattern="("), "invalid"),
    "an impossible pattern": (text(pattern="^a$", minLength=2), "no text of 2 to any characters"),
    "two types": ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "two types"),
    "two constants": ({"allOf": [{"const": 1}, {"const": 2}]}, "none of the listed values"),
    "crossed bounds": (number(5, 4), "no number is at least 5 and at most 4"),
    "between integers": ({"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2}, "no integer"),
    "crossed lengths": (text(minLength=3, maxLength=2), "no text has at least 3"),
    "crossed counts": (listed("null", minItems=3, maxItems=2), "no array has at least 3"),
    "crossed members": ({**tool("a b"), "maxProperties": 1}, "no object has at least 2"),
    "not enough different items": (listed("boolean", minItems=3, uniqueItems=True), "not enough different items"),
    "everything excluded": ({"not": {}}, "excludes every value"),
    "itself excluded": ({"type": "string", "not": {"type": "string"}}, "no value that conforms"),
    "required but false": (tool("a", a=False), "no value conforms"),
    "doubled options": (doubling(40, "anyOf"), "."),
    "doubled conditions": (doubling(40, "allOf"), "."),
    "doubled exclusive options": (doubling(40, "oneOf"), "."),
    "options of options": (
        {"allOf": [{"anyOf": [{"required": [f"{a}{b}"], "not": {}} for b in range(20)]} for a in range(20)]},
        "excludes every value",
    ),
    "combinations": (
        {
            "allOf": [
                {"anyOf": [{"properties": {f"p{b}": {"const": a}}, "required": [f"p{b}"]} for b in range(12)]}
                for a in range(30)
            ],
            "type": "object",
        },
        ".",
    ),
}
"""Name -> a schema without values, and an expression that the reason matches."""
