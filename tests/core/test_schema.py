"""The JSON schema of a state is that of its fields, for what is read and for what is written."""

from __future__ import annotations

import warnings
from typing import Any

from pydantic import BaseModel

from locus.core.state import AgentState


class Answer(BaseModel):
    state: AgentState


def test_the_schema_names_every_field_in_both_directions() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # defaults that JSON cannot show
        for mode in ("validation", "serialization"):
            schema = AgentState.model_json_schema(mode=mode)
            assert set(AgentState.model_fields) == set(schema["properties"]), mode
            assert "messages" in Answer.model_json_schema(mode=mode)["$defs"]["AgentState"]["properties"]


def test_a_value_of_the_users_named_omitted_is_theirs() -> None:
    state: Any = AgentState.model_validate({"omitted": 5})
    assert state.omitted == 5
    assert state.model_dump()["omitted"] == 5
    assert not state.locus_omitted
