"""The runtime: storage, control plane, model computation, execution and learning."""
