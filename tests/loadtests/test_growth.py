"""How growth cuts text into passages."""

import numpy as np
from growth import of_tokens, of_words


def test_pieces_have_so_many_tokens_and_what_is_left_over_is_left() -> None:
    text = "one two three four five"
    offsets = np.array([(0, 3), (4, 7), (8, 13), (14, 18), (19, 23)], np.int32)
    assert list(of_tokens(text, offsets, 2)) == ["one two", "three four"]
    assert list(of_tokens(text, offsets, 5)) == [text]
    assert list(of_tokens(text, offsets, 6)) == []


def test_windows_of_words_are_as_many_as_asked_and_lie_in_the_text() -> None:
    words = [str(i) for i in range(100)]
    windows = [window.split() for window in of_words(words, 20)]
    assert [window[0] for window in windows[:4]] == ["0", "0", "1", "1"]
    assert all(len(window) == 90 for window in windows)
    assert len(windows) == 20
