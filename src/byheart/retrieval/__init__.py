"""Retrieval: BM25 and dense search over one index, fused, with a learned query adapter."""
