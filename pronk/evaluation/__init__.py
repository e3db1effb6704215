"""Whole episodes, played with trained weights: after training, beside it, and in programs of the user's."""
