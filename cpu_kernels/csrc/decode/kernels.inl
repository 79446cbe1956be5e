// Every decoder over the lanes of an instruction set.
namespace {
#include "decode/driver.inl"
#include "decode/shared.inl"
}  // namespace
#define QK_DECODE
#include "block_formats/all.inl"
