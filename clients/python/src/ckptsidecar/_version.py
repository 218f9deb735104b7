"""The version of the client, in this one place."""

__version__ = "0.9.0"
