"""Sweeps: every case of a suite measured once, in processes of their own, and recorded."""
