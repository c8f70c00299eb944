"""The literal index, the registry and the commands are one list."""

from runtime.home import Home
from tools import registry
from tools.context import Context
from tools.fields import Cli
from tools.index import MODULES, NOUNS, STACK, SUMMARIES


def test_every_indexed_operation_is_defined_and_no_other() -> None:
    found = {(one.noun, one.verb) for one in registry.operations()}
    assert found == set(SUMMARIES)
    assert set(MODULES) == {STACK, *NOUNS} == {noun for noun, _ in SUMMARIES}


def test_every_input_field_is_described() -> None:
    for chosen in registry.operations():
        for name, field in chosen.input.model_fields.items():
            assert field.description, f"{chosen.name}.{name}"


def test_positional_arguments_are_required_and_come_first() -> None:
    for chosen in registry.operations():
        fields = list(chosen.input.model_fields.values())
        positional = [any(isinstance(m, Cli) and m.positional for m in f.metadata) for f in fields]
        assert positional == sorted(positional, reverse=True), chosen.name
        assert all(f.is_required() for f, p in zip(fields, positional, strict=True) if p)


def test_what_only_reads_is_neither_destructive_nor_unrepeatable() -> None:
    for chosen in registry.operations():
        if chosen.traits.read_only:
            assert chosen.traits.idempotent
            assert not chosen.traits.destructive


def test_a_context_needs_no_stack_until_it_is_used() -> None:
    assert Context(Home.at()).emit is None
