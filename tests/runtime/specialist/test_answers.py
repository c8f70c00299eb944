"""A turn that only wraps is told from one that says something."""

import pytest

from runtime.specialist.answers import is_wrapper


@pytest.mark.parametrize(
    "text",
    [
        'import Guide from "../guide.mdx"\n\n<Guide />',
        'import "./a.css";\nexport const meta = { title: "A" };\n',
        "---\ntitle: Leave\ntags: [a]\n---\n<Snippet file='leave.mdx' />\n",
        "<!-- nothing\nhere -->",
        "{/* later */}\n<>\n</>",
        "{% include 'body.html' %} {{< embed >}}",
        "```python\n```",
        ":::note\n:::\n",
    ],
)
def test_markup_around_nothing_is_a_wrapper(text: str) -> None:
    assert is_wrapper(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "...",
        "{}",
        "Leave is thirty days.",
        "<p>Thirty days.</p>",
        "import the goods from abroad",
        "export PATH=/opt/bin",
        "---\ntitle: Leave\n---\nThirty days.",
        "```python\nprint(1)\n```",
        "a < b and c > d",
        "{{ 30 }} days",
    ],
)
def test_what_has_a_word_of_its_own_is_none(text: str) -> None:
    assert not is_wrapper(text)
