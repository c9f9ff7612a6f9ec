"""Plain ASGI classes that wrap the whole application, also where no route matches. `gateway.app` names their order."""
