"""Texts in, embeddings and scores out: tokenised by one model, run by another, each text a request of its own."""
