"""The dependencies that handlers ask for by name. The application provides them, so their types are not checked per request."""

from litestar.di import NamedDependency
from litestar.params import SkipValidation

from gateway.dispatch.catalog import Catalog

CatalogDependency = NamedDependency[SkipValidation[Catalog]]
