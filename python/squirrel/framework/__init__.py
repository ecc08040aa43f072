"""Plug-ins, input and output, exceptions."""
