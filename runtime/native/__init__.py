"""Native harnesses on this machine: pinned installs, and launches in a user's own folder."""
