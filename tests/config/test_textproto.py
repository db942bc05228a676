"""protobuf's text format is read as protobuf's own reader reads it, and a mistake is told with its place."""

import pytest
import tritonclient.grpc.model_config_pb2 as triton
from google.protobuf import text_format
from google.protobuf.message import Message as Protobuf

from wakeful.config.textproto import MOST_NESTED, Message, TextProtoError, parse

TEXTS = [
    "",
    "name: 'a' max_batch_size: 8, platform: \"x\";",
    'name: "one" \'two\'  # a comment\n "three"',
    r'name: "\n\t\"\\\x41\101\'"',
    "input { name: 'x' data_type: TYPE_FP32 dims: [ -1, 4 ] dims: 3 } input < name: 'y' dims: 0x10 dims: 017 >",
    "input [ { name: 'x' }, { name: 'y' optional: true } ]",
    "dynamic_batching { } version_policy: { latest { num_versions: 2 } }",
    "parameters { key: 'k' value { string_value: 'v' } } parameters: { key: 'l' value: { string_value: '' } }",
    "instance_group [ { count: 2 kind: KIND_CPU gpus: [] rate_limiter { resources [ { name: 'r' global: false } ] } } ]",
]


def of_protobuf(message: Protobuf) -> Message:
    """What the schema-less reader should make of the same text."""
    fields: Message = {}
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            fields[field.name] = [{"key": [key], "value": [of_protobuf(value[key])]} for key in sorted(value)]  # it keeps no order
            continue
        values = list(value) if field.is_repeated else [value]
        if field.enum_type is not None:
            values = [field.enum_type.values_by_number[number].name for number in values]
        fields[field.name] = [of_protobuf(one) if field.message_type is not None else one for one in values]
    return fields


def without_defaults(message: Message) -> Message:
    """protobuf does not keep a value that is the default one."""
    fields = {}
    for name, values in message.items():
        kept = [without_defaults(value) if isinstance(value, dict) else value for value in values]
        if any(isinstance(value, dict) or value for value in kept):
            fields[name] = kept
    return fields


@pytest.mark.parametrize("text", TEXTS)
def test_as_protobuf_reads_it(text: str) -> None:
    assert without_defaults(parse(text)) == of_protobuf(text_format.Parse(text, triton.ModelConfig()))


def test_numbers_and_words() -> None:
    values = parse("a: [-1.5e3f, .5, 7, -0x1F, true, false, inf, -inf, KIND]")["a"]
    assert values == [-1500.0, 0.5, 7, -31, True, False, "inf", "-inf", "KIND"]
    assert [type(value) for value in values[:4]] == [float, float, int, int]


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("name", 1, 5, 'expected ":" or "{", got the end of the file'),
        ("name:", 1, 6, "expected a value, got the end of the file"),
        ("a: 1\nb {\n c: 2\n", 4, 1, "expected a field's name, got the end of the file"),
        ("a: [1 2]", 1, 7, 'expected "," or "]", got \'2\''),
        ("a: 1\n}", 2, 1, "expected a field's name, got '}'"),
        ("a: 'open", 1, 4, "got \"'\""),
        ("a: 12b", 1, 4, "got '1'"),
        ("a: " + 5000 * "9", 1, 4, "expected a number of 64 bits, got '999"),
        ("a 1", 1, 3, 'expected ":" or "{"'),
        ("a: }", 1, 4, "expected a value, got '}'"),
        ("a < b: 1 }", 1, 10, "expected a field's name, got '}'"),
        ("é: 1", 1, 1, "got 'é'"),
        ("a {" * 40, 1, 3 * MOST_NESTED + 1, f"messages within {MOST_NESTED} others"),
    ],
)
def test_mistakes_are_told_with_their_place(text: str, line: int, column: int, words: str) -> None:
    with pytest.raises(TextProtoError) as caught:
        parse(text)
    assert (caught.value.line, caught.value.column) == (line, column), str(caught.value)
    assert words in str(caught.value)
