"""What the gateway tells its operators: Prometheus metrics and JSON log lines."""
