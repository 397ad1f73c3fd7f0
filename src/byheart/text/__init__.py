"""Text to tokens, token states and vectors: what every other part builds on."""
