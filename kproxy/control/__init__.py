"""What operators see: the metrics page, health and readiness."""
