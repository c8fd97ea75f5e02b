"""Traces: spans made of what the cores tell, sent to a collector of OpenTelemetry's."""
