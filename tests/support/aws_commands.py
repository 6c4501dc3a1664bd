"""Commands of the AWS command line, as the documentation has them, carried out through botocore.

The command line derives the names of its commands and options from botocore's models, so a command or an option that does not exist there
is an error here too. Options of other types than text, and queries other than a path, are not understood.
"""

from __future__ import annotations

import shlex
from functools import reduce
from typing import Any, Final

import boto3
from botocore import xform_name

_OF_EVERY_COMMAND: Final = {"query", "output"}


def run_aws(line: str, endpoint: str, region: str) -> str:
    """Carry out `aws SERVICE COMMAND --option value …` and return what the command prints with `--query PATH --output text`.

    Raises AssertionError for an unknown command or option, and botocore's errors for what the service refuses.
    """
    aws, service, command, *rest = shlex.split(line)
    assert aws == "aws", line
    assert len(rest) % 2 == 0, line
    options = {name.removeprefix("--"): value for name, value in zip(rest[::2], rest[1::2], strict=True)}
    client: Any = boto3.client(service, endpoint_url=endpoint, region_name=region)  # type: ignore[call-overload]
    operations = {xform_name(name, "-"): name for name in client.meta.service_model.operation_names}
    assert command in operations, line
    members = client.meta.service_model.operation_model(operations[command]).input_shape.members
    named = {xform_name(name, "-"): name for name in members if members[name].type_name == "string"}
    unknown = options.keys() - named.keys() - _OF_EVERY_COMMAND
    assert not unknown, f"{line}: {unknown}"
    answer = getattr(client, xform_name(operations[command]))(**{named[name]: options[name] for name in options.keys() & named.keys()})
    return str(reduce(lambda found, name: found[name], options["query"].split("."), answer)) if "query" in options else ""
