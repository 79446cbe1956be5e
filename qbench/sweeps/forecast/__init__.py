"""Forecast of a sweep's cost: from past records, or from a probe."""
