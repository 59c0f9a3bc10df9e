//go:build !purego

#include "textflag.h"

// Z0 to Z7 hold the working variables of 16 digests, Z8 to Z10 are scratch, and Z16 to
// Z31 hold the message words. R8 points to the round constants.

// ROUND leaves the new e in d and the new a in h. The word and constant of the round are
// already added to h.
#define ROUND(a, b, c, d, e, f, g, h) \
	VPRORD $6, e, Z8            \
	VPRORD $11, e, Z9           \
	VPRORD $25, e, Z10          \
	VPTERNLOGD $0x96, Z10, Z9, Z8 \
	VMOVDQA32 e, Z9             \
	VPTERNLOGD $0xCA, g, f, Z9  \
	VPADDD Z8, h, h             \
	VPADDD Z9, h, h             \
	VPADDD h, d, d              \
	VPRORD $2, a, Z8            \
	VPRORD $13, a, Z9           \
	VPRORD $22, a, Z10          \
	VPTERNLOGD $0x96, Z10, Z9, Z8 \
	VMOVDQA32 a, Z9             \
	VPTERNLOGD $0xE8, c, b, Z9  \
	VPADDD Z8, h, h             \
	VPADDD Z9, h, h

// OWN is a round with one word for each text.
#define OWN(i, w, a, b, c, d, e, f, g, h) \
	VPADDD.BCST (i*4)(R8), h, h \
	VPADDD w, h, h              \
	ROUND(a, b, c, d, e, f, g, h)

// SHARED is a round whose word is the same in all texts and part of the constant.
#define SHARED(i, a, b, c, d, e, f, g, h) \
	VPADDD.BCST (i*4)(R8), h, h \
	ROUND(a, b, c, d, e, f, g, h)

// EXTEND replaces a word by the one 16 rounds later: w1, w9 and w14 are the words 1, 9
// and 14 rounds after it.
#define EXTEND(w, w1, w9, w14) \
	VPRORD $7, w1, Z8           \
	VPRORD $18, w1, Z9          \
	VPSRLD $3, w1, Z10          \
	VPTERNLOGD $0x96, Z10, Z9, Z8 \
	VPADDD w9, w, w             \
	VPADDD Z8, w, w             \
	VPRORD $17, w14, Z8         \
	VPRORD $19, w14, Z9         \
	VPSRLD $10, w14, Z10        \
	VPTERNLOGD $0x96, Z10, Z9, Z8 \
	VPADDD Z8, w, w

#define LOAD(at) \
	VMOVDQU32 0(at), Z0   \
	VMOVDQU32 64(at), Z1  \
	VMOVDQU32 128(at), Z2 \
	VMOVDQU32 192(at), Z3 \
	VMOVDQU32 256(at), Z4 \
	VMOVDQU32 320(at), Z5 \
	VMOVDQU32 384(at), Z6 \
	VMOVDQU32 448(at), Z7

#define ADD(at) \
	VPADDD 0(at), Z0, Z0   \
	VPADDD 64(at), Z1, Z1  \
	VPADDD 128(at), Z2, Z2 \
	VPADDD 192(at), Z3, Z3 \
	VPADDD 256(at), Z4, Z4 \
	VPADDD 320(at), Z5, Z5 \
	VPADDD 384(at), Z6, Z6 \
	VPADDD 448(at), Z7, Z7

#define STORE(at) \
	VMOVDQU32 Z0, 0(at)   \
	VMOVDQU32 Z1, 64(at)  \
	VMOVDQU32 Z2, 128(at) \
	VMOVDQU32 Z3, 192(at) \
	VMOVDQU32 Z4, 256(at) \
	VMOVDQU32 Z5, 320(at) \
	VMOVDQU32 Z6, 384(at) \
	VMOVDQU32 Z7, 448(at)

// JOIN adds to the words at SI, which are zero after the beginnings, what follows these.
#define JOIN(i, w) \
	VMOVDQU32 (i*64)(SI), w   \
	VPORD.BCST (i*4)(DX), w, w

// func ownBlock(state *[8]vector, words *[16]vector, common *[16]uint32, constants *[64]uint32)
TEXT ·ownBlock(SB), NOSPLIT, $0-32
	MOVQ state+0(FP), DI
	MOVQ words+8(FP), SI
	MOVQ common+16(FP), DX
	MOVQ constants+24(FP), R8
	LOAD(DI)
	JOIN(0, Z16)
	JOIN(1, Z17)
	JOIN(2, Z18)
	JOIN(3, Z19)
	JOIN(4, Z20)
	JOIN(5, Z21)
	JOIN(6, Z22)
	JOIN(7, Z23)
	JOIN(8, Z24)
	JOIN(9, Z25)
	JOIN(10, Z26)
	JOIN(11, Z27)
	JOIN(12, Z28)
	JOIN(13, Z29)
	JOIN(14, Z30)
	JOIN(15, Z31)
	MOVQ $3, CX

rounds:
	OWN(0, Z16, Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7)
	EXTEND(Z16, Z17, Z25, Z30)
	OWN(1, Z17, Z7, Z0, Z1, Z2, Z3, Z4, Z5, Z6)
	EXTEND(Z17, Z18, Z26, Z31)
	OWN(2, Z18, Z6, Z7, Z0, Z1, Z2, Z3, Z4, Z5)
	EXTEND(Z18, Z19, Z27, Z16)
	OWN(3, Z19, Z5, Z6, Z7, Z0, Z1, Z2, Z3, Z4)
	EXTEND(Z19, Z20, Z28, Z17)
	OWN(4, Z20, Z4, Z5, Z6, Z7, Z0, Z1, Z2, Z3)
	EXTEND(Z20, Z21, Z29, Z18)
	OWN(5, Z21, Z3, Z4, Z5, Z6, Z7, Z0, Z1, Z2)
	EXTEND(Z21, Z22, Z30, Z19)
	OWN(6, Z22, Z2, Z3, Z4, Z5, Z6, Z7, Z0, Z1)
	EXTEND(Z22, Z23, Z31, Z20)
	OWN(7, Z23, Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z0)
	EXTEND(Z23, Z24, Z16, Z21)
	OWN(8, Z24, Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7)
	EXTEND(Z24, Z25, Z17, Z22)
	OWN(9, Z25, Z7, Z0, Z1, Z2, Z3, Z4, Z5, Z6)
	EXTEND(Z25, Z26, Z18, Z23)
	OWN(10, Z26, Z6, Z7, Z0, Z1, Z2, Z3, Z4, Z5)
	EXTEND(Z26, Z27, Z19, Z24)
	OWN(11, Z27, Z5, Z6, Z7, Z0, Z1, Z2, Z3, Z4)
	EXTEND(Z27, Z28, Z20, Z25)
	OWN(12, Z28, Z4, Z5, Z6, Z7, Z0, Z1, Z2, Z3)
	EXTEND(Z28, Z29, Z21, Z26)
	OWN(13, Z29, Z3, Z4, Z5, Z6, Z7, Z0, Z1, Z2)
	EXTEND(Z29, Z30, Z22, Z27)
	OWN(14, Z30, Z2, Z3, Z4, Z5, Z6, Z7, Z0, Z1)
	EXTEND(Z30, Z31, Z23, Z28)
	OWN(15, Z31, Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z0)
	EXTEND(Z31, Z16, Z24, Z29)
	ADDQ $64, R8
	DECQ CX
	JNZ  rounds

	OWN(0, Z16, Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7)
	OWN(1, Z17, Z7, Z0, Z1, Z2, Z3, Z4, Z5, Z6)
	OWN(2, Z18, Z6, Z7, Z0, Z1, Z2, Z3, Z4, Z5)
	OWN(3, Z19, Z5, Z6, Z7, Z0, Z1, Z2, Z3, Z4)
	OWN(4, Z20, Z4, Z5, Z6, Z7, Z0, Z1, Z2, Z3)
	OWN(5, Z21, Z3, Z4, Z5, Z6, Z7, Z0, Z1, Z2)
	OWN(6, Z22, Z2, Z3, Z4, Z5, Z6, Z7, Z0, Z1)
	OWN(7, Z23, Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z0)
	OWN(8, Z24, Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7)
	OWN(9, Z25, Z7, Z0, Z1, Z2, Z3, Z4, Z5, Z6)
	OWN(10, Z26, Z6, Z7, Z0, Z1, Z2, Z3, Z4, Z5)
	OWN(11, Z27, Z5, Z6, Z7, Z0, Z1, Z2, Z3, Z4)
	OWN(12, Z28, Z4, Z5, Z6, Z7, Z0, Z1, Z2, Z3)
	OWN(13, Z29, Z3, Z4, Z5, Z6, Z7, Z0, Z1, Z2)
	OWN(14, Z30, Z2, Z3, Z4, Z5, Z6, Z7, Z0, Z1)
	OWN(15, Z31, Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z0)
	ADD(DI)
	STORE(DI)
	VZEROUPPER
	RET

// func sharedBlock(state *[8]vector, schedule *[64]uint32)
TEXT ·sharedBlock(SB), NOSPLIT, $0-16
	MOVQ state+0(FP), DI
	MOVQ schedule+8(FP), R8
	LOAD(DI)
	MOVQ $8, CX

rounds:
	SHARED(0, Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7)
	SHARED(1, Z7, Z0, Z1, Z2, Z3, Z4, Z5, Z6)
	SHARED(2, Z6, Z7, Z0, Z1, Z2, Z3, Z4, Z5)
	SHARED(3, Z5, Z6, Z7, Z0, Z1, Z2, Z3, Z4)
	SHARED(4, Z4, Z5, Z6, Z7, Z0, Z1, Z2, Z3)
	SHARED(5, Z3, Z4, Z5, Z6, Z7, Z0, Z1, Z2)
	SHARED(6, Z2, Z3, Z4, Z5, Z6, Z7, Z0, Z1)
	SHARED(7, Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z0)
	ADDQ $32, R8
	DECQ CX
	JNZ  rounds
	ADD(DI)
	STORE(DI)
	VZEROUPPER
	RET
