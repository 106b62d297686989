"""What the roofline counts."""

import pytest

pytest.importorskip("openvino")
pytest.importorskip("matplotlib")

from roofline import Architecture, Measured, architecture, best_ceilings


def test_the_operations_of_two_small_layers_by_hand() -> None:
    """Width 2, inner width 8: a layer has 4 x 2*2 + 2*8 + 8*2 = 48 weights, two have 96.

    Three tokens go through each of them, a product and a sum: 2 * 3 * 96 = 576. Attention multiplies (3, 2) by (2, 3)
    and (3, 3) by (3, 2) a layer, 18 products and 18 sums each: 2 * 2 * 36 = 144.
    """
    small = Architecture(((2, 2), (2, 2), (2, 2), (2, 2), (2, 8), (8, 2)) * 2, n_layers=2, width=2)
    assert small.n_weights == 96
    assert small.linear_flop(3) == 576
    assert small.attention_flop(3) == 144


def test_the_bundled_cross_encoder_has_six_layers_of_384_without_its_head() -> None:
    layer = ((384, 384),) * 4 + ((384, 1536), (1536, 384))
    found = architecture()
    assert sorted(found.linear) == sorted(layer * 6)
    assert (found.n_layers, found.width) == (6, 384)


def test_the_best_round_counts_with_the_cores_that_it_had() -> None:
    one, other = Measured("one", "bf16"), Measured("other", "bf16")
    one.note(10, 2, 4)
    one.note(10, 1, 1.5)
    other.note(10, 4, 8)
    assert (one.gflops, one.cores) == (10, 1.5)
    assert best_ceilings([other, one, other]) == {"bf16": one}
