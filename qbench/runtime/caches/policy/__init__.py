"""Policies at work: caches that keep some tokens, or read some of them. Open `evictor.Evictor` first."""
