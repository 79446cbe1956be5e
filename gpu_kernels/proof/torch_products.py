"""torch's products of codes: peers and machine peaks call them.

source  aten/src/ATen/native/native_functions.yaml in torch: `_int_mm`, `_scaled_mm`, `_weight_int4pack_mm`
"""

# torch gives these products no public names.
# pyright: reportPrivateImportUsage=false
import torch

int_mm = torch._int_mm
scaled_mm = torch._scaled_mm
convert_weight_to_int4pack = torch._convert_weight_to_int4pack
weight_int4pack_mm = torch._weight_int4pack_mm
