"""Artifacts: files and objects under names and versions, kept in a directory or by Weights & Biases."""
