"""Chat templates over columns: conversations become texts, cut into prompt and reply."""
