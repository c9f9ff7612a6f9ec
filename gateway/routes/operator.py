"""The dependencies of the routes for operators: everything that a gateway holds, and what spans its workers."""

from litestar.di import NamedDependency
from litestar.params import SkipValidation

from gateway.operation import Operation
from gateway.services import Services

ServicesDependency = NamedDependency[SkipValidation[Services]]
OperationDependency = NamedDependency[SkipValidation[Operation]]
