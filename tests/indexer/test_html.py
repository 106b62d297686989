from functools import partial

import pytest

from indexer.errors import NoDocumentError
from indexer.html import declared_charset, read_html
from tests.indexer.work import calls_in


def test_html_gives_its_main_text_with_headings_lists_and_code() -> None:
    page = """<!doctype html><html lang=en><head><title> Ferry
      times </title><meta name=description content="When it goes"><style>p{}</style></head><body>
      <nav>Home | About</nav><main><h1>Ferry</h1><p>It goes <b>daily</b>, <a href=x>see</a>.<br>Not on Sundays</p>
      <ul><li>one<li><p>two</p></ul><pre>def f():
    return 1
</pre><table><tr><th>From<th>To</tr><tr><td>Porto<td>Turku</tr></table><script>alert(1)</script><!-- no --></main>
      <footer>(c)</footer></body></html>"""
    extracted = read_html(page)
    assert extracted.title == "Ferry times"
    assert extracted.metadata == {"language": "en", "description": "When it goes"}
    assert extracted.text.split("\n") == [
        *("# Ferry", "", "It goes daily, see.", "Not on Sundays", "", "- one", "- two", "", "def f():", "    return 1"),
        *("", "From | To", "Porto | Turku"),
    ]


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p>a", "a"),
        ("", ""),
        ("just text", "just text"),
        ("<div>a</div> <div>b</div>", "a\n\nb"),
        ("<p>a<span>b</span> c", "ab c"),
        ("<main></main><p>a", "a"),
        ("<article>a</article><article>b</article>", "a\n\nb"),
        ("<p>&lt;b&gt; &amp; caf\u00e9", "<b> & café"),
    ],
)
def test_small_and_broken_pages_give_their_text(page: str, text: str) -> None:
    assert read_html(page).text == text


@pytest.mark.parametrize("tag", ["div", "li", "h1", "pre", "td", "b"])
def test_deep_nesting_does_not_matter(tag: str) -> None:
    assert read_html(f"<{tag}>" * 20_000 + "deep").text.lstrip("-# ") == "deep"


@pytest.mark.parametrize("page", ["<li>", "<li>a", "<h2>", "<h2>a", "<li><h3>", "<li><h3>a</h3>", "<main>", "<td><li>"])
def test_twice_as_many_open_tags_are_twice_the_work(page: str) -> None:
    once, twice = (calls_in(partial(read_html, "<body>" + page * n)) for n in (250, 500))
    assert twice < 2.2 * once


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<li></li><li>a", "- a"),
        ("a<li><nav>b</nav></li>c", "a\nc"),
        ("<h1><span hidden>x</span></h1>a", "a"),
        ("<li><ul><li>a</ul>b", "- - a\n\nb"),
        ("<li><ul><li> </li><li>a</li></ul></li><li>b", "- - a\n\n- b"),
        ("<h2>a<li></li></h2>b", "## a\n\nb"),
        ("<li><h3><br>a</h3>b", "- ### a\n\nb"),
    ],
)
def test_an_item_or_a_heading_without_words_has_no_mark(page: str, text: str) -> None:
    assert read_html(page).text == text


def test_what_the_parser_rejects_is_text_or_damaged() -> None:
    assert read_html("<p>a<![b[c]]>d").text == "a<![b[c]]>d"
    with pytest.raises(NoDocumentError, match=r"is damaged, or no HTML \(ValueError\)") as refused:
        read_html(f"<p>&#{'9' * 5000};")
    assert refused.value.kind == "damaged"


def test_a_page_in_xml_is_read_without_a_warning() -> None:
    assert read_html('<?xml version="1.0"?><html xmlns="x"><body><p>a</p></body></html>').text == "a"


@pytest.mark.parametrize(
    "hidden",
    [
        "<nav>{}</nav>",
        "<div role=navigation>{}</div>",
        "<div hidden>{}</div>",
        "<p style='display: none'>{}</p>",
        "<span aria-hidden=true>{}</span>",
        "<select><option>{}</select>",
        "<aside>{}</aside>",
    ],
)
def test_navigation_and_what_is_hidden_are_left_out(hidden: str) -> None:
    assert read_html(f"<p>a</p>{hidden.format('gone')}<p>b</p>").text == "a\n\nb"


def test_a_page_that_is_one_form_keeps_its_text() -> None:
    assert read_html("<form><p>text</p><button>send</button></form>").text == "text"


def test_links_keep_their_words_and_the_canonical_one_is_the_address() -> None:
    page = "<head><link rel=canonical href=' https://x.example/a '></head><p>see <a href=/b>the tide</a>"
    extracted = read_html(page)
    assert (extracted.text, extracted.url) == ("see the tide", "https://x.example/a")
    assert "/b" not in str(extracted.metadata)


@pytest.mark.parametrize("address", ["/relative", "javascript:alert(1)", "https://", "https://x y"])
def test_an_address_that_leads_nowhere_is_none(address: str) -> None:
    assert read_html(f'<link rel="canonical" href="{address}"><p>a').url is None


@pytest.mark.parametrize(
    ("page", "charset"),
    [
        (b"<meta charset=iso-8859-1>", "iso-8859-1"),
        (b"<META http-equiv=content-type CONTENT='text/html; charset=Shift_JIS'>", "Shift_JIS"),
        (b'<?xml version="1.0" encoding="koi8-r"?>', "koi8-r"),
        (b"<p>charset=x", None),
        (b" " * 5000 + b"<meta charset=x>", None),
    ],
)
def test_the_declared_charset_is_found_at_the_beginning(page: bytes, charset: str | None) -> None:
    assert declared_charset(page) == charset


def test_a_page_that_looks_like_a_name_of_a_file_is_a_page() -> None:
    assert read_html("notes.html").text == "notes.html"
