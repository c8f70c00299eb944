"""Model formats: tokenizers, and how each family writes and reads a conversation; pure."""
