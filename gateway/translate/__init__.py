"""Pure functions between the wire (`gateway.schema`) and the vocabulary (`backends.types`): no I/O, no HTTP, no engine."""
