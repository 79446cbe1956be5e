// Every reround as block.h declares it. Included inside the namespace of an instruction set.

#define QK_DEFINE(sums) \
    void reround_##sums(const Stretch& stretch, int bits) { reround<Sums::sums>(stretch, bits); }
QK_REROUNDED_SUMS(QK_DEFINE)
#undef QK_DEFINE
