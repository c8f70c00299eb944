"""The database and the object store. Only the gateway imports this package."""
