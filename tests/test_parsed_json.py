"""JSON that could not be kept is refused when it is parsed, with an error that says why."""

from __future__ import annotations

import pytest

from tablecrypt._parsed_json import ParsedJson
from tablecrypt.errors import FormatError
from tablecrypt.table.metadata import MetadataFile

REFUSED = {
    '{"last-sequence-number": 9223372036854775808}': "more than 63 bits",
    '{"last-sequence-number": -9223372036854775809}': "more than 63 bits",
    '{"last-sequence-number": 1' + "0" * 5000 + "}": "more than 63 bits",
    '{"properties": {"encryption.key-id": "\\ud800"}}': "surrogate pair",
    '{"properties": {"\\uDFFF": "a"}}': "surrogate pair",
    '{"a": ' + "[" * 300 + "]" * 300 + "}": "nested too deeply",
    "[" * 200_000: "nested too deeply",
    '{"a":' * 300 + "1" + "}" * 300: "nested too deeply",
    '{"format-version": 3, "properties": null}': "no JSON object",
    '{"format-version": 3, "properties": []}': "no JSON object",
    '{"format-version": 2, "properties": null}': "no JSON object",
}


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_could_not_be_kept_is_a_format_error_that_names_the_file(number: int) -> None:
    text, why = list(REFUSED.items())[number]
    with pytest.raises(FormatError, match=rf"^v1\.metadata\.json: .*{why}"):
        MetadataFile("v1.metadata.json", text.encode()).parse()


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ('{"a": 9223372036854775807, "b": -9223372036854775808}', {"a": 2**63 - 1, "b": -(2**63)}),
        ('{"a": "\\ud83d\\ude00 \\\\ud800"}', {"a": "\N{GRINNING FACE} \\ud800"}),
        ('{"a": "' + "[{" * 1000 + '"}', {"a": "[{" * 1000}),
        ('{"a": ["\\"]"]}', {"a": ['"]']}),
        ('{"a": 1e300}', {"a": 1e300}),
    ],
)
def test_what_can_be_kept_is_read(text: str, document: object) -> None:
    assert ParsedJson(text).document == document
