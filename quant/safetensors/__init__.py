"""Safetensors files: headers, arrays in memory, tensors written one by one, and folders of files."""
