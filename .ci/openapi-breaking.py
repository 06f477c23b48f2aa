#!/usr/bin/env python3
"""Compares two versions of the API's document and fails on changes that would break its users.

    openapi-breaking.py OLD NEW     exit 1 if NEW breaks what OLD promised
    openapi-breaking.py --test NEW  makes breaking changes to NEW and checks that each is found

Requests may be restricted less, answers may be restricted more, and anything may be added. A new
major version (`info.version`) may break anything. This only reads our own document, so it only
understands what that uses.
"""

import copy
import sys

import yaml

# Limits of what we are sent: lowering an upper one or raising a lower one breaks callers.
UPPER, LOWER = ("maxLength", "maximum"), ("minLength", "minimum", "exclusiveMinimum")


class Comparison:
    def __init__(self, old, new):
        self.old, self.new, self.found = resolved(old), resolved(new), []

    def tell(self, where, what):
        line = f"{where}: {what}"
        if line not in self.found:
            self.found.append(line)

    def run(self):
        for part in ("paths", "webhooks"):
            for path, old in self.old.get(part, {}).items():
                new = self.new.get(part, {}).get(path)
                if new is None:
                    self.tell(path, "removed")
                    continue
                for method, operation in old.items():
                    where = path if part == "webhooks" else f"{method.upper()} {path}"
                    if method not in new:
                        self.tell(where, "removed")
                    else:
                        self.operation(where, operation, new[method], part == "webhooks")
        return self.found

    def operation(self, where, old, new, is_event):
        self.parameters(where, old.get("parameters", []), new.get("parameters", []), is_event)
        old_body, new_body = old.get("requestBody"), new.get("requestBody")
        if old_body and new_body:
            self.body(f"{where} body", old_body, new_body, sent_by_us=is_event)
        elif old_body or new_body:
            self.tell(where, "has a body where it had none, or the other way round")
        for status, response in ({} if is_event else old["responses"]).items():
            there = f"{where} {status}"
            if status not in new["responses"]:
                self.tell(there, "removed")
                continue
            self.headers(there, response, new["responses"][status])
            self.body(there, response, new["responses"][status], sent_by_us=True,
                      is_error=status >= "400" and status != "422")

    def parameters(self, where, old, new, is_event):
        before = {(one["in"], one["name"]): one for one in old}
        after = {(one["in"], one["name"]): one for one in new}
        for key in before.keys() | after.keys():
            there = f"{where} {key[1]}"
            one, other = before.get(key), after.get(key)
            if other is None:
                if is_event:
                    self.tell(there, "removed")
            elif one is None:
                if other.get("required") and not is_event:
                    self.tell(there, "is new and required")
            else:
                if other.get("required") and not one.get("required") and not is_event:
                    self.tell(there, "became required")
                self.schema(there, one["schema"], other["schema"], sent_by_us=is_event)

    def headers(self, where, old, new):
        for name, header in old.get("headers", {}).items():
            there = f"{where} {name}"
            other = new.get("headers", {}).get(name)
            # Nobody can rely on a header that need not be there.
            if header.get("required") and not (other or {}).get("required"):
                self.tell(there, "is no longer always there" if other else "removed")
            if other is None:
                continue
            self.schema(there, header["schema"], other["schema"], sent_by_us=True)

    def body(self, where, old, new, sent_by_us, is_error=False):
        for media_type, content in old.get("content", {}).items():
            other = new.get("content", {}).get(media_type)
            if other is None:
                self.tell(where, f"is no longer {media_type}")
            else:
                self.schema(where, content["schema"], other["schema"], sent_by_us, is_error)

    def schema(self, where, old, new, sent_by_us, is_error=False):
        old, new = plain(old), plain(new)
        # What we send may lose values, and what we are sent may gain some.
        more, less = (new, old) if sent_by_us else (old, new)
        if not types(more) <= types(less):
            self.tell(where, f"was {' or '.join(sorted(types(old)))}, is {' or '.join(sorted(types(new)))}")
        # Programs must expect unknown errors and warnings.
        is_open = is_error or where.endswith(".warnings[].code")
        if "enum" in less and not is_open:
            if "enum" not in more:
                self.tell(where, "has another list of values")
            for value in more.get("enum", []):
                if value not in less["enum"]:
                    self.tell(where, f"{'may be' if sent_by_us else 'may no longer be'} {value}")
        if not sent_by_us:
            self.limits(where, old, new)
        elif old.get("format") != new.get("format"):
            self.tell(where, f"was {old.get('format')}, is {new.get('format')}")
        if "items" in old and "items" in new:
            self.schema(f"{where}[]", old["items"], new["items"], sent_by_us, is_error)
        self.fields(where, old, new, sent_by_us, is_error)

    def limits(self, where, old, new):
        for name in UPPER:
            if new.get(name, float("inf")) < old.get(name, float("inf")):
                self.tell(where, f"{name} fell to {new[name]}")
        for name in LOWER:
            if new.get(name, float("-inf")) > old.get(name, float("-inf")):
                self.tell(where, f"{name} rose to {new[name]}")
        for name in ("format", "pattern"):
            if name in new and new[name] != old.get(name):
                self.tell(where, f"{name} is now {new[name]}")

    def fields(self, where, old, new, sent_by_us, is_error):
        before, after = old.get("properties", {}), new.get("properties", {})
        required, now = set(old.get("required", [])), set(new.get("required", []))
        for name in before:
            if name not in after:
                self.tell(f"{where}.{name}", "removed")
            else:
                self.schema(f"{where}.{name}", before[name], after[name], sent_by_us, is_error)
        for name in (required - now) if sent_by_us else (now - required):
            if name in after:
                words = "is no longer always there" if sent_by_us else "became required"
                self.tell(f"{where}.{name}", words)


def resolved(document):
    """The document with every `$ref` replaced by its target."""

    def follow(part):
        if isinstance(part, list):
            return [follow(item) for item in part]
        if not isinstance(part, dict):
            return part
        if "$ref" not in part:
            return {name: follow(member) for name, member in part.items()}
        named = document
        for name in part["$ref"].removeprefix("#/").split("/"):
            named = named[name.replace("~1", "/")]
        return follow(named)

    return follow(document)


def plain(schema):
    """A schema with `allOf`, and `oneOf` with null, merged."""
    if "oneOf" in schema:
        parts = [plain(part) for part in schema["oneOf"]]
        value = next(part for part in parts if types(part) != {"null"})
        value = {**value, "type": sorted(set().union(*map(types, parts)))}
        if "enum" in value:
            value["enum"] = [*value["enum"], None]
        return value
    whole = {name: part for name, part in schema.items() if name != "allOf"}
    for part in schema.get("allOf", []):
        part = plain(part)
        properties = dict(whole.get("properties", {}))
        for name, field in part.get("properties", {}).items():
            properties[name] = {**properties.get(name, {}), **field}
        required = [*whole.get("required", []), *part.get("required", [])]
        whole = {**whole, **part, "properties": properties, "required": required}
    return whole


def types(schema):
    """The JSON types that a schema allows."""
    given = schema.get("type", ["array", "boolean", "null", "number", "object", "string"])
    given = {given} if isinstance(given, str) else set(given)
    return given | ({"integer"} if "number" in given else set())


def changes(document):
    """Breaking changes, each made to a copy."""
    schemas = document["components"]["schemas"]
    charge = ["paths", "/api/v1/payments/charge", "post"]
    for what, path, change in [
        ("removed operation", charge[:-1], lambda it: it.pop("post")),
        ("removed path", ["paths"], lambda it: it.pop("/api/payments/initiate")),
        ("removed event", ["webhooks"], lambda it: it.pop("payout.failed")),
        ("removed status", [*charge, "responses"], lambda it: it.pop("202")),
        ("removed header", ["components", "responses", "RateLimited", "headers"], lambda it: it.pop("Retry-After")),
        ("header not always", ["components", "headers", "X-Request-Id"], lambda it: it.update(required=False)),
        ("new required header", ["components", "parameters", "IdempotencyKey"], lambda it: it.update(required=True)),
        ("removed field in an answer", ["components", "schemas", "ChargeShown", "properties"], lambda it: it.pop("method")),
        ("field not always in an answer", ["components", "schemas", "ChargeShown", "required"], lambda it: it.remove("method")),
        ("field of another type in an answer", ["components", "schemas", "Timestamp"], lambda it: it.update(type="integer")),
        ("more values in an answer", ["components", "schemas", "SessionStatus", "enum"], lambda it: it.append("PAUSED")),
        ("new required field in a request", ["components", "schemas", "InitiateRequest", "required"], lambda it: it.append("customer_email")),
        ("removed field in a request", ["components", "schemas", "InitiateRequest", "properties"], lambda it: it.pop("customer_name")),
        ("fewer values in a request", ["components", "schemas", "Provider", "enum"], lambda it: it.remove("AT")),
        ("null no longer taken", ["components", "schemas", "InitiateRequest", "properties", "customer_name", "oneOf"], lambda it: it.pop()),
        ("shorter text in a request", ["components", "schemas", "Otp"], lambda it: it.update(maxLength=6)),
        ("lower amount in a request", ["components", "schemas", "CediAmount"], lambda it: it.update(maximum=1000)),
        ("new pattern in a request", ["components", "schemas", "Otp"], lambda it: it.update(pattern="^[0-9]*$")),
        ("removed field in an event", ["components", "schemas", "PaymentEventData", "properties"], lambda it: it.pop("status")),
    ]:
        changed = copy.deepcopy(document)
        part = changed
        for name in path:
            part = part[name]
        change(part)
        yield what, changed


def read(file):
    """Reads a document in YAML or JSON, which is also YAML."""
    with open(file, encoding="utf-8") as text:
        return yaml.safe_load(text)


def main(arguments):
    if arguments[0] == "--test":
        document = read(arguments[1])
        missed = [what for what, new in changes(document) if not Comparison(document, new).run()]
        if missed or Comparison(document, document).run():
            sys.exit(f"breaking changes are not found: {missed}")
        print(f"breaking changes that are made for the test are found: {len(list(changes(document)))}")
        return
    old, new = map(read, arguments)
    found = Comparison(old, new).run()
    if found and old["info"]["version"].split(".")[0] != new["info"]["version"].split(".")[0]:
        print(f"a new major version; {len(found)} breaking changes")
        return
    for line in found:
        print(f"breaks callers: {line}")
    if found:
        sys.exit(1)
    print("nothing breaks callers")


main(sys.argv[1:])
