"""The dependencies that handlers ask for by name. The application provides them, so their types are not checked per request."""

from litestar.di import NamedDependency
from litestar.params import SkipValidation

from gateway.config import ServerConfig
from gateway.registry import Registry
from gateway.telemetry.telemetry import Telemetry

RegistryDependency = NamedDependency[SkipValidation[Registry]]
TelemetryDependency = NamedDependency[SkipValidation[Telemetry]]
SettingsDependency = NamedDependency[SkipValidation[ServerConfig]]
