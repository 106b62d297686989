"""The losses against worked examples."""

import math

import numpy as np
import pytest
import torch

from models.training.losses import contrastive_loss, distillation_loss, listwise_loss, pointwise_loss, span_loss


def test_span_loss_is_the_mean_of_both_cross_entropies_over_allowed_tokens() -> None:
    start, end = torch.tensor([[0.0, 100.0, 0.0]]), torch.tensor([[0.0, 0.0, math.log(3.0)]])
    allowed = torch.tensor([[True, False, True]])
    loss = span_loss(start, end, allowed, torch.tensor([2]), torch.tensor([2]))
    assert loss.item() == pytest.approx((math.log(2) + math.log(4 / 3)) / 2)


def test_distillation_loss_worked_example_at_any_temperature() -> None:
    allowed = torch.tensor([[True, False, True]])
    student, teacher = torch.tensor([[0.0, 9.0, 0.0]]), torch.tensor([[[math.log(3.0), -7.0, 0.0]]])
    one = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert distillation_loss(student, allowed, teacher, temperature=1.0).item() == pytest.approx(one)
    assert distillation_loss(student, allowed, 2 * teacher, temperature=2.0).item() == pytest.approx(4 * one)


def test_distillation_wants_the_mean_of_the_teachers_probabilities() -> None:
    allowed = torch.ones(1, 2, dtype=torch.bool)
    teachers = torch.tensor([[[math.log(3.0), 0.0]], [[0.0, math.log(3.0)]]])  # (.75, .25) and (.25, .75)
    assert distillation_loss(torch.zeros(1, 2), allowed, teachers, temperature=1.0).item() == pytest.approx(0, abs=1e-7)
    student = torch.tensor([[1.0, 0.0]], requires_grad=True)
    [gradient] = torch.autograd.grad(distillation_loss(student, allowed, teachers, temperature=1.0), student)
    assert gradient[0, 0] > 0  # it is above the mean there


def test_listwise_loss_of_equal_logits_is_log_n_and_falls_with_the_positive() -> None:
    assert listwise_loss(torch.zeros(3, 4)).item() == pytest.approx(math.log(4))
    assert listwise_loss(torch.tensor([[5.0, 0.0, 0.0, 0.0]])).item() < 0.1


def test_pointwise_loss_weighs_relevant_and_not_the_same() -> None:
    assert pointwise_loss(torch.zeros(2, 4)).item() == pytest.approx(math.log(2))
    one_wrong = pointwise_loss(torch.tensor([[-20.0, -20.0, -20.0, -20.0]])).item()
    all_wrong = pointwise_loss(torch.tensor([[20.0, 20.0, 20.0, 20.0]])).item()
    assert one_wrong == pytest.approx(10.0, rel=1e-3)
    assert all_wrong == pytest.approx(10.0, rel=1e-3)


def test_contrastive_loss_worked_example() -> None:
    queries = torch.eye(2)
    assert contrastive_loss(queries, queries, scale=1.0).item() == pytest.approx(math.log(math.e + 1) - 1)


def test_contrastive_loss_equals_brute_force_with_hard_negatives_and_never_depends_on_the_order_of_queries() -> None:
    generator = np.random.default_rng(3)
    queries, passages = generator.normal(size=(5, 8)), generator.normal(size=(15, 8))
    expected = []
    for row, query in enumerate(queries):
        scores = [20 * float(query @ passage) for passage in passages]
        top = max(scores)
        expected.append(math.log(sum(math.exp(score - top) for score in scores)) + top - scores[3 * row])
    found = contrastive_loss(torch.from_numpy(queries), torch.from_numpy(passages), scale=20.0).item()
    assert found == pytest.approx(float(np.mean(expected)), rel=1e-5)
    order = [3, 0, 4, 1, 2]
    moved = np.concatenate([passages[3 * row : 3 * row + 3] for row in order])
    assert contrastive_loss(torch.from_numpy(queries[order]), torch.from_numpy(moved), scale=20.0).item() == (
        pytest.approx(found, rel=1e-5)
    )
