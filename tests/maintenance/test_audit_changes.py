"""What changed between two audits, of which the earlier one is JSON that somebody kept."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance import Audit, Finding, FindingKind, TableAudit, TableChanges, changes_since
from tests.support.audited_catalog import NOW, audit_a_month_before, audited_catalog, table_audit, unloaded

BEFORE = NOW - dt.timedelta(days=30)


def kept(*tables: TableAudit, is_whole: bool = True) -> str:
    return json.dumps(Audit("lakehouse", is_whole, BEFORE, tables).to_json())


def audit_of(*tables: TableAudit, is_whole: bool = True) -> Audit:
    return Audit("lakehouse", is_whole, NOW, tables)


def only(found: Audit, earlier: str) -> TableChanges:
    (change,) = changes_since(found, earlier).tables
    return change


def finding(kind: FindingKind = FindingKind.MISSING_FILE, where: str = "s3://b/x", message: str = "so") -> Finding:
    return Finding(kind, where, message)


def test_nothing_changes_between_an_audit_and_itself() -> None:
    found = audited_catalog()

    assert changes_since(found, json.dumps(found.to_json())).tables == ()


def test_findings_are_new_gone_or_changed() -> None:
    before = table_audit(findings=(finding(where="gone"), finding(where="same"), finding(where="other", message="3 files")))
    now = table_audit(findings=(finding(where="new"), finding(where="same"), finding(where="other", message="4 files")))
    change = only(audit_of(now), kept(before))

    assert [each.where for each in change.new] == ["new"]
    assert [each.where for each in change.gone] == ["gone"]
    assert [(each.where, each.before, each.message) for each in change.changed] == [("other", "3 files", "4 files")]


def test_nothing_is_resolved_by_a_table_that_could_not_be_opened_this_time() -> None:
    before = table_audit(findings=(finding(FindingKind.PLAINTEXT_FILE),))
    change = only(audit_of(unloaded(before.table, FindingKind.REFUSED_TABLE, "why")), kept(before))

    assert [each.kind for each in change.new] == ["refused-table"]
    assert change.gone == ()


@pytest.mark.parametrize("kind", [FindingKind.KEK_PAST_LIFE, FindingKind.KEK_RETIRED, FindingKind.KEK_NEAR_END])
def test_that_a_key_grew_older_is_no_change(kind: FindingKind) -> None:
    before, now = (table_audit(findings=(finding(kind, message=f"is {days} days old"),)) for days in (700, 730))

    assert changes_since(audit_of(now), kept(before)).tables == ()


def test_keys_that_came_went_or_moved_are_told() -> None:
    before = table_audit(key_id="alias/old", ages=(40, 500, 900))
    now = dataclasses.replace(table_audit(key_id="alias/new", ages=(40, 3)), table=before.table)
    kek, new = (each.key_id for each in now.keks)
    gone = [each.key_id for each in before.keks[1:]]

    assert only(audit_of(now), kept(before)).keys == (
        "The master key was alias/old and is now alias/new.",
        f"KEK {kek} was wrapped by alias/old, and is now wrapped by alias/new.",
        f"KEK {new} is new.",
        f"2 KEKs are gone: {gone[0]}, {gone[1]}.",
    )


def test_a_share_that_sank_is_told() -> None:
    change = only(audit_of(table_audit(plain=1)), kept(table_audit()))

    assert change.encrypted_before == 1
    assert change.encrypted_now == pytest.approx(0.925, abs=0.01)


@pytest.mark.parametrize(("whole_before", "whole_now", "states"), [
    (True, True, {"db.a": "gone", "db.c": "new"}),
    (True, False, {"db.c": "new"}),
    (False, True, {"db.a": "gone"}),
    (False, False, {}),
])  # fmt: skip
def test_a_table_is_new_or_gone_only_if_the_other_audit_looked_at_all(whole_before: bool, whole_now: bool, states: dict[str, str]) -> None:
    a, b, c = (table_audit(name) for name in ("db.a", "db.b", "db.c"))
    changes = changes_since(audit_of(b, c, is_whole=whole_now), kept(a, b, is_whole=whole_before))

    assert {each.table: each.state.value for each in changes.tables} == states


def test_the_json_names_everything() -> None:
    shown = changes_since(audited_catalog(), audit_a_month_before()).to_json()

    assert json.loads(json.dumps(shown)) == shown
    assert [each["table"] for each in shown["tables"]] == ["archive.logs", "sales.orders", "sales.returns"]


@pytest.mark.parametrize(("text", "message"), [
    ("", "is empty; if the new one is printed into the same file"),
    ("  \n", "is empty"),
    ("{", "Invalid JSON"),
    ("[]", "not what `tablecrypt audit --json` prints"),
    ('{"tables": []}', "catalog: Field required"),
    ("[" * 100_000, "Invalid JSON"),
])  # fmt: skip
def test_what_is_no_audit_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match="the earlier audit is") as refused:
        changes_since(audited_catalog(), text)

    assert message in str(refused.value)
    assert len(str(refused.value)) < 300


def test_an_audit_of_another_catalog_or_of_a_later_moment_is_refused() -> None:
    found = audit_of(table_audit())
    with pytest.raises(ConfigurationError, match="of catalog other"):
        changes_since(found, json.dumps(dataclasses.replace(found, catalog="other").to_json()))
    with pytest.raises(ConfigurationError, match="after this one"):
        changes_since(found, json.dumps(dataclasses.replace(found, moment=NOW + dt.timedelta(days=1)).to_json()))


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
JSON = st.recursive(SCALARS, lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=5), each, max_size=3), max_leaves=8)


@given(data=st.data())
def test_an_edited_audit_is_read_or_refused(data: st.DataObject) -> None:
    content: Any = json.loads(audit_a_month_before())
    at, key = content, data.draw(st.sampled_from(sorted(content)))
    while isinstance(at[key], (dict, list)) and at[key] and data.draw(st.booleans()):
        at = at[key]
        key = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
    at[key] = data.draw(JSON)

    try:
        changes_since(audited_catalog(), json.dumps(content))
    except ConfigurationError:
        return
