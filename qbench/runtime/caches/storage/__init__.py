"""Storages: bytes of the keys and values of one layer, and attention over them. Open `kv_storage.KVStorage` first."""
