"""Learning: from assessed evidence to optimizer steps and checkpoints."""
