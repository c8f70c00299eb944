"""Query parameters that several routes take."""

from typing import Annotated

from fastapi import Query

from runtime.gateway.paging import DEFAULT_LIMIT, MAX_LIMIT

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT)]
Cursor = Annotated[str | None, Query(max_length=1024)]
LIMIT = DEFAULT_LIMIT
