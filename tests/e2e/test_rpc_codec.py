"""Messages of remote calls against Python's google.protobuf: the same bytes, the same JSON, both ways.

build/codec (tests/peers/codec.c) has our side; messages are made at random from tests/proto/types.proto.
"""
import json
import math
import random
import subprocess

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

import harness

SEED = 20261116
ROUNDS = 1500


@pytest.fixture(scope="module")
def all_type():
    files = descriptor_pb2.FileDescriptorSet.FromString((harness.BUILD / "gen" / "types.pb").read_bytes())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(files.file[0])
    return message_factory.MessageFactory(pool).GetPrototype(pool.FindMessageTypeByName("test.types.All"))


@pytest.fixture(scope="module")
def codec():
    process = subprocess.Popen([harness.BUILD / "codec"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(kind, data):
        process.stdin.write(kind + data.hex().encode() + b"\n")
        process.stdin.flush()
        head, _, rest = process.stdout.readline().rstrip(b"\n").partition(b" ")
        return (None, rest.decode()) if head == b"error" else (bytes.fromhex(head.decode()), rest.decode())

    yield ask
    process.stdin.close()
    assert process.wait(10) == 0


TEXTS = ["", "a", "grün", "\U0001f600", "\u2028\"\\/\b\x7f", "x" * 300]


def value(rand, field):
    kinds = type(field)
    if field.type == kinds.TYPE_STRING:
        return rand.choice(TEXTS)
    if field.type == kinds.TYPE_BYTES:
        return rand.randbytes(rand.choice([0, 1, 2, 3, 50]))
    if field.type == kinds.TYPE_BOOL:
        return rand.random() < 0.5
    if field.type == kinds.TYPE_ENUM:
        return rand.choice([0, 1, 5, -1, 77])
    if field.type in (kinds.TYPE_DOUBLE, kinds.TYPE_FLOAT):
        # protobuf-c takes -0.0 for the default, which is left out where there is no presence.
        zero = 0.0 if field.name in ("a_double", "a_float") else -0.0
        picked = rand.choice([0.0, zero, 1.5, -2.25, 1e300, 5e-324, 0.1, math.inf, -math.inf, math.nan, 3.0,
                              rand.uniform(-1e6, 1e6)])
        return picked if field.type == kinds.TYPE_DOUBLE or abs(picked) < 3e38 or not math.isfinite(picked) else 0.1
    bits = 64 if "64" in field.name or field.name in ("number_choice", "value") else 32
    low = 0 if field.type in (kinds.TYPE_UINT32, kinds.TYPE_UINT64, kinds.TYPE_FIXED32, kinds.TYPE_FIXED64) \
        else -(1 << (bits - 1))
    high = (1 << bits) + low - 1
    return rand.choice([0, 1, low, high, rand.randint(low, high), rand.randint(max(low, -200), 200)])


def fill_map(rand, found, field, depth):
    for key in rand.sample(TEXTS, rand.randint(1, 4)):
        if field.type == field.TYPE_MESSAGE:
            fill(rand, found[key], depth + 1)
        else:
            found[key] = value(rand, field)


def fill(rand, message, depth=0):
    for field in message.DESCRIPTOR.fields:
        if rand.random() < (0.5 if depth < 2 else 0.9) or (depth > 5 and field.type == field.TYPE_MESSAGE):
            continue
        many = field.label == field.LABEL_REPEATED
        if field.type == field.TYPE_MESSAGE and field.message_type.GetOptions().map_entry:
            fill_map(rand, getattr(message, field.name), field.message_type.fields_by_name["value"], depth)
        elif field.type == field.TYPE_MESSAGE:
            for _ in range(rand.randint(1, 3) if many else 1):
                below = getattr(message, field.name)
                fill(rand, below.add() if many else below, depth + 1)
                if not many:
                    below.SetInParent()
        elif many:
            getattr(message, field.name).extend(value(rand, field) for _ in range(rand.randint(1, 4)))
        else:
            setattr(message, field.name, value(rand, field))
    return message


def shown(message):
    """To be compared: not-a-number is equal to itself."""
    return json_format.MessageToDict(message)


def test_as_google_protobuf(codec, all_type):
    rand = random.Random(SEED)
    for _ in range(ROUNDS):
        message = fill(rand, all_type())
        data, text = codec(b"b", message.SerializeToString())
        assert data is not None, (text, message)
        assert shown(all_type.FromString(data)) == shown(message)
        theirs = json_format.MessageToDict(message)
        assert json.loads(text).keys() == theirs.keys()
        assert shown(json_format.Parse(text, all_type())) == shown(message)
        original = rand.random() < 0.5
        given = json_format.MessageToJson(message, preserving_proto_field_name=original,
                                          including_default_value_fields=rand.random() < 0.3)
        data, _ = codec(b"j", given.encode())
        assert data is not None, given
        assert shown(all_type.FromString(data)) == shown(message)


def decoded(codec, all_type, text):
    data, why = codec(b"j", text.encode() if isinstance(text, str) else text)
    return why if data is None else all_type.FromString(data)


@pytest.mark.parametrize("text,field,expected", [
    ('{"aInt64": "-9223372036854775808"}', "a_int64", -2**63),
    ('{"aUint64": "18446744073709551615"}', "a_uint64", 2**64 - 1),
    ('{"aInt32": 5.0}', "a_int32", 5),
    ('{"aInt32": "7"}', "a_int32", 7),
    ('{"aDouble": "1.5"}', "a_double", 1.5),
    ('{"aDouble": "-Infinity"}', "a_double", -math.inf),
    ('{"aColour": "BLUE"}', "a_colour", 5),
    ('{"a_colour": 77}', "a_colour", 77),
    ('{"aBytes": "-_8"}', "a_bytes", b"\xfb\xff"),
    ('{"aString": null, "manyInt32": null, "inner": null}', "a_string", ""),
    ('{"camelName2x": "x"}', "camelName2x", "x"),
    ('{"snakeCaseName": "y"}', "snake_case_name", "y"),
    ('{"textMap": {"": "b", "k": ""}}', "text_map", {"": "b", "k": ""}),
    ('{"text_map": {}}', "text_map", {}),
    ('{"numberMap": {"n": "-5", "m": 7}}', "number_map", {"n": -5, "m": 7}),
    ('{"colourMap": {"c": "BLUE"}}', "colour_map", {"c": 5}),
])
def test_json_is_read(codec, all_type, text, field, expected):
    got = decoded(codec, all_type, text)
    assert getattr(got, field) == expected and getattr(json_format.Parse(text, all_type()), field) == expected


@pytest.mark.parametrize("text", [
    '', '"x"', '{', '{"aInt32": 2147483648}', '{"aInt32": 1.5}', '{"aInt32": "x"}', '{"aInt32": true}',
    '{"aUint32": -1}', '{"aUint64": -1}', '{"aInt64": 9223372036854775808}', '{"aBool": 1}', '{"aBool": "true"}',
    '{"aString": 1}', '{"aColour": "GREEN"}', '{"manyInt32": 1}',
    '{"manyInt32": [null]}', '{"unknown": 1}', '{"aInt32": 1, "aInt32": 2}',
    '{"numberChoice": "1", "textChoice": "x"}', '{"aDouble": "x"}', '{"aDouble": "0x10"}', '{"aFloat": 1e39}',
    '{"textMap": []}', '{"textMap": {"a": 1}}', '{"textMap": {"a": null}}', '{"numberMap": {"a": "x"}}',
    '{"textMap": {"a": "1", "a": "2"}}', '{"textMap": {"a": "\\ud800"}}',
    '{"aString": "\\ud800"}', b'{"aString": "\xff"}', '{"AInt32": 1}', '{"aint32": 1}',
])
def test_json_is_refused_by_both(codec, all_type, text):
    got = decoded(codec, all_type, text)
    assert isinstance(got, str) and got, text
    with pytest.raises((json_format.ParseError, UnicodeDecodeError)):
        json_format.Parse(text.decode() if isinstance(text, bytes) else text, all_type())


@pytest.mark.parametrize("text", ['[]', '{"aBytes": "*"}', '{"inner": []}', '{"aInt32": 1, "a_int32": 2}'])
def test_json_is_refused(codec, all_type, text):
    """What Python's reader lets pass, and nobody can mean."""
    assert isinstance(decoded(codec, all_type, text), str)


def nested(depth):
    data = b""
    for _ in range(depth):
        data = b"\x12" + varint(len(data)) + data
    return b"\x8a\x01" + varint(len(data)) + data


def varint(number):
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


@pytest.mark.parametrize("data,why", [
    (b"\x7a\x01\xff", "a_string of test.types.All is not UTF-8"),
    (b"\x7a\x02a\0", "a_string of test.types.All holds a NUL"),
    (b"\x8a\x01\x03\x0a\x01\xff", "name of test.types.Inner is not UTF-8"),
    (b"\x08", "the bytes are no"),
    (b"\x08" + b"\xff" * 10, "the bytes are no"),
    (b"\x7a\xff\xff\xff\xff\x0f", "the bytes are no"),
    (b"\x00\x00", "the bytes are no"),
    (b"\x0b\x0c", "the bytes are no"),
    (b"\x0f", "the bytes are no"),
    (b"\x08\x01" * 16385, "more than 16384 fields"),
    (nested(7), "more than 8 messages"),
])
def test_protobuf_is_refused(codec, data, why):
    got, text = codec(b"b", data)
    assert got is None and why in text


def entry(number, *fields):
    data = b"".join(fields)
    return varint(number << 3 | 2) + varint(len(data)) + data


def test_maps_as_they_may_come(codec, all_type):
    """A key without a value, a value without a key, a key twice, fields of an entry that nobody knows."""
    for data in (entry(41, b"\x0a\x01k"), entry(41, b"\x12\x01v"), entry(41), entry(43, b"\x0a\x01k"),
                 entry(41, b"\x0a\x01k\x12\x01a") + entry(41, b"\x0a\x01k\x12\x01b"),
                 entry(42, b"\x10\x05\x0a\x01k\x10\x06"), entry(41, b"\x1a\x01x\x0a\x01k")):
        got, text = codec(b"b", data)
        assert got is not None, text
        theirs = shown(all_type.FromString(data))
        assert shown(all_type.FromString(got)) == theirs and shown(json_format.Parse(text, all_type())) == theirs, data
    assert "more than 16384" in codec(b"j", json.dumps({"textMap": {str(i): "" for i in range(16385)}}).encode())[1]
    assert codec(b"j", json.dumps({"textMap": {str(i): "" for i in range(16384)}}).encode())[0] is not None


@pytest.mark.parametrize("data", [b"", b"\x08\x01" * 16384, nested(6), b"\xd2\x0f\x03abc" + b"\x08\x05",
                                  b"\xfa\x07\x01\xff"])
def test_protobuf_is_read(codec, all_type, data):
    got, text = codec(b"b", data)
    assert got is not None, text
    assert shown(all_type.FromString(got)) == shown(all_type.FromString(data))
