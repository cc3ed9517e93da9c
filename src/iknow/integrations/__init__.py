"""Integrations: what other tools need to keep and run a classifier of ours."""
