"""For all tests: nothing that a test starts may find the data of whoever runs it."""

import os
import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_data_folder() -> Iterator[None]:
    """Keep the gateway's database of every process in a folder that lives as long as the tests."""
    with tempfile.TemporaryDirectory(prefix="baton-data-") as folder:
        os.environ["XDG_DATA_HOME"] = folder
        yield
