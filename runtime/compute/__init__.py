"""Model computation behind one small protocol; see `protocol`."""
