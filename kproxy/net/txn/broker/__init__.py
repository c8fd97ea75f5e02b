"""Requests to brokers about transactions that their coordinators decide: implicit ones, KIP-98's, and members'."""
