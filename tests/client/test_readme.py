"""The snippets of the client's README run as they stand, against a real service, and print what they should."""

import re
from pathlib import Path

import pytest

from tests.client.conftest import Served

README = Path(__file__).parents[2] / "client" / "README.md"
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("number", "printed"),
    [
        (0, r"(?s)1\. 0\.\d\d .*: .+\n(….*\[.+\].*… in \S+|No answer: below_threshold)\n"),
        (1, r"\['\S+', '\S+'\]\n"),
        (2, r"\w.+\. 0\.\d\d rerank_sigmoid\n-?[01]\.\d\d\n-?[01]\.\d\d\n$"),
        (
            3,
            r"(queued|running) None None\n(.*\n)*succeeded JobProgress\(stage='publish', .*\) (None|\d+\.\d+)\n",
        ),
        (4, r"#/top_k: It must be at most 100.\n/problems/unknown-document\n"),
    ],
)
def test_a_snippet_does_what_it_says(
    served: Served,
    number: int,
    printed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert len(SNIPPETS) == 5
    monkeypatch.chdir(tmp_path)
    exec(compile(SNIPPETS[number].replace("http://127.0.0.1:8000", served.url), str(README), "exec"), {})
    assert re.match(printed, capsys.readouterr().out)
