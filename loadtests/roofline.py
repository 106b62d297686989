"""Say what this machine's cores can do at most in the cross-encoder's matrix products, and how much of that is reached.

    python loadtests/roofline.py INDEX_FOLDER QUERIES.jsonl.gz [--svg roofline.svg]

Ceilings and engines take turns, and of each the best round counts: other work only slows. Ceilings are graphs of
nothing but the model's linear layers, in its shapes and in a batch as the session makes them most often, one for each
core at a time. A pair's FLOP are those of its own tokens, padding not counted; a batch moves at least the weights once,
which is what the arithmetic intensity goes by. Beside other work both have fewer cores, not equally many: the last
column compares them by processor time. Plots need matplotlib, of the extra `train`.
"""

import argparse
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import openvino
from engines import engines, requests
from openvino import opset13 as operators
from target import read_queries

from models.cross_encoder import CrossEncoder
from models.folder import BUNDLED_CROSS_ENCODER, WEIGHTS_FILE, open_model_folder
from models.native_session import NativeSession
from models.openvino_session import OpenVinoSession, _multiply_floats, has_bfloat16, usual_precision
from models.session import available_cpus
from models.tokenization import ModelInput
from service.report import plots

Shapes: TypeAlias = Sequence[tuple[int, int]]  # (in, out) of linear layers, in order

PRECISIONS = {"fp32": 4, "bf16": 2, "int8": 1}  # bytes of a weight
OF_ENGINES = {
    "openvino in f32": "fp32",
    "openvino in bf16": "bf16",
    "native in bf16": "bf16",
    "onnxruntime on cpu": "int8",
}
CEILING_SECONDS = 0.3
COPIED_BYTES = 512_000_000


@dataclass(frozen=True, slots=True)
class Architecture:
    """The matrix products of an encoder: (in, out) of the linear layers that every token goes through, and attention.

    Each layer's attention multiplies queries by keys and weights by values, all heads together width wide.
    """

    linear: tuple[tuple[int, int], ...]
    n_layers: int
    width: int

    @property
    def n_weights(self) -> int:
        """How many weights the linear layers have."""
        return sum(n_in * n_out for n_in, n_out in self.linear)

    def linear_flop(self, n_tokens: int) -> int:
        """Return the floating-point operations of the linear layers, two for each weight and token."""
        return 2 * n_tokens * self.n_weights

    def attention_flop(self, n_tokens: int) -> int:
        """Return those of attention: two products a layer, each of n_tokens x n_tokens x width."""
        return 4 * n_tokens * n_tokens * self.width * self.n_layers


@dataclass(slots=True)
class Measured:
    """GFLOP/s of each round, and how many cores it had meanwhile: all of them where nothing else runs nor waits."""

    name: str
    precision: str
    rounds: list[tuple[float, float]] = field(default_factory=list)

    @property
    def gflops(self) -> float:
        """GFLOP/s of the best round."""
        return max(self.rounds)[0]

    @property
    def cores(self) -> float:
        """How many cores it had in the best round."""
        return max(self.rounds)[1]

    def note(self, gflop: float, seconds: float, cpu_seconds: float) -> None:
        """Add a round."""
        self.rounds.append((gflop / seconds, cpu_seconds / seconds))


@dataclass(frozen=True, slots=True)
class Point:
    """An engine on the plot: FLOP for each byte moved, and GFLOP/s."""

    measured: Measured
    intensity: float


def architecture() -> Architecture:
    """Return that of the bundled cross-encoder, read off its graph; what only [CLS] goes through is not counted."""
    model = openvino.Core().read_model(open_model_folder(BUNDLED_CROSS_ENCODER, "cross-encoder").path / WEIGHTS_FILE)
    _multiply_floats(model, "f32")
    products = [node for node in model.get_ordered_ops() if node.get_type_name() == "MatMul"]
    weights = [node.input_value(1).get_node() for node in products if node.output(0).partial_shape.rank == 3]
    linear = tuple((int(each.shape[1]), int(each.shape[0])) for each in weights)  # they are kept as (out, in)
    n_attention = sum(node.output(0).partial_shape.rank == 4 for node in products)
    return Architecture(linear, n_layers=n_attention // 2, width=linear[0][0])


def linear_graph(shapes: Shapes, precision: str) -> openvino.Model:
    """Return a graph of linear layers one after the other, in int8 with unsigned activations and signed weights."""
    generator = np.random.default_rng(1)
    x = operators.parameter([-1, -1, shapes[0][0]], np.float32)
    node: Any = x
    for n_in, n_out in shapes:
        weights: Any = operators.constant(generator.normal(0, n_in**-0.5, (n_out, n_in)).astype(np.float32))
        if precision == "int8":
            node, weights = _quantised(node, 0, 2.55, 256), _quantised(weights, -0.254, 0.254, 255)
        node = operators.matmul(node, weights, False, True)
    return openvino.Model([node], [x], precision)


def _quantised(node: Any, low: float, high: float, levels: int) -> Any:
    ends = [operators.constant(np.float32(end)) for end in (low, high, low, high)]
    return operators.fake_quantize(node, *ends, levels)


def chains(of: Architecture) -> dict[str, Shapes]:
    """Return the linear layers that a ceiling is measured with: those from width to width, the others, and all."""
    square = [shape for shape in of.linear if shape[0] == shape[1]]
    return {"attention's": square, "feed-forward": [s for s in of.linear if s[0] != s[1]], "all": of.linear}


def ceiling(
    name: str, shapes: Shapes, precision: str, *, batch: tuple[int, int]
) -> tuple[Measured, Callable[[], None]]:
    """Return a ceiling, and what measures a round of it: each core runs batches (n, tokens) for a while."""
    n_threads, found = available_cpus(), Measured(f"{name} linear layers", precision)
    hint = {"fp32": "f32", "bf16": "bf16", "int8": usual_precision()}[precision]
    settings = {"INFERENCE_PRECISION_HINT": hint, "INFERENCE_NUM_THREADS": n_threads, "NUM_STREAMS": n_threads}
    settings |= {"ENABLE_CPU_PINNING": False}
    model = openvino.Core().compile_model(linear_graph(shapes, precision), "CPU", settings)
    x = np.random.default_rng(2).random((*batch, shapes[0][0]), np.float32)
    gflop = 2 * batch[0] * batch[1] * sum(n_in * n_out for n_in, n_out in shapes) / 1e9
    streams = [model.create_infer_request() for _ in range(n_threads)]

    def round_() -> None:
        for stream in streams:
            stream.infer([x], share_inputs=True)  # to warm up
        n_runs = [0] * n_threads
        ends = time.perf_counter() + CEILING_SECONDS

        def run(number: int) -> None:
            while time.perf_counter() < ends:
                streams[number].infer([x], share_inputs=True)
                n_runs[number] += 1

        seconds, cpu_seconds = _timed(lambda: _on_threads(run, n_threads))
        found.note(gflop * sum(n_runs), seconds, cpu_seconds)

    return found, round_


def _on_threads(run: Callable[[int], None], n_threads: int) -> None:
    threads = [threading.Thread(target=run, args=(number,)) for number in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return the wall time and the processor time of work, in seconds."""
    started, cpu_started = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - started, time.process_time() - cpu_started


def bandwidth() -> Callable[[], float]:
    """Return what says how many GB a second all cores read and write together, each copying what no cache holds."""
    n_threads = available_cpus()
    pairs = [(np.ones(COPIED_BYTES // n_threads, np.uint8), np.ones(COPIED_BYTES // n_threads, np.uint8))]
    pairs += [(pairs[0][0].copy(), pairs[0][0].copy()) for _ in range(n_threads - 1)]
    n_bytes = 2 * sum(one.nbytes for one, _ in pairs)

    def copy(number: int) -> None:
        np.copyto(pairs[number][1], pairs[number][0])

    return lambda: n_bytes / _timed(lambda: _on_threads(copy, n_threads))[0] / 1e9


def operations(precision: str, batch: tuple[int, int]) -> dict[str, float]:
    """Return the share of a batch's time by OpenVINO's kinds of operations, the greatest first, in the best of ten."""
    model = openvino.Core().read_model(open_model_folder(BUNDLED_CROSS_ENCODER, "cross-encoder").path / WEIGHTS_FILE)
    _multiply_floats(model, precision)
    settings = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": 1, "PERF_COUNT": True}
    request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
    feeds = {port.any_name: np.ones(batch, np.int64) for port in request.model_inputs}
    rounds = []
    for _ in range(10):
        request.infer(feeds)
        spent = Counter[str]()
        for each in request.profiling_info:
            spent[each.node_type] += each.real_time // timedelta(microseconds=1)
        rounds.append(spent)
    best = min(rounds, key=Counter.total)
    return {kind: us / best.total() for kind, us in best.most_common(5)}


def n_bytes(model: CrossEncoder, asked: Sequence[Sequence[ModelInput]], of: Architecture) -> int:
    """Return how many bytes of weights are read for the requests if each batch that the session runs reads all once."""
    session = model._session
    batched = session._batches if isinstance(session, OpenVinoSession | NativeSession) else list
    n_batches = [len(batched(inputs)) for inputs in asked]
    return PRECISIONS[OF_ENGINES[model.engine]] * of.n_weights * sum(n_batches)


def scored(model: CrossEncoder, asked: Sequence[Sequence[ModelInput]]) -> None:
    """Score the pairs of each request, one request after the other."""
    for inputs in asked:
        model.logits(inputs)


def commonest(model: CrossEncoder, asked: Sequence[Sequence[ModelInput]]) -> tuple[int, int]:
    """Return the shape (n, tokens) of a session in OpenVINO that most tokens are run in."""
    session, n_tokens = model._session, Counter[tuple[int, int]]()
    assert isinstance(session, OpenVinoSession)
    for inputs in asked:
        for batch in session._batches(inputs):
            shape = len(batch), session._padded(inputs[batch[0]])
            n_tokens[shape] += shape[0] * shape[1]
    return n_tokens.most_common(1)[0][0]


def plot(ceilings: Mapping[str, Measured], gb_per_second: float, points: Sequence[Point]) -> str:
    """Return an SVG file: ceilings in GFLOP/s as lines over the arithmetic intensity, engines as points."""
    colours = dict(zip(PRECISIONS, (plots._GREEN, plots._BLUE, plots._AMBER), strict=True))
    top = max(limit.gflops for limit in ceilings.values())
    with plots._style("roofline"):
        figure = plots._figure(4.0)
        axes = figure.subplots()
        ends = 1.0, 4 * max(point.intensity for point in points)
        axes.plot([1, top / gb_per_second], [gb_per_second, top], color=plots._QUIET, linewidth=1.6)
        axes.annotate(f"memory {gb_per_second:.0f} GB/s", (2, 2 * gb_per_second), (6, -8), textcoords="offset points")
        for precision, limit in ceilings.items():
            ridge = limit.gflops / gb_per_second
            axes.plot([ridge, ends[1]], 2 * [limit.gflops], color=colours[precision], linewidth=1.6)
            said = f"{precision} {limit.gflops:,.0f}"
            axes.annotate(said, (ridge, limit.gflops), (14, 3), textcoords="offset points")
        for point in points:
            found = point.measured
            name, colour = f"{found.name}: {found.gflops:,.0f}", colours[found.precision]
            axes.plot([point.intensity], [found.gflops], "o", color=colour, markersize=6, label=name)
        axes.set(xscale="log", yscale="log", xlabel="FLOP a byte of weights read", ylabel="GFLOP/s")
        axes.set(xlim=ends, ylim=(gb_per_second / 2, 2 * top))
        axes.minorticks_off()
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:,.0f}")
        axes.legend(loc="lower right", fontsize=8)
        return plots._alone(plots._svg(figure, "Roofline: GFLOP/s of each engine below the limits of this machine"))


def tables(
    of: Architecture, lengths: Sequence[int], ceilings: Sequence[Measured], points: Sequence[Point]
) -> Iterator[str]:
    """Yield Markdown: what a pair takes, the ceilings, and the engines against the best ceiling of their precision."""
    linear, attention = (sum(map(flop, lengths)) / len(lengths) / 1e9 for flop in (of.linear_flop, of.attention_flop))
    yield f"{len(lengths):,} pairs, median {np.median(lengths):.0f} tokens, mean {np.mean(lengths):.0f}."
    yield f"A pair takes {linear + attention:.2f} GFLOP: {linear:.2f} in linear layers, {attention:.2f} in attention.\n"
    yield "| ceiling | GFLOP/s | cores had | pairs/s at most |\n|---|---|---|---|"
    for each in ceilings:
        pairs = each.gflops / (linear + attention)
        yield f"| {each.name}, {each.precision} | {each.gflops:,.0f} | {each.cores:.2f} | {pairs:.0f} |"
    yield (
        "\n| engine | pairs/s | GFLOP/s | cores had | FLOP/byte | of the ceiling | core for core |\n" + 7 * "|---" + "|"
    )
    for point in points:
        found, limit = point.measured, best_ceilings(ceilings)[point.measured.precision]
        share, of_a_core = found.gflops / limit.gflops, (found.gflops / found.cores) / (limit.gflops / limit.cores)
        rate = f"{found.gflops / (linear + attention):.0f} | {found.gflops:,.0f} | {found.cores:.2f}"
        yield (
            f"| {found.name} | {rate} | {point.intensity:.0f} | {share:.0%} of {found.precision} | {of_a_core:.0%} |"
        )


def best_ceilings(ceilings: Sequence[Measured]) -> dict[str, Measured]:
    """Return the highest ceiling of each precision."""
    return {each.precision: each for each in sorted(ceilings, key=lambda found: found.gflops)}


def main() -> None:
    """Measure, print Markdown, draw."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("index", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--n", type=int, default=5, help="requests of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--svg", type=Path)
    arguments = parser.parse_args()
    of, models = architecture(), engines()
    reference = next(iter(models.values()))
    asked = requests(arguments.index, read_queries(arguments.queries, n=arguments.n), reference)
    lengths, batch = [item.ids.size for inputs in asked for item in inputs], commonest(reference, asked)
    flop = sum(of.linear_flop(n) + of.attention_flop(n) for n in lengths)
    precisions = [name for name in PRECISIONS if name != "bf16" or has_bfloat16()]
    limits = [ceiling(name, s, p, batch=batch) for p in precisions for name, s in chains(of).items()]
    points = [
        Point(Measured(name, OF_ENGINES[name]), flop / n_bytes(model, asked, of)) for name, model in models.items()
    ]
    copy, copied = bandwidth(), [0.0]
    for round_ in range(arguments.rounds + 1):  # the first warms up
        copied.append(copy())
        for _, measure in limits:
            measure()
        for point, model in zip(points, models.values(), strict=True):
            spent = _timed(partial(scored, model, asked))
            if round_:
                point.measured.note(flop / 1e9, *spent)
    ceilings = [found for found, _ in limits]
    print(f"Batches of {batch[0]} x {batch[1]} tokens, {available_cpus()} cores; memory {max(copied):.1f} GB/s.")
    print("\n".join(tables(of, lengths, ceilings, points)))
    for precision in sorted({"f32", usual_precision()}):
        shares = ", ".join(f"{kind} {share:.0%}" for kind, share in operations(precision, batch).items())
        print(f"\nOf a batch in {precision} on one core: {shares}.")
    if arguments.svg is not None:
        arguments.svg.write_text(plot(best_ceilings(ceilings), max(copied), points))


if __name__ == "__main__":
    main()
