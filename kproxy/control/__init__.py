"""What operators use: metrics, health and readiness, logs, the control API, the status page and reloads of options."""
