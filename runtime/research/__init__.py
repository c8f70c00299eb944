"""Research by agents: what a training agent's episode was, derived from its records."""
