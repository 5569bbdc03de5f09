import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew; review the diff")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    chosen = request.config.getoption("--update-golden", default=False)
    return bool(chosen) or os.environ.get("UPDATE_GOLDEN") == "1"
