"""The shared fixtures for tests in this folder."""

from squirrel.integration_test.shared_fixtures import *  # noqa: F403
