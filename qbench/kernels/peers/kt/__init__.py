"""Experts as kt-kernel runs them."""
