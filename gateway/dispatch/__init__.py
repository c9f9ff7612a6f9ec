"""From a call to an answer: limits, queue, routing and accounting around whatever a backend gives.

Entered through `gateway.dispatch.dispatch.Dispatch`. Knows backends only by their protocols, and no HTTP.
"""
