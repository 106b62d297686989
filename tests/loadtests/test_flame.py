"""How py-spy's samples become a flame graph."""

from xml.etree import ElementTree

from flame import Box, boxes, draw, folded, leaves

LINES = (
    "thread (7): MainThread;<module> (tercet);main (service/__main__.py);Runner.run (asyncio/runners.py) 90",
    "thread (7): MainThread;main (service/__main__.py);Runner.run (asyncio/runners.py);app (starlette/routing.py);"
    "call (starlette/middleware/base.py);search (service/routes.py) 4",
    "thread (8): model_1;_worker (concurrent/futures/thread.py);_WorkItem.run (concurrent/futures/thread.py);"
    "Engine._rerank (service/engine.py);Condition.wait (threading.py) 50",
    "thread (9): openvino_0;Thread.run (threading.py);_worker (concurrent/futures/thread.py) 70",
    "thread (9): openvino_0;_worker (concurrent/futures/thread.py);_WorkItem.run (concurrent/futures/thread.py);"
    "S.<locals>.<dictcomp> (models/openvino_session.py);infer (openvino/_ov_api.py) 30",
    "thread (10): openvino_1;_worker (concurrent/futures/thread.py);_WorkItem.run (concurrent/futures/thread.py);"
    "S.<locals>.<dictcomp> (models/openvino_session.py);infer (openvino/_ov_api.py) 26",
)
COMPUTING = ("openvino", "models/openvino_session.py: S.<locals>.<dictcomp>", "openvino")


def test_stacks_that_wait_are_left_out_and_equal_ones_of_two_threads_are_one() -> None:
    assert folded(LINES) == {("event loop", "starlette", "service/routes.py: search"): 4, COMPUTING: 56}


def test_boxes_lie_beside_their_neighbours_and_on_those_that_called_them() -> None:
    stacks = {("a",): 1, ("a", "b"): 2, ("a", "b", "d"): 3, ("a", "c"): 4, ("e",): 5}
    assert list(boxes(stacks)) == [
        Box("a", 0, 0, 10),
        Box("b", 1, 1, 5),
        Box("d", 2, 3, 3),
        Box("c", 1, 6, 4),
        Box("e", 0, 10, 5),
    ]


def test_a_graph_is_xml_that_says_each_function_with_its_time() -> None:
    svg = ElementTree.fromstring(draw(folded(LINES), title="5 < 6", ms_a_sample=0.5))
    titles = [each.text for each in svg.iter("{http://www.w3.org/2000/svg}title")]
    assert "models/openvino_session.py: S.<locals>.<dictcomp>: 28.0 ms, 93.3%" in titles
    assert len(titles) == 6


def test_time_ends_in_our_innermost_function_and_what_it_called() -> None:
    table = list(leaves(folded(LINES), ms_a_sample=0.5))[1:]
    assert table == [
        "| models/openvino_session.py: S.<locals>.<dictcomp> → openvino | 28.0 | 93.3% |",
        "| service/routes.py: search | 2.0 | 6.7% |",
    ]
