"""The dependency of the routes for operators (health, metrics): they look at everything that a gateway holds."""

from litestar.di import NamedDependency
from litestar.params import SkipValidation

from gateway.services import Services

ServicesDependency = NamedDependency[SkipValidation[Services]]
