"""The local stack: one supervisor per home folder keeps four processes alive.

`control` is what a command calls: `up`, `down`, `status`. `daemon` is the process that
they start; it holds the lock of the home for as long as it lives, so "is the lock held?" is the
one question that decides whether a stack runs. Whatever dies, and however, the next start finds
a home that it can use: the kernel ends the children of a killed supervisor, and `state.sweep`
removes the rest.
"""
