"""The data lie in the package; a larger set would be at a URL."""
