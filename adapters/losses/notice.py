"""A notice for runs whose ratios never leave 1: with one update per batch every clipped loss is the plain gradient."""

from __future__ import annotations

__all__ = ["RatioWatch"]


class RatioWatch:
    """Reports once that a run's ratios never left 1.

    With one mini-batch per batch, the policy being updated is the one that sampled: rho = 1 for every token, no clip
    acts, and ``steppo``, ``gspo``, ``pspo`` and ``vanilla`` are the same update.

    Args:
        loss: Name of the policy loss.
        patience: Training steps to wait before the notice.

    >>> watch = RatioWatch("steppo", patience=2)
    >>> watch.update(0.0), watch.update(0.0)[:33], watch.update(0.0)
    (None, 'no ratio of the steppo loss has l', None)
    """

    def __init__(self, loss: str, patience: int = 3) -> None:
        self.loss = loss
        self.patience = patience
        self._still = 0

    def update(self, moved: float) -> str | None:
        """Record one training step.

        Args:
            moved: Its ``ratio/moved``: the share of ratios that left 1, over all its mini-batches.

        Returns:
            The notice the first time it applies, otherwise None.
        """
        if moved > 0:
            self._still = -1  # a ratio that has moved once is enough
        if self._still < 0 or self.loss == "reinforce":
            return None
        self._still += 1
        if self._still != self.patience:
            return None
        return (
            f"no ratio of the {self.loss} loss has left 1 in {self.patience} training steps: clipping never acts and "
            "the update equals the plain policy gradient. Use at least two mini-batches per batch (verl: a smaller "
            "ppo_mini_batch_size; PyTorch loop: mini_batches) or more than one epoch (ppo_epochs; epochs)"
        )
