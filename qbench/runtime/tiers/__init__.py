"""Bytes of keys and values outside the pool: blocks that outlive the process, and files that extend its memory."""
