"""Traces: spans of requests and transactions, sent to an OpenTelemetry collector."""
