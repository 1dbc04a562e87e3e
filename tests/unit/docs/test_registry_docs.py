"""The pages for Pulumi's registry show programs that are compiled."""

from __future__ import annotations

from scripts import registry_docs, sdks


def test_each_program_of_the_registry_is_one_that_is_compiled() -> None:
    """`make sdks` compiles these very examples, with the SDK of their language."""
    shown = {name: path.partition("/")[0] for name, (_, path) in registry_docs.EXAMPLE_PROGRAMS.items()}
    assert shown == {name: language.example for name, language in sdks.LANGUAGES.items()}
    assert [name for name, language in sdks.LANGUAGES.items() if not language.tools] == []
    compiled = {name for name, language in sdks.LANGUAGES.items() if language.compile_command}
    # `pulumi package add` compiles Java's; there is nothing to compile of YAML.
    assert compiled == shown.keys() - {"java", "yaml"}
