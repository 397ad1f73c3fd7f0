"""Readers: answers, verdicts and answer probabilities from a question and passages."""
