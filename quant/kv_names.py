"""Names of KV formats that are needed where torch must not be imported."""

FLOAT32 = "f32"  # keys and values as the CPU computes them, which needs no codec
